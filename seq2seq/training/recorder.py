"""What is recorded of a training: `metrics.jsonl`, TensorBoard events, learning curve and log."""

import io
import json
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from seq2seq.storage.atomic import read_regular_file, write_file
from seq2seq.training.config import TrainingConfig
from seq2seq.training.display import Display
from seq2seq.training.progress import Progress

_MAX_BYTES = 2**27  # a training of 300,000 steps, recorded at each, writes 100 MB
_MAX_RECORD_BYTES = 64 * 1024
_MAX_DIGITS = 18


class Recorder(Protocol):
    """What a trainer reports to."""

    def show_progress(self, progress: Progress) -> None:
        """After each update."""

    def record_metrics(self, progress: Progress, metrics: Mapping[str, float]) -> None:
        """Every `log_steps` updates, and before each validation."""

    def record_validation(
        self, progress: Progress, metrics: Mapping[str, float], *, is_best: bool
    ) -> None:
        """After each validation."""

    def close(self) -> None:
        """At the end."""


class NullRecorder:
    """Records nothing: for all processes but the main one, and for tests."""

    def show_progress(self, progress: Progress) -> None:
        """Nothing is shown."""

    def record_metrics(self, progress: Progress, metrics: Mapping[str, float]) -> None:
        """Nothing is recorded."""

    def record_validation(
        self, progress: Progress, metrics: Mapping[str, float], *, is_best: bool
    ) -> None:
        """Nothing is recorded."""

    def close(self) -> None:
        """Nothing is open."""


class RunRecorder:
    """Records a training in its run folder and shows it.

    Args:
        run: the run folder.
        progress: where the training stands; records of later steps, which will be made again, are
            dropped.
        config: when the training ends.
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
        """Move the progress bar."""
        self.display.show_progress(progress)

    def record_metrics(self, progress: Progress, metrics: Mapping[str, float]) -> None:
        """Write metrics, whose names are like `train/loss`, everywhere."""
        self._write(progress.step, metrics)
        self.display.log_metrics(progress, metrics)

    def record_validation(
        self, progress: Progress, metrics: Mapping[str, float], *, is_best: bool
    ) -> None:
        """Write a validation's metrics everywhere and draw the learning curve anew."""
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


def read_metrics(path: Path) -> Iterator[dict[str, float]]:
    """The records of a `metrics.jsonl`, without lines that are damaged, such as one cut off.

    An integer that no training counts to reads as infinity.

    Raises:
        UserError: if the file can't be read, or is larger than a training writes.
    """
    for line in io.BytesIO(read_regular_file(path, _MAX_BYTES)):
        try:
            record = json.loads(line[:_MAX_RECORD_BYTES], parse_int=_parse_int)
        except (ValueError, RecursionError):
            continue
        if (
            isinstance(record, dict)
            and all(type(value) in (int, float) for value in record.values())
            and type(record.get("step")) is int
        ):
            yield record


def _parse_int(digits: str) -> float:
    return int(digits) if len(digits) <= _MAX_DIGITS else math.inf
