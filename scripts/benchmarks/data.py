"""Measure time and memory from text files to batches.

Each stage runs in a process of its own, to measure its peak memory:

    python scripts/benchmarks/data.py --source train.ja.gz --target train.en.gz --pairs 4500000
"""

import argparse
import multiprocessing
import random
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seq2seq.data.config import DataConfig, SplitConfig
from seq2seq.data.corpus import Split
from seq2seq.data.preparation import prepare
from seq2seq.data.tokenizer import TokenizerConfig

VALIDATION_PAIRS = 1000
COLLATED_BATCHES = 400


@dataclass
class Stage:
    """One line of the table."""

    name: str
    seconds: float = 0.0
    pairs: int = 0

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Add the time of a block."""
        started = time.perf_counter()
        yield
        self.seconds += time.perf_counter() - started


def main() -> None:
    """Print a line for each stage."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--pairs", type=int, help="make that many from halves of the given pairs")
    parser.add_argument("--vocab-size", type=int, default=16_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        config, _ = in_new_process(make_corpus, arguments, Path(folder))
        print(f"{'stage':<26}  {'seconds':>8}  {'pairs/s':>12}  {'peak MiB':>8}")
        for work in (start, start, shuffle_and_collate):
            stages, peak = in_new_process(work, config, Path(folder) / "cache")
            for stage in stages:
                speed = f"{stage.pairs / stage.seconds:,.0f}"
                print(
                    f"{stage.name:<26}  {stage.seconds:8.2f}  {speed:>12}  {peak:8,.0f}", flush=True
                )


def in_new_process(work: Callable[..., Any], *arguments: object) -> tuple[Any, float]:
    """Call `work` in a new process; return its result and the peak memory of the process in MiB."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=1, mp_context=context) as process:
        result = process.submit(work, *arguments).result()
        usage = process.submit(resource.getrusage, resource.RUSAGE_SELF).result()
    return result, usage.ru_maxrss / 1024


def make_corpus(arguments: argparse.Namespace, folder: Path) -> DataConfig:
    """Configure the corpus, after writing a synthetic one if --pairs asks for it."""
    config = DataConfig(
        train=SplitConfig(source=str(arguments.source), target=str(arguments.target))
    )
    pairs = list(Split(config, "train").pairs())
    random.seed(1)
    valid = write(random.sample(pairs, min(VALIDATION_PAIRS, len(pairs))), folder / "valid")
    train = config.train
    if arguments.pairs:
        synthetic = (
            [first + second for first, second in zip(halves(a)[0], halves(b)[1], strict=True)]
            for a, b in (random.choices(pairs, k=2) for _ in range(arguments.pairs))
        )
        train = write(synthetic, folder / "train")
    tokenizer = TokenizerConfig(vocab_size=arguments.vocab_size)
    return DataConfig(train=train, valid=valid, tokenizer=tokenizer)


def halves(pair: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Split both sides in the middle; return the first halves, and the second ones."""
    middles = [len(side) // 2 for side in pair]
    firsts = [side[:middle] for side, middle in zip(pair, middles, strict=True)]
    return firsts, [side[middle:] for side, middle in zip(pair, middles, strict=True)]


def write(pairs: Any, path: Path) -> SplitConfig:
    """Write pairs as two text files."""
    source, target = path.with_suffix(".source"), path.with_suffix(".target")
    with source.open("w") as sources, target.open("w") as targets:
        for source_line, target_line in pairs:
            sources.write(f"{source_line}\n")
            targets.write(f"{target_line}\n")
    return SplitConfig(source=str(source), target=str(target))


def start(config: DataConfig, cache: Path) -> list[Stage]:
    """Prepare a corpus, tokenizer included, or find it in the cache."""
    stage = Stage("second start" if cache.exists() else "first start")
    with stage.timed():
        stage.pairs = prepare(config, cache, lambda message: None).counts["train"].read
    return [stage]


def shuffle_and_collate(config: DataConfig, cache: Path) -> list[Stage]:
    """Order an epoch, and read and pad batches, with two token budgets."""
    from seq2seq.data.batching import Batching

    corpus = prepare(config, cache, lambda message: None).train
    stages = []
    for tokens in (4096, 25_000):
        batching = Batching(corpus, source_tokens=tokens, target_tokens=tokens, seed=1)
        epoch = Stage(f"epoch, {tokens:,} tokens", pairs=len(corpus))
        with epoch.timed():
            batches = batching.epoch(0)
        batches = batches[:COLLATED_BATCHES]
        collate = Stage(f"collate {len(batches)} of them")
        with collate.timed():
            for indices in batches:
                batching.collate(indices)
        collate.pairs = sum(map(len, batches))
        stages += [epoch, collate]
    return stages


if __name__ == "__main__":
    main()
