"""Many devices, one process for each, started by `torchrun`; and the signals that end them.

torchrun tells each process its rank in environment variables. In training, the micro-batches of a
step are shared out, and their gradients are summed; the lines of a validation are shared out, too.
The main process (rank 0) alone decides and writes. Without torchrun, there is `OneProcess`, which
doesn't use torch.distributed.

The signals are Ctrl-C and SIGTERM; SIGHUP, from a terminal that closes, or on Windows SIGBREAK;
SIGUSR1 and SIGUSR2, which schedulers send before a job ends.
"""

import logging
import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, TypeVar

import torch
from torch import Tensor, distributed
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from seq2seq.device import Signals, World
from seq2seq.errors import UserError
from seq2seq.files import temporary_file
from seq2seq.system import signals

T = TypeVar("T")

# The main process may prepare data for hours while the others wait.
_TIMEOUT = timedelta(days=1)
_MAIN_REPORTS_WITHIN = timedelta(seconds=3)
_MAIN_FAILED = "seq2seq/main_failed"
# Messages of gloo and NCCL when a connection breaks or a process does not answer.
_LOST = re.compile("gloo|NCCL|Connection (closed|reset) by peer|Timed out waiting")


def from_environment() -> "OneProcess":
    """Read torchrun's environment variables: return its processes, or the one process."""
    restarts = _whole_number("TORCHELASTIC_RESTART_COUNT", 0)
    rank, size, local_rank = (
        _whole_number(name, -1) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")
    )
    if size < 2 or min(rank, local_rank) < 0:
        return OneProcess(restarts)
    return Processes(restarts, rank, size, local_rank, _whole_number("LOCAL_WORLD_SIZE", 1))


def _whole_number(variable: str, default: int) -> int:
    value = os.environ.get(variable)
    try:
        return default if value is None else int(value)
    except ValueError as error:
        raise UserError(
            f"the environment has {variable}={value!r}, which is no whole number: unset it, or"
            " start all processes with torchrun"
        ) from error


@dataclass
class OneProcess(World):
    """A process that does everything by itself."""

    restarts: int = 0
    """How often torchrun has started all processes again (--max-restarts)."""

    @property
    def is_main(self) -> bool:
        """Whether this is the main process, which decides, writes and prints."""
        return self.rank == 0

    def own_device(self, device: torch.device) -> torch.device:
        """Return the device of this process: `cuda` becomes the GPU numbered by its local rank."""
        return device

    @contextmanager
    def process_group(self, timeout: float = 600.0) -> Iterator[None]:
        """Connect the processes for as long as the block lasts."""
        yield

    def main_first(self, act: Callable[[], T]) -> T:
        """Run `act` in the main process, then in the others."""
        return act()

    @contextmanager
    def share_file(self, write: Callable[[Path], object]) -> Iterator[Path]:
        """Let the first process of each machine write a file that all open in the block."""
        with temporary_file(write) as path:
            yield path

    def keep(self, name: str, make: Callable[[], str]) -> str:
        """Return what `make` returned in the main process before torchrun's restart, if any."""
        if "TORCHELASTIC_RESTART_COUNT" not in os.environ:
            return make()
        store, key = _rendezvous(), f"seq2seq/{name}"
        if not store.check([key]):
            store.set(key, make())
        return store.get(key).decode()


@dataclass
class Processes(OneProcess):
    """The processes that torchrun has started, seen from one of them."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    """Number of this process among the processes of its machine."""
    local_size: int = 1
    """Number of the processes of its machine."""
    timeout: timedelta = timedelta(minutes=10)
    """How long processes wait for each other in an exchange, before they end."""
    main_group: distributed.ProcessGroup | None = None
    """The group in which the others wait for the main process."""
    shared_files: int = 0
    """How often `share_file` was called."""

    def own_device(self, device: torch.device) -> torch.device:
        """See `OneProcess.own_device`."""
        if device.type == "mps":
            raise UserError(f"device={device}: one GPU for {self.size} processes; use cpu")
        if device.type != "cuda":
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
    def process_group(self, timeout: float = 600.0) -> Iterator[None]:
        """Connect the processes: decisions go through gloo, gradients on GPUs through nccl.

        An error that all processes raise leaves the block once, in the main process. A lost process
        ends the others: a connection that breaks, or an exchange that takes longer than `timeout`
        seconds, becomes a UserError. torchrun, which ends all when one has ended, names the first.
        """
        backend = "gloo"
        if torch.cuda.is_available():
            backend = "cpu:gloo,cuda:nccl"
            # Before anything else, or every process would take memory on the first GPU.
            torch.cuda.set_device(self.local_rank % torch.cuda.device_count())
        self.timeout = timedelta(seconds=min(max(1.0, timeout), 86400.0))
        distributed.init_process_group(
            backend,
            store=self._connect(),
            rank=self.rank,
            world_size=self.size,
            timeout=self.timeout,
        )
        self.main_group = distributed.new_group(timeout=_TIMEOUT, backend="gloo")
        try:
            yield
        except UserError as error:
            self._report_once(error)
        except RuntimeError as error:
            if not _LOST.search(str(error)):
                raise
            reason = str(error).splitlines()[0][:200]
            raise UserError(
                f"rank {self.rank}: another process is lost ({reason}); torchrun names the first"
                " that ended. The same command continues: train with its run_dir=... and"
                " resume=true, translate with --resume"
            ) from error
        # Not after another error: other processes may be in the middle of a collective.
        self.main_group = None
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
        exit_after_main()

    def on_main(self, act: Callable[[], T]) -> T:
        """Return what `act` returns in the main process; if it fails there, the others exit."""
        # Empty if it failed.
        returned: list[list[T]] = [[]]
        try:
            if self.is_main:
                returned = [[act()]]
        finally:
            distributed.broadcast_object_list(
                returned, group=self.main_group, device=torch.device("cpu")
            )
        if not returned[0]:
            exit_after_main()
        return returned[0][0]

    def main_first(self, act: Callable[[], T]) -> T:
        """See `OneProcess.main_first`."""
        results: list[T] = []
        self.on_main(lambda: results.append(act()))
        return results[0] if results else act()

    @contextmanager
    def share_file(self, write: Callable[[Path], object]) -> Iterator[Path]:
        """See `OneProcess.share_file`."""
        if self.local_size == 1:
            with super().share_file(write) as path:
                yield path
            return
        self.shared_files += 1
        first = self.rank - self.local_rank
        store = PrefixStore(f"rank_{first}/file_{self.shared_files}", self._connect())
        if self.local_rank == 0:
            try:
                with temporary_file(write) as path:
                    store.set("path", str(path))
                    yield path
                    opened = [f"opened by {number}" for number in range(1, self.local_size)]
                    store.wait(opened, _TIMEOUT)
            except BaseException:
                store.set("path", "")
                raise
            return
        store.wait(["path"], _TIMEOUT)
        if not (shared := store.get("path").decode()):
            raise UserError(f"rank {first} could not write what it shares with rank {self.rank}")
        yield Path(shared)
        store.set(f"opened by {self.local_rank}", "")

    def gather(self, *values: float) -> list[list[float]]:
        """Return the values of all processes, in the order of their ranks."""
        local = torch.tensor(values, dtype=torch.float64)
        rows = [torch.empty_like(local) for _ in range(self.size)]
        distributed.all_gather(rows, local)
        return [row.tolist() for row in rows]

    def gather_objects(self, value: T) -> list[T]:
        """Return the values of all processes, which may have worked on them for hours."""
        values = [value] * self.size
        distributed.all_gather_object(values, value, group=self.main_group)
        return values

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors by their sums over all processes, in one exchange."""
        flat = torch.cat([tensor.flatten() for tensor in tensors])
        distributed.all_reduce(flat)
        sums = torch.split(flat, [tensor.numel() for tensor in tensors])
        totals = [total.view_as(tensor) for tensor, total in zip(tensors, sums, strict=True)]
        torch._foreach_copy_(list(tensors), totals)  # a GPU copies many in one kernel

    def _connect(self) -> Store:
        """Open another connection to the store, with keys of this start: the store outlives it."""
        return PrefixStore(f"seq2seq/start_{self.restarts}", _rendezvous())


def exit_after_main() -> NoReturn:
    """Exit later than the main process, so that torchrun lets it report the error."""
    time.sleep(_MAIN_REPORTS_WITHIN.total_seconds())
    raise SystemExit(1)


def _rendezvous() -> Store:
    """Connect to torchrun's store."""
    try:
        return next(rendezvous("env://"))[0]
    except ValueError as error:  # a variable that is missing, or no number
        reason = str(error).rpartition("rendezvous: ")[2]
        raise UserError(
            f"RANK and WORLD_SIZE name several processes, which can't find one another ({reason}):"
            " start them with torchrun, or unset RANK"
        ) from error


logger = logging.getLogger("seq2seq")


# Signals.


_SIGNALS = signals("SIGTERM", "SIGINT", "SIGHUP", "SIGBREAK", "SIGUSR1", "SIGUSR2")


def _install(handler: Callable[[int, FrameType | None], None]) -> dict[int, Any]:
    """Handle the signals, but not those that are ignored, as under nohup; return the old ones.

    Ctrl-C is always handled: a shell ignores it in its background jobs, where `kill -INT` is meant.
    """
    before: dict[int, Any] = {}
    for number in _SIGNALS:
        if number == signal.SIGINT or signal.getsignal(number) is not signal.SIG_IGN:
            before[number] = signal.signal(number, handler)
    return before


@contextmanager
def exit_on_signals() -> Iterator[list[int]]:
    """Make signals raise SystemExit while there is nothing to save, so that all is cleaned up.

    Yields the signals received so far. If a library swallows the exception, it is raised again at
    the end of the block.
    """
    received: list[int] = []

    def leave(number: int, _: FrameType | None) -> None:
        if not received:
            logger.info(f"seq2seq: stopped at once by {signal.Signals(number).name}")
        received.append(number)
        raise SystemExit(128 + number)

    handlers = _install(leave)
    try:
        yield received
    except Exception:
        if not received:
            raise
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if received:
        raise SystemExit(128 + received[0])


def call_handler(number: int) -> None:
    """Call a signal's handler, such as that of a scheduler's plugin, which queues the job again."""
    handler = signal.getsignal(number) if number in _SIGNALS else None
    if callable(handler) and handler is not signal.default_int_handler:
        handler(number, None)


class _Interrupted(BaseException):
    """Raised by the handler inside `StopSignals.interruptible`."""


class StopSignals(Signals):
    """Records signals, so that the trainer can save and end.

    If `second_ends`, Ctrl-C after a first signal has its previous effect; with several processes,
    one Ctrl-C arrives several times. The other signals may always arrive twice: SIGHUP comes from
    the terminal that closes and from its shell.
    """

    def __init__(self, *, second_ends: bool) -> None:
        self.second_ends = second_ends
        self.received: int | None = None
        self._interruptible = False
        self._handlers: dict[int, Any] = {}

    def __enter__(self) -> "StopSignals":
        """Start recording signals."""
        self._handlers = _install(self._note)
        return self

    def __exit__(self, *error: object) -> None:
        """Restore the previous handlers."""
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def interruptible(self, act: Callable[[], T]) -> T | None:
        """Return `act()`, or None if a signal has come or comes before it returns."""
        result = None
        with suppress(_Interrupted):
            self._interruptible = True
            try:
                if self.received is None:
                    result = act()
            finally:
                self._interruptible = False
        return result

    def _note(self, number: int, _: FrameType | None) -> None:
        self.received = self.received or number
        if self.second_ends:
            signal.signal(signal.SIGINT, self._handlers[signal.SIGINT])
        if self._interruptible:
            raise _Interrupted
