"""Models and training states on disk: save, load, find the newest good one, average (6.1).

A model is a folder that stands alone: weights (safetensors), `config.json`, `tokenizer.model`
and a manifest with each file's sha256. A checkpoint is a model folder with Adam's moments and the
training's progress beside it. Nothing in either is ever executed.
"""

import json
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import Any, Union

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor
from torch.optim import Optimizer

from seq2seq.data.tokenizer import PADDING_ID, START_ID, Tokenizer
from seq2seq.errors import UserError
from seq2seq.folders import present_name, read_folder, remove_folder, remove_leftovers, write_folder
from seq2seq.model import Transformer, TransformerConfig

FORMAT = 1
_WEIGHTS, _CONFIG, _TOKENIZER = "model.safetensors", "config.json", "tokenizer.model"
_OPTIMIZER, _PROGRESS = "optimizer.safetensors", "progress.json"
MODEL_FILES = (_WEIGHTS, _CONFIG, _TOKENIZER)


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
    files = read_folder(folder, MODEL_FILES)
    tokenizer = Tokenizer.from_bytes(files[_TOKENIZER])
    config, languages = _read_config(folder / _CONFIG, files[_CONFIG])
    weights = _read_tensors(folder / _WEIGHTS, files[_WEIGHTS])
    if config.num_layers > len(weights):
        raise UserError(f"{folder / _WEIGHTS}: holds no {config.num_layers} layers")
    try:
        # Without memory or random numbers at first: the file's own tensors take the places.
        with torch.device("meta"):
            model = new_transformer(config, tokenizer.vocab_size)
    except (RuntimeError, TypeError) as error:
        raise UserError(f"{folder / _CONFIG}: sizes too large to make a model") from error
    _check_tensors(folder / _WEIGHTS, weights, model.state_dict())
    model.load_state_dict(weights, assign=True)
    return TrainedModel(model.eval(), tokenizer, *languages)


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
    raise UserError(f"{run}: no model in it (no {_WEIGHTS}, averaged, best or checkpoints)")


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
    files = read_folder(folder, (*MODEL_FILES, _OPTIMIZER, _PROGRESS))
    weights = _read_tensors(folder / _WEIGHTS, files[_WEIGHTS])
    _check_tensors(folder / _WEIGHTS, weights, model.state_dict())
    model.load_state_dict(weights)
    moments = _read_tensors(folder / _OPTIMIZER, files[_OPTIMIZER])
    state = optimizer.state_dict()
    state["state"] = {}
    for name, value in moments.items():
        index, key = name.split(".", 1)
        state["state"].setdefault(int(index), {})[key] = value
    optimizer.load_state_dict(state)
    progress: dict[str, Any] = json.loads(files[_PROGRESS])
    return progress


def checkpoints(run: Path) -> list[Path]:
    """The checkpoints of a run, oldest first."""
    return sorted((run / "checkpoints").glob("step_*"))


def newest_good(run: Path, report: typing.Callable[[str], None]) -> Path | None:
    """The newest checkpoint whose files are all there and undamaged; others are reported."""
    for parent in (run, run / "checkpoints"):
        remove_leftovers(parent)
    for folder in reversed(checkpoints(run)):
        try:
            read_folder(folder, (*MODEL_FILES, _OPTIMIZER, _PROGRESS))
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
    first = load_model(folders[0])
    sums = {name: value.double() for name, value in first.model.state_dict().items()}
    for folder in folders[1:]:
        other = load_model(folder)
        if other.tokenizer.model_bytes != first.tokenizer.model_bytes:
            raise UserError(f"{folder}: another tokenizer than {folders[0]}: nothing to average")
        if other.model.config != first.model.config:
            raise UserError(f"{folder}: another model than {folders[0]}: nothing to average")
        for name, value in other.model.state_dict().items():
            sums[name] += value
    first.model.load_state_dict({name: value / len(folders) for name, value in sums.items()})
    return first


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


def _read_config(path: Path, content: bytes) -> tuple[TransformerConfig, tuple[str, str]]:
    try:
        saved = json.loads(content)
        if saved["format"] != FORMAT:
            raise UserError(
                f"{path}: written in format {saved['format']!r}, this version reads format {FORMAT}"
            )
        languages = (str(saved["source_language"]), str(saved["target_language"]))
        config = _parse_config(path, saved["model"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"{path}: not a configuration of this program: {error!r}") from error
    return config, languages


def _parse_config(path: Path, saved: dict[str, Any]) -> TransformerConfig:
    types = typing.get_type_hints(TransformerConfig)
    expected = {field.name for field in fields(TransformerConfig)}
    if set(saved) != expected:
        odd = ", ".join(map(repr, sorted(set(saved) ^ expected)))
        raise UserError(f"{path}: unknown or missing keys: {odd}")
    values: dict[str, Any] = {
        name: _parse_value(path, name, types[name], saved[name]) for name in expected
    }
    return TransformerConfig(**values)


def _parse_value(path: Path, name: str, kind: Any, value: object) -> object:
    if typing.get_origin(kind) in (Union, UnionType):
        if value is None:
            return None
        kind = next(option for option in typing.get_args(kind) if option is not type(None))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(value)
    accepted = (int, float) if kind is float else (kind,)
    if type(value) not in accepted:
        raise UserError(f"{path}: {name} is {value!r}, not of type {kind.__name__}")
    return value


def _read_tensors(path: Path, content: bytes) -> dict[str, Tensor]:
    try:
        return safetensors.torch.load(content)
    except (SafetensorError, KeyError) as error:  # KeyError: of a type that torch has not
        raise UserError(f"{path}: not a safetensors file: {error}") from error


def _check_tensors(path: Path, found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    def describe(tensors: dict[str, Tensor]) -> Iterable[tuple[str, tuple[int, ...], torch.dtype]]:
        return ((name, tuple(value.shape), value.dtype) for name, value in tensors.items())

    odd = sorted(set(describe(found)) ^ set(describe(expected)), key=str)
    if odd:
        name, shape, dtype = odd[0]
        raise UserError(
            f"{path}: not the weights of its configuration: {name} {list(shape)} {dtype} and"
            f" {len(odd) - 1} more differ"
        )
