"""Model folders: save and load a model that stands alone.

A model folder holds weights (safetensors), `config.json`, `tokenizer.model` (or a SentencePiece
model for each side and a table of pieces, in imported models) and a manifest with each file's
sha256. Nothing in it is ever executed. The configuration is read first, then the tokenizer: they
determine the names, shapes and types that the tensors must have.
"""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from seq2seq.data.pair_tokenizer import PairConfig, PairTokenizer
from seq2seq.data.processor import tokenizer_errors
from seq2seq.data.tokenizer import PADDING_ID, START_ID, TOKENIZER_FILE, Tokenizer
from seq2seq.errors import UserError
from seq2seq.files.atomic import (
    Content,
    check_replaceable,
    present_name,
    remove_leftovers,
    write_folder,
)
from seq2seq.files.strict import (
    MANIFEST,
    MAX_BYTES,
    check_listed_file,
    manifest_sum,
    parse_json,
    read_folder,
    read_listed_file,
    read_manifest,
    read_regular_file,
)
from seq2seq.files.tensors import check_expected, max_bytes, read_tensors, save_tensors
from seq2seq.model import Transformer, TransformerConfig
from seq2seq.model.size import meta_transformer
from seq2seq.storage.trained_model import TrainedModel, TunedSearch

FORMAT = 2
WEIGHTS_FILE, _CONFIG = "model.safetensors", "config.json"
MODEL_FILES = (WEIGHTS_FILE, _CONFIG, TOKENIZER_FILE)
PAIR_FILES = PairConfig(separate_vocabularies=True).files
"""The files of a tokenizer with two sides, instead of `TOKENIZER_FILE`."""
CARD_FILE = "README.md"
"""Describes a model; it is in a model folder once its run has ended."""
_MAX_READS = 10  # of a folder that other processes replace
_MAX_CARD_BYTES = 16 * 2**20  # those of models of many languages have hundreds of KB of scores
_MAX_TOKENIZER_BYTES = 64 * 2**20  # some twenty times that of a vocabulary of 250,000 pieces


@dataclass
class SavedConfig:
    """The content of `config.json`."""

    format: int
    source_language: str
    target_language: str
    model: TransformerConfig
    tokenizer: PairConfig | None = None  # options of the tokenizer, if each side has one
    search: TunedSearch | None = None

    def __post_init__(self) -> None:
        """Check the format."""
        if self.format != FORMAT:
            raise UserError(f"written in format {self.format}, this version reads {FORMAT}")


def save_model(folder: Path, trained: TrainedModel) -> None:
    """Write a model folder."""
    check_model_path(folder)
    write_folder(folder, model_files(trained))


def save_search(
    folder: Path,
    search: TunedSearch,
    manifest: str,
    edit_card: Callable[[bytes], bytes] = lambda card: card,
) -> None:
    """Write a model folder again, whole or not at all, with the search that was tuned for it.

    `manifest` is the `manifest_sum` of the folder when it was tuned. `edit_card` returns the new
    content of the model's card, if it has one.
    """
    check_model_path(folder)
    trained = load_model(folder)
    if manifest_sum(folder) != manifest:
        raise UserError(f"{folder}: replaced while it was tuned; tune it again")
    files = model_files(replace(trained, search=search))
    if CARD_FILE in read_manifest(folder):  # users edit it, whatever its sum says
        files[CARD_FILE] = edit_card(read_card(folder))
    write_folder(folder, files)


def read_card(folder: Path) -> bytes:
    """Read the card of a model."""
    return read_regular_file(folder / CARD_FILE, _MAX_CARD_BYTES)


def read_search(folder: Path) -> TunedSearch | None:
    """Read the search that was tuned for a model, None if none was."""
    return read_config(folder).search


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


def check_model_path(folder: Path) -> None:
    """Check that a model may have this name: nothing but a model may be there."""
    remove_leftovers(folder)
    check_replaceable(folder)
    listed = set(read_manifest(folder)) if os.path.lexists(folder / MANIFEST) else set()
    # Files that no manifest lists, such as a user's notes, would be lost, too.
    found = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    if more := sorted((listed | found) - {*MODEL_FILES, *PAIR_FILES, CARD_FILE, MANIFEST}):
        raise UserError(
            f"{folder}: holds more than a model ({more[0]}); choose another name, or move it away"
        )


def model_files(trained: TrainedModel) -> dict[str, Content]:
    """Return the content of each file of a model folder, by its name."""
    config: dict[str, Any] = {
        "format": FORMAT,
        "source_language": trained.source_language,
        "target_language": trained.target_language,
        "model": trained.model.config.to_json(),
    }
    if isinstance(trained.tokenizer, PairTokenizer):
        config["tokenizer"] = asdict(trained.tokenizer.config)
    if trained.search is not None:
        config["search"] = asdict(trained.search)
    return {
        WEIGHTS_FILE: partial(save_tensors, trained.model.state_dict()),
        _CONFIG: json.dumps(config, indent=2, default=lambda choice: choice.value).encode(),
        **trained.tokenizer.files(),
    }


def holds_model(folder: Path) -> bool:
    """Return whether there is a model in a folder, also while it is just being replaced."""
    # It may be missed once, between its two names.
    return any((present_name(folder) / WEIGHTS_FILE).is_file() for _ in range(_MAX_READS))


def load_model(folder: Path) -> TrainedModel:
    """Read a model folder on the CPU, ready to translate, even while it is being replaced."""
    for _ in range(_MAX_READS):
        path = present_name(folder)
        before = _identity(path)
        try:
            found: TrainedModel | UserError = _load(path)
        except UserError as error:
            found = error
        # Otherwise another process has replaced it, and it may be of two models.
        if before == _identity(present_name(folder)):
            if isinstance(found, UserError):
                raise found
            return found
    raise UserError(f"{folder}: replaced repeatedly while it was read; try again")


def _load(folder: Path) -> TrainedModel:
    trained = read_description(folder)
    trained.model.load_state_dict(read_weights(folder, trained.model), assign=True)
    trained.model.eval()
    return trained


def _identity(folder: Path) -> tuple[int, int] | None:
    try:
        status = folder.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def read_description(folder: Path) -> TrainedModel:
    """Read configuration and tokenizer; the model is on the meta device, without weights."""
    saved = read_config(folder)
    tokenizer = _read_tokenizer(folder, saved)
    try:
        model = meta_transformer(
            saved.model,
            vocab_size=tokenizer.vocab_size,
            padding_id=PADDING_ID,
            start_id=START_ID,
            source_vocab_size=tokenizer.source_vocab_size,
        )
    except UserError as error:
        raise UserError(f"{folder / _CONFIG}: {error}") from None
    languages = (saved.source_language, saved.target_language)
    return TrainedModel(model, tokenizer, *languages, saved.search)


def read_config(folder: Path) -> SavedConfig:
    """Read the configuration of a model folder."""
    content = read_listed_file(folder, _CONFIG, MAX_BYTES)
    return parse_json(folder / _CONFIG, content, SavedConfig)


def _read_tokenizer(folder: Path, saved: SavedConfig) -> Tokenizer:
    names = [TOKENIZER_FILE] if saved.tokenizer is None else saved.tokenizer.files
    files = read_folder(folder, names, _MAX_TOKENIZER_BYTES)
    if saved.tokenizer is None:
        with tokenizer_errors(folder / TOKENIZER_FILE):
            return Tokenizer(files[TOKENIZER_FILE])
    languages = (saved.source_language, saved.target_language)
    with tokenizer_errors(folder):
        return PairTokenizer(files, saved.tokenizer, languages)


def read_weights(folder: Path, model: Transformer) -> dict[str, Tensor]:
    """Read the weights of a model folder, which must be those of this model."""
    return read_listed_tensors(folder, WEIGHTS_FILE, model.state_dict(), "weights")


def read_listed_tensors(
    folder: Path, name: str, expected: Mapping[str, Tensor], what: str
) -> dict[str, Tensor]:
    """Read a safetensors file that the manifest lists and that holds exactly these tensors."""
    check_listed_file(folder, name, max_bytes(expected))
    path = folder / name
    return read_tensors(path, lambda found: check_expected(path, found, expected, what))


def check_weights(folder: Path, model: Transformer) -> None:
    """Check that the weights are those that were written; they are not parsed."""
    check_listed_file(folder, WEIGHTS_FILE, max_bytes(model.state_dict()))
