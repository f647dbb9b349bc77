"""Models and training states on disk: save, load, find the newest good one, average (6.1).

A model is a folder that stands alone: weights (safetensors), `config.json`, `tokenizer.model`
and a manifest with each file's sha256. A checkpoint is a model folder with Adam's moments and the
training's progress beside it. Nothing in either is ever executed, and each file is read only once
those before it have told what it must be: the configuration, the tokenizer, then the tensors.
"""

import json
import os
import re
import typing
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import Any, Union

import safetensors.torch
import torch
from torch import Tensor
from torch.optim import Optimizer

from seq2seq.data.tokenizer import PADDING_ID, START_ID, Tokenizer
from seq2seq.errors import UserError
from seq2seq.model import Transformer, TransformerConfig
from seq2seq.storage.atomic import (
    present_name,
    read_folder,
    remove_folder,
    remove_leftovers,
    write_folder,
)
from seq2seq.storage.strict import MAX_BYTES, check_schema, parse_json
from seq2seq.storage.tensors import max_bytes, parse_tensors

FORMAT = 1
_WEIGHTS, _CONFIG, _TOKENIZER = "model.safetensors", "config.json", "tokenizer.model"
_OPTIMIZER, _PROGRESS = "optimizer.safetensors", "progress.json"
MODEL_FILES = (_WEIGHTS, _CONFIG, _TOKENIZER)
_MAX_TOKENIZER_BYTES = 64 * 2**20  # some twenty times that of a vocabulary of 250,000 pieces
_MAX_LAYERS = 1000
_STEP_FOLDER = re.compile("step_([0-9]{1,18})")


@dataclass(frozen=True)
class TrainedModel:
    """A model with what it needs to translate text."""

    model: Transformer
    tokenizer: Tokenizer
    source_language: str
    target_language: str


def new_transformer(config: TransformerConfig, vocab_size: int) -> Transformer:
    """A model for this project's token ids."""
    return Transformer(config, vocab_size=vocab_size, padding_id=PADDING_ID, start_id=START_ID)


def save_model(folder: Path, trained: TrainedModel) -> None:
    """Write a model folder.

    Raises:
        UserError: it can't be written.
    """
    write_folder(folder, _model_files(trained))


def load_model(folder: Path) -> TrainedModel:
    """Read a model folder on the CPU, ready to translate.

    Raises:
        UserError: a file is missing or damaged, or the weights are not those of the configuration.
    """
    trained = _read_description(folder)
    trained.model.load_state_dict(_read_weights(folder, trained.model), assign=True)
    trained.model.eval()
    return trained


def find_model(run: Path) -> Path:
    """A run's model: the folder itself, else `averaged`, else `best`, else the last checkpoint.

    Raises:
        UserError: there is none.
    """
    if not run.is_dir():
        raise UserError(f"{run}: no such folder; give the run_dir of a training")
    kept = (present_name(run / name) for name in ("averaged", "best"))
    for folder in (run, *kept, *reversed(checkpoints(run))):
        if (folder / _WEIGHTS).is_file():
            return folder
    raise UserError(
        f"{run}: no model in it (no {_WEIGHTS}, averaged, best or checkpoints); models of other"
        " programs can't be read"
    )


def save_checkpoint(
    run: Path, step: int, trained: TrainedModel, optimizer: Optimizer, progress: Mapping[str, Any]
) -> Path:
    """Write `checkpoints/step_<step>`: the model and what a resumed training goes on from.

    Raises:
        UserError: it can't be written; older checkpoints are untouched.
    """
    folder = run / "checkpoints" / f"step_{step:08d}"
    moments = {
        f"{index}.{name}": value
        for index, state in optimizer.state_dict()["state"].items()
        for name, value in state.items()
    }
    files = _model_files(trained)
    files[_OPTIMIZER] = safetensors.torch.save(moments)
    files[_PROGRESS] = json.dumps(progress, indent=2).encode()
    write_folder(folder, files)
    return folder


def restore_checkpoint(folder: Path, model: Transformer, optimizer: Optimizer) -> dict[str, Any]:
    """Put a checkpoint's weights and moments into a model and its optimizer.

    Returns:
        The progress that was saved with them.

    Raises:
        UserError: a file is missing or damaged, or belongs to another model.
    """
    weights = _read_weights(folder, model)
    moments = _read_moments(folder, list(model.parameters()))
    path = folder / _PROGRESS
    progress = parse_json(path, _read(folder, _PROGRESS, MAX_BYTES))
    if not isinstance(progress, dict):
        raise UserError(f"{path}: damaged, no keys and values")
    model.load_state_dict(weights)
    state = optimizer.state_dict()
    state["state"] = {}
    for name, value in moments.items():
        index, key = name.split(".", 1)
        state["state"].setdefault(int(index), {})[key] = value
    optimizer.load_state_dict(state)
    return progress


def checkpoints(run: Path) -> list[Path]:
    """The checkpoints of a run, oldest first; what is not named by its step is none."""
    steps = {
        int(found[1]): folder
        for folder in (run / "checkpoints").glob("step_*")
        if (found := _STEP_FOLDER.fullmatch(folder.name)) and folder.is_dir()
    }
    return [steps[step] for step in sorted(steps)]


def newest_good(run: Path, report: typing.Callable[[str], None]) -> Path | None:
    """The newest checkpoint whose files are all there and undamaged; others are reported."""
    for parent in (run, run / "checkpoints"):
        remove_leftovers(parent)
    for folder in reversed(checkpoints(run)):
        try:
            model = _read_description(folder).model
            _read(folder, _WEIGHTS, max_bytes(model.state_dict()))
            _read(folder, _OPTIMIZER, max_bytes(_moments(list(model.parameters()))))
            _read(folder, _PROGRESS, MAX_BYTES)
        except UserError as error:
            report(f"{error}; going back to the checkpoint before")
        else:
            return folder
    return None


def remove_old(run: Path, newest: Path, keep: int) -> None:
    """Remove all but `keep` checkpoints up to the newest.

    Later steps than the newest are damaged ones that a resumed training went back behind.
    """
    folders = checkpoints(run)
    end = folders.index(newest) + 1
    for folder in folders[: max(0, end - keep)] + folders[end:]:
        remove_folder(folder)


def average(folders: Sequence[Path]) -> TrainedModel:
    """The mean of several checkpoints' weights (section 6.1), summed in float64.

    Raises:
        UserError: there is none, one is damaged, or they are not checkpoints of one model.
    """
    if not folders:
        raise UserError("no checkpoints to average")
    *others, last = folders
    mean = load_model(last)
    sums = {name: value.double() for name, value in mean.model.state_dict().items()}
    for folder in others:
        other = load_model(folder)
        if other.tokenizer.model_bytes != mean.tokenizer.model_bytes:
            raise UserError(f"{folder}: another tokenizer than {last}: nothing to average")
        if _without_dropout(other.model.config) != _without_dropout(mean.model.config):
            raise UserError(f"{folder}: another model than {last}: nothing to average")
        for name, value in other.model.state_dict().items():
            sums[name] += value
    mean.model.load_state_dict({name: value / len(folders) for name, value in sums.items()})
    return mean


def _without_dropout(config: TransformerConfig) -> TransformerConfig:
    """What must be equal of two models: dropout may change while a model is trained."""
    return replace(config, dropout=0.0, attention_dropout=0.0, relu_dropout=0.0)


def _model_files(trained: TrainedModel) -> dict[str, bytes]:
    config = {
        "format": FORMAT,
        "source_language": trained.source_language,
        "target_language": trained.target_language,
        "model": asdict(trained.model.config),
    }
    weights = {name: value.contiguous() for name, value in trained.model.state_dict().items()}
    return {
        _WEIGHTS: safetensors.torch.save(weights),
        _CONFIG: json.dumps(config, indent=2, default=lambda choice: choice.value).encode(),
        _TOKENIZER: trained.tokenizer.model_bytes,
    }


def _read(folder: Path, name: str, most: int) -> bytes:
    return read_folder(folder, (name,), max_bytes=most)[name]


def _read_description(folder: Path) -> TrainedModel:
    """Configuration, tokenizer and a model of them without weights, on the meta device."""
    path = folder / _CONFIG
    config, languages = _parse_description(path, _read(folder, _CONFIG, MAX_BYTES))
    if config.num_layers > _MAX_LAYERS:
        raise UserError(f"{path}: {config.num_layers:,} layers are too many: {_MAX_LAYERS} at most")
    tokenizer = Tokenizer.from_bytes(
        _read(folder, _TOKENIZER, _MAX_TOKENIZER_BYTES), str(folder / _TOKENIZER)
    )
    try:
        # Without memory or random numbers: the file's own tensors will take the places.
        with torch.device("meta"):
            model = new_transformer(config, tokenizer.vocab_size)
    except (RuntimeError, TypeError) as error:
        raise UserError(f"{path}: sizes too large to make a model") from error
    if max_bytes(model.state_dict()) > _memory_bytes():
        raise UserError(f"{path}: a model too large for this machine's memory")
    return TrainedModel(model, tokenizer, *languages)


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _read_weights(folder: Path, model: Transformer) -> dict[str, Tensor]:
    expected = model.state_dict()
    content = _read(folder, _WEIGHTS, max_bytes(expected))
    return parse_tensors(folder / _WEIGHTS, content, expected)


def _moments(parameters: Sequence[Tensor]) -> dict[str, Tensor]:
    """What Adam keeps of each parameter, by the names in a checkpoint, without its values."""
    moments: dict[str, Tensor] = {}
    for index, parameter in enumerate(parameters):
        moments[f"{index}.step"] = torch.empty((), dtype=torch.float32, device="meta")
        for name in ("exp_avg", "exp_avg_sq"):
            moments[f"{index}.{name}"] = torch.empty_like(parameter, device="meta")
    return moments


def _read_moments(folder: Path, parameters: Sequence[Tensor]) -> dict[str, Tensor]:
    path, expected = folder / _OPTIMIZER, _moments(parameters)
    content = _read(folder, _OPTIMIZER, max_bytes(expected))
    moments = parse_tensors(path, content, expected, "moments")
    for name, value in moments.items():
        if not name.endswith(".exp_avg") and (value < 0).any():
            raise UserError(f"{path}: {name} holds negative values, which Adam never writes")
    return moments


def _parse_description(path: Path, content: bytes) -> tuple[TransformerConfig, tuple[str, str]]:
    saved = parse_json(path, content)
    if isinstance(saved, dict) and saved.get("format", FORMAT) != FORMAT:
        written = repr(saved["format"])[:100]
        raise UserError(f"{path}: written in format {written}, this version reads format {FORMAT}")
    example = {"format": FORMAT, "source_language": "", "target_language": "", "model": {}}
    if not isinstance(saved, dict) or not isinstance(saved.get("model"), dict):
        raise UserError(f"{path}: not a configuration of this program")
    check_schema(path, saved | {"model": {}}, example)
    languages = (saved["source_language"], saved["target_language"])
    return _parse_config(path, saved["model"]), languages


def _parse_config(path: Path, saved: dict[str, Any]) -> TransformerConfig:
    types = typing.get_type_hints(TransformerConfig)
    expected = {field.name for field in fields(TransformerConfig)}
    if set(saved) != expected:
        odd = ", ".join(map(repr, sorted(set(saved) ^ expected)))
        raise UserError(f"{path}: unknown or missing keys: {odd[:200]}")
    values: dict[str, Any] = {
        name: _parse_value(path, name, types[name], saved[name]) for name in expected
    }
    try:
        return TransformerConfig(**values)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def _parse_value(path: Path, name: str, kind: Any, value: object) -> object:
    if typing.get_origin(kind) in (Union, UnionType):
        if value is None:
            return None
        kind = next(option for option in typing.get_args(kind) if option is not type(None))
    if isinstance(kind, type) and issubclass(kind, Enum):
        if value not in (choices := [choice.value for choice in kind]):
            raise UserError(f"{path}: {name} is {repr(value)[:100]}; choose {', '.join(choices)}")
        return kind(value)
    check_schema(path, value, kind(), name)
    return value
