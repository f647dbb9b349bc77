"""`progress.json` of a checkpoint: the progress of a run, and its settings."""

import json
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from seq2seq.errors import UserError
from seq2seq.files.strict import parse_json


class StepMetrics(NamedTuple):
    """The metrics of one update."""

    source_tokens: int
    target_tokens: int
    learning_rate: float
    data_wait_seconds: float
    """Seconds spent waiting for batches."""
    smoothed: float = 0.0
    """Label-smoothed loss in nats, summed over the target tokens."""
    cross_entropy: float = 0.0
    """Loss without label smoothing, in nats, summed over the target tokens."""
    gradient_norm: float = 0.0
    seconds: float = 0.0


@dataclass
class RunningMetrics:
    """Sums over the updates since the last record."""

    steps: int = 0
    smoothed: float = 0.0
    cross_entropy: float = 0.0
    source_tokens: int = 0
    target_tokens: int = 0
    gradient_norm: float = 0.0
    learning_rate: float = 0.0
    """Of the last update."""
    seconds: float = 0.0
    data_wait_seconds: float = 0.0

    def add(self, step: StepMetrics) -> None:
        """Add an update."""
        self.steps += 1
        self.smoothed += step.smoothed
        self.cross_entropy += step.cross_entropy
        self.source_tokens += step.source_tokens
        self.target_tokens += step.target_tokens
        self.gradient_norm += step.gradient_norm
        self.learning_rate = step.learning_rate
        self.seconds += step.seconds
        self.data_wait_seconds += step.data_wait_seconds

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

    step: int = 0
    """Updates done."""
    epoch: int = 0
    batch: int = 0
    """Micro-batches of this epoch that are done."""
    seconds: float = 0.0
    """Time spent, validation included."""
    validated_seconds: float = 0.0
    """The time spent when the last validation was done."""
    best_bleu: float = -1.0
    """The selecting score of the best validation, of whatever measure, and its loss."""
    best_loss: float = 0.0
    best_step: int = 0
    validations_without_improvement: int = 0
    """Validations since the best one."""
    validation_pending: bool = False
    """Whether this step is saved, and still to be validated."""
    unrecorded: RunningMetrics = field(default_factory=RunningMetrics)
    """The updates since the last record."""
    changes: list[str] = field(default_factory=list)
    """Settings that changed when the run was resumed, one line each."""
    ended: str = ""
    """The reason for the end; empty until then."""

    def __post_init__(self) -> None:
        """Refuse negative counts, which a file may hold."""
        for name in ("step", "epoch", "batch", "seconds", "validated_seconds", "best_step"):
            if getattr(self, name) < 0:
                raise UserError(f"{name} is {getattr(self, name)}: must be 0 or above")

    def is_better(self, rank: tuple[float, float]) -> bool:
        """Return whether a validation of this rank is better than the best one."""
        return rank > (self.best_bleu, -self.best_loss)

    def record_rank(self, rank: tuple[float, float]) -> bool:
        """Record the rank of a validation, and return whether it is the best so far."""
        if self.is_better(rank):
            self.best_bleu, self.best_loss, self.best_step = rank[0], -rank[1], self.step
            self.validations_without_improvement = 0
            return True
        self.validations_without_improvement += 1
        return False


FORMAT = 2

Setting: TypeAlias = bool | str | int | float | None


class ChangedSettingError(UserError):
    """A setting that a resumed run must share with its checkpoint has changed."""

    def __init__(self, path: Path, name: str, before: object, now: object) -> None:
        super().__init__(
            f"{path}: was trained with {name[:100]}={repr(before)[:100]}, now {now!r}:"
            " resume with what it was trained with, or start a new run_dir"
        )
        self.name = name


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

    def restored(self, path: Path, saved: dict[str, Any]) -> "RunState":
        """Return a saved state, if this one may resume from it, or raise ChangedSettingError."""
        if saved.get("format") != FORMAT:
            written = repr(saved.get("format"))[:100]
            raise UserError(f"{path}: written in format {written}, this version reads {FORMAT}")
        content = {name: value for name, value in saved.items() if name != "format"}
        before: RunState = parse_json(path, json.dumps(content).encode(), RunState)
        for name in {**self.fixed, **before.fixed}:
            # A key without a value may be missing.
            then, now = before.fixed.get(name), self.fixed.get(name)
            if then != now:
                raise ChangedSettingError(path, name, then, now)
        return before

    def changes(self, before: "RunState") -> list[str]:
        """Describe each changed setting in one line."""
        return [
            f"{name}: {before.changeable.get(name)} before, {now} now"
            for name, now in self.changeable.items()
            if before.changeable.get(name) != now
        ]
