"""Memory and threads of the process, with other settings than PyTorch's and the C library's.

Freed memory is kept for reuse, oneDNN keeps little compiled code, and batches run in parallel with
one thread each, rather than one batch with all threads.
"""

import ctypes
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch


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
    except AttributeError:
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
os.register_at_fork(after_in_child=process_lock._at_fork_reinit)  # type: ignore[attr-defined]


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
