"""A toy corpus and a training on it that takes a second."""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
from torch import Tensor

from seq2seq.cli.training import start_training
from seq2seq.config import TrainingConfig, TransformerConfig
from seq2seq.data.corpus import DataConfig, SplitConfig
from seq2seq.encoded_corpus import EncodedCorpus, Lengths, PairIndices, encode_ids, new_corpus
from seq2seq.machine.processes import OneProcess
from seq2seq.run.config import Config
from seq2seq.run.training import TrainingRun
from seq2seq.search import SearchConfig
from seq2seq.tokenizer import TokenizerConfig
from seq2seq.trainer import ReadyStep, Trainer
from seq2seq.transformer import Transformer
from seq2seq.update import StepMetrics

TINY_MODEL = ["model.num_layers=1", "model.d_model=16", "model.d_ff=16", "model.num_heads=2"]


def data_words(folder: Path) -> list[str]:
    """Return the words that train on `train.source`, ..., `valid.target` of a folder."""
    words = ["data=files"]
    for split, side in product(("train", "valid"), ("source", "target")):
        words.append(f"data.{split}.{side}={folder / split}.{side}")
    return words


def two_files(folder: Path, name: str, sources: list[str], targets: list[str]) -> dict[str, str]:
    """Write both sides of a corpus, and return their paths by side."""
    paths = {side: folder / f"{name}.{side}" for side in ("source", "target")}
    for path, lines in zip(paths.values(), (sources, targets), strict=True):
        path.write_text("".join(line + "\n" for line in lines))
    return {side: str(path) for side, path in paths.items()}


def reversing(folder: Path, name: str, sources: list[str]) -> SplitConfig:
    """Write a corpus whose targets are the sources, read backwards."""
    return SplitConfig(**two_files(folder, name, sources, [line[::-1] for line in sources]))


def validation(bleu: float, **others: float) -> dict[str, float]:
    """Return the metrics of a validation with this BLEU, and those of more sets, by name."""
    bleus = {"valid": bleu, **{f"valid/{name}": value for name, value in others.items()}}
    if others:
        bleus["valid/mean"] = sum(bleus.values()) / len(bleus)
    metrics: dict[str, float] = {}
    for name, value in bleus.items():
        metrics |= {f"{name}/loss": 1.0, f"{name}/perplexity": math.e, f"{name}/bleu": value}
    return metrics


def script_validation(
    monkeypatch: pytest.MonkeyPatch,
    validate: Callable[[TrainingRun, Transformer], dict[str, float]],
) -> None:
    """Let `validate` make the metrics of each validation."""
    monkeypatch.setattr(
        TrainingRun, "validate_share", lambda run, model, world: validate(run, model)
    )
    monkeypatch.setattr(TrainingRun, "summarize", lambda run, shares: shares[0])


def toy_config(folder: Path, sentences: list[str]) -> Config:
    """Return a training of four steps on `sentences`, with a checkpoint after each of them."""
    return Config(
        data=DataConfig(
            train=reversing(folder, "train", sentences[20:]),
            valid=reversing(folder, "valid", sentences[:10]),
            tokenizer=TokenizerConfig(vocab_size=60),
        ),
        model=TransformerConfig(num_layers=1, d_model=16, d_ff=16, num_heads=2, dropout=0.3),
        training=TrainingConfig(
            source_tokens=200,
            target_tokens=200,
            micro_batch_tokens=200,
            max_steps=4,
            warmup_steps=4,
            checkpoint_steps=1,
            checkpoint_minutes=None,
            average_checkpoints=2,
        ),
        search=SearchConfig(beam_size=2, max_extra_tokens=3),
        cache=str(folder / "cache"),
        device="cpu",
        precision="fp32",
    )


def train(config: Config, folder: Path, *, resume: bool = False, **training: Any) -> Path:
    """Run a training with other options of `config.training`, and return its folder."""
    chosen = replace(config, resume=resume, training=replace(config.training, **training))
    start_training(chosen, folder, "", OneProcess())
    return folder


def encoded_corpus(path: Path, vocab_size: int, pairs: int, longest: int = 9) -> EncodedCorpus:
    """Write random pairs of token ids; a target is its source backwards, and its first id again."""
    chance = random.Random(1)
    tokens = range(4, vocab_size)
    sources = [chance.choices(tokens, k=chance.randint(1, longest)) for _ in range(pairs)]
    targets = [source[::-1] + source[:1] for source in sources]
    with new_corpus(path) as write:
        write(encode_ids(sources, targets, vocab_size))
    return EncodedCorpus(path)


def update(trainer: Trainer, micro_batches: Sequence[PairIndices]) -> StepMetrics:
    """Do one update with the micro-batches of a step, and wait for its metrics."""
    progress, batches = trainer.progress, trainer.updater.collate(micro_batches)
    metrics = trainer.update(ReadyStep(batches, progress.epoch, progress.batch))
    metrics.add(trainer.finish_updates())
    return metrics


def weights(folder: Path) -> dict[str, Tensor]:
    """Read the weights of a model folder."""
    return safetensors.torch.load_file(folder / "model.safetensors")


class PairLengths(EncodedCorpus):
    """Pairs of given lengths (N, 2), without tokens, for batches that are only counted."""

    def __init__(self, lengths: Any) -> None:
        self.sides = np.asarray(lengths, dtype=np.int32).T

    def __len__(self) -> int:
        return self.sides.shape[1]

    def lengths(self, rows: PairIndices | None = None) -> tuple[Lengths, Lengths]:
        """See `EncodedCorpus.lengths`."""
        source, target = self.sides if rows is None else self.sides[:, rows]
        return source, target
