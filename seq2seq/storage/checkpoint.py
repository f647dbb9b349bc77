"""Checkpoints of a run: save, restore, find the newest good one, average (6.1).

A checkpoint is a model folder with Adam's moments and the progress of the run in addition.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from seq2seq.errors import UserError
from seq2seq.files.atomic import add_file, remove_folder, remove_leftovers, write_folder
from seq2seq.files.strict import (
    MANIFEST,
    MAX_BYTES,
    check_listed_file,
    parse_json,
    read_listed_file,
    read_manifest,
)
from seq2seq.files.tensors import max_bytes, save_tensors
from seq2seq.model import Transformer
from seq2seq.settings import Kind, settings
from seq2seq.storage.model_folder import (
    MODEL_FILES,
    PAIR_FILES,
    WEIGHTS_FILE,
    check_weights,
    holds_model,
    load_model,
    model_files,
    read_description,
    read_listed_tensors,
    read_weights,
)
from seq2seq.storage.run_folder import RunFolder, checkpoints
from seq2seq.storage.trained_model import TrainedModel

_OPTIMIZER, _PROGRESS = "optimizer.safetensors", "progress.json"
_VALIDATED = "validated.json"
_MEAN = "mean.safetensors"
_MOMENTS = ("step", "exp_avg", "exp_avg_sq")
_KNOWN_FILES = {*MODEL_FILES, *PAIR_FILES, _OPTIMIZER, _PROGRESS, _VALIDATED, _MEAN}


def find_model(run: Path) -> Path:
    """Find a run's model: the folder itself, else `averaged`, `best` or the last checkpoint."""
    if not run.is_dir():
        raise UserError(f"{run}: no folder of this name; give the run_dir of a run")
    if (run / "vocab.json").exists():
        raise UserError(f"{run}: is a model of Marian's: convert it with seq2seq import")
    files = RunFolder(run)
    for folder in (run, files.averaged, files.best, *reversed(checkpoints(run))):
        if holds_model(folder):
            return folder
    raise UserError(
        f"{run}: no model in it (no {WEIGHTS_FILE}, averaged, best or checkpoints): its training"
        " has saved none yet, or it is one of Marian's, which seq2seq import reads"
    )


def save_checkpoint(
    run: Path,
    step: int,
    trained: TrainedModel,
    optimizer: Optimizer,
    progress: Mapping[str, Any],
    mean: Mapping[str, Tensor] | None = None,
) -> Path:
    """Write `checkpoints/step_<step>`: the model, the running mean, and what resuming needs."""
    folder = RunFolder(run).checkpoint(step)
    names = [name for name, _ in trained.model.named_parameters()]
    moments = {
        f"{names[index]}.{moment}": value
        for index, state in optimizer.state_dict()["state"].items()
        for moment, value in state.items()
    }
    files = model_files(trained)
    files[_OPTIMIZER] = partial(save_tensors, moments)
    files[_PROGRESS] = json.dumps(progress, indent=2).encode()
    if mean is not None:
        files[_MEAN] = partial(save_tensors, mean)
    write_folder(folder, files)
    return folder


def save_validation(folder: Path, progress: Mapping[str, Any]) -> None:
    """Add the progress after the validation to a checkpoint, whose other files stay as they are."""
    add_file(folder, _VALIDATED, json.dumps(progress, indent=2).encode())


def progress_file(folder: Path) -> Path:
    """The file of a checkpoint that holds the run's progress: after the validation, if any."""
    listed = set(read_manifest(folder))
    # A corrupt name must not pass for a checkpoint that is not validated yet.
    if unknown := listed - _KNOWN_FILES:
        raise UserError(f"{folder / MANIFEST}: corrupt, it lists {min(unknown)[:100]!r}")
    return folder / (_VALIDATED if _VALIDATED in listed else _PROGRESS)


def read_progress(folder: Path) -> dict[str, Any]:
    """Read the progress that was saved in a checkpoint, from `progress_file`."""
    path = progress_file(folder)
    content = read_listed_file(folder, path.name, MAX_BYTES)
    return parse_json(path, content, dict[str, Any])


def restore_checkpoint(folder: Path, model: Transformer, optimizer: Optimizer) -> None:
    """Load a checkpoint's weights and moments."""
    weights = read_weights(folder, model)
    moments = read_listed_tensors(folder, _OPTIMIZER, _expected_moments(model), "moments")
    model.load_state_dict(weights)
    state = optimizer.state_dict()
    state["state"] = {
        index: {moment: moments[f"{name}.{moment}"] for moment in _MOMENTS}
        for index, (name, _) in enumerate(model.named_parameters())
    }
    optimizer.load_state_dict(state)


def read_mean(folder: Path, model: Transformer) -> dict[str, Tensor]:
    """Read the running mean of a checkpoint; the weights themselves if it has none."""
    weights: dict[str, Tensor] = dict(model.named_parameters())
    if _MEAN not in read_manifest(folder):
        return weights
    return read_listed_tensors(folder, _MEAN, weights, "mean")


def _expected_moments(model: Transformer) -> dict[str, Tensor]:
    """Names, shapes and types of the moments of Adam that a folder must hold."""
    moments: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        moments[f"{name}.step"] = torch.empty((), dtype=torch.float32, device="meta")
        for moment in _MOMENTS[1:]:
            moments[f"{name}.{moment}"] = torch.empty_like(parameter, device="meta")
    return moments


def newest_good(run: Path, log: Callable[[str], None]) -> Path | None:
    """Find the newest checkpoint whose files can all be read, intact; log newer ones."""
    for parent in (run, RunFolder(run).checkpoints, *checkpoints(run)):
        with suppress(PermissionError):  # found again below, where it is read
            remove_leftovers(parent)
    for folder in reversed(checkpoints(run)):
        try:
            model = read_description(folder).model
            check_weights(folder, model)
            check_listed_file(folder, _OPTIMIZER, max_bytes(_expected_moments(model)))
            read_mean(folder, model)
            for name in {_PROGRESS, progress_file(folder).name}:
                check_listed_file(folder, name, MAX_BYTES)
        except UserError as error:
            log(f"{error}; going back to the checkpoint before")
        else:
            return folder
    return None


def rename_newer(run: Path, newest: Path, log: Callable[[str], None]) -> None:
    """Rename the checkpoints after the newest good one.

    A resumed run writes these steps again, but they may be good ones that merely can't be
    read at the moment: because of its permissions, an error of the disk or a newer format.
    """
    folders = checkpoints(run)
    for folder in folders[folders.index(newest) + 1 :]:
        aside = folder.with_name(f"unread_{folder.name}")
        while aside.exists():
            aside = aside.with_name(f"{aside.name}_")
        folder.rename(aside)
        log(f"{folder} is kept as {aside.name}; remove it if you don't need it")


def remove_old(run: Path, keep: int) -> None:
    """Keep that many checkpoints, the newest, and remove the others.

    Those that were never validated, where a run was stopped, are removed once there is a newer one.
    """
    *earlier, newest = checkpoints(run)
    kept = [*(folder for folder in earlier if (folder / _VALIDATED).exists()), newest][-keep:]
    for folder in earlier:
        if folder not in kept:
            remove_folder(folder)


def average(folders: Sequence[Path]) -> TrainedModel:
    """Compute the mean of several checkpoints' weights (section 6.1), in float64."""
    *others, last = folders
    mean = load_model(last)
    sizes = dict(settings(mean.model.config, Kind.fixed))
    sums = {name: value.double() for name, value in mean.model.state_dict().items()}
    for folder in others:
        other = load_model(folder)
        if other.tokenizer.files() != mean.tokenizer.files():
            raise UserError(f"{folder}: another tokenizer than {last}: they have no mean")
        if dict(settings(other.model.config, Kind.fixed)) != sizes:
            raise UserError(f"{folder}: another model than {last}: they have no mean")
        for name, value in other.model.state_dict().items():
            sums[name] += value
    mean.model.load_state_dict({name: value / len(folders) for name, value in sums.items()})
    return replace(mean, search=None)
