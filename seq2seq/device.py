"""Where to compute: the device, the precision, the processes; copies to and from a device.

One process alone is plain here; `seq2seq.machine` has several, and what signals do to a run.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch import Tensor

from seq2seq.errors import out_of_memory


@dataclass(frozen=True)
class Compute:
    """A device, and the precision of its matmuls; by default the CPU in float32."""

    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    dtype: torch.dtype = torch.float32

    @property
    def on_gpu(self) -> bool:
        """Whether the device is a GPU."""
        return self.device.type == "cuda"

    @property
    def has_fast_forms(self) -> bool:
        """Whether the fast forms know the device; a Mac's `mps` computes in the plain forms."""
        return self.device.type in ("cpu", "cuda")

    def autocast(self) -> AbstractContextManager[object]:
        """Make the context in which matmuls have this precision, whatever the weights' own."""
        enabled = self.dtype is torch.bfloat16
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=enabled)

    def __str__(self) -> str:
        """Return for example `cuda:0, bfloat16`."""
        return f"{self.device}, {str(self.dtype).removeprefix('torch.')}"


def exact_dtype(device: torch.device) -> torch.dtype:
    """Return the type of sums of many numbers: float64, which a Mac's GPU does not have."""
    return torch.float32 if device.type == "mps" else torch.float64


T = TypeVar("T")


class World:
    """The processes of a training, seen from one of them: here, it is alone."""

    rank = 0
    size = 1

    def own_part(self, micro_batches: Sequence[T]) -> list[tuple[int, T]]:
        """Return this process's micro-batches of a step, every `size`-th, with their numbers."""
        return list(enumerate(micro_batches))[self.rank :: self.size]

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors by their sums over all processes, in one exchange."""

    def gather(self, *values: float) -> list[list[float]]:
        """Return the values of all processes, in the order of their ranks."""
        return [list(values)]

    def gather_objects(self, value: T) -> list[T]:
        """Return the values of all processes, which may have worked on them for hours."""
        return [value]

    def on_main(self, act: Callable[[], T]) -> T:
        """Return what `act` returns in the main process; if it fails there, the others exit."""
        return act()

    def agree(self, seconds: float, signal: int | None) -> tuple[float, int | None]:
        """Return the main process's clock and any process's signal, so that all decide the same."""
        clocks, signals = zip(*self.gather(seconds, signal or 0), strict=True)
        return clocks[0], int(max(signals)) or None


class Signals:
    """Signals that end a training early; here there are none, and Ctrl-C raises an exception."""

    received: int | None = None
    """The number of the first signal."""

    def __enter__(self) -> "Signals":
        """Begin to receive signals."""
        return self

    def __exit__(self, *error: object) -> None:
        """End that."""

    def interruptible(self, act: Callable[[], T]) -> T | None:
        """Return `act()`, or None if a signal has come or comes before it returns."""
        return act()


def copy_to_device(x: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor from the host to a device, without waiting for the work of a GPU."""
    if device.type == "cuda":  # only copies from pinned memory overlap with computation
        return x.pin_memory().to(device, non_blocking=True)
    return x.to(device)


class HostCopy:
    """A tensor on its way to the host; a GPU copies it once it has computed it.

    The tensor must not change afterwards.
    """

    def __init__(self, x: Tensor) -> None:
        self._values = x
        self._copied: torch.cuda.Event | None = None
        if x.is_cuda:
            self._values = torch.empty_like(x, device="cpu", pin_memory=True)
            self._values.copy_(x, non_blocking=True)
            self._copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._copied.record(torch.cuda.current_stream(x.device))

    def read(self) -> Tensor:
        """Wait for the copy, but not for what the GPU does after it."""
        if self._copied is not None:
            self._copied.synchronize()
        return self._values


@contextmanager
def oom_as_user_error() -> Iterator[None]:
    """Turn an out-of-memory error of the device or the machine into an `OutOfMemoryError`."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        failure = out_of_memory(error)
        if failure is None:
            raise
        try:
            raise failure from error
        finally:
            # The traceback refers to this frame: while the frame refers to the error as well,
            # they keep all tensors of the failed attempt until Python collects garbage.
            del failure
