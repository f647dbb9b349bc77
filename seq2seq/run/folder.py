"""The folder of a run: where its files and its models are."""

import os
import shlex
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from seq2seq.errors import UserError
from seq2seq.files import MAX_BYTES, parse_json, read_regular_file
from seq2seq.model_folder import AVERAGED, BEST, CHECKPOINTS, check_model_path


class RunFolder:
    """The paths in a run's folder, of which any may be missing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = path / ".lock"
        self.config = path / "config.yaml"
        self.data = path / "data.json"
        """A record of the training data."""
        self.sessions = path / "sessions.jsonl"
        """A line for each start: the program, the command and the machine."""
        self.log = path / "train.log"
        self.metrics = path / "metrics.jsonl"
        self.events = path / "tensorboard"
        self.checkpoints = path / CHECKPOINTS
        self.best = path / BEST
        """The model whose validation was the best."""
        self.averaged = path / AVERAGED
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


def move_user_files_aside(folder: Path, log: Callable[[str], None]) -> None:
    """Rename a folder that a model must not replace: it holds a user's files, too."""
    try:
        check_model_path(folder)
    except UserError:
        aside = folder.with_name(f"{folder.name}_before")
        while os.path.lexists(aside):
            aside = aside.with_name(f"{aside.name}_")
        folder.rename(aside)
        log(f"{folder}: contains other files; renamed to {aside.name}")


def translate_command(
    model: str, target_languages: Sequence[str], model_class: str | None = None
) -> str:
    """Write the command that translates with a model into its first target language."""
    words = ["seq2seq", "translate", "--model", model]
    if model_class is not None:
        words += ["--model-class", model_class]
    if len(target_languages) > 1:
        words += ["--to", target_languages[0]]
    return f"{shlex.join(words)} < input > output"
