"""A large text in chunks, by many threads and processes; outputs come in order.

The main process reads the chunks, hands them out, and writes their translations in order: each
worker of each process takes a chunk, returns what it made of it, and takes the next. So the output
is that of one process, and only chunks that are being translated are in memory.
"""

import pickle
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, repeat
from queue import SimpleQueue
from typing import Any, TypeVar

import torch
from torch import distributed

from seq2seq.decoding.options import TranslationOptions
from seq2seq.decoding.translation import OutputWarnings
from seq2seq.errors import UserError
from seq2seq.machine.processes import OneProcess, exit_after_main
from seq2seq.machine.resources import choose_device, choose_precision

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class Chunk:
    """Consecutive lines."""

    first_line: int
    lines: Sequence[str]


@dataclass(frozen=True)
class ChunkOutput:
    """The output of a chunk: its translations, their alignments, and counts to report."""

    text: bytes
    links: bytes
    warnings: OutputWarnings


def make_chunks(lines: Iterable[str], size: int) -> Iterator[Chunk]:
    """Divide lines into chunks of `size`, as they come."""
    lines, first_line = iter(lines), 1
    while chunk_lines := list(islice(lines, size)):
        yield Chunk(first_line, chunk_lines)
        first_line += len(chunk_lines)


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


DAY = 86400.0  # the longest time that a process waits for a chunk, or for its translation


def options_of_rank(world: OneProcess, options: TranslationOptions) -> TranslationOptions:
    """Give each process its own GPU, and every process the precision that the main one chooses."""
    if world.size == 1:
        return options
    device = world.own_device(choose_device(options.device, processes=world.size))
    if options.precision == "auto" and options.engine != "ctranslate2":
        in_bf16 = world.on_main(lambda: choose_precision("auto", device) is torch.bfloat16)
        options = replace(options, precision="bf16" if in_bf16 else "fp32")
    return replace(options, device=str(device))


@contextmanager
def workers_of_all(
    world: OneProcess, workers: Sequence[Callable[[T], R]]
) -> Iterator[Sequence[Callable[[T], R]]]:
    """Provide the main process with the workers of all processes.

    The others run theirs until the main process is done; then their block begins, without workers.
    """
    counts = [int(count) for (count,) in world.gather(len(workers))]
    if not world.is_main:
        _serve(workers)
        yield []
        return
    # The first of each process, then the second of each, so that all get some of a short text.
    slots: list[tuple[int, int]] = []
    for rank, count in enumerate(counts):
        slots += zip(range(count), repeat(rank), strict=False)
    slots.sort()
    yield [partial(_ask, rank, slot) if rank else workers[slot] for slot, rank in slots]
    for slot, rank in slots:
        if rank:
            _send(None, rank, slot)


def _ask(rank: int, slot: int, chunk: object) -> Any:
    """Let another process translate a chunk; if it is lost, torchrun ends all."""
    try:
        _send(chunk, rank, slot)
        result = _receive(rank, slot)
    except RuntimeError as error:
        reason = str(error).splitlines()[0][:200]
        raise UserError(f"rank {rank} is lost ({reason}); see torchrun's report") from error
    if isinstance(result, Exception):
        raise result
    return result


def _serve(workers: Sequence[Callable[[T], R]]) -> None:
    """Translate what the main process sends, until it sends None."""

    def serve(slot: int, worker: Callable[[T], R]) -> None:
        while (chunk := _receive(0, slot)) is not None:
            try:
                result: R | Exception = worker(chunk)
            except Exception as error:
                result = error
            _send(result, 0, slot)

    try:
        with ThreadPoolExecutor(len(workers)) as pool:
            list(pool.map(serve, range(len(workers)), workers))
    except RuntimeError:  # the main process is lost
        exit_after_main()


def _send(message: object, rank: int, slot: int) -> None:
    content = torch.frombuffer(bytearray(pickle.dumps(message)), dtype=torch.uint8)
    distributed.send(torch.tensor([len(content)]), rank, tag=slot)
    distributed.send(content, rank, tag=slot)


def _receive(rank: int, slot: int) -> Any:
    size = torch.empty(1, dtype=torch.int64)
    distributed.recv(size, rank, tag=slot)
    content = torch.empty(int(size), dtype=torch.uint8)
    distributed.recv(content, rank, tag=slot)
    return pickle.loads(content.numpy().tobytes())
