"""Measure the speed of a training step, compared with peers and with its matmuls alone.

Every system trains the same model on the same batches, which it has not met before. Each
measurement runs in a process of its own, and the systems take turns:

    python scripts/benchmarks/training.py --source train.en.gz --target train.de.gz

Without --source and --target, the text is random tokens in sentences as long as image captions. The
peers are `torch.nn.Transformer` and Hugging Face's `MarianMTModel` in a plain loop: in fp32, under
bf16 autocast, and under bf16 autocast with freed memory retained, as this project always does. They
use PyTorch's own label smoothing and Adam. `--kernels` measures the gain of each fast form, and
`--profile ROWS` prints where the time of a step goes instead.
"""

import argparse
import logging
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import torch
import turns
from torch.profiler import ProfilerActivity, profile
from training_systems import SIZES, Measured, Work, matmuls, ours, peer

from seq2seq.data.corpus import DataConfig, SplitConfig
from seq2seq.data.preparation import TRAIN_FILE, prepare
from seq2seq.encoded_corpus import encode_ids, new_corpus
from seq2seq.fast.updates import FastUpdater
from seq2seq.machine.resources import keep_few_compiled_matmuls, retain_freed_memory
from seq2seq.tokenizer import TokenizerConfig
from seq2seq.update import Updater


@dataclass(frozen=True)
class System(turns.System):
    """One line of the table."""

    retains_memory: bool = False
    """Whether freed memory is retained, and oneDNN keeps little compiled code."""


SYSTEMS = (
    System("ours, bf16", "ours", "bf16", True),
    System("ours, fp32", "ours", "fp32", True),
    System("torch.nn, fp32", "torch.nn", "fp32"),
    System("torch.nn, bf16", "torch.nn", "bf16"),
    System("torch.nn, memory retained, bf16", "torch.nn", "bf16", True),
    System("Marian, fp32", "marian", "fp32"),
    System("Marian, bf16", "marian", "bf16"),
    System("Marian, memory retained, bf16", "marian", "bf16", True),
    System("matmuls alone, bf16", "matmuls", "bf16", True),
    System("matmuls alone, fp32", "matmuls", "fp32", True),
)
# This project without one of its fast forms, and the plain model.
KERNELS = (
    System("without cheap dropout masks", "ours", "bf16", True, without=("dropout",)),
    System("without sums between layers in bf16", "ours", "bf16", True, without=("residual",)),
    System("freed memory returned to the system", "ours", "bf16"),
    System("plain model, bf16", "plain", "bf16"),
    System("plain model, fp32", "plain", "fp32"),
)
KERNELS_ON_A_GPU = (
    System("without the compiler", "ours", "bf16", True, without=("compiled",)),
    System("plain model, bf16", "plain", "bf16"),
)


def start(work: Work, system: System) -> Iterator[Measured]:
    """Set the process up for a system, and do its steps, each on batches of its own."""
    if system.retains_memory:
        retain_freed_memory()
        keep_few_compiled_matmuls()
    logging.disable()
    dtype = torch.bfloat16 if system.precision == "bf16" else torch.float32
    if system.make == "ours":
        return ours(work, dtype, partial(FastUpdater, **dict.fromkeys(system.without, False)))
    if system.make == "plain":
        return ours(work, dtype, Updater)
    if system.make == "matmuls":
        return matmuls(work, dtype)
    return peer(work, system.make, dtype)


def warm_up(work: Work, system: System) -> Iterator[Measured]:
    """Do the first steps; on a GPU, everything is compiled and recorded then."""
    steps = start(work, system)
    for _ in islice(steps, 5 if work.on_gpu else 1):
        pass
    return steps


def measure(work: Work, system: System) -> dict[str, float]:
    """Measure seconds, tokens and peak memory of steps on other batches than the first."""
    steps = warm_up(work, system)
    if work.on_gpu:
        torch.cuda.synchronize(work.device)
    started = time.perf_counter()
    done = list(islice(steps, work.steps))
    peak = turns.peak_memory()
    if work.on_gpu:
        torch.cuda.synchronize(work.device)
        peak = torch.cuda.max_memory_allocated(work.device)
    seconds = time.perf_counter() - started
    tokens, rows, waited = map(sum, zip(*done, strict=True))
    return {
        "seconds": seconds / work.steps,
        "tokens": tokens / work.steps,
        "peak": peak,
        "waited": waited / seconds,
        "filled": 1.0 - tokens / rows,
    }


def print_profile(work: Work, system: System, rows: int) -> None:
    """Print the operations of a step that take most of its time."""
    steps = warm_up(work, system)
    kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if work.on_gpu else [])]
    with profile(activities=kinds) as profiler:
        next(steps)
        if work.on_gpu:
            torch.cuda.synchronize(work.device)
    by = "self_cuda_time_total" if work.on_gpu else "self_cpu_time_total"
    print(f"{system.name}\n{profiler.key_averages().table(sort_by=by, row_limit=rows)}", flush=True)


def write_corpus(arguments: argparse.Namespace, folder: Path) -> Path:
    """Encode the text, or random tokens in sentences as long as captions."""
    if arguments.source:
        split = SplitConfig(source=arguments.source, target=arguments.target)
        tokenizer = TokenizerConfig(vocab_size=arguments.vocab_size)
        data = DataConfig(train=split, valid=split, tokenizer=tokenizer)
        return prepare(data, folder, lambda _: None).folder / TRAIN_FILE
    random = np.random.default_rng(1)
    path = folder / TRAIN_FILE
    sides: tuple[list[list[int]], list[list[int]]] = ([], [])
    for _ in range(arguments.pairs):
        length = int(np.clip(random.normal(14, 4), 4, 40))
        for side, drift in zip(sides, random.integers(-2, 3, 2), strict=True):
            side.append(random.integers(4, arguments.vocab_size, max(3, length + drift)).tolist())
    with new_corpus(path) as write:
        write(encode_ids(*sides, arguments.vocab_size))
    return path


def print_table(results: turns.Results[System], work: Work) -> None:
    """Print medians over the rounds, and the range of the speed."""
    median = {system: turns.medians(rounds) for system, rounds in results.items()}
    alone = {s.precision: found["seconds"] for s, found in median.items() if s.make == "matmuls"}
    print(
        "| | tokens/s | range | seconds a step | peak GiB | efficiency | waiting | filled up |\n"
        "|---|---|---|---|---|---|---|---|"
    )
    for system, rounds in results.items():
        measured, seconds = median[system], median[system]["seconds"]
        speeds = sorted(r["tokens"] / r["seconds"] for r in rounds)
        efficiency = ""
        if system.precision in alone:
            efficiency = f"{alone[system.precision] / seconds:.2f}"
        print(
            f"| {system.name} | {measured['tokens'] / seconds:,.0f} |"
            f" {speeds[0]:,.0f} to {speeds[-1]:,.0f} | {seconds:.4f} |"
            f" {measured['peak'] / 2**30:.1f} | {efficiency} | {measured['waited']:.1%} |"
            f" {measured['filled']:.1%} |"
        )
    print(
        f"\n{work.size}, vocabulary {work.vocab_size:,}, {work.tokens:,} + {work.tokens:,} tokens a"
        f" step, {len(rounds)} rounds of {work.steps} steps; torch {torch.__version__},"
        f" {work.device}, {torch.get_num_threads()} threads.\nEfficiency: the matmuls' time / the"
        " step's, in the same precision."
    )


def main() -> None:
    """Run the rounds and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--source", help="text of the source side (default: random tokens)")
    parser.add_argument("--target", help="text of the target side")
    parser.add_argument("--pairs", type=int, default=20_000, help="of random tokens")
    parser.add_argument("--size", choices=SIZES, default="base")
    parser.add_argument("--vocab-size", type=int, default=8000)
    parser.add_argument("--tokens", type=int, default=4096, help="tokens of each side per step")
    parser.add_argument("--micro-batch-tokens", type=int, help="default: all tokens at once")
    parser.add_argument("--steps", type=int, default=4, help="timed steps of a measurement")
    parser.add_argument("--profile", type=int, metavar="ROWS", help="profile a step instead")
    parser.add_argument("--device", default="cpu")
    turns.add_round_options(parser)
    turns.add_kernel_options(parser)
    arguments = parser.parse_args()
    if arguments.measure:
        turns.measure_given(arguments.measure, Work, System, measure)
        return
    kernels = KERNELS_ON_A_GPU if arguments.device.startswith("cuda") else KERNELS
    table = (SYSTEMS[0], *kernels) if arguments.kernels else SYSTEMS
    systems = turns.select(parser, table, arguments.only)
    with tempfile.TemporaryDirectory() as folder:
        work = Work(
            corpus=str(write_corpus(arguments, Path(folder))),
            size=arguments.size,
            vocab_size=arguments.vocab_size,
            tokens=arguments.tokens,
            micro_batch_tokens=arguments.micro_batch_tokens or arguments.tokens,
            steps=arguments.steps,
            device=arguments.device,
        )
        if arguments.profile:
            for system in systems:
                print_profile(work, system, arguments.profile)
            return
        show = partial(print_table, work=work)
        turns.measure_in_turn(__file__, work, systems, arguments.rounds, show)


if __name__ == "__main__":
    main()
