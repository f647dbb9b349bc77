"""The record of a run's data, `data.json`: counts, warnings, sums and lengths, for the report."""

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from seq2seq.data.checks import FilterCounts
from seq2seq.data.corpus import Split
from seq2seq.data.preparation import PreparedData
from seq2seq.errors import UserError
from seq2seq.files import MAX_BYTES, parse_json, read_regular_file
from seq2seq.run.folder import RunFolder
from seq2seq.text import without_secrets

_PERCENTILES = (0, 5, 25, 50, 75, 95, 100)


@dataclass(frozen=True)
class DataRecord:
    """The record of a run's data."""

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
