"""The command that trains a run again."""

import shlex
from dataclasses import asdict
from typing import Any

from seq2seq.config import Config

PLACES = ("run_dir", "cache", "resume")
"""Settings that say where a run is, and not what it is."""
# What `data=files` sets to other values than the package's defaults.
_OF_FILES = (
    "data.name",
    "data.source_language",
    "data.target_language",
    "data.tokenizer.vocab_size",
)


def train_command(config: Config) -> str:
    """Write a configuration as a command: every value that is not the default of its key.

    The command makes a new run: `PLACES` are left out.
    """
    defaults, values = flat(asdict(Config())), flat(asdict(config))
    words = [
        f"{key}={_value(value)}"
        for key, value in values.items()
        if key not in PLACES and (key in _OF_FILES or value != defaults.get(key))
    ]
    return shlex.join(["seq2seq", "train", "data=files", *words])


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
