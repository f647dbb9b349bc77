"""The resources of a process: its device and precision, its threads and memory.

Freed memory is kept for reuse, oneDNN keeps little compiled code, and batches run in parallel with
one thread each, rather than one batch with all threads.
"""

import ctypes
import logging
import os
import platform
import threading
import time
import timeit
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import torch

from seq2seq.errors import UsageError, UserError, out_of_memory
from seq2seq.system import after_fork

logger = logging.getLogger("seq2seq")

_NO_KERNELS = "no kernel image is available"  # CUDA's words for a GPU that is too old

# Below this gain of bfloat16 matmuls over float32, the casts take more time than they save.
_WORTHWHILE_GAIN = 1.3

_PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16}


# The device and its precision.


def choose_device(name: str, *, processes: int = 1) -> torch.device:
    """Choose a device by name: `cpu`, `cuda`, `cuda:1`, `mps`, or `auto`, a GPU if there is one.

    A Mac's GPU, `mps`, is used if it is named; `auto` is the CPU there. If this PyTorch has no
    kernels for the GPU, `auto` warns and takes the CPU; one of several processes fails instead.
    """
    if name == "auto" and not torch.cuda.is_available():
        return torch.device("cpu")
    try:
        device = torch.device("cuda" if name == "auto" else name)
        torch.zeros(1, device=device).add(1).item()
    except Exception as error:  # each backend that is missing fails in its own way
        if name != "auto":
            choices = "auto or cpu, as PyTorch finds no GPU"
            for gpu, backend in {"cuda": torch.cuda, "mps": torch.backends.mps}.items():
                if backend.is_available():
                    choices = f"auto, cpu or {gpu}"
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


def machine_name(device: torch.device) -> str:
    """Return the name of the GPU that a device is, or of the processor."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else processor_name()


def processor_name() -> str:
    """Return the name of this machine's processor."""
    path = Path("/proc/cpuinfo")
    for line in path.read_bytes().splitlines() if path.is_file() else ():
        if line.startswith(b"model name"):
            return line.decode(errors="replace").partition(":")[2].strip()
    return platform.machine()


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
    if device.type != "cpu":
        return False
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        full, half = map(_matmul_seconds, (torch.float32, torch.bfloat16))
    finally:
        torch.set_num_threads(threads)
    return full > _WORTHWHILE_GAIN * half


def _matmul_seconds(dtype: torch.dtype) -> float:
    """Time a matmul of a Transformer's size: the best of five, whatever else the machine does."""
    a, b = torch.ones(1024, 512, dtype=dtype), torch.ones(512, 1024, dtype=dtype)
    return min(timeit.repeat(lambda: a @ b, timer=time.thread_time, repeat=5, number=1))


def make_deterministic(wanted: bool) -> None:
    """Let this process use only kernels whose sums are the same in every run, or any."""
    if wanted:
        # cuBLAS reads this when it is first used.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(wanted)


# Memory and threads.


def retain_freed_memory() -> None:
    """Make glibc and PyTorch's allocator for GPUs keep freed blocks for reuse.

    Activations are large and live for one step. By default each is mapped, zeroed by the kernel and
    unmapped again: filling a new 64 MB tensor took 17 ms, a reused one 2 ms. On a GPU, blocks that
    grow serve batches of any shape. Without glibc, or after the first use of a GPU, its part does
    nothing.
    """
    os.environ.setdefault("PYTORCH_ALLOC_CONF", "expandable_segments:True")
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, TypeError):  # another library of C, or Windows, which takes no None
        return
    m_trim_threshold, m_top_pad, m_mmap_max = -1, -2, -4
    mallopt(m_mmap_max, 0)
    mallopt(m_trim_threshold, -1)  # never
    mallopt(m_top_pad, 64 * 2**20)


def keep_few_compiled_matmuls() -> None:
    """Make oneDNN keep its code for the last 64 shapes of matmuls in place of 1,024.

    Batches of a run differ in shape, so that code of earlier steps is seldom used again. It lies
    among the activations, and breaks up the memory that they leave.
    Has no effect after the first matmul, nor where the environment sets the variables.
    """
    # The second is of PyTorch's own cache in front of oneDNN's; each alone keeps the code.
    for name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
        os.environ.setdefault(name, "64")


T = TypeVar("T")
R = TypeVar("R")

process_lock = threading.Lock()
"""For calls that take turns: the threads of an operation are a setting of the whole process."""
# The thread that holds it is not in a child process.
after_fork(process_lock._at_fork_reinit)  # type: ignore[attr-defined]


@contextmanager
def parallel_map(
    workers: int,
) -> Iterator[Callable[[Callable[[T], R], Iterable[T]], Iterator[R]]]:
    """Provide an ordered `map` over `workers` threads, each operation within one thread.

    A decoding step consists of small operations. Two threads within one operation wait for each
    other more than they gain; two batches in parallel are almost twice as fast. PyTorch releases
    Python's global lock in each operation. With one worker this is the built-in `map`.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    pool = ThreadPoolExecutor(max(1, workers))
    try:
        yield map if workers < 2 else pool.map
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)


@contextmanager
def worker_threads(workers: int) -> Iterator[ThreadPoolExecutor]:
    """Provide threads whose operations use one thread each, unlike the caller's."""
    pool = ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,))
    try:
        yield pool
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        # Threads that begin later take the number that was set last.
        torch.set_num_threads(torch.get_num_threads())
