"""What a run records: `metrics.jsonl`, TensorBoard events and a picture of its learning curve."""

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seq2seq.storage.atomic import read_regular_file, write_file

_MAX_BYTES = 2**30  # millions of records


class Metrics:
    """The records of one run folder.

    Args:
        run: the run folder.
        last_step: of a resumed run: records after it are dropped, they will be made again.
    """

    def __init__(self, run: Path, last_step: int) -> None:
        with warnings.catch_warnings():
            # TensorBoard imports what it doesn't need, some of it deprecated.
            warnings.simplefilter("ignore")
            from torch.utils.tensorboard import SummaryWriter
        self.path = run / "metrics.jsonl"
        self.picture = run / "learning_curve.png"
        self.records: list[dict[str, Any]] = []
        if self.path.exists():
            self.records = [r for r in read_metrics(self.path) if r["step"] <= last_step]
        content = "".join(json.dumps(record) + "\n" for record in self.records)
        write_file(self.path, content.encode())
        self.writer = SummaryWriter(str(run / "tensorboard"), purge_step=last_step + 1)

    def write(self, step: int, figures: Mapping[str, float]) -> None:
        """Record figures, whose names are like `train/loss`, at a step."""
        record = {"step": step, **figures}
        self.records.append(record)
        with self.path.open("a") as file:
            file.write(json.dumps(record) + "\n")
        for name, value in figures.items():
            self.writer.add_scalar(name, value, step)

    def draw(self) -> None:
        """Draw the learning curve anew."""
        self.writer.flush()
        from matplotlib.figure import Figure

        figure = Figure(figsize=(10, 4), layout="constrained")
        losses, bleu = figure.subplots(1, 2)
        for name, label in (("train/loss", "training, smoothed"), ("valid/loss", "validation")):
            losses.plot(*self._curve(name), label=label)
        losses.set(xlabel="step", ylabel="nats per target token", title="loss")
        losses.legend()
        bleu.plot(*self._curve("valid/bleu"), marker="o", markersize=3)
        bleu.set(xlabel="step", ylabel="BLEU", title="validation BLEU")
        for axes in (losses, bleu):
            axes.grid(alpha=0.3)
        figure.savefig(self.picture, dpi=110)

    def close(self) -> None:
        """Flush and close the event file."""
        self.writer.close()

    def _curve(self, name: str) -> tuple[list[int], list[float]]:
        points = [(record["step"], record[name]) for record in self.records if name in record]
        return [step for step, _ in points], [value for _, value in points]


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The records of a `metrics.jsonl`; lines that hold none, such as one cut off, are left out.

    Raises:
        UserError: the file can't be read.
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
