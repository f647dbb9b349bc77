"""What training records of its data and its machine, for the report."""

import json
import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import chdir, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from seq2seq.config import TransformerConfig
from seq2seq.data.checks import FilterCounts
from seq2seq.data.corpus import Split
from seq2seq.data.preparation import PreparedData
from seq2seq.errors import UserError
from seq2seq.files import MAX_BYTES, parse_json, read_regular_file, write_file
from seq2seq.model_folder import checkpoints
from seq2seq.run.checkpoint import read_progress
from seq2seq.run.config import Config
from seq2seq.run.folder import RunFolder
from seq2seq.score import Score
from seq2seq.settings import Kind, flat, settings_of
from seq2seq.text import without_secrets

PLACES = frozenset(dict(settings_of(Config(), Kind.place)))
"""Settings that say where a run is, and not what it is."""
VOCABULARY = "data.tokenizer."
SAMPLING = "data.tokenizer.sampling"
"""A run with init_from has the vocabulary of its initial model; of these settings, only SAMPLING is
its own."""
# Of these, the initial model's are the defaults, so that its command names them.
_DROPOUTS = {f"model.{name}" for name, _ in settings_of(TransformerConfig(), Kind.changeable)}
_PERCENTILES = (0, 5, 25, 50, 75, 95, 100)


@dataclass(frozen=True)
class DataRecord:
    """What training records of its data."""

    counts: dict[str, FilterCounts] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    """Overlaps of the splits, and signs of misaligned text."""
    sha256: dict[str, str] = field(default_factory=dict)
    folder: str = "."
    """The folder in which the run was started: relative paths of its text begin there."""
    lengths: list[tuple[int, int, int]] = field(default_factory=list)
    """For each percentile, the tokens of a training source and of a target."""


def data_record(data: PreparedData) -> bytes:
    """Return the record of the training data as JSON."""
    sides = data.train.lengths()
    percentiles = np.percentile(sides, _PERCENTILES, axis=1, method="nearest").astype(int)
    record = DataRecord(
        counts=data.counts,
        warnings=data.warnings,
        sha256=_sums(data.splits),
        folder=os.getcwd(),
        lengths=list(zip(_PERCENTILES, *percentiles.T.tolist(), strict=True)),
    )
    # A file name that is not UTF-8 holds half surrogate pairs, which JSON spells as escapes.
    text = json.dumps(asdict(record), indent=2, ensure_ascii=False)
    return without_secrets(text).encode(errors="backslashreplace")


def read_data_record(run: Path) -> DataRecord | None:
    """Read the record of the training data; None if there is none, or it is corrupt."""
    path = RunFolder(run).data
    with suppress(UserError):
        content = parse_json(path, read_regular_file(path, MAX_BYTES), dict[str, Any])
        for key in content.keys() - vars(DataRecord()).keys():
            del content[key]  # of another version
        return parse_json(path, json.dumps(content).encode(), DataRecord)
    return None


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
    write_file(RunFolder(run).scores, json.dumps(asdict(record), indent=2).encode() + b"\n")


def read_scores(run: Path) -> ScoreRecord | None:
    """Read the scores of a run; None if there are none, or they are corrupt."""
    path = RunFolder(run).scores
    with suppress(UserError):
        return parse_json(path, read_regular_file(path, MAX_BYTES), ScoreRecord)
    return None


def newest_progress(run: Path) -> dict[str, Any]:
    """Read the progress of a run's newest checkpoint; empty if there is none, or it is corrupt."""
    with suppress(UserError, IndexError):
        return read_progress(checkpoints(run)[-1])
    return {}


def record_average(run: Path, checkpoints: int) -> None:
    """Record of how many checkpoints `averaged/` is the mean, if training is finished.

    The scores are those of the model before, and are removed.
    """
    folder = RunFolder(run)
    folder.scores.unlink(missing_ok=True)
    if finished := folder.read_finished():
        finished["averaged"] = checkpoints
        write_file(folder.finished, json.dumps(finished).encode())


def _sums(splits: Sequence[Split]) -> dict[str, str]:
    """Return the sha256 of each file, or the digest of a data set's split."""
    sums = {}
    for split in splits:
        files = {} if split.is_dataset else split.files()
        for side, file in files.items():
            sums[f"{split.name}.{side}: {os.path.basename(file)}"] = split.sums[side]
        if not files:
            sums[f"{split.name}: {split}"] = split.fingerprint
    return sums


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
