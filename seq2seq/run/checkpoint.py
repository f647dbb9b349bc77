"""Checkpoints of a run: saved, restored, found.

A checkpoint is a model folder with Adam's moments and the progress of the run in addition.
"""

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from seq2seq import files, model_folder
from seq2seq.errors import UserError
from seq2seq.model_folder import TrainedModel, checkpoints
from seq2seq.run.folder import RunFolder
from seq2seq.tokenizer import PAIR_FILES
from seq2seq.transformer import Transformer

_OPTIMIZER, _PROGRESS = "optimizer.safetensors", "progress.json"
_VALIDATED = "validated.json"
_MEAN = "mean.safetensors"
_MOMENTS = ("step", "exp_avg", "exp_avg_sq")
_KNOWN_FILES = {*model_folder.MODEL_FILES, *PAIR_FILES, _OPTIMIZER, _PROGRESS, _VALIDATED, _MEAN}


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
    names = list(dict(trained.model.named_parameters()))
    moments = {}
    for index, state in optimizer.state_dict()["state"].items():
        for moment, value in state.items():
            moments[f"{names[index]}.{moment}"] = value
    # Zero before the first update, and always for a parameter that has no gradient.
    for name, moment in _expected_moments(trained.model).items():
        if name not in moments:
            moments[name] = torch.zeros_like(moment, device="cpu")
    contents = model_folder.model_files(trained)
    contents[_OPTIMIZER] = partial(model_folder.save_tensors, moments)
    contents[_PROGRESS] = json.dumps(progress, indent=2).encode()
    if mean is not None:
        contents[_MEAN] = partial(model_folder.save_tensors, mean)
    files.write_folder(folder, contents)
    return folder


def save_validation(folder: Path, progress: Mapping[str, Any]) -> None:
    """Add the progress after the validation to a checkpoint, whose other files stay as they are."""
    files.add_file(folder, _VALIDATED, json.dumps(progress, indent=2).encode())


def progress_file(folder: Path) -> Path:
    """The file of a checkpoint that holds the run's progress: after the validation, if any."""
    listed = set(files.read_manifest(folder))
    # A corrupt name must not pass for a checkpoint that is not validated yet.
    if unknown := listed - _KNOWN_FILES:
        raise UserError(f"{folder / files.MANIFEST}: corrupt, it lists {min(unknown)[:100]!r}")
    return folder / (_VALIDATED if _VALIDATED in listed else _PROGRESS)


def read_progress(folder: Path) -> dict[str, Any]:
    """Read the progress that was saved in a checkpoint, from `progress_file`."""
    path = progress_file(folder)
    content = files.read_listed_file(folder, path.name, files.MAX_BYTES)
    return files.parse_json(path, content, dict[str, Any])


def restore_checkpoint(folder: Path, model: Transformer, optimizer: Optimizer) -> None:
    """Load a checkpoint's weights and moments."""
    weights, expected = model_folder.read_weights(folder, model), _expected_moments(model)
    moments = model_folder.read_listed_tensors(folder, _OPTIMIZER, expected, "moments")
    model.load_state_dict(weights)
    state = optimizer.state_dict()
    for index, (name, _) in enumerate(model.named_parameters()):
        state["state"][index] = {moment: moments[f"{name}.{moment}"] for moment in _MOMENTS}
    optimizer.load_state_dict(state)


def read_mean(folder: Path, model: Transformer) -> dict[str, Tensor]:
    """Read the running mean of a checkpoint; the weights themselves if it has none."""
    weights: dict[str, Tensor] = dict(model.named_parameters())
    if _MEAN not in files.read_manifest(folder):
        return weights
    return model_folder.read_listed_tensors(folder, _MEAN, weights, "mean")


def _expected_moments(model: Transformer) -> dict[str, Tensor]:
    """Names, shapes and types of the moments of Adam that a folder must hold."""
    moments: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        moments[f"{name}.step"] = torch.empty((), dtype=torch.float32, device="meta")
        for moment in _MOMENTS[1:]:
            moments[f"{name}.{moment}"] = torch.empty_like(parameter, device="meta")
    return moments


def newest_good(
    run: Path, log: Callable[[str], None], model_class: type[Transformer] | None = None
) -> Path | None:
    """Find the newest checkpoint whose files can all be read, intact; log newer ones."""
    for parent in (run, RunFolder(run).checkpoints, *checkpoints(run)):
        files.remove_leftovers(parent)
    for folder in reversed(checkpoints(run)):
        try:
            model = model_folder.read_description(folder, model_class).model
            model_folder.check_weights(folder, model)
            moments_bytes = model_folder.max_bytes(_expected_moments(model))
            files.check_listed_file(folder, _OPTIMIZER, moments_bytes)
            read_mean(folder, model)
            for name in {_PROGRESS, progress_file(folder).name}:
                files.check_listed_file(folder, name, files.MAX_BYTES)
        except model_folder.ModelClassError:  # of the checkpoints before, too
            raise
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
    validated = [folder for folder in earlier if (folder / _VALIDATED).exists()]
    kept = [*validated, newest][-keep:]
    for folder in earlier:
        if folder not in kept:
            files.remove_folder(folder)
