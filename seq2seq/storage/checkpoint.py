"""Models and training states on disk: save, load, find the newest good one, average (6.1).

A model is a folder that stands alone: weights (safetensors), `config.json`, `tokenizer.model`
and a manifest with each file's sha256. A checkpoint is a model folder with Adam's moments and the
training's progress beside it. Nothing in either is ever executed. The configuration is read first,
then the tokenizer: they determine the names, shapes and types that the tensors must have.
"""

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import safetensors.torch
import torch
from torch import Tensor
from torch.optim import Optimizer

from seq2seq.data.tokenizer import PADDING_ID, START_ID, Tokenizer
from seq2seq.errors import UserError
from seq2seq.model import Transformer, TransformerConfig
from seq2seq.storage import format_1
from seq2seq.storage.atomic import (
    present_name,
    read_folder,
    remove_folder,
    remove_leftovers,
    write_folder,
)
from seq2seq.storage.strict import (
    MAX_BYTES,
    check_schema,
    max_bytes,
    parse_json,
    parse_settings,
    parse_tensors,
)

FORMAT = 2
"""The format to write; format 1, which had other names for the tensors, is still read."""

_WEIGHTS, _CONFIG, _TOKENIZER = "model.safetensors", "config.json", "tokenizer.model"
_OPTIMIZER, _PROGRESS = "optimizer.safetensors", "progress.json"
MODEL_FILES = (_WEIGHTS, _CONFIG, _TOKENIZER)
_MAX_TOKENIZER_BYTES = 64 * 2**20  # some twenty times that of a vocabulary of 250,000 pieces
_MAX_LAYERS = 1000
_STEP_FOLDER = re.compile("step_([0-9]{1,18})")
_MOMENTS = ("step", "exp_avg", "exp_avg_sq")


class _SavedConfig(NamedTuple):
    """The content of `config.json`."""

    format: int
    source_language: str
    target_language: str
    model: TransformerConfig


@dataclass(frozen=True)
class TrainedModel:
    """A model with its tokenizer and languages."""

    model: Transformer
    tokenizer: Tokenizer
    source_language: str
    target_language: str


def new_transformer(config: TransformerConfig, vocab_size: int) -> Transformer:
    """Make a model for this project's token ids."""
    return Transformer(config, vocab_size=vocab_size, padding_id=PADDING_ID, start_id=START_ID)


def save_model(folder: Path, trained: TrainedModel) -> None:
    """Write a model folder.

    Raises:
        UserError: if it can't be written, or the folder holds something other than a model.
    """
    write_folder(folder, _model_files(trained))


def load_model(folder: Path) -> TrainedModel:
    """Read a model folder on the CPU, ready to translate.

    Raises:
        UserError: if a file is missing or damaged, or the weights are not those of the
            configuration.
    """
    trained = _read_description(folder)
    trained.model.load_state_dict(_read_weights(folder, trained.model), assign=True)
    trained.model.eval()
    return trained


def find_model(run: Path) -> Path:
    """Find a run's model: the folder itself, else `averaged`, `best` or the last checkpoint.

    Raises:
        UserError: if there is none.
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
    """Write `checkpoints/step_<step>`: the model and what a resumed training needs.

    Raises:
        UserError: if it can't be written; older checkpoints are untouched.
    """
    folder = run / "checkpoints" / f"step_{step:08d}"
    names = [name for name, _ in trained.model.named_parameters()]
    moments = {
        f"{names[index]}.{moment}": value
        for index, state in optimizer.state_dict()["state"].items()
        for moment, value in state.items()
    }
    files = _model_files(trained)
    files[_OPTIMIZER] = safetensors.torch.save(moments)
    files[_PROGRESS] = json.dumps(progress, indent=2).encode()
    # Replace a damaged checkpoint of this step, even one without a manifest.
    write_folder(folder, files, replaces=lambda damaged: True)
    return folder


def restore_checkpoint(folder: Path, model: Transformer, optimizer: Optimizer) -> dict[str, Any]:
    """Load a checkpoint's weights and moments into a model and its optimizer.

    Returns:
        The progress that was saved with them.

    Raises:
        UserError: if a file is missing or damaged, or belongs to another model.
    """
    weights = _read_weights(folder, model)
    moments = _read_moments(folder, model)
    path = folder / _PROGRESS
    progress = parse_json(path, _read(folder, _PROGRESS, MAX_BYTES))
    if not isinstance(progress, dict):
        raise UserError(f"{path}: damaged, no keys and values")
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
    """Find the newest checkpoint whose files are all present and undamaged; report newer ones."""
    for parent in (run, run / "checkpoints"):
        remove_leftovers(parent)
    for folder in reversed(checkpoints(run)):
        try:
            model = _read_description(folder).model
            _read(folder, _WEIGHTS, max_bytes(_expected_weights(folder, model)))
            _read(folder, _OPTIMIZER, max_bytes(_expected_moments(folder, model)))
            _read(folder, _PROGRESS, MAX_BYTES)
        except UserError as error:
            report(f"{error}; going back to the checkpoint before")
        else:
            return folder
    return None


def remove_old(run: Path, newest: Path, keep: int) -> None:
    """Keep the `keep` checkpoints up to `newest`, and remove the others.

    Checkpoints after it are damaged ones that a resumed training has skipped.
    """
    folders = checkpoints(run)
    end = folders.index(newest) + 1
    for folder in folders[: max(0, end - keep)] + folders[end:]:
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
        if other.tokenizer.model_bytes != mean.tokenizer.model_bytes:
            raise UserError(f"{folder}: another tokenizer than {last}: nothing to average")
        if _without_dropout(other.model.config) != _without_dropout(mean.model.config):
            raise UserError(f"{folder}: another model than {last}: nothing to average")
        for name, value in other.model.state_dict().items():
            sums[name] += value
    mean.model.load_state_dict({name: value / len(folders) for name, value in sums.items()})
    return mean


def _without_dropout(config: TransformerConfig) -> TransformerConfig:
    """Reset the dropout rates, which may differ between averaged checkpoints."""
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
    check_schema(path, saved | {"model": {}}, example)
    config = parse_settings(path, saved["model"], TransformerConfig)
    if config.num_layers > _MAX_LAYERS:
        raise UserError(f"{path}: {config.num_layers:,} layers are too many: {_MAX_LAYERS} at most")
    return _SavedConfig(saved["format"], saved["source_language"], saved["target_language"], config)


def _read_description(folder: Path) -> TrainedModel:
    """Read configuration and tokenizer; the model is on the meta device, without weights."""
    saved = _read_config(folder)
    tokenizer = Tokenizer.from_bytes(
        _read(folder, _TOKENIZER, _MAX_TOKENIZER_BYTES), str(folder / _TOKENIZER)
    )
    try:
        # Takes no memory and no random numbers: the file's own tensors take the parameters' place.
        with torch.device("meta"):
            model = new_transformer(saved.model, tokenizer.vocab_size)
    except (RuntimeError, TypeError) as error:
        raise UserError(f"{folder / _CONFIG}: sizes too large to make a model") from error
    if max_bytes(model.state_dict()) > _memory_bytes():
        raise UserError(f"{folder / _CONFIG}: a model too large for this machine's memory")
    return TrainedModel(model, tokenizer, saved.source_language, saved.target_language)


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


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
