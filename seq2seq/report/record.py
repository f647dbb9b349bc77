"""The files that a run writes at its end: scores, and its settings as a command."""

import json
import os
import shlex
from collections.abc import Iterator
from contextlib import chdir, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from seq2seq.config import TransformerConfig
from seq2seq.errors import UserError
from seq2seq.files import MAX_BYTES, parse_json, read_regular_file, write_file
from seq2seq.model_folder import checkpoints
from seq2seq.run.checkpoint import progress_file, read_progress
from seq2seq.run.config import Config
from seq2seq.run.data_record import DataRecord, read_data_record
from seq2seq.run.folder import RunFolder
from seq2seq.run.records import read_metrics
from seq2seq.run.resume import RunState
from seq2seq.score import Score
from seq2seq.settings import SettingKind, flat, settings_of
from seq2seq.text import without_secrets
from seq2seq.trainer import Metrics

PLACES = frozenset(dict(settings_of(Config(), SettingKind.place)))
"""Settings that say where a run is, and not what it is."""
_LARGEST = 1e100  # of a run's figures; above it, differences could be infinite
VOCABULARY = "data.tokenizer."
SAMPLING = "data.tokenizer.sampling"
"""A run with init_from has the vocabulary of its initial model; of these settings, only SAMPLING is
its own."""
# A run with init_from takes these from its initial model by default; its command names them.
_DROPOUTS = {
    f"model.{name}" for name, _ in settings_of(TransformerConfig(), SettingKind.changeable)
}


@contextmanager
def folder_of_text(run: Path) -> Iterator[None]:
    """Work in the folder in which relative paths of a run's text begin, if it is still there."""
    record = read_data_record(run) or DataRecord()
    with chdir(record.folder if os.path.isdir(record.folder) else "."):
        yield


@dataclass(frozen=True)
class ScoreRecord:
    """The scores of the model that a run has ended with."""

    model: str
    """The folder of the model in that of the run."""
    search: dict[str, float]
    sets: dict[str, list[Score]]
    """By the set: `valid`, `test`, the name of another validation set, or `test/NAME`."""


def record_scores(run: Path, record: ScoreRecord) -> None:
    """Write the scores of a run, for `read_scores`."""
    content = json.dumps(asdict(record), indent=2).encode()
    write_file(RunFolder(run).scores, content + b"\n", MAX_BYTES)


def read_scores(run: Path) -> ScoreRecord | None:
    """Read the scores of a run; None if there are none, or they are corrupt."""
    path = RunFolder(run).scores
    with suppress(UserError):
        return parse_json(path, read_regular_file(path, MAX_BYTES), ScoreRecord)
    return None


def newest_state(run: Path) -> RunState | None:
    """Read the state in a run's newest checkpoint; None if there is none, or it is corrupt."""
    with suppress(UserError, IndexError):
        newest = checkpoints(run)[-1]
        content = json.dumps(read_progress(newest)).encode()
        return parse_json(progress_file(newest), content, RunState, extra="ignore")
    return None


def read_figures(run: Path) -> Iterator[Metrics]:
    """Read the figures of a run, but for those that can't be drawn, or that JSON can't hold."""
    path = RunFolder(run).metrics
    for record in read_metrics(path) if path.is_file() else ():
        yield {name: value for name, value in record.items() if abs(value) <= _LARGEST}


def record_average(run: Path, checkpoints: int) -> None:
    """Record of how many checkpoints `averaged/` is the mean, if training is finished.

    The scores are those of the model before, and are removed.
    """
    folder = RunFolder(run)
    folder.scores.unlink(missing_ok=True)
    if finished := folder.read_finished():
        finished["averaged"] = checkpoints
        write_file(folder.finished, json.dumps(finished).encode())


def train_command(config: Config) -> str:
    """Write a configuration as a command: every value that is not the default of its key.

    The command makes a new run, without `PLACES` and without the secrets of URLs.
    """
    defaults, values = flat(asdict(Config())), flat(asdict(config))
    skipped, always = set(PLACES), {"data.tokenizer.vocab_size"}  # data=files has another default
    if config.init_from is not None:
        always |= _DROPOUTS
        skipped |= {key for key in values if key.startswith(VOCABULARY)} - {SAMPLING}
    words = []
    for key, value in values.items():
        if key not in skipped and (key in always or value != defaults.get(key)):
            words.append(f"{key}={value if isinstance(value, str) else json.dumps(value)}")
    return without_secrets(shlex.join(["seq2seq", "train", "data=files", *words]))


def known_settings(config: Config) -> dict[str, Any]:
    """Return the settings that have a value, by their dotted names, without secrets of URLs."""
    return {
        key: without_secrets(value) if isinstance(value, str) else value
        for key, value in flat(asdict(config)).items()
        if value is not None
    }
