"""Measure time and memory from text files to batches.

Each stage runs in processes of its own, to measure their peak memory:

    python scripts/benchmarks/data.py --source train.ja.gz --target train.en.gz --pairs 4500000
"""

import argparse
import multiprocessing
import os
import random
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from queue import Empty
from typing import Any

from seq2seq.batches import Batching
from seq2seq.data.corpus import DataConfig, Split, SplitConfig
from seq2seq.data.preparation import prepare
from seq2seq.encoded_corpus import EncodedCorpus
from seq2seq.machine.processes import OneProcess, from_environment
from seq2seq.tokenizer import TokenizerConfig

VALIDATION_PAIRS = 1000


def main() -> None:
    """Print a line for each stage."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--pairs", type=int, help="make that many from halves of the given pairs")
    parser.add_argument("--vocab-size", type=int, default=16_000)
    parser.add_argument("--starts", type=int, default=1, help="ranks that start with the corpus")
    parser.add_argument("--folder", type=Path, help="keep the corpus and what is made of it here")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        folder = arguments.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        config = make_corpus(arguments, folder)
        print(
            f"{'stage':<26}  {'seconds':>8}  {'CPU s':>8}  {'pairs/s':>12}  {'peak MiB':>8}"
            f"  {'of all':>8}  {'B/pair':>6}"
        )
        measure(start, arguments.starts, config, folder / "cache")
        measure(start, arguments.starts, config, folder / "cache")
        measure(order, 1, folder / "cache")


def measure(work: Callable[..., Any], ranks: int, *arguments: object) -> None:
    """Run `work` in new processes, and print the figures of the one with the most to do.

    Its memory is the peak of one process, and that of all, what they share counted once.
    The bytes a pair are what all processes need beyond what they had when they were ready.
    """
    context = multiprocessing.get_context("spawn")
    ready, begin, results = context.Queue(), context.Event(), context.Queue()
    processes = [
        context.Process(target=run, args=(work, rank, ranks, ready, begin, results, *arguments))
        for rank in range(ranks)
    ]
    for process in processes:
        process.start()
    for _ in processes:
        ready.get()
    before = sum(shared for _, shared in memory(processes))
    begin.set()
    largest = of_all = 0.0
    found: list[tuple[float, float, str, int]] = []
    while len(found) < ranks:
        started = time.perf_counter()
        used = memory(processes)
        pause = 20 * (time.perf_counter() - started)  # or looking would take time from the work
        largest = max([largest, *(own for own, _ in used)])
        of_all = max(of_all, sum(shared for _, shared in used))
        try:
            found.append(results.get(timeout=pause))
        except Empty:
            if not any(process.is_alive() for process in processes):
                raise SystemExit("a process has failed") from None
    for process in processes:
        process.join()
    cpu_seconds, seconds, name, pairs = max(found)
    print(
        f"{f'{name}, {ranks} ranks':<26}  {seconds:8.2f}  {cpu_seconds:8.2f}"
        f"  {pairs / seconds:12,.0f}  {largest:8,.0f}  {of_all:8,.0f}"
        f"  {(of_all - before) * 2**20 / pairs:6.1f}",
        flush=True,
    )


def run(
    work: Callable[..., Any],
    rank: int,
    ranks: int,
    ready: Any,
    begin: Any,
    results: Any,
    *given: Any,
) -> None:
    """Prepare `work` as one of several processes of a machine, and time it when all are ready."""
    ranking = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks}
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 20_000 + os.getppid() % 10_000}
    os.environ |= {name: str(value) for name, value in (ranking | address).items()}
    world = from_environment()
    with world.process_group():
        name, timed = work(world, *given)
        ready.put(rank)
        begin.wait()
        started, used = time.perf_counter(), os.times()
        pairs = timed()
        seconds = time.perf_counter() - started
        cpu_seconds = sum(os.times()[:4]) - sum(used[:4])  # with the processes that it has started
        world.gather(0)
        results.put((cpu_seconds, seconds, name, pairs))


def memory(processes: list[Any]) -> list[tuple[float, float]]:
    """Return the memory of processes and their children in MiB: its size, and its share of all."""
    numbers, found = [process.pid for process in processes], []
    for number in numbers:
        with suppress(OSError):  # it has ended
            folder = Path(f"/proc/{number}")
            for children in folder.glob("task/*/children"):
                numbers += map(int, children.read_text().split())
            lines = map(str.split, (folder / "smaps_rollup").read_text().splitlines()[1:])
            sizes = {name: int(size) / 1024 for name, size, *_ in lines}
            found.append((sizes["Rss:"], sizes["Pss:"]))
    return found


def make_corpus(arguments: argparse.Namespace, folder: Path) -> DataConfig:
    """Configure the corpus, after writing a synthetic one if --pairs asks for it."""
    train = SplitConfig(source=str(arguments.source), target=str(arguments.target))
    config = DataConfig(train=train)
    pairs = list(Split(config, "train").pairs())
    random.seed(1)
    valid = write(random.sample(pairs, min(VALIDATION_PAIRS, len(pairs))), folder / "valid")
    if arguments.pairs:
        synthetic = (
            [x[: len(x) // 2] + y[len(y) // 2 :] for x, y in zip(a, b, strict=True)]
            for a, b in (random.choices(pairs, k=2) for _ in range(arguments.pairs))
        )
        train = write(synthetic, folder / "train")
    tokenizer = TokenizerConfig(vocab_size=arguments.vocab_size)
    return DataConfig(train=train, valid=valid, tokenizer=tokenizer)


def write(pairs: Any, path: Path) -> SplitConfig:
    """Write pairs as two text files."""
    source, target = path.with_suffix(".source"), path.with_suffix(".target")
    with source.open("w") as sources, target.open("w") as targets:
        for source_line, target_line in pairs:
            sources.write(f"{source_line}\n")
            targets.write(f"{target_line}\n")
    return SplitConfig(source=str(source), target=str(target))


Timed = tuple[str, Callable[[], int]]
"""The name of a stage, and what it does: it returns the number of pairs."""


def start(world: OneProcess, config: DataConfig, cache: Path) -> Timed:
    """Prepare a corpus, tokenizer included, or find it in the cache."""

    def timed() -> int:
        data = world.main_first(lambda: prepare(config, cache, lambda message: None))
        return data.counts["train"].read

    return "second start" if cache.exists() else "first start", timed


def order(world: OneProcess, cache: Path) -> Timed:
    """Order an epoch in batches of 25,000 tokens."""
    (path,) = cache.glob("*/train.ids")
    batching = Batching(EncodedCorpus(path), source_tokens=25_000, target_tokens=25_000, seed=1)

    def timed() -> int:
        batching.epoch(0)
        return len(batching.corpus)

    return "order", timed


if __name__ == "__main__":
    main()
