"""Lines in chunks, which many workers translate at the same time, and which come back in order."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice, repeat
from queue import SimpleQueue
from typing import TypeVar

from seq2seq.decoding.segments import pair_prefixes
from seq2seq.decoding.translation import OutputWarnings

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Chunk:
    """Consecutive lines, and the forced beginnings of their translations, "" for none."""

    first_line: int
    lines: Sequence[str]
    prefixes: Sequence[str]


@dataclass(frozen=True)
class ChunkOutput:
    """What is written of a chunk: its translations and their alignments, and what to report."""

    text: bytes
    links: bytes
    warnings: OutputWarnings


def make_chunks(lines: Iterable[str], prefixes: Iterable[str] | None, size: int) -> Iterator[Chunk]:
    """Divide lines into chunks of `size`, as they come."""
    pairs = zip(lines, repeat("")) if prefixes is None else pair_prefixes(lines, prefixes)
    first_line = 1
    while some := list(islice(pairs, size)):
        yield Chunk(first_line, *zip(*some, strict=True))
        first_line += len(some)


def in_order(workers: Sequence[Callable[[T], R]], items: Iterable[T]) -> Iterator[R]:
    """Give items to workers, each of which takes one at a time; yield the results in order.

    Items are read by the caller's thread, and are at most two per worker ahead of the results.
    """
    idle: SimpleQueue[Callable[[T], R]] = SimpleQueue()
    for worker in workers:
        idle.put(worker)

    def work(item: T) -> R:
        worker = idle.get()
        try:
            return worker(item)
        finally:
            idle.put(worker)

    pool = ThreadPoolExecutor(len(workers))
    ahead: deque[Future[R]] = deque()
    try:
        for item in items:
            ahead.append(pool.submit(work, item))
            while ahead and (ahead[0].done() or len(ahead) == 2 * len(workers)):
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
