"""The metrics of an update, and their sums over several."""

import math
from dataclasses import dataclass
from typing import NamedTuple


class StepMetrics(NamedTuple):
    """The metrics of one update."""

    smoothed: float
    """Label-smoothed loss in nats, summed over the target tokens."""
    cross_entropy: float
    """Loss without label smoothing, in nats, summed over the target tokens."""
    source_tokens: int
    """Source tokens, padding not counted."""
    target_tokens: int
    """Target tokens, padding not counted."""
    gradient_norm: float
    learning_rate: float
    seconds: float
    waited: float
    """Seconds of these spent waiting for batches."""


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
    """The learning rate of the last update."""
    seconds: float = 0.0
    waited: float = 0.0

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
        self.waited += step.waited

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
            "train/waiting_for_data": self.waited / seconds,
        }
