"""The folder of a run: where its files are."""

import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from seq2seq.errors import UserError
from seq2seq.files.strict import MAX_BYTES, parse_json, read_regular_file

_STEP_FOLDER = re.compile("step_([0-9]{1,18})")


class RunFolder:
    """The paths in a run's folder, of which any may be missing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = path / ".lock"
        self.config = path / "config.yaml"
        self.data = path / "data.json"
        """What training recorded of its data."""
        self.log = path / "train.log"
        self.metrics = path / "metrics.jsonl"
        self.learning_curve = path / "learning_curve.png"
        self.events = path / "tensorboard"
        self.checkpoints = path / "checkpoints"
        self.best = path / "best"
        """The model whose validation was the best."""
        self.averaged = path / "averaged"
        """The mean of the last checkpoints, if it is better."""
        self.finished = path / "finished.json"
        """Written when training and averaging are finished; says why training ended."""
        self.page = path / "report.html"

    @property
    def files(self) -> list[Path]:
        """The files that are a run's own, models and checkpoints not counted."""
        return [self.config, self.data, self.log, self.metrics, self.learning_curve, self.finished]

    def checkpoint(self, step: int) -> Path:
        """The folder of a checkpoint."""
        return self.checkpoints / f"step_{step:08d}"

    def read_finished(self) -> dict[str, Any]:
        """Read `finished.json`; empty if there is none, or it is corrupt."""
        with suppress(UserError):
            content = parse_json(self.finished, read_regular_file(self.finished, MAX_BYTES))
            if isinstance(content, dict):
                return content
        return {}


def checkpoints(run: Path) -> list[Path]:
    """List the checkpoints of a run, the folders named by a step, oldest first."""
    steps = {
        int(match[1]): folder
        for folder in RunFolder(run).checkpoints.glob("step_*")
        if (match := _STEP_FOLDER.fullmatch(folder.name)) and folder.is_dir()
    }
    return [steps[step] for step in sorted(steps)]
