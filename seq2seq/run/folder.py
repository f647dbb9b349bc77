"""The folder of a run: where its files and its models are."""

import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from seq2seq.errors import UserError
from seq2seq.files import MAX_BYTES, parse_json, present_name, read_regular_file
from seq2seq.model_folder import WEIGHTS_FILE, holds_model


class RunFolder:
    """The paths in a run's folder, of which any may be missing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = path / ".lock"
        self.config = path / "config.yaml"
        self.data = path / "data.json"
        """What training recorded of its data."""
        self.sessions = path / "sessions.jsonl"
        """A line for each start: the program, the command and the machine."""
        self.log = path / "train.log"
        self.metrics = path / "metrics.jsonl"
        self.events = path / "tensorboard"
        self.checkpoints = path / "checkpoints"
        self.best = path / "best"
        """The model whose validation was the best."""
        self.averaged = path / "averaged"
        """The mean of the last checkpoints, if it is better."""
        self.finished = path / "finished.json"
        """Written when training and averaging are finished; says why training ended."""
        self.scores = path / "scores.json"
        """The scores of its model on the validation and test sets, which the report has found."""
        self.page = path / "report.html"

    @property
    def files(self) -> list[Path]:
        """The files that are a run's own, models and checkpoints not counted."""
        start = [self.config, self.data, self.sessions, self.log]
        return [*start, self.metrics, self.finished, self.scores]

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


_STEP_FOLDER = re.compile("step_([0-9]{1,18})")


def checkpoints(run: Path) -> list[Path]:
    """List the checkpoints of a run, the folders named by a step, oldest first."""
    folders: dict[int, Path] = {}
    for folder in RunFolder(run).checkpoints.glob("step_*"):
        match = _STEP_FOLDER.fullmatch(folder.name)
        if match and folder.is_dir():
            folders[int(match[1])] = folder
    return [folder for _, folder in sorted(folders.items())]


def find_model(run: Path) -> Path:
    """Find a run's model: the folder itself, else `averaged`, `best` or the last checkpoint."""
    if not present_name(run).is_dir():
        raise UserError(f"{run}: no folder of this name; give the run_dir of a run")
    if (run / "vocab.json").exists():
        raise UserError(f"{run}: is a model of Marian's: convert it with seq2seq import")
    files = RunFolder(run)
    for folder in (run, files.averaged, files.best, *reversed(checkpoints(run))):
        if holds_model(folder):
            return folder
    raise UserError(
        f"{run}: no model in it (no {WEIGHTS_FILE}, averaged, best or checkpoints): its training"
        " has saved none yet, or it is one of Marian's, which seq2seq import reads"
    )
