"""What training records of its data and its machine, for the report."""

import json
import os
import platform
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from seq2seq.config import Config
from seq2seq.data.corpus import Split
from seq2seq.data.preparation import PreparedData
from seq2seq.errors import UserError
from seq2seq.files.atomic import write_file
from seq2seq.files.strict import MAX_BYTES, parse_json, read_regular_file
from seq2seq.model.config import DROPOUTS
from seq2seq.reporting.buckets import LENGTHS

DATA_FILE = "data.json"
FINISHED_FILE = "finished.json"
"""Is there once training and averaging are finished, and says why they ended."""
PERCENTILES = (0, 5, 25, 50, 75, 95, 100)
RATIOS = (0, 0.33, 0.5, 0.67, 0.8, 1, 1.25, 1.5, 2, 3)
"""Lower bounds of the histogram of target tokens per source token."""

_SIDES = {"source": [int], "target": [int]}
# What a record holds: types of values, of the items of a list, of values below any key (str).
_SHAPE: dict[str, Any] = {
    "counts": {str: {"read": int, "kept": int, "left_out": {str: int}}},
    "warnings": [str],
    "sha256": {str: str},
    "histogram": {"bounds": [int], **_SIDES},
    "ratios": {"bounds": [float], "pairs": [int]},
    "lengths": {"percentiles": [int], **_SIDES},
}


def data_record(data: PreparedData) -> bytes:
    """Return the counts, the warnings, the lengths and the sums of the training data, as JSON.

    `warnings` name overlaps of the splits and signs of misaligned text. For each side, `lengths`
    has the tokens of a training sentence at each of the `percentiles`, and `histogram` the number
    of sentences from each of the `bounds` to the next. `ratios` has the same for the target tokens
    per source token of a pair.
    """
    sides = {"source": data.train.source_lengths, "target": data.train.target_lengths}
    ratios = sides["target"] / sides["source"]
    record = {
        "counts": {
            split: {"read": counts.read, "kept": counts.kept, "left_out": counts.dropped}
            for split, counts in data.counts.items()
        },
        "warnings": data.warnings,
        "sha256": _sums(data.splits),
        "histogram": {
            "bounds": LENGTHS,
            **{
                side: np.histogram(lengths, [*LENGTHS, np.inf])[0].tolist()
                for side, lengths in sides.items()
            },
        },
        "ratios": {
            "bounds": RATIOS,
            "pairs": np.histogram(ratios, [*RATIOS, np.inf])[0].tolist(),
        },
        "lengths": {
            "percentiles": PERCENTILES,
            **{
                side: [int(n) for n in np.percentile(lengths, PERCENTILES, method="nearest")]
                for side, lengths in sides.items()
            },
        },
    }
    # A file name that is not UTF-8 holds half surrogate pairs, which JSON spells as escapes.
    return json.dumps(record, indent=2, ensure_ascii=False).encode(errors="backslashreplace")


def read_object(path: Path) -> dict[str, Any]:
    """Read a JSON object of a run; empty if there is none, or it is corrupt."""
    with suppress(UserError):
        content = parse_json(path, read_regular_file(path, MAX_BYTES))
        if isinstance(content, dict):
            return content
    return {}


def record_average(run: Path, checkpoints: int) -> None:
    """Record of how many checkpoints `averaged/` is the mean, if the training is finished."""
    if finished := read_object(run / FINISHED_FILE):
        finished["averaged"] = checkpoints
        write_file(run / FINISHED_FILE, json.dumps(finished).encode())


def read_data_record(run: Path) -> dict[str, Any]:
    """Read the record of the training data; empty if there is none, or it is corrupt."""
    record = read_object(run / DATA_FILE)
    known = record.keys() <= _SHAPE.keys()
    if not known or not all(_fits(value, _SHAPE[key]) for key, value in record.items()):
        return {}
    for key, first in (("histogram", "bounds"), ("ratios", "bounds"), ("lengths", "percentiles")):
        if len({len(values) for values in record.get(key, {first: []}).values()}) > 1:
            return {}
    return record


def validation_sums(record: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the sums of each validation set of a record, by the name of the set."""
    sums: dict[str, list[str]] = {}
    for file, digest in record.get("sha256", {}).items():
        split, *rest = file.partition(": ")[0].split(".")
        if split == "valid":
            sums.setdefault("valid", []).append(digest)
        elif split == "valid_sets":
            sums.setdefault(rest[0], []).append(digest)
    return sums


def _fits(value: object, shape: Any) -> bool:
    if isinstance(shape, list):
        return isinstance(value, list) and all(_fits(item, shape[0]) for item in value)
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return False
        shapes = dict.fromkeys(value, shape[str]) if str in shape else shape
        return value.keys() == shapes.keys() and all(_fits(value[k], shapes[k]) for k in shapes)
    return type(value) in ((int, float) if shape is float else (shape,))


def _sums(splits: Sequence[Split]) -> dict[str, str]:
    """Return the sha256 of each file, or the digest of a data set's split."""
    sums = {}
    for split in splits:
        if split.is_dataset:
            sums[f"{split.name}: {split}"] = split.fingerprint
        else:
            for side, file in split.files().items():
                sums[f"{split.name}.{side}: {os.path.basename(file)}"] = split.sums[side]
    return sums


def machine() -> str:
    """Name the processor of this machine."""
    path = Path("/proc/cpuinfo")
    for line in path.read_text(errors="replace").splitlines() if path.is_file() else ():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


LOCATION = ("run_dir", "cache", "resume")
"""Settings that say where a run is, and not what it is."""
# What `data=files` sets to other values than the package's defaults.
_OF_FILES = (
    "data.name",
    "data.source_language",
    "data.target_language",
    "data.tokenizer.vocab_size",
)
# What a run with init_from takes from its initial model, or has to be told if it differs.
_VOCABULARY = "data.tokenizer."
_SAMPLING = "data.tokenizer.sampling"
_DROPOUTS = {f"model.{name}" for name in DROPOUTS}


def train_command(config: Config) -> str:
    """Write a configuration as a command: every value that is not the default of its key.

    The command makes a new run, without `LOCATION`.
    """
    defaults, values = flat(asdict(Config())), flat(asdict(config))
    skipped, always = {*LOCATION}, {*_OF_FILES}
    if config.init_from is not None:
        always |= _DROPOUTS
        skipped |= {key for key in values if key.startswith(_VOCABULARY)} - {_SAMPLING}
    words = [
        f"{key}={_value(value)}"
        for key, value in values.items()
        if key not in skipped and (key in always or value != defaults.get(key))
    ]
    return shlex.join(["seq2seq", "train", "data=files", *words])


def translate_command(model: str, target_languages: Sequence[str]) -> str:
    """Write the command that translates with a model into its first target language."""
    words = ["seq2seq", "translate", "--model", model]
    if len(target_languages) > 1:
        words += ["--to", target_languages[0]]
    return f"{shlex.join(words)} < input > output"


def known_settings(config: Config) -> dict[str, Any]:
    """Return the settings that have a value, by their dotted names."""
    return {key: value for key, value in flat(asdict(config)).items() if value is not None}


def flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the values of nested dictionaries by their dotted keys; enumerations by value."""
    values: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            values |= flat(value, f"{prefix}{key}.")
        else:
            values[prefix + key] = getattr(value, "value", value)
    return values


def _value(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{','.join(map(str, value))}]"
    return str(value)
