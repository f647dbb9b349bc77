"""The parent of a training: the model named by `init_from`, from which it starts.

The training takes over its weights, its tokenizer and its sizes; Adam's moments, the learning rate
and the count of steps start anew.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from seq2seq.config import Config, read_config
from seq2seq.errors import UserError
from seq2seq.model import TransformerConfig
from seq2seq.model.config import DROPOUTS
from seq2seq.storage.checkpoint import checkpoints, find_model
from seq2seq.storage.manifest import read_manifest
from seq2seq.storage.model_folder import WEIGHTS_FILE, load_model, read_description
from seq2seq.storage.trained_model import TrainedModel

T = TypeVar("T")


@dataclass(frozen=True)
class Description:
    """What the configuration of a training takes over from its parent."""

    model: TransformerConfig
    vocab_size: int
    source_language: str
    target_language: str
    sha256: str | None
    """Of its weights; unknown only if a resumed run's config.yaml lacks it."""


def describe_parent(config: Config, run: Path) -> Description:
    """Read what a configuration takes over from the model of `init_from`, without the weights.

    A training that is resumed no longer needs its parent: all of that is in its own run folder.

    Args:
        config: the configuration.
        run: the folder of the run.

    Raises:
        UserError: if there is no model, it is damaged, or its weights are not those of
            `init_sha256`.
    """
    if config.resume and checkpoints(run):
        sha256 = read_config(run).init_sha256
    else:
        sha256 = read_manifest(_folder_of_parent(config)).get(WEIGHTS_FILE)
    if config.init_sha256 not in (None, sha256):
        raise UserError(
            f"init_from={config.init_from}: the sha256 of its {WEIGHTS_FILE} is {sha256}, not"
            f" init_sha256={config.init_sha256}: give the model that is meant"
        )
    found = _read(config, run, read_description)
    return Description(
        found.model.config,
        found.tokenizer.vocab_size,
        found.source_language,
        found.target_language,
        sha256,
    )


def load_parent(config: Config, run: Path) -> TrainedModel:
    """Load the model of `init_from`; of a training that is resumed, its newest checkpoint.

    Raises:
        UserError: if there is no model, it is damaged, or the configuration asks for other sizes.
    """
    parent = _read(config, run, load_model)
    own, sizes = asdict(config.model), asdict(parent.model.config)
    for name, value in own.items():
        if name not in DROPOUTS and value != sizes[name]:
            shown, known = (getattr(v, "value", v) for v in (value, sizes[name]))
            raise UserError(
                f"init_from={config.init_from}: model.{name}={shown} is not the model's {known}:"
                " leave model.* out"
            )
    return parent


def _read(config: Config, run: Path, read: Callable[[Path], T]) -> T:
    """Read the parent; of a training that is resumed, its newest checkpoint that can be read."""
    for folder in reversed(checkpoints(run)) if config.resume else ():
        with suppress(UserError):  # damaged; the training, too, goes back to the one before
            return read(folder)
    return read(_folder_of_parent(config))


def _folder_of_parent(config: Config) -> Path:
    assert config.init_from is not None
    return find_model(Path(config.init_from).expanduser())
