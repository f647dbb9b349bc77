"""Models and training states on disk: save, load, find the newest good one, average (6.1).

A model is a folder that stands alone: weights (safetensors), `config.json`, `tokenizer.model` (or a
SentencePiece model for each side and a table of pieces, in imported models) and a manifest with
each file's sha256. A checkpoint is a model folder with Adam's moments and the training's progress
beside it. Nothing in either is ever executed. The configuration is read first, then the tokenizer:
they determine the names, shapes and types that the tensors must have.
"""

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.optim import Optimizer

from seq2seq.data.pair_tokenizer import PairConfig, PairTokenizer
from seq2seq.data.tokenizer import PADDING_ID, START_ID, TOKENIZER_FILE, Tokenizer
from seq2seq.errors import UserError
from seq2seq.model import Transformer, TransformerConfig
from seq2seq.model.size import count_parameters, empty_transformer
from seq2seq.storage import format_1
from seq2seq.storage.atomic import (
    Pieces,
    add_file,
    present_name,
    remove_folder,
    remove_leftovers,
    write_folder,
)
from seq2seq.storage.manifest import MANIFEST, check_replaceable, read_folder, read_manifest
from seq2seq.storage.strict import (
    MAX_BYTES,
    check_schema,
    max_bytes,
    parse_json,
    parse_settings,
    parse_tensors,
    read_regular_file,
)
from seq2seq.storage.tensors import safetensors_pieces
from seq2seq.storage.tuned_search import TunedSearch

FORMAT = 2
"""The format to write; format 1, which had other names for the tensors, is still read."""

_WEIGHTS, _CONFIG = "model.safetensors", "config.json"
_OPTIMIZER, _PROGRESS = "optimizer.safetensors", "progress.json"
_VALIDATED = "validated.json"
MODEL_FILES = (_WEIGHTS, _CONFIG, TOKENIZER_FILE)
CARD_FILE = "README.md"
"""Describes a model; it is in a model folder once its training has ended."""
_PAIR_FILES = PairConfig(separate_vocabularies=True).files
_MAX_TOKENIZER_BYTES = 64 * 2**20  # some twenty times that of a vocabulary of 250,000 pieces
_MAX_READS = 10  # of a folder that other processes replace
_STEP_FOLDER = re.compile("step_([0-9]{1,18})")
_MOMENTS = ("step", "exp_avg", "exp_avg_sq")

T = TypeVar("T")


class _SavedConfig(NamedTuple):
    """The content of `config.json`."""

    format: int
    source_language: str
    target_language: str
    model: TransformerConfig
    pair: PairConfig | None
    """Options of the tokenizer, if each side has one."""
    search: TunedSearch | None


@dataclass(frozen=True)
class TrainedModel:
    """A model with its tokenizer and languages."""

    model: Transformer
    tokenizer: Tokenizer
    source_language: str
    target_language: str
    search: TunedSearch | None = None
    """The search that was tuned for it, if any."""


def new_transformer(
    config: TransformerConfig, vocab_size: int, source_vocab_size: int | None = None
) -> Transformer:
    """Make a model for this project's token ids.

    Raises:
        UserError: if its weights are larger than this machine's memory.
    """
    _check_memory(config, vocab_size, source_vocab_size)
    return Transformer(
        config,
        vocab_size=vocab_size,
        padding_id=PADDING_ID,
        start_id=START_ID,
        source_vocab_size=source_vocab_size,
    )


def unloaded_transformer(config: TransformerConfig, tokenizer: Tokenizer) -> Transformer:
    """Make a model on the meta device, for weights that take the place of its parameters.

    Raises:
        UserError: if its weights are larger than this machine's memory.
    """
    sizes = (tokenizer.vocab_size, tokenizer.source_vocab_size)
    if config.shared_embedding and sizes[0] != sizes[1]:
        raise UserError("shared_embedding is true, but each side has a vocabulary of its own")
    _check_memory(config, *sizes)
    return empty_transformer(
        config,
        vocab_size=sizes[0],
        padding_id=PADDING_ID,
        start_id=START_ID,
        source_vocab_size=sizes[1],
    )


def save_model(folder: Path, trained: TrainedModel) -> None:
    """Write a model folder.

    Raises:
        UserError: if it can't be written, or the folder holds something other than a model.
    """
    check_place_of_model(folder)
    write_folder(folder, _model_files(trained))


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
        manifest: the sum of its manifest, see `manifest_sum`, when it was tuned.
        edit_card: returns the new content of the model's card, if it has one.

    Raises:
        UserError: if it was replaced since then, can't be read or written, or holds more than a
            model.
    """
    check_place_of_model(folder)
    trained = load_model(folder)
    if manifest_sum(folder) != manifest:
        raise UserError(f"{folder}: replaced while it was tuned; tune it again")
    files = _model_files(replace(trained, search=search))
    if CARD_FILE in read_manifest(folder):  # users edit it, whatever its sum says
        files[CARD_FILE] = edit_card(read_regular_file(folder / CARD_FILE, MAX_BYTES))
    write_folder(folder, files)


def read_search(folder: Path) -> TunedSearch | None:
    """Read the search that was tuned for a model, None if none was.

    Raises:
        UserError: if the folder's configuration is missing or damaged.
    """
    return _read_config(folder).search


def check_place_of_model(folder: Path) -> None:
    """Check that a model may have this name: it is free, empty or that of a model alone.

    Raises:
        UserError: if something else is there, such as a checkpoint with the optimizer's state.
    """
    check_replaceable(folder)
    listed = set(read_manifest(folder)) if os.path.lexists(folder / MANIFEST) else set()
    if more := sorted(listed - {*MODEL_FILES, *_PAIR_FILES, CARD_FILE}):
        raise UserError(
            f"{folder}: holds more than a model ({more[0]}); choose another name, or move it away"
        )


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
    trained.model.load_state_dict(_read_weights(folder, trained.model), assign=True)
    trained.model.eval()
    return trained


def _identity(folder: Path) -> tuple[int, int] | None:
    try:
        status = folder.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def manifest_sum(folder: Path) -> str:
    """Return the sha256 of a model folder's manifest, and so of all that it lists.

    Raises:
        UserError: if it can't be read.
    """
    return hashlib.sha256(read_regular_file(folder / MANIFEST, MAX_BYTES)).hexdigest()


def find_model(run: Path) -> Path:
    """Find a run's model: the folder itself, else `averaged`, `best` or the last checkpoint.

    Raises:
        UserError: if there is none.
    """
    if not run.is_dir():
        raise UserError(f"{run}: no such folder; give the run_dir of a training")
    for folder in (run, run / "averaged", run / "best", *reversed(checkpoints(run))):
        # One that is just being replaced may be missed once, between its two names.
        if any((present_name(folder) / _WEIGHTS).is_file() for _ in range(_MAX_READS)):
            return folder
    raise UserError(
        f"{run}: no model in it (no {_WEIGHTS}, averaged, best or checkpoints); seq2seq import"
        " reads those of Marian"
    )


def save_checkpoint(
    run: Path, step: int, trained: TrainedModel, optimizer: Optimizer, progress: Mapping[str, Any]
) -> Path:
    """Write `checkpoints/step_<step>`: the model and what a resumed training needs.

    Raises:
        UserError: if it can't be written; other checkpoints are untouched.
    """
    folder = run / "checkpoints" / f"step_{step:08d}"
    names = [name for name, _ in trained.model.named_parameters()]
    moments = {
        f"{names[index]}.{moment}": value
        for index, state in optimizer.state_dict()["state"].items()
        for moment, value in state.items()
    }
    files = _model_files(trained)
    files[_OPTIMIZER] = safetensors_pieces(moments)
    files[_PROGRESS] = json.dumps(progress, indent=2).encode()
    write_folder(folder, files)
    return folder


def save_validation(folder: Path, progress: Mapping[str, Any]) -> None:
    """Add the progress after the validation to a checkpoint, whose other files stay as they are.

    Raises:
        UserError: if it can't be written; the checkpoint is then one that is not validated yet.
    """
    add_file(folder, _VALIDATED, json.dumps(progress, indent=2).encode())


def progress_file(folder: Path) -> Path:
    """The file of a checkpoint that holds the training's progress: after the validation, if any.

    Raises:
        UserError: if the checkpoint's manifest is missing or damaged.
    """
    listed = set(read_manifest(folder))
    # A damaged name must not pass for a checkpoint that is not validated yet.
    if unknown := listed - {*MODEL_FILES, *_PAIR_FILES, _OPTIMIZER, _PROGRESS, _VALIDATED}:
        raise UserError(f"{folder / MANIFEST}: damaged, it lists {min(unknown)[:100]!r}")
    return folder / (_VALIDATED if _VALIDATED in listed else _PROGRESS)


def read_progress(folder: Path) -> dict[str, Any]:
    """Read the progress that was saved in a checkpoint, from `progress_file`.

    Raises:
        UserError: if the file is missing or damaged.
    """
    path = progress_file(folder)
    progress = parse_json(path, _read(folder, path.name, MAX_BYTES))
    if not isinstance(progress, dict):
        raise UserError(f"{path}: damaged, no keys and values")
    return progress


def restore_checkpoint(folder: Path, model: Transformer, optimizer: Optimizer) -> dict[str, Any]:
    """Load a checkpoint's weights and moments into a model and its optimizer.

    Returns:
        The progress that was saved with them.

    Raises:
        UserError: if a file is missing or damaged, or belongs to another model.
    """
    weights = _read_weights(folder, model)
    moments = _read_moments(folder, model)
    progress = read_progress(folder)
    model.load_state_dict(weights)
    state = optimizer.state_dict()
    state["state"] = {
        index: {moment: moments[f"{name}.{moment}"] for moment in _MOMENTS}
        for index, (name, _) in enumerate(model.named_parameters())
    }
    optimizer.load_state_dict(state)
    return progress


def checkpoints(run: Path) -> list[Path]:
    """List the checkpoints of a run, the folders named by a step, oldest first."""
    steps = {
        int(found[1]): folder
        for folder in (run / "checkpoints").glob("step_*")
        if (found := _STEP_FOLDER.fullmatch(folder.name)) and folder.is_dir()
    }
    return [steps[step] for step in sorted(steps)]


def newest_good(run: Path, report: Callable[[str], None]) -> Path | None:
    """Find the newest checkpoint whose files can all be read, undamaged; report newer ones."""
    for parent in (run, run / "checkpoints", *checkpoints(run)):
        with suppress(PermissionError):  # found again below, where it is read
            remove_leftovers(parent)
    for folder in reversed(checkpoints(run)):
        try:
            model = read_description(folder).model
            _read(folder, _WEIGHTS, max_bytes(_expected_weights(folder, model)))
            _read(folder, _OPTIMIZER, max_bytes(_expected_moments(folder, model)))
            for name in {_PROGRESS, progress_file(folder).name}:
                _read(folder, name, MAX_BYTES)
        except UserError as error:
            report(f"{error}; going back to the checkpoint before")
        else:
            return folder
    return None


def set_aside_later(run: Path, newest: Path, report: Callable[[str], None]) -> None:
    """Rename and report the checkpoints after the newest good one.

    A training that goes on writes these steps anew, but they may be good ones that merely can't be
    read at the moment: because of its permissions, an error of the disk or a newer format.

    Raises:
        OSError: if one can't be renamed.
    """
    folders = checkpoints(run)
    for folder in folders[folders.index(newest) + 1 :]:
        aside = folder.with_name(f"unread_{folder.name}")
        while aside.exists():
            aside = aside.with_name(f"{aside.name}_")
        folder.rename(aside)
        report(f"{folder} is kept as {aside.name}; remove it if you don't need it")


def remove_old(run: Path, keep: int) -> None:
    """Keep that many checkpoints, the newest, and remove the others."""
    for folder in checkpoints(run)[:-keep]:
        remove_folder(folder)


def average(folders: Sequence[Path]) -> TrainedModel:
    """Compute the mean of several checkpoints' weights (section 6.1), in float64.

    Raises:
        UserError: if there are no folders, one is damaged, or they hold different models.
    """
    if not folders:
        raise UserError("no checkpoints to average")
    *others, last = folders
    mean = load_model(last)
    sums = {name: value.double() for name, value in mean.model.state_dict().items()}
    for folder in others:
        other = load_model(folder)
        if other.tokenizer.files() != mean.tokenizer.files():
            raise UserError(f"{folder}: another tokenizer than {last}: nothing to average")
        if _without_dropout(other.model.config) != _without_dropout(mean.model.config):
            raise UserError(f"{folder}: another model than {last}: nothing to average")
        for name, value in other.model.state_dict().items():
            sums[name] += value
    mean.model.load_state_dict({name: value / len(folders) for name, value in sums.items()})
    return replace(mean, search=None)


def _without_dropout(config: TransformerConfig) -> TransformerConfig:
    """Reset the dropout rates, which may differ between averaged checkpoints."""
    return replace(config, dropout=0.0, attention_dropout=0.0, relu_dropout=0.0)


def _model_files(trained: TrainedModel) -> dict[str, bytes | Pieces]:
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
        _WEIGHTS: safetensors_pieces(trained.model.state_dict()),
        _CONFIG: json.dumps(config, indent=2, default=lambda choice: choice.value).encode(),
        **trained.tokenizer.files(),
    }


def _read(folder: Path, name: str, limit: int) -> bytes:
    return read_folder(folder, (name,), max_bytes=limit)[name]


def _read_config(folder: Path) -> _SavedConfig:
    path = folder / _CONFIG
    saved = parse_json(path, _read(folder, _CONFIG, MAX_BYTES))
    if isinstance(saved, dict) and saved.get("format", FORMAT) not in (1, FORMAT):
        written = repr(saved["format"])[:100]
        raise UserError(f"{path}: written in format {written}, this version reads 1 and {FORMAT}")
    if not isinstance(saved, dict) or not isinstance(saved.get("model"), dict):
        raise UserError(f"{path}: not a configuration of this program")
    example = {"format": FORMAT, "source_language": "", "target_language": "", "model": {}}
    tokenizer, search = saved.pop("tokenizer", None), saved.pop("search", None)
    check_schema(path, saved | {"model": {}}, example)
    settings = TransformerConfig.unsaved() | saved["model"]
    return _SavedConfig(
        saved["format"],
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


def read_description(folder: Path) -> TrainedModel:
    """Read configuration and tokenizer; the model is on the meta device, without weights.

    Raises:
        UserError: if a file is missing or damaged, or the model is too large for this machine.
    """
    saved = _read_config(folder)
    tokenizer = _read_tokenizer(folder, saved)
    try:
        model = unloaded_transformer(saved.model, tokenizer)
    except UserError as error:
        raise UserError(f"{folder / _CONFIG}: {error}") from None
    languages = (saved.source_language, saved.target_language)
    return TrainedModel(model, tokenizer, *languages, saved.search)


def _read_tokenizer(folder: Path, saved: _SavedConfig) -> Tokenizer:
    read = partial(_read, folder, limit=_MAX_TOKENIZER_BYTES)
    if saved.pair is None:
        return Tokenizer.from_bytes(read(TOKENIZER_FILE), str(folder / TOKENIZER_FILE))
    files = {name: read(name) for name in saved.pair.files}
    languages = (saved.source_language, saved.target_language)
    return PairTokenizer.read(files, saved.pair, languages, folder)


def _check_memory(
    config: TransformerConfig, vocab_size: int, source_vocab_size: int | None = None
) -> None:
    parameters = count_parameters(config, vocab_size, source_vocab_size)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if parameters * torch.float32.itemsize > memory:
        raise UserError(
            f"a model of {parameters:,} parameters is too large for this machine's memory"
        )


def _expected_weights(folder: Path, model: Transformer) -> dict[str, Tensor]:
    """Names, shapes and types of the weights that a folder must hold."""
    weights = model.state_dict()
    if (saved := _read_config(folder)).format == 1:
        return format_1.expected_weights(weights, saved.model)
    return weights


def _read_weights(folder: Path, model: Transformer) -> dict[str, Tensor]:
    expected = _expected_weights(folder, model)
    content = _read(folder, _WEIGHTS, max_bytes(expected))
    weights = parse_tensors(folder / _WEIGHTS, content, expected)
    if (saved := _read_config(folder)).format == 1:
        return format_1.rename_weights(weights, model.state_dict(), saved.model)
    return weights


def _expected_moments(folder: Path, model: Transformer) -> dict[str, Tensor]:
    """Names, shapes and types of the moments of Adam that a folder must hold."""
    parameters: dict[str, Tensor] = dict(model.named_parameters())
    if (saved := _read_config(folder)).format == 1:
        parameters = format_1.number_parameters(parameters, saved.model)
    moments: dict[str, Tensor] = {}
    for name, parameter in parameters.items():
        moments[f"{name}.step"] = torch.empty((), dtype=torch.float32, device="meta")
        for moment in ("exp_avg", "exp_avg_sq"):
            moments[f"{name}.{moment}"] = torch.empty_like(parameter, device="meta")
    return moments


def _read_moments(folder: Path, model: Transformer) -> dict[str, Tensor]:
    path, expected = folder / _OPTIMIZER, _expected_moments(folder, model)
    content = _read(folder, _OPTIMIZER, max_bytes(expected))
    moments = parse_tensors(path, content, expected, "moments")
    for name, value in moments.items():
        if not name.endswith(".exp_avg") and (value < 0).any():
            raise UserError(f"{path}: {name} holds negative values, which Adam never writes")
    if (saved := _read_config(folder)).format == 1:
        return format_1.rename_moments(moments, dict(model.named_parameters()), saved.model)
    return moments
