"""Training on many devices: one process for each, started by `torchrun`.

torchrun names each process its rank in environment variables. A step's micro-batches are
shared out, their gradients are summed, and the main process (rank 0) alone decides, validates and
writes. `World()` is one process alone: then nothing here uses torch.distributed.
"""

import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from threading import Event, Thread
from types import TracebackType
from typing import NoReturn, TypeVar

import torch
from torch import distributed, nn
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from seq2seq.errors import UserError

logger = logging.getLogger("seq2seq")

# Beats that a process may miss if it is known to be dead, and if something looks wrong.
_MAX_MISSED_IF_DEAD = 2
_MAX_MISSED_IF_SUSPICIOUS = 5
_LEFT = "left"


class Heartbeat:
    """A context in which this process sends heartbeats and checks those of the others.

    Missed beats are counted in this process' own beats, so that a training that was suspended as a
    whole continues.

    Args:
        store: read and written by all processes, through a connection that nothing else uses.
        rank: number of this process.
        size: number of all processes.
        timeout: seconds without a heartbeat after which a process counts as lost.
        suspicious: returns True if something looks wrong, so that fewer seconds are enough.
        interval: seconds between two heartbeats.
    """

    def __init__(
        self,
        store: Store,
        rank: int,
        size: int,
        timeout: float,
        suspicious: Callable[[], bool],
        *,
        interval: float = 1.0,
    ) -> None:
        self.store = store
        self.rank = rank
        self.interval = interval
        self.max_missed = max(_MAX_MISSED_IF_SUSPICIOUS, round(timeout / interval))
        self.suspicious = suspicious
        self.failed = Event()
        self.ended = Event()
        self.keys = [f"seq2seq/beat/{other}" for other in range(size)]
        self.beats = [""] * size
        self.missed = [0] * size
        self.place = _place()
        self.thread = Thread(target=self._run, name="heartbeat", daemon=True)

    def __enter__(self) -> "Heartbeat":
        """Wait for all processes, then start."""
        self._beat(0)
        self.store.wait(self.keys)
        self.thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop; after a failed connection, first wait until the lost process is found."""
        if isinstance(error, RuntimeError):
            # torchrun ends all others as soon as one has died, before it is named here.
            before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
            self.failed.set()
            self.thread.join(2 * _MAX_MISSED_IF_SUSPICIOUS * self.interval)
            signal.signal(signal.SIGTERM, before)
        self.ended.set()
        # An interpreter that ends while a thread is within the store aborts the process.
        self.thread.join(_MAX_MISSED_IF_SUSPICIOUS * self.interval)
        if error is not None:
            self._leave()

    def _beat(self, number: int) -> None:
        beat = f"{number} {os.getpid()} {self.place} {socket.gethostname()}"
        self.store.set(self.keys[self.rank], beat)

    def _leave(self) -> None:
        with suppress(RuntimeError):  # there may be no store any more
            self.store.set(self.keys[self.rank], _LEFT)

    def _run(self) -> None:
        number = 0
        while not self.ended.wait(self.interval):
            number += 1
            try:
                self._beat(number)
                beats = [beat.decode() for beat in self.store.multi_get(self.keys)]
            except RuntimeError:
                self._end("torchrun on the first machine is gone")
            self._compare(beats)

    def _compare(self, beats: list[str]) -> None:
        """Count the missed beats of each process, and end if they are too many."""
        suspicious = self.failed.is_set() or self.suspicious() or _LEFT in beats
        max_missed = _MAX_MISSED_IF_SUSPICIOUS if suspicious else self.max_missed
        lost = []
        for other, beat in enumerate(beats):
            self.missed[other] = self.missed[other] + 1 if beat == self.beats[other] else 0
            if self.missed[other] >= (_MAX_MISSED_IF_DEAD if self._is_dead(beat) else max_missed):
                lost.append(other)
        self.beats = beats
        if not lost or self.ended.is_set():
            return
        # One that left has reported why; of those that are still there, the first one reports.
        silent = [other for other in lost if beats[other] != _LEFT]
        reporter = next(other for other in range(len(beats)) if other not in lost)
        reason = ", ".join(map(self._end_lost, silent))
        self._end(reason if silent == lost and self.rank == reporter else "")

    def _is_dead(self, beat: str) -> bool:
        """Return whether a process is known to be dead, which it can be on this machine only."""
        if beat == _LEFT or beat.split()[2] != self.place:
            return False
        try:
            os.kill(int(beat.split()[1]), 0)
        except ProcessLookupError:
            return True
        return False

    def _end_lost(self, other: int) -> str:
        """Kill a process that stalled, and describe what happened to it."""
        _, process, place, host = self.beats[other].split()
        name = f"rank {other} (process {process} on {host})"
        if place == self.place:
            try:
                os.kill(int(process), signal.SIGKILL)
            except ProcessLookupError:
                return f"{name} died"
        return f"{name} sends no heartbeat"

    def _end(self, reason: str) -> NoReturn:
        if reason:
            logger.error(
                f"seq2seq: {reason}: the training ends; continue from its last checkpoint with the"
                " same command, its run_dir=... and resume=true"
            )
        self._leave()
        os._exit(1)


def _place() -> str:
    """Identify the scope of process ids: this machine, or a container on it."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return f"unknown/{socket.gethostname()}/{os.getpid()}"


T = TypeVar("T")

# Long enough for the main process to prepare the data or to validate. Whether a process still runs
# is found out by the heartbeats, not by this limit.
_COLLECTIVE_TIMEOUT = timedelta(days=1)
# Of the exchange of gradients between GPUs, during which a process sends heartbeats even if the GPU
# is stuck. The main process never validates or saves meanwhile.
_GRADIENTS_TIMEOUT = timedelta(minutes=10)
_MAIN_REPORTS_WITHIN = timedelta(seconds=3)
_MAIN_FAILED = "seq2seq/main_failed"


@dataclass(frozen=True)
class World:
    """The processes of a training, seen from one of them.

    Args:
        rank: number of this process, from 0.
        size: number of all processes.
        local_rank: number of this process among those of its machine.
        restarts: how often torchrun has started all processes again (--max-restarts).
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    restarts: int = 0

    @classmethod
    def from_environment(cls) -> "World":
        """Read torchrun's environment variables; without them, make one process alone."""
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
        if any(name not in os.environ for name in names):
            return cls()
        restarts = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
        rank, size, local_rank = (int(os.environ[name]) for name in names)
        return cls(rank, size, local_rank, restarts)

    @property
    def is_main(self) -> bool:
        """Whether this is the main process, which decides, writes and prints."""
        return self.rank == 0

    def own_device(self, device: torch.device) -> torch.device:
        """Return the device of this process: `cuda` becomes the GPU numbered by its local rank.

        Raises:
            UserError: if one GPU was named for all, or there are fewer GPUs than processes.
        """
        if self.size == 1 or device.type != "cuda":
            return device
        if device.index is not None:
            raise UserError(f"device={device}: one GPU for {self.size} processes; remove it")
        count = torch.cuda.device_count()
        if self.local_rank >= count:
            raise UserError(
                f"more processes than the {count} GPUs of this machine: give torchrun"
                f" --nproc_per_node {count}"
            )
        return torch.device("cuda", self.local_rank)

    @contextmanager
    def process_group(self) -> Iterator[None]:
        """Connect the processes: decisions go through gloo, gradients on GPUs through nccl.

        Raises:
            UserError: if this process raises it and the main process does not.
            SystemExit: if the main process raises it too, and reports it.
        """
        if self.size == 1:
            yield
            return
        backend = "gloo"
        if torch.cuda.is_available():
            backend = "cpu:gloo,cuda:nccl"
            # Before anything else, or every process would take memory on the first GPU.
            torch.cuda.set_device(self.local_rank % torch.cuda.device_count())
        distributed.init_process_group(
            backend,
            store=self._connect(),
            rank=self.rank,
            world_size=self.size,
            timeout=_COLLECTIVE_TIMEOUT,
        )
        try:
            yield
        except UserError as error:
            self._report_once(error)
        # Not after another error: other processes may be in the middle of a collective.
        distributed.destroy_process_group()

    def _report_once(self, error: UserError) -> NoReturn:
        """Let the main process alone report an error that all processes raise."""
        store = self._connect()
        if self.is_main:
            store.set(_MAIN_FAILED, "")
            raise error
        try:
            store.wait([_MAIN_FAILED], _MAIN_REPORTS_WITHIN)
        except RuntimeError:
            raise type(error)(f"rank {self.rank}: {error}") from error
        _exit_after_main()

    def on_main(self, act: Callable[[], T]) -> T:
        """Run `act` in the main process alone, and return its result in all processes.

        Raises:
            SystemExit: if `act` fails in the main process, which reports the error.
        """
        if self.size == 1:
            return act()
        # Empty if it failed.
        returned: list[list[T]] = [[]]
        try:
            if self.is_main:
                returned = [[act()]]
        finally:
            distributed.broadcast_object_list(returned, device=torch.device("cpu"))
        if not returned[0]:
            _exit_after_main()
        return returned[0][0]

    def main_first(self, act: Callable[[], T]) -> T:
        """Run `act` in the main process, then in the others."""
        done: list[T] = []
        self.on_main(lambda: done.append(act()))
        return done[0] if done else act()

    def gather(self, *values: float) -> list[list[float]]:
        """Return the values of all processes, in the order of their ranks."""
        if self.size == 1:
            return [list(values)]
        own = torch.tensor(values, dtype=torch.float64)
        rows = [torch.empty_like(own) for _ in range(self.size)]
        distributed.all_gather(rows, own)
        return [row.tolist() for row in rows]

    def agree(self, seconds: float, signal: int | None) -> tuple[float, int | None]:
        """Return the main process's clock and any process's signal, so that all decide the same."""
        rows = self.gather(seconds, signal or 0)
        return rows[0][0], int(max(number for _, number in rows)) or None

    def share(self, micro_batches: Sequence[T]) -> list[tuple[int, T]]:
        """Return this process's micro-batches of a step, every `size`-th, with their numbers."""
        return list(enumerate(micro_batches))[self.rank :: self.size]

    def wrap_ddp(self, module: nn.Module) -> nn.Module:
        """Wrap a module so that its gradients become the mean over all processes."""
        if self.size == 1:
            return module
        # In a group of their own: DistributedDataParallel's is never freed, and a thread of gloo
        # that is still busy with a tensor of Python's when the interpreter ends aborts it. The
        # other group, of `gather` and `on_main`, is freed, threads and all, in `process_group`.
        on_gpu = next(module.parameters()).is_cuda
        timeout = _GRADIENTS_TIMEOUT if on_gpu else _COLLECTIVE_TIMEOUT
        gradients = distributed.new_group(timeout=timeout)
        return DistributedDataParallel(
            module, process_group=gradients, gradient_as_bucket_view=True
        )

    def accumulating(self, module: nn.Module, *, last: bool) -> AbstractContextManager[None]:
        """Make a context in which gradients stay in this process, unless `last`."""
        if last or not isinstance(module, DistributedDataParallel):
            return nullcontext()
        return module.no_sync()

    def heartbeat(
        self, timeout: float, suspicious: Callable[[], bool]
    ) -> AbstractContextManager[object]:
        """Make a context that ends the training if a process sends no heartbeat in time."""
        if self.size == 1:
            return nullcontext()
        return Heartbeat(self._connect(), self.rank, self.size, timeout, suspicious)

    def keep(self, name: str, make: Callable[[], str]) -> str:
        """Return what `make` returned before torchrun started the processes again, if it did.

        For the main process.
        """
        if "TORCHELASTIC_RESTART_COUNT" not in os.environ:
            return make()
        store, key = _rendezvous(), f"seq2seq/{name}"
        if not store.check([key]):
            store.set(key, make())
        return store.get(key).decode()

    def _connect(self) -> Store:
        """Open another connection to the rendezvous store, since the group's may be busy.

        The store outlives a restart, so the keys of each start have a prefix of their own.
        """
        return PrefixStore(f"seq2seq/start_{self.restarts}", _rendezvous())


def _exit_after_main() -> NoReturn:
    """Exit later than the main process, so that torchrun lets it report the error."""
    time.sleep(_MAIN_REPORTS_WITHIN.total_seconds())
    raise SystemExit(1)


def _rendezvous() -> Store:
    """Connect to torchrun's store."""
    store: Store = next(rendezvous("env://"))[0]
    return store
