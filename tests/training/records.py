"""A tiny trainer, and what it records, kept."""

import time
from collections.abc import Callable, Mapping
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
        self.saves: list[int] = []

    def record_metrics(self, progress: Progress, metrics: Mapping[str, float], **_: bool) -> None:
        self.all.append((progress.step, dict(metrics)))

    record_validation = record_metrics

    def of(self, name: str) -> list[float]:
        return [metrics[name] for _, metrics in self.all if name in metrics]


def train(
    trainer: Trainer,
    validate: Callable[[], dict[str, float]] = lambda: {"valid/bleu": 0.0},
    save: Callable[[], None] = lambda: None,
    save_validation: Callable[[bool], None] = lambda is_best: None,
) -> Records:
    records = Records()

    def note_and_save() -> None:
        records.saves.append(trainer.progress.step)
        save()

    trainer.train(
        records,
        validate=validate,
        summarize=lambda shares: shares[0],
        save=note_and_save,
        save_validation=save_validation,
    )
    return records
