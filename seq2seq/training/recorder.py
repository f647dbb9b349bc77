"""The records of a training: `metrics.jsonl`, TensorBoard events, learning curve and log."""

import json
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from seq2seq.storage.atomic import read_regular_file, write_file
from seq2seq.training.config import TrainingConfig
from seq2seq.training.display import Display
from seq2seq.training.progress import Progress

_MAX_BYTES = 2**30  # millions of records


class Recorder(Protocol):
    """Receives the progress and the metrics of a training."""

    def show_progress(self, progress: Progress) -> None:
        """Called after each update."""

    def record_metrics(self, progress: Progress, metrics: Mapping[str, float]) -> None:
        """Called every `log_steps` updates, and before each validation."""

    def record_validation(
        self, progress: Progress, metrics: Mapping[str, float], *, is_best: bool
    ) -> None:
        """Called after each validation."""

    def close(self) -> None:
        """Called at the end."""


class NullRecorder:
    """Records nothing; used by all processes but the main one, and by tests."""

    def show_progress(self, progress: Progress) -> None:
        """Do nothing."""

    def record_metrics(self, progress: Progress, metrics: Mapping[str, float]) -> None:
        """Do nothing."""

    def record_validation(
        self, progress: Progress, metrics: Mapping[str, float], *, is_best: bool
    ) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class RunRecorder:
    """Records a training in its run folder and shows it.

    Args:
        run: the run folder.
        progress: the progress so far; records of later steps are dropped, since those steps will
            be repeated.
        config: the limits of the training.
    """

    def __init__(self, run: Path, progress: Progress, config: TrainingConfig) -> None:
        with warnings.catch_warnings():
            # TensorBoard imports what it doesn't need, some of it deprecated.
            warnings.simplefilter("ignore")
            from torch.utils.tensorboard import SummaryWriter
        self.path = run / "metrics.jsonl"
        self.picture = run / "learning_curve.png"
        self.records: list[dict[str, float]] = []
        if self.path.exists():
            self.records = [r for r in read_metrics(self.path) if r["step"] <= progress.step]
        content = "".join(json.dumps(record) + "\n" for record in self.records)
        write_file(self.path, content.encode())
        self.writer = SummaryWriter(str(run / "tensorboard"), purge_step=progress.step + 1)
        self.display = Display(progress, config.max_steps, config.max_minutes)

    def show_progress(self, progress: Progress) -> None:
        """Update the progress bar."""
        self.display.show_progress(progress)

    def record_metrics(self, progress: Progress, metrics: Mapping[str, float]) -> None:
        """Write metrics, with names such as `train/loss`, to all outputs."""
        self._write(progress.step, metrics)
        self.display.log_metrics(progress, metrics)

    def record_validation(
        self, progress: Progress, metrics: Mapping[str, float], *, is_best: bool
    ) -> None:
        """Write a validation's metrics to all outputs and redraw the learning curve."""
        self._write(progress.step, metrics)
        self.writer.flush()
        draw_learning_curve(self.records, self.picture)
        self.display.log_validation(progress, metrics, is_best=is_best)

    def close(self) -> None:
        """Close the progress bar and the event file."""
        self.display.close()
        self.writer.close()

    def _write(self, step: int, metrics: Mapping[str, float]) -> None:
        record = {"step": step, **metrics}
        self.records.append(record)
        with self.path.open("a") as file:
            file.write(json.dumps(record) + "\n")
        for name, value in metrics.items():
            self.writer.add_scalar(name, value, step)


def draw_learning_curve(records: Sequence[Mapping[str, float]], path: Path) -> None:
    """Draw the losses and the validation BLEU by step."""
    from matplotlib.figure import Figure

    def curve(name: str) -> tuple[list[float], list[float]]:
        points = [(record["step"], record[name]) for record in records if name in record]
        return [step for step, _ in points], [value for _, value in points]

    figure = Figure(figsize=(10, 4), layout="constrained")
    losses, bleu = figure.subplots(1, 2)
    for name, label in (("train/loss", "training, smoothed"), ("valid/loss", "validation")):
        losses.plot(*curve(name), label=label)
    losses.set(xlabel="step", ylabel="nats per target token", title="loss")
    losses.legend()
    bleu.plot(*curve("valid/bleu"), marker="o", markersize=3)
    bleu.set(xlabel="step", ylabel="BLEU", title="validation BLEU")
    for axes in (losses, bleu):
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=110)


def read_metrics(path: Path) -> list[dict[str, float]]:
    """Read the records of a `metrics.jsonl`; skip damaged lines, such as an incomplete one.

    Raises:
        UserError: if the file can't be read.
    """
    records = []
    for line in read_regular_file(path, _MAX_BYTES).split(b"\n"):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict) and all(
            type(value) in (int, float) for value in record.values()
        ):
            records.append(record)
    return records
