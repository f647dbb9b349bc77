"""Training on many devices: one process a device, started by `torchrun`.

torchrun tells each process by environment variables who it is. A step's micro-batches are dealt out
to the processes, their gradients are summed, and the first process alone decides, validates and
writes. `World()` is one process alone: then all of this does nothing, without torch.distributed.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import NoReturn, TypeVar

import torch
from torch import distributed, nn
from torch.distributed.distributed_c10d import Store
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from seq2seq.errors import UserError
from seq2seq.training.heartbeat import Heartbeat

T = TypeVar("T")

# The others wait this long at most while the first prepares the data or validates. Whether a
# process still lives is not for this limit to find out: that is told by the heartbeats.
_LONGEST_WAIT = timedelta(days=1)
_FIRST_SPEAKS_WITHIN = timedelta(seconds=3)
_FIRST_FAILED = "seq2seq/first_failed"


@dataclass(frozen=True)
class World:
    """The processes of a training, seen from one of them.

    Args:
        rank: number of this process, from 0.
        size: number of all processes.
        local_rank: number of this process among those of its machine.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0

    @classmethod
    def of_environment(cls) -> "World":
        """As torchrun says; alone if nothing is said."""
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
        if any(name not in os.environ for name in names):
            return cls()
        return cls(*(int(os.environ[name]) for name in names))

    @property
    def first(self) -> bool:
        """Whether this is the process that writes and speaks."""
        return self.rank == 0

    def own_device(self, device: torch.device) -> torch.device:
        """The device of this process: `cuda` becomes the GPU of its number on this machine.

        Raises:
            UserError: one GPU was named for all, or there are fewer than processes.
        """
        if self.size == 1 or device.type != "cuda":
            return device
        if device.index is not None:
            raise UserError(f"device={device}: one GPU for {self.size} processes; leave it out")
        count = torch.cuda.device_count()
        if self.local_rank >= count:
            raise UserError(
                f"more processes than the {count} GPUs of this machine: give torchrun"
                f" --nproc_per_node {count}"
            )
        return torch.device("cuda", self.local_rank)

    @contextmanager
    def joined(self) -> Iterator[None]:
        """Connect the processes: what is decided goes by gloo, gradients on GPUs by nccl.

        Raises:
            UserError: it was raised within, and not by the first process as well.
            SystemExit: as the first process says it.
        """
        if self.size == 1:
            yield
            return
        backend = "gloo"
        if torch.cuda.is_available():
            backend = "cpu:gloo,cuda:nccl"
            # Before anything else, or every process would take memory on the first GPU.
            torch.cuda.set_device(self.local_rank % torch.cuda.device_count())
        distributed.init_process_group(backend, timeout=_LONGEST_WAIT)
        try:
            yield
        except UserError as error:
            self._speak_once(error)
        # After an error it is left to the system: others may be in the middle of something.
        distributed.destroy_process_group()

    def _speak_once(self, error: UserError) -> NoReturn:
        """Leave an error that all processes have to the first."""
        store = _connection()
        if self.first:
            store.set(_FIRST_FAILED, "")
            raise error
        try:
            store.wait([_FIRST_FAILED], _FIRST_SPEAKS_WITHIN)
        except RuntimeError:
            raise type(error)(f"rank {self.rank}: {error}") from error
        _leave_after_the_first()

    def on_main(self, act: Callable[[], T]) -> T:
        """What the first process' act returns, in all processes; the others wait for it.

        Raises:
            SystemExit: in the others, if it failed in the first, which says why.
        """
        if self.size == 1:
            return act()
        outcome: list[tuple[bool, T | None]] = [(False, None)]
        try:
            if self.first:
                outcome = [(True, act())]
        finally:
            distributed.broadcast_object_list(outcome, device=torch.device("cpu"))
        done, result = outcome[0]
        if not done:
            _leave_after_the_first()
        return result  # type: ignore[return-value]

    def gather(self, *figures: float) -> list[list[float]]:
        """The figures of all processes, the first's first."""
        if self.size == 1:
            return [list(figures)]
        own = torch.tensor(figures, dtype=torch.float64)
        rows = [torch.empty_like(own) for _ in range(self.size)]
        distributed.all_gather(rows, own)
        return [row.tolist() for row in rows]

    def share(self, parts: Sequence[T]) -> list[tuple[int, T]]:
        """This process' parts of a step, each with its number: every `size`-th."""
        return list(enumerate(parts))[self.rank :: self.size]

    def wrap_ddp(self, module: nn.Module) -> nn.Module:
        """The module; its gradients become the mean over all processes."""
        if self.size == 1:
            return module
        # In a group of their own: DistributedDataParallel's is never freed, and a thread of gloo
        # that is still busy with a tensor of Python's when the interpreter ends aborts it. The
        # other group, of `gather` and `on_main`, is then freed, threads and all, in `joined`.
        gradients = distributed.new_group(timeout=_LONGEST_WAIT)
        return DistributedDataParallel(
            module, process_group=gradients, gradient_as_bucket_view=True
        )

    def accumulating(self, module: nn.Module, *, last: bool) -> AbstractContextManager[None]:
        """Where gradients stay in this process, unless they are the last of a step."""
        if last or not isinstance(module, DistributedDataParallel):
            return nullcontext()
        return module.no_sync()

    def watched(
        self, seconds: float, alarmed: Callable[[], bool]
    ) -> AbstractContextManager[object]:
        """Where the training ends if a process gives no sign of life for so long."""
        if self.size == 1:
            return nullcontext()
        return Heartbeat(_connection(), self.rank, self.size, seconds, alarmed)


def _leave_after_the_first() -> NoReturn:
    """Quietly, and not before it: torchrun would end it before it has said why."""
    time.sleep(_FIRST_SPEAKS_WITHIN.total_seconds())
    raise SystemExit(1)


def _connection() -> Store:
    """To the store through which the processes met: that of the process group may be busy."""
    store: Store = next(rendezvous("env://"))[0]
    return store
