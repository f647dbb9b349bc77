"""`progress.json` of a checkpoint: the progress of a run, and its settings."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from seq2seq.errors import UserError
from seq2seq.files.strict import parse_json
from seq2seq.settings import Setting

NonNegativeInt = Annotated[int, Meta(ge=0)]
NonNegativeFloat = Annotated[float, Meta(ge=0)]


@dataclass
class StepMetrics:
    """The metrics of one update, or their sums over several."""

    steps: int = 0
    smoothed: float = 0.0
    """Label-smoothed loss in nats, summed over the target tokens."""
    cross_entropy: float = 0.0
    """Loss without label smoothing, in nats, summed over the target tokens."""
    source_tokens: int = 0
    target_tokens: int = 0
    gradient_norm: float = 0.0
    learning_rate: float = 0.0
    """Of the last update."""
    seconds: float = 0.0
    data_wait_seconds: float = 0.0
    """Seconds spent waiting for batches."""

    def add(self, update: "StepMetrics") -> None:
        """Add an update."""
        for name, value in vars(update).items():
            setattr(self, name, getattr(self, name) + value)
        self.learning_rate = update.learning_rate

    def summary(self) -> dict[str, float]:
        """Return losses per target token, tokens per step and second, and the share of waiting."""
        seconds = max(self.seconds, 1e-9)  # a clock may stand still
        return {
            "train/loss": self.smoothed / self.target_tokens,
            "train/perplexity": math.exp(min(self.cross_entropy / self.target_tokens, 700.0)),
            "train/gradient_norm": self.gradient_norm / self.steps,
            "train/learning_rate": self.learning_rate,
            "train/source_tokens": self.source_tokens / self.steps,
            "train/target_tokens": self.target_tokens / self.steps,
            "train/tokens_per_second": (self.source_tokens + self.target_tokens) / seconds,
            "train/waiting_for_data": self.data_wait_seconds / seconds,
        }


@dataclass
class Progress:
    """The state of training in addition to model and optimizer."""

    step: NonNegativeInt = 0
    """Updates done."""
    epoch: NonNegativeInt = 0
    batch: NonNegativeInt = 0
    """Micro-batches of this epoch that are done."""
    seconds: NonNegativeFloat = 0.0
    """Time spent, validation included."""
    validated_step: NonNegativeInt = 0
    """The updates done when the last validation was."""
    validated_seconds: NonNegativeFloat = 0.0
    """The time spent when the last validation was done."""
    best_score: float = -1.0
    """Of the best validation, its rounded BLEU or chrF, whichever selects; 0 if the loss does."""
    best_loss: float = 0.0
    best_step: NonNegativeInt = 0
    validations_without_improvement: int = 0
    """Validations since the best one."""
    validation_pending: bool = False
    """Whether this step is saved, and still to be validated."""
    unrecorded: StepMetrics = field(default_factory=StepMetrics)
    """The updates since the last record."""
    changes: list[str] = field(default_factory=list)
    """Settings that changed when the run was resumed, one line each."""
    ended: str = ""
    """The reason for the end; empty until then."""

    def is_better(self, rank: tuple[float, float]) -> bool:
        """Return whether a validation of this rank is better than the best one."""
        return rank > (self.best_score, -self.best_loss)

    def record_rank(self, rank: tuple[float, float]) -> bool:
        """Record the rank of a validation, and return whether it is the best so far."""
        if self.is_better(rank):
            self.best_score, self.best_loss, self.best_step = rank[0], -rank[1], self.step
            self.validations_without_improvement = 0
            return True
        self.validations_without_improvement += 1
        return False


FORMAT = 2

# How to keep those settings of a checkpoint that are not keys of the configuration.
_HINTS = {
    "data": " (the text, its filters or its encoding: compare the keys of data in config.yaml)",
    "micro_batches": " (it follows from training.micro_batch_tokens and the number of processes)",
}


@dataclass(frozen=True)
class RunState:
    """All that is saved in addition to weights and moments, so that a run can be resumed."""

    progress: Progress
    fixed: dict[str, Setting]
    """Settings that a resumed run must share: text, seed, batches, model."""
    changeable: dict[str, Setting]
    """Settings that may change, but then the result differs from that of an uninterrupted run."""

    def to_json(self) -> dict[str, Any]:
        """Return the content of the file."""
        return {"format": FORMAT, **asdict(self)}

    def restored(
        self, path: Path, saved: dict[str, Any], defaults: Mapping[str, Setting]
    ) -> "RunState":
        """Return a saved state, if this one may resume from it.

        Settings that it doesn't name, because an earlier version wrote it, had their defaults.
        """
        if saved.get("format") != FORMAT:
            written = repr(saved.get("format"))[:100]
            raise UserError(f"{path}: written in format {written}, this version reads {FORMAT}")
        content = {name: value for name, value in saved.items() if name != "format"}
        before: RunState = parse_json(path, json.dumps(content).encode(), RunState)
        for name in self.fixed.keys() & defaults.keys():
            before.fixed.setdefault(name, defaults[name])
        for name in self.changeable.keys() & defaults.keys():
            before.changeable.setdefault(name, defaults[name])
        for name in {**self.fixed, **before.fixed}:
            then, now = before.fixed.get(name), self.fixed.get(name)
            if then != now:
                raise UserError(
                    f"{path}: was trained with {name[:100]}={repr(then)[:100]}, now {now!r}:"
                    " resume with what it was trained with, or start a new run_dir"
                    f"{_HINTS.get(name, '')}"
                )
        return before

    def changes(self, before: "RunState") -> list[str]:
        """Describe each changed setting in one line."""
        return [
            f"{name}: {before.changeable.get(name)} before, {now} now"
            for name, now in self.changeable.items()
            if before.changeable.get(name) != now
        ]
