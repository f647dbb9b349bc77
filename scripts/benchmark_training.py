"""Measure the speed of a training step, compared with peers and with its matrix products alone.

Every system trains the same model on the same batches, in a process of its own. The systems take
turns in several rounds, so that a slow minute of the machine affects all of them:

    python scripts/benchmark_training.py --source train.en.gz --target train.de.gz

Without --source and --target, the text is random tokens in sentences as long as image captions. The
peers are `torch.nn.Transformer` and Hugging Face's `MarianMTModel` in a plain loop: in fp32, under
bf16 autocast, and under bf16 autocast with freed memory retained, as this project always does. They
use PyTorch's own label smoothing and Adam. `--kernels` measures the gain of each fast form.
"""

import argparse
import json
import logging
import math
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seq2seq.data.batching import Batch, Batching
from seq2seq.data.config import DataConfig, SplitConfig
from seq2seq.data.encoded import EncodedCorpus, EncodedCorpusWriter
from seq2seq.data.preparation import TRAIN_FILE, prepare
from seq2seq.data.tokenizer import PADDING_ID, START_ID, TokenizerConfig
from seq2seq.device import autocast
from seq2seq.kernels.memory import retain_freed_memory
from seq2seq.kernels.training import TrainingKernels
from seq2seq.model import TransformerConfig
from seq2seq.model.transformer import sinusoids
from seq2seq.reproduction.cost import step_flops
from seq2seq.storage.checkpoint import new_transformer
from seq2seq.training.config import TrainingConfig
from seq2seq.training.trainer import Trainer

SMOOTHING = 0.1
ALL_KERNELS = tuple(field.name for field in fields(TrainingKernels))
SIZES = {
    "small": {"num_layers": 3, "d_model": 256, "d_ff": 1024, "num_heads": 4},
    "base": {"num_layers": 6, "d_model": 512, "d_ff": 2048, "num_heads": 8},
    "big": {"num_layers": 6, "d_model": 1024, "d_ff": 4096, "num_heads": 16, "dropout": 0.3},
}


@dataclass(frozen=True, kw_only=True)
class Work:
    """The work of every system."""

    corpus: str
    size: str
    vocab_size: int
    tokens: int
    micro_batch_tokens: int
    steps: int
    device: str

    @property
    def config(self) -> TransformerConfig:
        """The hyperparameters of the model."""
        return TransformerConfig(**SIZES[self.size])  # type: ignore[arg-type]

    def training(self) -> TrainingConfig:
        """Return the configuration of a step."""
        return TrainingConfig(
            source_tokens=self.tokens,
            target_tokens=self.tokens,
            micro_batch_tokens=self.micro_batch_tokens,
            label_smoothing=SMOOTHING,
        )

    def steps_of_batches(self) -> tuple[Batching, list[list[Any]]]:
        """Return the micro-batches of each step; the first step is for warm-up."""
        training = self.training()
        batching = training.batching(EncodedCorpus(self.corpus), seed=1)
        epoch, parts = batching.epoch(0), training.micro_batches
        count = self.steps + 1
        batches = (epoch * math.ceil(count * parts / len(epoch)))[: count * parts]
        return batching, [batches[i : i + parts] for i in range(0, len(batches), parts)]


@dataclass(frozen=True)
class System:
    """One line of the table."""

    name: str
    make: str
    precision: str
    keeps_memory: bool = False
    without: tuple[str, ...] = ()
    """The fast forms to leave out."""
    extra: tuple[str, ...] = ()
    """The fast forms to use that are not used by default."""


SYSTEMS = (
    System("ours, bf16", "ours", "bf16", True),
    System("ours, fp32", "ours", "fp32", True),
    System("torch.nn, fp32", "torch.nn", "fp32"),
    System("torch.nn, bf16", "torch.nn", "bf16"),
    System("torch.nn, bf16, memory kept", "torch.nn", "bf16", True),
    System("Marian, fp32", "marian", "fp32"),
    System("Marian, bf16", "marian", "bf16"),
    System("Marian, bf16, memory kept", "marian", "bf16", True),
    System("products alone, bf16", "products", "bf16", True),
    System("products alone, fp32", "products", "fp32", True),
)
# Those that compile for long, or matter least, come last: time may run out.
ON_A_GPU = (
    System("ours, bf16", "ours", "bf16", True),
    System("ours, bf16, compile=true", "ours", "bf16", True, extra=("compiled",)),
    System("products alone, bf16", "products", "bf16", True),
    System("torch.nn, bf16", "torch.nn", "bf16", True),
    System("Marian, bf16", "marian", "bf16", True),
    System("torch.nn, bf16, compiled", "torch.nn", "bf16", True, extra=("compiled",)),
    System("Marian, bf16, compiled", "marian", "bf16", True, extra=("compiled",)),
    System("ours, fp32", "ours", "fp32", True),
    System("products alone, fp32", "products", "fp32", True),
)
PUBLISHED = """
Published: NVIDIA's fairseq trains the big model with 82,059 tokens/s on an A100, and 32,153 on a
V100 (github.com/NVIDIA/DeepLearningExamples, PyTorch/Translation/Transformer, fp16).
"""
# This project without one of its fast forms, and the plain model without any.
KERNELS = (
    System("without cheap dropout masks", "ours", "bf16", True, ("dropout",)),
    System("without sums between layers in bf16", "ours", "bf16", True, ("residual",)),
    System("without the loss in chunks", "ours", "bf16", True, ("loss",)),
    System("freed memory returned to the system", "ours", "bf16"),
    System("plain model, bf16", "ours", "bf16", False, ALL_KERNELS),
    System("plain model, fp32", "ours", "fp32", False, ALL_KERNELS),
)
KERNELS_ON_A_GPU = (
    System("with parts compiled", "ours", "bf16", True, extra=("compiled",)),
    System("with attention packed", "ours", "bf16", True, extra=("packed",)),
    System("with both", "ours", "bf16", True, extra=("compiled", "packed")),
    System("without micro-batches joined", "ours", "bf16", True, ("joined",)),
    System("without fused attention", "ours", "bf16", True, ("attention", "joined")),
    System("without sums between layers in bf16", "ours", "bf16", True, ("residual",)),
    System("without the loss in chunks", "ours", "bf16", True, ("loss", "joined")),
    System("plain model, bf16", "ours", "bf16", False, ALL_KERNELS),
    System("plain model, fp32", "ours", "fp32", False, ALL_KERNELS),
)


class TorchTransformer(nn.Module):
    """`torch.nn.Transformer` with tied, scaled embeddings and sinusoids."""

    def __init__(self, config: TransformerConfig, vocab_size: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, config.d_model, padding_idx=PADDING_ID)
        nn.init.normal_(self.embedding.weight, std=config.d_model**-0.5)
        self.dropout = nn.Dropout(config.dropout)
        self.transformer = nn.Transformer(
            config.d_model,
            config.num_heads,
            config.num_layers,
            config.num_layers,
            config.d_ff,
            config.dropout,
            batch_first=True,
        )
        self.register_buffer("positions", sinusoids(1024, config.d_model).float())

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Source (B, S), target (B, T) -> logits (B, T, V)."""
        padding = source == PADDING_ID
        causal = nn.Transformer.generate_square_subsequent_mask(
            target.size(1), device=target.device, dtype=torch.bool
        )
        states = self.transformer(
            self._embed(source),
            self._embed(target),
            tgt_mask=causal,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
            tgt_is_causal=True,
        )
        return F.linear(states, self.embedding.weight)

    def _embed(self, token_ids: Tensor) -> Tensor:
        scaled = self.embedding(token_ids) * math.sqrt(self.embedding.embedding_dim)
        positions: Any = self.positions
        embedded: Tensor = self.dropout(scaled + positions[: token_ids.size(1)])
        return embedded


class Marian(nn.Module):
    """Hugging Face's `MarianMTModel` at the same sizes."""

    def __init__(self, config: TransformerConfig, vocab_size: int) -> None:
        from transformers import MarianConfig, MarianMTModel

        super().__init__()
        self.model = MarianMTModel(
            MarianConfig(
                vocab_size=vocab_size,
                d_model=config.d_model,
                encoder_layers=config.num_layers,
                decoder_layers=config.num_layers,
                encoder_ffn_dim=config.d_ff,
                decoder_ffn_dim=config.d_ff,
                encoder_attention_heads=config.num_heads,
                decoder_attention_heads=config.num_heads,
                activation_function="relu",
                dropout=config.dropout,
                attention_dropout=0.0,
                scale_embedding=True,
                pad_token_id=PADDING_ID,
                decoder_start_token_id=START_ID,
                forced_eos_token_id=None,
            )
        )

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Source (B, S), target (B, T) -> logits (B, T, V)."""
        logits: Tensor = self.model(
            input_ids=source, attention_mask=source != PADDING_ID, decoder_input_ids=target
        ).logits
        return logits


def peer(
    work: Work, make: str, dtype: torch.dtype, *, compiled: bool = False
) -> Callable[[list[Any]], None]:
    """Make the step of a plain loop with a peer's model."""
    device = torch.device(work.device)
    model = {"torch.nn": TorchTransformer, "marian": Marian}[make](work.config, work.vocab_size)
    model.to(device).train()
    optimizer = torch.optim.Adam(
        model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=device.type == "cuda"
    )
    if compiled:
        model.compile(dynamic=True)
    batching, _ = work.steps_of_batches()

    def loss_of(batch: Batch) -> Tensor:
        with autocast(device, dtype):
            logits = model(batch.source, batch.target_input)
            return F.cross_entropy(
                logits.flatten(0, 1),
                batch.target_output.flatten(),
                ignore_index=PADDING_ID,
                label_smoothing=SMOOTHING,
            )

    def step(batches: list[Any]) -> None:
        optimizer.zero_grad()
        for indices in batches:
            loss = loss_of(batching.collate(indices).to(device)) / len(batches)
            loss.backward()  # type: ignore[no-untyped-call]
            loss.item()
        optimizer.step()

    return step


def ours(work: Work, dtype: torch.dtype, system: System) -> Callable[[list[Any]], None]:
    """Make the step of `seq2seq train`, without some of its fast forms."""
    device = torch.device(work.device)
    torch.manual_seed(1)
    model = new_transformer(work.config, work.vocab_size).to(device)
    batching, _ = work.steps_of_batches()
    trainer = Trainer(
        model,
        batching,
        work.training(),
        device=device,
        dtype=dtype,
        seed=1,
        kernels=TrainingKernels(
            **(dict.fromkeys(system.without, False) | dict.fromkeys(system.extra, True))
        ),
    )
    if device.type == "cuda":
        trainer.fit_memory()  # as many micro-batches at once as fit
    model.train()

    def step(batches: list[Any]) -> None:
        trainer.start_update(batches)
        trainer.read_updates(leave=trainer.late)

    return step


def products(work: Work, dtype: torch.dtype) -> Callable[[list[Any]], None]:
    """The matrix products of a step and nothing else: forward, and both of backward.

    Rows are tokens without padding; only attention is counted over padded sentences.
    """
    config, device = work.config, torch.device(work.device)
    corpus = EncodedCorpus(work.corpus)
    width, queries, values = (
        config.d_model,
        config.num_heads * config.key_width,
        config.num_heads * config.value_width,
    )
    layers = config.num_layers

    def shapes(indices: Any) -> Iterable[tuple[tuple[int, int, int, int], int]]:
        """(batch, rows, inner, columns) of each forward product, and how often it is done."""
        source = int(corpus.source_lengths[indices].sum())
        target = int(corpus.target_lengths[indices].sum())
        longest_source = int(corpus.source_lengths[indices].max())
        longest_target = int(corpus.target_lengths[indices].max())
        for rows in (source, target):
            yield (1, rows, width, 2 * queries + values), layers  # self-attention, W^Q W^K W^V
            yield (1, rows, values, width), layers
            yield (1, rows, width, config.d_ff), layers
            yield (1, rows, config.d_ff, width), layers
        yield (1, target, width, queries), layers  # attention to the encoder
        yield (1, source, width, queries + values), layers
        yield (1, target, values, width), layers
        yield (1, target, width, work.vocab_size), 1
        heads = len(indices) * config.num_heads
        for rows, columns in (
            (longest_source, longest_source),
            (longest_target, longest_target),
            (longest_target, longest_source),
        ):
            yield (heads, rows, config.key_width, columns), layers
            yield (heads, rows, columns, config.value_width), layers

    buffers: dict[tuple[str, int, int, int], Tensor] = {}

    def buffer(role: str, batch: int, rows: int, columns: int) -> Tensor:
        key = (role, batch, rows, columns)
        if key not in buffers:
            shape = (rows, columns) if batch == 1 else (batch, rows, columns)
            buffers[key] = torch.randn(shape, device=device).to(dtype)
        return buffers[key]

    def step(batches: list[Any]) -> None:
        for indices in batches:
            for (batch, rows, inner, columns), count in shapes(indices):
                x, weight = buffer("x", batch, rows, inner), buffer("weight", batch, columns, inner)
                y, gradient = buffer("y", batch, rows, columns), buffer("dy", batch, rows, columns)
                x_gradient = buffer("dx", batch, rows, inner)
                weight_gradient = buffer("dw", batch, columns, inner)
                for _ in range(count):
                    torch.matmul(x, weight.mT, out=y)
                    torch.matmul(gradient, weight, out=x_gradient)
                    torch.matmul(gradient.mT, x, out=weight_gradient)

    return step


def measure(work: Work, system: System) -> dict[str, float]:
    """Warm up with one step, then measure seconds, tokens and peak memory of the others."""
    if system.keeps_memory:
        retain_freed_memory()
    logging.disable()
    dtype = torch.bfloat16 if system.precision == "bf16" else torch.float32
    step: Callable[[list[Any]], None]
    if system.make == "ours":
        step = ours(work, dtype, system)
    elif system.make == "products":
        step = products(work, dtype)
    else:
        step = peer(work, system.make, dtype, compiled="compiled" in system.extra)
    batching, steps = work.steps_of_batches()
    lengths = batching.corpus.source_lengths + batching.corpus.target_lengths
    cuda = work.device.startswith("cuda")
    # Run all steps once, since compilation and buffers depend on shapes.
    for batches in steps if cuda or system.make == "products" else steps[:1]:
        step(batches)
    if cuda:
        torch.cuda.synchronize(work.device)
    started = time.perf_counter()
    for batches in steps[1:]:
        step(batches)
    if cuda:
        torch.cuda.synchronize(work.device)
    seconds = (time.perf_counter() - started) / (len(steps) - 1)
    tokens = sum(int(lengths[indices].sum()) for batches in steps[1:] for indices in batches)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if cuda:
        peak = torch.cuda.max_memory_allocated(work.device)
    return {"seconds": seconds, "tokens": tokens / (len(steps) - 1), "peak": peak}


def measure_apart(work: Work, system: System) -> dict[str, float] | None:
    """Run `measure` in a new process; return None, and print the reason, if it fails."""
    words = json.dumps({"work": asdict(work), "system": asdict(system)})
    done = subprocess.run(
        [sys.executable, __file__, "--measure", words], capture_output=True, text=True, check=False
    )
    if done.returncode:
        print(f"{system.name}: {(done.stderr.strip() or 'killed').splitlines()[-1]}")
        return None
    measured: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return measured


def write_corpus(arguments: argparse.Namespace, folder: Path) -> Path:
    """Encode the text, or random tokens in sentences as long as captions."""
    if arguments.source:
        split = SplitConfig(source=arguments.source, target=arguments.target)
        tokenizer = TokenizerConfig(vocab_size=arguments.vocab_size)
        data = DataConfig(train=split, valid=split, tokenizer=tokenizer)
        return prepare(data, folder, lambda _: None).folder / TRAIN_FILE
    random = np.random.default_rng(1)
    path = folder / TRAIN_FILE
    with EncodedCorpusWriter(path, arguments.vocab_size) as writer:
        for _ in range(20_000):
            length = int(np.clip(random.normal(14, 4), 4, 40))
            sides = [
                random.integers(4, arguments.vocab_size, max(3, length + drift)).tolist()
                for drift in random.integers(-2, 3, 2)
            ]
            writer.write([sides[0]], [sides[1]])
    return path


def print_table(work: Work, results: dict[System, list[dict[str, float]]]) -> None:
    """Print medians over the rounds, and the range of the speed."""
    peak = {precision: matmul_peak(work.device, precision) for precision in ("bf16", "fp32")}
    median = {
        system: {key: statistics.median(r[key] for r in rounds) for key in rounds[0]}
        for system, rounds in results.items()
    }
    alone = {s.precision: measured for s, measured in median.items() if s.make == "products"}
    print(
        "| | tokens/s | range | seconds a step | peak GiB | efficiency | utilization |\n"
        "|---|---|---|---|---|---|---|"
    )
    corpus = EncodedCorpus(work.corpus)
    lengths = (float(corpus.source_lengths.mean()), float(corpus.target_lengths.mean()))
    for system, rounds in results.items():
        measured, seconds = median[system], median[system]["seconds"]
        speeds = sorted(r["tokens"] / r["seconds"] for r in rounds)
        flops = step_flops(
            work.config,
            work.vocab_size,
            source_tokens=measured["tokens"] * lengths[0] / sum(lengths),
            target_tokens=measured["tokens"] * lengths[1] / sum(lengths),
            source_length=lengths[0],
            target_length=lengths[1],
        )
        efficiency = ""
        if system.precision in alone:
            efficiency = f"{alone[system.precision]['seconds'] / seconds:.2f}"
        print(
            f"| {system.name} | {measured['tokens'] / seconds:,.0f} |"
            f" {speeds[0]:,.0f} to {speeds[-1]:,.0f} | {seconds:.3f} |"
            f" {measured['peak'] / 2**30:.1f} | {efficiency} |"
            f" {flops / seconds / peak[system.precision]:.2f} |"
        )
    print(
        f"\n{work.size}, vocabulary {work.vocab_size:,}, {work.tokens:,} + {work.tokens:,} tokens a"
        f" step, {len(rounds)} rounds of {work.steps} steps; torch {torch.__version__},"
        f" {work.device}, {torch.get_num_threads()} threads.\nEfficiency: the products' time / the"
        " step's, in the same precision. Utilization: the products' operations, counted, in the"
        f" step's time, of the best rate of a large product: {peak['bf16'] / 1e12:.2f} TFLOP/s in"
        f" bf16, {peak['fp32'] / 1e12:.2f} in fp32."
    )
    if work.device.startswith("cuda"):
        print(PUBLISHED)


def matmul_peak(device: str, precision: str) -> float:
    """Measure the best rate of a large product, in FLOP/s."""
    size = 8192 if device.startswith("cuda") else 2048
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    best = math.inf
    for _ in range(10):
        started = time.perf_counter()
        a @ b
        if device.startswith("cuda"):
            torch.cuda.synchronize(device)
        best = min(best, time.perf_counter() - started)
    return 2 * size**3 / best


def stop_early(*_: object) -> None:
    """Leave the rounds at a signal, of which `timeout` sends two."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit("stopped early")


def main() -> None:
    """Run the rounds and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--source", help="text of the source side (default: random tokens)")
    parser.add_argument("--target", help="text of the target side")
    parser.add_argument("--size", choices=SIZES, default="base")
    parser.add_argument("--vocab-size", type=int, default=8000)
    parser.add_argument("--tokens", type=int, default=4096, help="tokens of each side per step")
    parser.add_argument("--micro-batch-tokens", type=int, help="default: all tokens at once")
    parser.add_argument("--steps", type=int, default=4, help="timed steps of a measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument(
        "--kernels", action="store_true", help="ours, ours without each fast form, the plain model"
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", help="systems with these prefixes")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        words = json.loads(arguments.measure)
        system = {
            key: tuple(value) if isinstance(value, list) else value
            for key, value in words["system"].items()
        }
        print(json.dumps(measure(Work(**words["work"]), System(**system))))
        return
    kernels, table = KERNELS, SYSTEMS
    if arguments.device.startswith("cuda"):
        kernels, table = KERNELS_ON_A_GPU, ON_A_GPU
    systems = [
        system
        for system in ((table[0], *kernels) if arguments.kernels else table)
        if not arguments.only or system.name.startswith(tuple(arguments.only))
    ]
    if not systems:
        parser.error("--only names no system of this table")
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
        results: dict[System, list[dict[str, float]]] = {}
        signal.signal(signal.SIGTERM, stop_early)
        try:
            for _ in range(arguments.rounds):
                for system in systems:
                    if measured := measure_apart(work, system):
                        speed = measured["tokens"] / measured["seconds"]
                        print(f"{system.name}: {speed:,.0f} tokens/s", file=sys.stderr, flush=True)
                        results.setdefault(system, []).append(measured)
        finally:  # what was measured is shown, if not all
            if results:
                print_table(work, results)


if __name__ == "__main__":
    main()
