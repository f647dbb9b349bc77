"""A tiny trainer, and what it records, kept."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from seq2seq.batches import Batching
from seq2seq.config import TrainingConfig, TransformerConfig
from seq2seq.device import Compute
from seq2seq.fast.updates import FastUpdater
from seq2seq.machine.processes import StopSignals
from seq2seq.model_folder import new_transformer
from seq2seq.trainer import Progress, Recorder, Trainer
from seq2seq.transformer import Transformer
from seq2seq.update import Updater

V = 60


def make_trainer(
    batching: Batching,
    *,
    seed: int = 1,
    double: bool = False,
    dropout: float = 0.0,
    form: type[Updater] = FastUpdater,
    parts: dict[str, Any] | None = None,
    clock: Callable[[], float] = time.perf_counter,
    **choices: Any,
) -> Trainer:
    """Make a trainer with other parts, and other options of the training, than the usual ones."""
    torch.manual_seed(seed)
    sizes = TransformerConfig(num_layers=1, d_model=16, d_ff=24, num_heads=2, dropout=dropout)
    model = new_transformer(sizes, V)
    # A step is `micro_batches` batches: the token counts are there to make that number.
    tokens = {"source_tokens": 1, "target_tokens": 1, "micro_batch_tokens": 1}
    limits = {"warmup_steps": 10, "max_steps": 20, "log_steps": 1, "checkpoint_minutes": None}
    updater = form(
        model.double() if double else model,
        batching,
        TrainingConfig(**(tokens | limits | choices)),
        seed=5,
        **({"compute": Compute()} | (parts or {})),
    )
    return Trainer(updater, signals=StopSignals(second_ends=True), clock=clock)


def trained_model(trainer: Trainer) -> Transformer:
    """Return the model that computes the losses, which a fast updater has copied."""
    updater = trainer.updater
    return updater.fast.model if isinstance(updater, FastUpdater) else updater.model


class Records(Recorder):
    """Keeps everything that is recorded."""

    def __init__(self) -> None:
        self.all: list[tuple[int, dict[str, float]]] = []

    def record_metrics(self, progress: Progress, metrics: Mapping[str, float], **_: bool) -> None:
        self.all.append((progress.step, dict(metrics)))

    record_validation = record_metrics

    def of(self, name: str) -> list[float]:
        return [metrics[name] for _, metrics in self.all if name in metrics]


@dataclass
class TinyRun:
    """Keeps everything that is recorded, and the steps that were saved; validates as it is told."""

    trainer: Trainer
    validate: Callable[[], dict[str, float]]
    act_on_save: Callable[[], object]
    save_validation: Callable[[bool], None]
    recorder: Records = field(default_factory=Records)
    saves: list[int] = field(default_factory=list)

    @property
    def all(self) -> list[tuple[int, dict[str, float]]]:
        return self.recorder.all

    def of(self, name: str) -> list[float]:
        return self.recorder.of(name)

    def summarize(self, shares: list[dict[str, float]]) -> dict[str, float]:
        return shares[0]

    def save(self) -> None:
        self.saves.append(self.trainer.progress.step)
        self.act_on_save()


def train(
    trainer: Trainer,
    validate: Callable[[], dict[str, float]] = lambda: {"valid/bleu": 0.0},
    save: Callable[[], object] = lambda: None,
    save_validation: Callable[[bool], None] = lambda is_best: None,
) -> TinyRun:
    run = TinyRun(trainer, validate, save, save_validation)
    trainer.train(run)
    return run
