"""Model folders: save and load a model that stands alone.

A model folder holds weights (safetensors), `config.json`, `tokenizer.model` (or a SentencePiece
model for each side and a table of pieces, in imported models) and a manifest with each file's
sha256. Nothing in it is ever executed. The configuration is read first, then the tokenizer: they
determine the names, shapes and types that the tensors must have.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from seq2seq.data.pair_tokenizer import PairConfig, PairTokenizer
from seq2seq.data.tokenizer import PADDING_ID, START_ID, TOKENIZER_FILE, Tokenizer
from seq2seq.errors import UserError
from seq2seq.files.atomic import Pieces, present_name, remove_leftovers, write_folder
from seq2seq.files.manifest import (
    MANIFEST,
    check_replaceable,
    manifest_sum,
    read_listed_file,
    read_manifest,
)
from seq2seq.files.strict import (
    DTYPES,
    LENGTH_BYTES,
    MAX_BYTES,
    check_schema,
    max_bytes,
    parse_json,
    parse_settings,
    parse_tensors,
    read_regular_file,
)
from seq2seq.model import Transformer, TransformerConfig
from seq2seq.model.size import meta_transformer
from seq2seq.storage.trained_model import TrainedModel, TunedSearch


def safetensors_pieces(tensors: Mapping[str, Tensor]) -> Iterator[bytes | memoryview]:
    """The bytes that `safetensors.torch.save` returns at once: the header, then each tensor.

    `save` holds all of them twice, and where memory runs out it aborts the process.
    """
    # Sorted like the library's own files, so that each tensor is aligned.
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0]))
    header, end = {}, 0
    for name, tensor in ordered:
        start, end = end, end + tensor.numel() * tensor.element_size()
        dtype = DTYPES[str(tensor.dtype)]
        header[name] = {"dtype": dtype, "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % LENGTH_BYTES)
    yield len(text).to_bytes(LENGTH_BYTES, "little") + text
    for _, tensor in ordered:
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        yield flat.view(torch.uint8).numpy().data


FORMAT = 2

WEIGHTS_FILE, _CONFIG = "model.safetensors", "config.json"
MODEL_FILES = (WEIGHTS_FILE, _CONFIG, TOKENIZER_FILE)
PAIR_FILES = PairConfig(separate_vocabularies=True).files
"""Those of a tokenizer with two sides, in place of `TOKENIZER_FILE`."""
CARD_FILE = "README.md"
"""Describes a model; it is in a model folder once its training has ended."""
_MAX_READS = 10  # of a folder that other processes replace
_MAX_CARD_BYTES = 16 * 2**20  # those of models of many languages have hundreds of KB of scores
_MAX_TOKENIZER_BYTES = 64 * 2**20  # some twenty times that of a vocabulary of 250,000 pieces

T = TypeVar("T")


class SavedConfig(NamedTuple):
    """The content of `config.json`."""

    source_language: str
    target_language: str
    model: TransformerConfig
    pair: PairConfig | None
    """Options of the tokenizer, if each side has one."""
    search: TunedSearch | None


def save_model(folder: Path, trained: TrainedModel) -> None:
    """Write a model folder.

    Raises:
        UserError: if it can't be written, or the folder holds something other than a model.
    """
    check_place_of_model(folder)
    write_folder(folder, model_files(trained))


def save_search(
    folder: Path,
    search: TunedSearch,
    manifest: str,
    edit_card: Callable[[bytes], bytes] = lambda card: card,
) -> None:
    """Write a model folder anew, whole or not at all, with the search that was tuned for it.

    Args:
        folder: of a model alone.
        search: what the model is to translate with from now on.
        manifest: the sum of its manifest, by `manifest_sum`, when it was tuned.
        edit_card: returns the new content of the model's card, if it has one.

    Raises:
        UserError: if it was replaced since then, can't be read or written, or holds more than a
            model.
    """
    check_place_of_model(folder)
    trained = load_model(folder)
    if manifest_sum(folder) != manifest:
        raise UserError(f"{folder}: replaced while it was tuned; tune it again")
    files = model_files(replace(trained, search=search))
    if CARD_FILE in read_manifest(folder):  # users edit it, whatever its sum says
        files[CARD_FILE] = edit_card(read_card(folder))
    write_folder(folder, files)


def read_card(folder: Path) -> bytes:
    """Read the card of a model.

    Raises:
        UserError: if it can't be read.
    """
    return read_regular_file(folder / CARD_FILE, _MAX_CARD_BYTES)


def read_search(folder: Path) -> TunedSearch | None:
    """Read the search that was tuned for a model, None if none was.

    Raises:
        UserError: if the folder's configuration is missing or damaged.
    """
    return read_config(folder).search


def move_user_files_aside(folder: Path, report: Callable[[str], None]) -> None:
    """Rename what a model must not replace, such as one with a user's file beside it.

    Args:
        folder: the name that a model is to have.
        report: receives a line on what was renamed.

    Raises:
        OSError: if it can't be renamed.
    """
    try:
        check_place_of_model(folder)
    except UserError:
        aside = folder.with_name(f"{folder.name}_before")
        while os.path.lexists(aside):
            aside = aside.with_name(f"{aside.name}_")
        folder.rename(aside)
        report(f"{folder}: contains other files; renamed to {aside.name}")


def check_place_of_model(folder: Path) -> None:
    """Check that a model may have this name: it is free, empty or that of a model alone.

    Raises:
        UserError: if something else is there, such as a checkpoint with the optimizer's state, or
            a file of the user's own beside the model's.
    """
    remove_leftovers(folder)
    check_replaceable(folder)
    listed = set(read_manifest(folder)) if os.path.lexists(folder / MANIFEST) else set()
    # Files that no manifest lists, such as a user's notes, would be lost, too.
    found = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    if more := sorted((listed | found) - {*MODEL_FILES, *PAIR_FILES, CARD_FILE, MANIFEST}):
        raise UserError(
            f"{folder}: holds more than a model ({more[0]}); choose another name, or move it away"
        )


def model_files(trained: TrainedModel) -> dict[str, bytes | Pieces]:
    """Return the content of each file of a model folder, by its name."""
    config: dict[str, Any] = {
        "format": FORMAT,
        "source_language": trained.source_language,
        "target_language": trained.target_language,
        "model": trained.model.config.settings(),
    }
    if isinstance(trained.tokenizer, PairTokenizer):
        config["tokenizer"] = asdict(trained.tokenizer.config)
    if trained.search is not None:
        config["search"] = asdict(trained.search)
    return {
        WEIGHTS_FILE: safetensors_pieces(trained.model.state_dict()),
        _CONFIG: json.dumps(config, indent=2, default=lambda choice: choice.value).encode(),
        **trained.tokenizer.files(),
    }


def holds_model(folder: Path) -> bool:
    """Return whether there is a model in a folder, also while it is just being replaced."""
    # It may be missed once, between its two names.
    return any((present_name(folder) / WEIGHTS_FILE).is_file() for _ in range(_MAX_READS))


def load_model(folder: Path) -> TrainedModel:
    """Read a model folder on the CPU, ready to translate; a new one if it is just being replaced.

    Raises:
        UserError: if a file is missing or damaged, or the weights are not those of the
            configuration.
    """
    for _ in range(_MAX_READS):
        place = present_name(folder)
        before = _identity(place)
        try:
            found: TrainedModel | UserError = _load(place)
        except UserError as error:
            found = error
        # Otherwise another process has replaced it, and it may be of two models.
        if before == _identity(present_name(folder)):
            if isinstance(found, UserError):
                raise found
            return found
    raise UserError(f"{folder}: replaced again and again while it was read; try again")


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
    """Read configuration and tokenizer; the model is on the meta device, without weights.

    Raises:
        UserError: if a file is missing or damaged, or the model is too large for this machine.
    """
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
    """Read the configuration of a model folder.

    Raises:
        UserError: if it is missing, damaged or of another format.
    """
    path = folder / _CONFIG
    saved = parse_json(path, read_listed_file(folder, _CONFIG, MAX_BYTES))
    if isinstance(saved, dict) and saved.get("format", FORMAT) != FORMAT:
        written = repr(saved["format"])[:100]
        raise UserError(f"{path}: written in format {written}, this version reads {FORMAT}")
    if not isinstance(saved, dict) or not isinstance(saved.get("model"), dict):
        raise UserError(f"{path}: not a configuration of this program")
    example = {"format": FORMAT, "source_language": "", "target_language": "", "model": {}}
    tokenizer, search = saved.pop("tokenizer", None), saved.pop("search", None)
    check_schema(path, saved | {"model": {}}, example)
    settings = TransformerConfig.unsaved() | saved["model"]
    return SavedConfig(
        saved["source_language"],
        saved["target_language"],
        parse_settings(path, settings, TransformerConfig),
        None if tokenizer is None else _parse_part(path, "tokenizer", tokenizer, PairConfig),
        None if search is None else _parse_part(path, "search", search, TunedSearch),
    )


def _parse_part(path: Path, name: str, saved: object, schema: type[T]) -> T:
    check_schema(path, {} if isinstance(saved, dict) else saved, {}, name)
    assert isinstance(saved, dict)
    return parse_settings(path, saved, schema)


def _read_tokenizer(folder: Path, saved: SavedConfig) -> Tokenizer:
    read = partial(read_listed_file, folder, max_bytes=_MAX_TOKENIZER_BYTES)
    if saved.pair is None:
        return Tokenizer.from_bytes(read(TOKENIZER_FILE), str(folder / TOKENIZER_FILE))
    files = {name: read(name) for name in saved.pair.files}
    languages = (saved.source_language, saved.target_language)
    return PairTokenizer.read(files, saved.pair, languages, folder)


def read_weights(folder: Path, model: Transformer) -> dict[str, Tensor]:
    """Read the weights of a model folder.

    Raises:
        UserError: if they are missing or damaged, or those of another model.
    """
    expected = model.state_dict()
    content = _weights_content(folder, expected)
    return parse_tensors(folder / WEIGHTS_FILE, content, expected)


def check_weights(folder: Path, model: Transformer) -> None:
    """Check that the weights are those that were written; they are not parsed.

    Raises:
        UserError: if they are missing, damaged or larger than this model's.
    """
    _weights_content(folder, model.state_dict())


def _weights_content(folder: Path, expected: Mapping[str, Tensor]) -> bytes:
    return read_listed_file(folder, WEIGHTS_FILE, max_bytes(expected))
