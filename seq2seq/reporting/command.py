"""The commands that a run tells its reader: to train it again, and to translate with it."""

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from seq2seq.config import Config
from seq2seq.model.config import DROPOUTS

PLACES = ("run_dir", "cache", "resume")
"""Settings that say where a run is, and not what it is."""
# What `data=files` sets to other values than the package's defaults.
_OF_FILES = (
    "data.name",
    "data.source_language",
    "data.target_language",
    "data.tokenizer.vocab_size",
)
# What a training with init_from takes from its parent, or has to be told if it differs.
_VOCABULARY = "data.tokenizer."
_SAMPLING = "data.tokenizer.sampling"
_DROPOUTS = {f"model.{name}" for name in DROPOUTS}


def train_command(config: Config) -> str:
    """Write a configuration as a command: every value that is not the default of its key.

    The command makes a new run: `PLACES` are left out.
    """
    defaults, values = flat(asdict(Config())), flat(asdict(config))
    left_out, always = {*PLACES}, {*_OF_FILES}
    if config.init_from is not None:
        always |= _DROPOUTS
        left_out |= {key for key in values if key.startswith(_VOCABULARY)} - {_SAMPLING}
    words = [
        f"{key}={_value(value)}"
        for key, value in values.items()
        if key not in left_out and (key in always or value != defaults.get(key))
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
