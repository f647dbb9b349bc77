"""What a training tells of itself: its progress, its metrics and its validations."""

from collections.abc import Mapping
from typing import TypeAlias, TypeVar

from seq2seq.data.preparation import PreparedData
from seq2seq.training.config import TrainingConfig
from seq2seq.training.state import Progress

Metrics: TypeAlias = Mapping[str, float]
T = TypeVar("T")


class Recorder:
    """Records a run from its start to its end, in the main process; this class records nothing.

    It must not raise.
    """

    def start_log(self) -> None:
        """Called when the run folder may be written to."""

    def record_data(self, data: PreparedData) -> None:
        """Called before training."""

    def open(self, progress: Progress, config: TrainingConfig, *, on_cpu: bool = False) -> None:
        """Called before training, which goes on from this progress."""

    def show_progress(self, progress: Progress) -> None:
        """Called after each update, before its metrics are recorded."""

    def show_validation(self, done: int, lines: int) -> None:
        """Called after each batch that a validation translates."""

    def record_metrics(self, progress: Progress, metrics: Metrics) -> None:
        """Called every `log_steps` updates, and before each validation."""

    def record_validation(self, progress: Progress, metrics: Metrics, *, is_best: bool) -> None:
        """Called after each validation."""

    def close(self) -> None:
        """Called after training."""

    def report(self, device: str) -> None:
        """Called once the models of a finished run are saved."""

    def is_reported(self) -> bool:
        """Return whether a finished run needs no further report."""
        return True


def describe_validation(metrics: Metrics) -> str:
    """Describe the metrics of a validation."""
    described = (
        f"validation loss {metrics['valid/loss']:.3f}, perplexity"
        f" {metrics['valid/perplexity']:.2f}, BLEU {metrics['valid/bleu']:.2f}"
    )
    if "valid/chrf" in metrics:
        described += f", chrF {metrics['valid/chrf']:.2f}"
    others = [
        f"{name} {bleu:.2f}" for name, bleu in bleu_by_set(metrics).items() if name != "valid"
    ]
    return f"{described} ({', '.join(others)})" if others else described


def bleu_by_set(metrics: Mapping[str, T]) -> dict[str, T]:
    """Return what is known of the BLEU of each validation set, and of their mean, by name."""
    return {set_name(name): known for name, known in metrics.items() if name.endswith("/bleu")}


def set_name(metric: str) -> str:
    """Return the validation set of `valid/bleu` or `valid/NAME/bleu`."""
    first, *middle, _ = metric.split("/")
    return middle[0] if middle else first
