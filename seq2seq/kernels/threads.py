"""Batches computed side by side by threads, each operation within its own thread."""

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

T = TypeVar("T")
R = TypeVar("R")

# The number of threads within an operation is a setting of the whole process.
_turn = threading.Lock()


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Let calls from several threads take turns."""
    with _turn:
        yield


def _after_fork() -> None:
    """Begin with a free lock: the thread that held it does not exist in a child process."""
    global _turn
    _turn = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


@contextmanager
def side_by_side(
    workers: int,
) -> Iterator[Callable[[Callable[[T], R], Iterable[T]], Iterator[R]]]:
    """A `map` over that many threads, in order, in which each operation keeps to its own thread.

    A step of decoding is made of small operations: two threads within one wait for each other more
    than they gain, two batches side by side are almost twice as fast. Python is no obstacle, since
    PyTorch releases its lock in each operation. With one worker it is the built-in `map`.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    pool = ThreadPoolExecutor(max(1, workers))
    try:
        yield map if workers < 2 else pool.map
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)
