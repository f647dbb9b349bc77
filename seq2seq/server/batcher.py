"""Work of many clients in common batches: fair in turn, bounded, dropped when nobody waits.

Nothing here knows of HTTP, text or models. All of it happens on one event loop; only the function
that runs a batch may use threads.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias


class BusyError(Exception):
    """The queue is too full now."""


class TooLargeError(Exception):
    """A job is larger than the whole queue."""


@dataclass(eq=False)
class _Job:
    """The items of one call of `submit`."""

    key: Hashable
    items: Sequence[Any]
    sizes: Sequence[int]
    results: "list[asyncio.Future[Any]]"
    begun: int = 0


_Batch: TypeAlias = list[tuple[_Job, int]]
"""The items of a batch: the job of each, and its index there."""


class Batcher:
    """Runs the items of all callers in batches, at most `workers` at the same time.

    A batch begins at once when a worker is idle. It takes one item of each waiting job in turn,
    until it has its worker's share of what waits, or is full. Were it to take all, the next worker
    that is done would find nothing, and begin a batch of the one item that comes first. All items
    of a batch have the same key. If a batch of several jobs fails, each of them runs again by
    itself, so that a job fails only by its own items.

    `batch_size` limits a batch, padding counted: its items times the largest of their sizes. One
    larger item is a batch of its own. `queue_size` limits the sizes of all that waits or runs.
    """

    def __init__(
        self,
        run: Callable[[Any, list[Any]], Awaitable[list[Any]]],
        *,
        workers: int,
        batch_size: int,
        queue_size: int,
    ) -> None:
        self._run = run
        self._workers = workers
        self._batch_size = batch_size
        self._queue_size = queue_size
        self._jobs: deque[_Job] = deque()
        self._batches: set[asyncio.Task[None]] = set()
        # Sums of sizes: of the items that have not begun, and of the batches that run.
        self.waiting = self.running = 0

    async def submit(self, key: Hashable, items: Sequence[Any], sizes: Sequence[int]) -> list[Any]:
        """Run items, in common batches with other callers' items of the same key.

        If the caller is cancelled, its items that have not begun are dropped. Raises TooLargeError
        if the queue could never hold the items, BusyError if it is too full now.
        """
        if not items:
            return []
        size = sum(sizes)
        if size > self._queue_size:
            raise TooLargeError
        if self.waiting + self.running + size > self._queue_size:
            raise BusyError
        loop = asyncio.get_running_loop()
        job = _Job(key, items, sizes, [loop.create_future() for _ in items])
        self._jobs.append(job)
        self.waiting += size
        # Requests that came together should share a batch.
        loop.call_soon(self._begin)
        try:
            return await asyncio.gather(*job.results)
        finally:
            if job in self._jobs:
                self._jobs.remove(job)
                self.waiting -= sum(sizes[job.begun :])

    def _begin(self) -> None:
        """Begin batches while something waits and a worker is idle."""
        share = self.waiting / self._workers
        while self._jobs and len(self._batches) < self._workers:
            self._batches.add(asyncio.create_task(self._run_batch(self._take(share))))

    def _take(self, share: float) -> _Batch:
        """Take the next batch from the waiting jobs, in turn; jobs of other keys come next."""
        key = self._jobs[0].key
        jobs = deque(job for job in self._jobs if job.key == key)
        total = longest = 0
        taken: _Batch = []
        while jobs:
            size = jobs[0].sizes[jobs[0].begun]
            longest = max(longest, size)
            is_full = (len(taken) + 1) * longest > self._batch_size
            if taken and (is_full or total + size / 2 > share):
                break
            job = jobs.popleft()
            taken.append((job, job.begun))
            job.begun += 1
            total += size
            if job.begun < len(job.items):
                jobs.append(job)
        self._jobs = deque(job for job in self._jobs if job.key != key) + jobs
        self.waiting -= total
        self.running += total
        return taken

    async def _run_batch(self, taken: _Batch) -> None:
        """Run a batch, and begin the next."""
        try:
            await self._answer(taken)
        finally:
            for job, i in taken:
                self.running -= job.sizes[i]
            self._batches.discard(asyncio.current_task())
            self._begin()

    async def _answer(self, taken: _Batch) -> None:
        """Hand out the results of a batch to its jobs, or the error that a job causes."""
        try:
            results = await self._run(taken[0][0].key, [job.items[i] for job, i in taken])
            answers = list(zip(taken, results, strict=True))
        except Exception as error:  # of any kind: it belongs to whoever waits for the result
            jobs = dict.fromkeys(job for job, _ in taken)
            if len(jobs) > 1:
                for job in jobs:
                    await self._answer([item for item in taken if item[0] is job])
            else:
                for job, i in taken:
                    if not job.results[i].done():
                        job.results[i].set_exception(error)
        else:
            for (job, i), result in answers:
                if not job.results[i].done():
                    job.results[i].set_result(result)
