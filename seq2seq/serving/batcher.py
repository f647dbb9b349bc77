"""Work of many clients in common batches: fair in turn, bounded, dropped when nobody waits.

Nothing here knows of HTTP, text or models. All of it happens on one event loop; only the function
that runs a batch may use threads.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
R = TypeVar("R")

_INITIAL_RATE = 1000.0
_SMOOTHING = 0.2


class BusyError(Exception):
    """The queue is full."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"busy: about {max(1, round(seconds))} s of work is waiting")
        self.seconds = seconds
        """The estimated time of what is waiting."""


class TooLargeError(Exception):
    """A job is larger than the whole queue."""


@dataclass(eq=False)
class _Job(Generic[K, T, R]):
    """The items of one call of `submit`."""

    key: K
    items: Sequence[T]
    sizes: Sequence[int]
    done: "asyncio.Future[list[R]]"
    begun: int = 0
    results: list[R] = field(default_factory=list)


class Batcher(Generic[K, T, R]):
    """Runs the items of all callers in batches, one batch at a time.

    A batch begins at once when none is running, and takes one item of each waiting job in turn
    until it is full; what arrives meanwhile waits for the next. All items of a batch have the same
    key. If a batch of several jobs fails, each of them runs again by itself, so that a job fails
    only by its own items.

    Args:
        run: runs a batch: (key, items) -> their results, in order.
        batch_size: the largest sum of sizes of a batch; one larger item is a batch of its own.
        queue_size: the largest sum of sizes of all that waits or runs.
    """

    def __init__(
        self,
        run: Callable[[K, list[T]], Awaitable[list[R]]],
        *,
        batch_size: int,
        queue_size: int,
    ) -> None:
        self._run = run
        self._batch_size = batch_size
        self._queue_size = queue_size
        self._jobs: deque[_Job[K, T, R]] = deque()
        self._worker: asyncio.Task[None] | None = None
        self._rate = _INITIAL_RATE  # sizes per second
        self.waiting = 0
        """The sum of sizes of the items that have not begun."""
        self.running = 0
        """The sum of sizes of the items of the current batch."""

    async def submit(self, key: K, items: Sequence[T], sizes: Sequence[int]) -> list[R]:
        """Run items, in common batches with those of other callers.

        If the caller is cancelled, its items that have not begun are dropped.

        Args:
            key: only items of equal keys share a batch.
            items: the items.
            sizes: the size of each, at least 1.

        Returns:
            The result of each item, in order.

        Raises:
            TooLargeError: if the queue could never hold the items.
            BusyError: if the queue is too full now.
        """
        if not items:
            return []
        size = sum(sizes)
        if size > self._queue_size:
            raise TooLargeError
        if self.waiting + self.running + size > self._queue_size:
            raise BusyError((self.waiting + self.running) / self._rate)
        loop = asyncio.get_running_loop()
        job = _Job[K, T, R](key, items, sizes, loop.create_future())
        self._jobs.append(job)
        self.waiting += size
        if self._worker is None:
            self._worker = loop.create_task(self._work())
        try:
            return await job.done
        finally:
            self._drop(job)

    def _drop(self, job: _Job[K, T, R]) -> None:
        """Forget the items of a job that have not begun."""
        if job in self._jobs:
            self._jobs.remove(job)
            self.waiting -= sum(job.sizes[job.begun :])

    async def _work(self) -> None:
        """Run batches until nothing waits."""
        loop = asyncio.get_running_loop()
        try:
            while self._jobs:
                jobs = self._take()
                start = loop.time()
                await self._run_jobs(jobs)
                seconds = max(loop.time() - start, 1e-6)
                self._rate += _SMOOTHING * (self.running / seconds - self._rate)
                self.running = 0
        finally:
            self._worker = None

    def _take(self) -> dict[_Job[K, T, R], list[T]]:
        """Take the next batch from the waiting jobs: the items that each of them gives."""
        key = self._jobs[0].key
        taken: dict[_Job[K, T, R], list[T]] = {}
        others: list[_Job[K, T, R]] = []
        while self._jobs:
            job = self._jobs.popleft()
            if job.key != key:
                others.append(job)
                continue
            size = job.sizes[job.begun]
            if taken and self.running + size > self._batch_size:
                self._jobs.appendleft(job)
                break
            taken.setdefault(job, []).append(job.items[job.begun])
            job.begun += 1
            self.running += size
            self.waiting -= size
            if job.begun < len(job.items):
                self._jobs.append(job)
        self._jobs.extendleft(reversed(others))
        return taken

    async def _run_jobs(self, jobs: dict[_Job[K, T, R], list[T]]) -> None:
        """Run a batch and hand out its results, or the error to the job that causes it."""
        key = next(iter(jobs)).key
        items = [item for of_job in jobs.values() for item in of_job]
        try:
            results = iter(await self._run(key, items))
        except Exception as error:  # of any kind: it belongs to whoever waits for the result
            if len(jobs) > 1:
                for job, of_job in jobs.items():
                    await self._run_jobs({job: of_job})
                return
            (job,) = jobs
            self._drop(job)
            if not job.done.done():
                job.done.set_exception(error)
            return
        for job, of_job in jobs.items():
            job.results += [next(results) for _ in of_job]
            if len(job.results) == len(job.items) and not job.done.done():
                job.done.set_result(job.results)
