"""Where to compute: the device, the precision, the processes; copies to and from a device."""

import logging
import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

from seq2seq.errors import UsageError, UserError, out_of_memory

logger = logging.getLogger("seq2seq")

_NO_KERNELS = "no kernel image is available"  # CUDA's words for a GPU that is too old

# Below this gain of bfloat16 matmuls over float32, the casts take more time than they save.
_WORTHWHILE_GAIN = 1.3

_PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16}


@dataclass(frozen=True)
class Compute:
    """A device, and the precision of its matmuls; by default the CPU in float32."""

    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    dtype: torch.dtype = torch.float32

    @property
    def on_gpu(self) -> bool:
        """Whether the device is a GPU."""
        return self.device.type == "cuda"

    def autocast(self) -> AbstractContextManager[object]:
        """Make the context in which matmuls have this precision, whatever the weights' own."""
        enabled = self.dtype is torch.bfloat16
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=enabled)

    def __str__(self) -> str:
        """Return for example `cuda:0, bfloat16`."""
        return f"{self.device}, {str(self.dtype).removeprefix('torch.')}"


T = TypeVar("T")


class World:
    """The processes of a training, seen from one of them: here, it is alone.

    `seq2seq.machine.processes` has those of torchrun.
    """

    rank = 0
    size = 1

    def share(self, micro_batches: Sequence[T]) -> list[tuple[int, T]]:
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
        rows = self.gather(seconds, signal or 0)
        return rows[0][0], int(max(number for _, number in rows)) or None


def choose_device(name: str, *, processes: int = 1) -> torch.device:
    """Choose a device by name: `cpu`, `cuda`, `cuda:1`, or `auto`, a GPU if there is one.

    If this PyTorch has no kernels for the GPU, `auto` warns and takes the CPU; one of several
    processes fails instead.
    """
    if name == "auto" and not torch.cuda.is_available():
        return torch.device("cpu")
    try:
        device = torch.device("cuda" if name == "auto" else name)
        torch.zeros(1, device=device).add(1).item()
    except Exception as error:  # each backend that is missing fails in its own way
        if name != "auto":
            has_gpu = torch.cuda.is_available()
            choices = "auto, cpu or cuda" if has_gpu else "auto or cpu, as PyTorch finds no GPU"
            raise UserError(f"device {name!r} can't be used here: choose {choices}") from None
        reason = out_of_memory(error) or UserError(error)
        if _NO_KERNELS in str(error) and processes == 1:
            logger.warning(f"running on the CPU, because the GPU can't be used: {reason}")
            return torch.device("cpu")
        raise UserError(f"the GPU can't be used: {reason}; or choose device cpu") from error
    if device.type == "cuda":
        # cuDNN builds a plan for each new shape of attention, 0.1 s each: batches have new ones.
        torch.backends.cuda.enable_cudnn_sdp(False)
    return device


def processor_name() -> str:
    """Return the name of this machine's processor."""
    path = Path("/proc/cpuinfo")
    for line in path.read_text(errors="replace").splitlines() if path.is_file() else ():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def too_old(device: torch.device) -> str:
    """Explain why a GPU is slower than it could be, or return the empty string."""
    if device.type != "cuda" or torch.cuda.get_device_capability(device) >= (8, 0):
        return ""
    name = torch.cuda.get_device_name(device)
    return (
        f"{name} is older than NVIDIA's Ampere: it trains in float32, and without fused attention"
    )


def choose_precision(name: str, device: torch.device) -> torch.dtype:
    """Choose a precision by name: `fp32`, `bf16`, or `auto`, bf16 if it is faster here.

    fp32 never means TF32 on a GPU.
    """
    if name == "auto":
        return torch.bfloat16 if _gains_from_bf16(device) else torch.float32
    if name not in _PRECISIONS:
        choices = ", ".join(_PRECISIONS)
        raise UsageError(f"precision {name!r} is unknown: choose {choices} or auto")
    return _PRECISIONS[name]


def _gains_from_bf16(device: torch.device) -> bool:
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        seconds = [_matmul_seconds(dtype) for dtype in (torch.float32, torch.bfloat16)]
    finally:
        torch.set_num_threads(threads)
    return seconds[0] > _WORTHWHILE_GAIN * seconds[1]


def _matmul_seconds(dtype: torch.dtype) -> float:
    """Time a matmul of a Transformer's size: the best of five, whatever else the machine does."""
    a, b = torch.ones(1024, 512, dtype=dtype), torch.ones(512, 1024, dtype=dtype)
    best = float("inf")
    for _ in range(5):
        start = time.thread_time()
        a @ b
        best = min(best, time.thread_time() - start)
    return best


def make_deterministic(wanted: bool) -> None:
    """Let this process use only kernels whose sums are the same in every run, or any."""
    if wanted:
        # cuBLAS reads this when it is first used.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(wanted)


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
        if failure := out_of_memory(error):
            raise failure from error
        raise
