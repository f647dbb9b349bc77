"""Batches computed in parallel by threads, each operation within one thread."""

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

T = TypeVar("T")
R = TypeVar("R")

_lock = threading.Lock()


@contextmanager
def process_lock() -> Iterator[None]:
    """Let calls from several threads take turns.

    The number of threads within an operation is a setting of the whole process.
    """
    with _lock:
        yield


def _unlock_child() -> None:
    # The thread that holds the lock is not in a child process.
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_unlock_child)


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
