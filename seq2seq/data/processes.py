"""A function mapped by several processes: results in order, in bounded memory."""

import multiprocessing
import os
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import chain, islice
from signal import SIG_IGN, SIGHUP, SIGINT, SIGUSR1, SIGUSR2, signal
from threading import Thread
from typing import Any, TypeVar

from seq2seq.data import processor
from seq2seq.errors import UserError

T = TypeVar("T")
R = TypeVar("R")

_MOST = 12  # one process reads the text for the others
_FEW_ITEMS = 10  # take less time than processes to start


def map_in_processes(function: Callable[[T], R], items: Iterable[T]) -> Generator[R]:
    """Map a function in this process, and if there are many items, by one for each core."""
    iterator = iter(items)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    count = min(cores or 1, _MOST)
    yield from map(function, islice(iterator, _FEW_ITEMS) if count > 1 else iterator)
    many = list(islice(iterator, 1))
    if not many:
        return
    if multiprocessing.get_start_method() not in multiprocessing.get_all_start_methods():
        # In a process of joblib it is its own, which a process that is started would not know.
        multiprocessing.set_start_method("spawn", force=True)
    # Not forked: other threads may hold locks, and a lock of a file would outlive this process.
    pool = ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), _start, (function,))
    waiting: deque[Future[Any]] = deque()
    try:
        for item in chain(many, iterator):
            waiting.append(pool.submit(_call, item))
            if len(waiting) > 2 * count:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool:
        raise UserError(
            "a process that encodes text has ended, perhaps because memory ran out: close other"
            " programs and start again; a script that starts a run needs"
            " `if __name__ == '__main__':`"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


_function: Callable[[Any], Any]


def _start(function: Callable[[Any], Any]) -> None:
    """Begin a process, which has one thread and ends with its parent."""
    global _function
    _function = function
    processor.threads = 1
    # A terminal sends some of them to all its processes, and Slurm others: the parent answers.
    for number in (SIGINT, SIGHUP, SIGUSR1, SIGUSR2):
        signal(number, SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()


def _call(item: Any) -> Any:
    return _function(item)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
