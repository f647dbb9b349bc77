"""The records of a training: `metrics.jsonl`, TensorBoard events, learning curve and log."""

import io
import json
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from seq2seq.errors import UserError
from seq2seq.storage.atomic import write_file
from seq2seq.storage.strict import read_regular_file
from seq2seq.training.config import TrainingConfig
from seq2seq.training.display import Display, bleu_by_set
from seq2seq.training.events import EventFile
from seq2seq.training.progress import Progress

logger = logging.getLogger("seq2seq")

METRICS = "metrics.jsonl"
_MAX_BYTES = 2**27  # a training of 300,000 steps, recorded at each, writes 100 MB
_MAX_RECORD_BYTES = 64 * 1024
_MAX_DIGITS = 18


class Recorder(Protocol):
    """Receives the progress and the metrics of a training."""

    def show_progress(self, progress: Progress) -> None:
        """Called after each update, before its metrics are recorded."""

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

    What can't be recorded while the training goes on is warned about once; it ends no training.

    Args:
        run: the run folder.
        progress: the progress so far; records of later steps are dropped, since those steps will
            be repeated.
        config: the limits of the training.

    Raises:
        UserError: if the metrics of an earlier part can't be read, or written again.
        OSError: if there can be no folder for TensorBoard.
    """

    def __init__(self, run: Path, progress: Progress, config: TrainingConfig) -> None:
        self.path = run / METRICS
        self.picture = run / "learning_curve.png"
        self.records: list[dict[str, float]] = []
        self.failed: set[str] = set()
        if self.path.exists():
            earlier = list(read_metrics(self.path))
            if damaged := len(self.path.read_bytes().splitlines()) - len(earlier):
                logger.warning(f"{self.path}: {damaged:,} lines are no records; they are left out")
            self.records = [record for record in earlier if record["step"] <= progress.step]
        self._write_records()
        self.events_folder = run / "tensorboard"
        self.events = EventFile(self.events_folder, progress.step + 1)
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
        self.display.log_validation(progress, metrics, is_best=is_best)
        self._write(progress.step, metrics)
        with self._or_warn(self.picture):
            draw_learning_curve(self.records, self.picture)

    def close(self) -> None:
        """Close the progress bar and the event file."""
        self.display.close()
        with self._or_warn(self.events_folder):
            self.events.close()

    def _write(self, step: int, metrics: Mapping[str, float]) -> None:
        record = {"step": step, **metrics}
        self.records.append(record)
        with self._or_warn(self.path):
            if str(self.path) in self.failed:  # a record may be missing, or be there in part
                self._write_records()
                self.failed.discard(str(self.path))
            else:
                with self.path.open("a") as file:
                    file.write(json.dumps(record) + "\n")
        with self._or_warn(self.events_folder):
            self.events.add(step, metrics)

    def _write_records(self) -> None:
        content = "".join(json.dumps(record) + "\n" for record in self.records)
        write_file(self.path, content.encode())

    @contextmanager
    def _or_warn(self, path: str | Path) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # matplotlib and TensorBoard raise whatever a setting leads to
            if str(path) not in self.failed:
                self.failed.add(str(path))
                reason = str(UserError(error)).removeprefix(f"{path}: ")[:300]
                logger.warning(f"{path}: not written: {reason}; the training goes on without it")


def draw_learning_curve(records: Sequence[Mapping[str, float]], path: Path) -> None:
    """Draw the losses, and the BLEU of each validation set, by step."""
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
    sets = {name: None for record in records for name in bleu_by_set(record)}
    for name in sets:
        key = f"valid/{name}/bleu" if name else "valid/bleu"
        bleu.plot(*curve(key), marker="o", markersize=3, label=name or "valid")
    if len(sets) > 1:
        bleu.legend()
    bleu.set(xlabel="step", ylabel="BLEU", title="validation BLEU")
    for axes in (losses, bleu):
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=110)


def read_metrics(path: Path) -> Iterator[dict[str, float]]:
    """Read the records of a `metrics.jsonl`; skip damaged lines, such as an incomplete one.

    An integer that no training counts to reads as infinity.

    Raises:
        UserError: if the file can't be read, or is larger than a training writes.
    """
    decoder = json.JSONDecoder(parse_int=_parse_int)
    for line in io.BytesIO(read_regular_file(path, _MAX_BYTES)):
        try:
            record = decoder.decode(line[:_MAX_RECORD_BYTES].decode())
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
