"""Checkpoints of a run, and which run may write to its folder or resume it.

A checkpoint is a model folder with Adam's moments and the progress of the run in addition.
"""

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from seq2seq import files, model_folder
from seq2seq.data.preparation import PreparedData
from seq2seq.errors import UserError
from seq2seq.machine.processes import OneProcess
from seq2seq.model_folder import TrainedModel, checkpoints
from seq2seq.run.config import Config, read_config
from seq2seq.run.folder import RunFolder
from seq2seq.settings import Kind, Setting, flat, settings_of
from seq2seq.tokenizer import PAIR_FILES
from seq2seq.trainer import Progress, Trainer
from seq2seq.transformer import Transformer

# Saved, restored, found.


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


logger = logging.getLogger("seq2seq")


# Which run may write to a folder.


@contextmanager
def lock_run_folder(
    folder: Path, world: OneProcess, *, resume: bool | str, wait: bool
) -> Iterator[bool]:
    """Keep all other runs out of a run folder, which is made if it is missing.

    A run that fails before it has written anything leaves no folder behind. The main process holds
    the lock; with `wait`, it waits until another run has released it. Yields whether to resume.
    """

    def lock() -> bool:
        _check_work(folder, resume)
        stack.enter_context(sole_writer(folder, wait=wait))
        _check_links(folder)
        return _check_work(folder, resume)  # another run may just have left it

    with ExitStack() as stack:
        yield world.on_main(lock)


@contextmanager
def sole_writer(folder: Path, *, wait: bool = False) -> Iterator[None]:
    """Lock a folder, made if it is missing, so that no other process works in it.

    A folder made here is removed if it is empty afterwards. A lock ends with its process.
    """
    from filelock import FileLock, Timeout

    made = [path for path in (folder, *folder.parents) if not path.exists()]
    path = RunFolder(folder).lock
    lock = FileLock(path)
    try:
        with files.errors_as_user_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        with files.errors_as_user_errors(path):
            try:
                lock.acquire(blocking=False)
            except Timeout:
                if not wait:
                    raise UserError(
                        f"{folder}: another process writes to it; wait until it ends, or choose"
                        " another folder"
                    ) from None
                logger.info(f"{folder}: waiting until another process has written to it")
                lock.acquire()
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
            lock.release()
    finally:
        for parent in made:
            with suppress(OSError):  # not empty
                parent.rmdir()


def _check_work(folder: Path, resume: bool | str) -> bool:
    """Return whether to resume the run of a folder; refuse to overwrite its work."""
    is_begun = bool(checkpoints(folder))
    if resume and is_begun:
        return True
    if resume is True:
        reason = "no checkpoint to resume from; with resume=auto, a new run starts"
        raise UserError(f"{folder}: {reason}")
    path = _in_the_way(folder)
    if path and is_begun:
        reason = "already exists; choose another run_dir, or add resume=true to continue"
        raise UserError(f"{folder}: {reason}")
    if path:
        reason = "in the way of a new run; choose another run_dir, or move it elsewhere"
        raise UserError(f"{path}: {reason}")
    return False


def _check_links(folder: Path) -> None:
    """Refuse links and devices, so that nothing is written elsewhere."""
    for path in folder.rglob("*"):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise UserError(f"{path}: a link or a device in the run folder; remove it")


def _in_the_way(folder: Path) -> Path | None:
    """Return a path that a new run must not overwrite; None if there is none.

    It may overwrite what was left by a run that ended before its first checkpoint. A folder
    without a configuration is not this program's: nothing in it may be overwritten.
    """
    if not folder.is_dir():
        return folder if folder.exists() else None
    run = RunFolder(folder)
    paths = [path for path in sorted(folder.iterdir()) if path != run.lock]
    try:
        read_config(folder)
    except UserError:
        return next(iter(paths), None)
    left_over = {*run.files, run.events} - {run.finished}
    if not any(run.checkpoints.glob("[!.]*")):
        left_over.add(run.checkpoints)
    unknown = (path for path in paths if path not in left_over)
    return next((path for path in unknown if not files.is_temporary(path)), None)


# With which settings it may be resumed.


FORMAT = 2

_GO_ON = "; a new run goes on from this model, with other text, by init_from"
_DATA_HINT = (
    "; no key of data has changed since config.yaml was written, so the text itself has, or"
    f" data.valid{_GO_ON}"
)
_MAX_CHANGES = 3  # that an error names


@dataclass(frozen=True)
class RunState:
    """All that is saved in addition to weights and moments, so that a run can be resumed."""

    progress: Progress
    fixed: dict[str, Setting]
    """Settings that a resumed run must share: text, seed, batches, model."""
    changeable: dict[str, Setting]
    """Settings that may change, but then the result differs from that of an uninterrupted run."""

    def to_json(self) -> dict[str, Any]:
        """Return the content of the file."""
        return {"format": FORMAT, **asdict(self)}

    def restored(
        self,
        path: Path,
        saved: dict[str, Any],
        defaults: Mapping[str, Setting],
        data_changes: str = "",
    ) -> "RunState":
        """Return a saved state, if this one may resume from it.

        Settings that it doesn't name, because an earlier version wrote it, had their defaults.
        `data_changes` names the keys that other data may follow from.
        """
        content = dict(saved)
        if (number := content.pop("format", None)) != FORMAT:
            written = repr(number)[:100]
            raise UserError(f"{path}: written in format {written}, this version reads {FORMAT}")
        before: RunState = files.parse_json(path, json.dumps(content).encode(), RunState)
        for ours, theirs in ((self.fixed, before.fixed), (self.changeable, before.changeable)):
            for name in ours.keys() & defaults.keys():
                theirs.setdefault(name, defaults[name])
        for name in {**self.fixed, **before.fixed}:
            then, now = before.fixed.get(name), self.fixed.get(name)
            if then != now:
                change = f"{name[:100]}={repr(then)[:100]}, now {now!r}"
                hint = _DATA_HINT if name == "data" else ""
                if name == "data" and data_changes:
                    change, hint = data_changes, _GO_ON
                raise UserError(
                    f"{path}: was trained with {change}: resume with what it was trained with, or"
                    f" start a new run_dir{hint}"
                )
        return before

    def changes(self, before: "RunState") -> list[str]:
        """Describe each changed setting in one line."""
        changes = []
        for name, now in self.changeable.items():
            then = before.changeable.get(name)
            if then != now:
                changes.append(f"{name}: {then} before, {now} now")
        return changes


def settings_of_run(
    config: Config, data: PreparedData, trainer: Trainer
) -> tuple[dict[str, Setting], dict[str, Setting]]:
    """Return the settings that a resumed run has to keep, and those that it may change."""
    processes = trainer.world.size
    changeable = named_settings(config, Kind.changeable) | {
        # None is 0 in all checkpoints.
        "dropout_warmup_steps": config.training.dropout_warmup_steps or 0,
        "processes": processes,
        "threads": torch.get_num_threads(),
        "dtype": str(trainer.updater.compute.dtype).removeprefix("torch."),
        "tokens at once": "{} and {}".format(*trainer.batching.most_tokens),
        "compiled": False,
        **trainer.updater.settings(),
    }
    text, rate = data.folder.name, config.data.tokenizer.sampling
    fixed = named_settings(config, Kind.fixed) | {
        "data": f"{text} sampled at {rate}" if rate else text,
        "micro_batches": trainer.updater.micro_batches,
    }
    if data.mixture is not None:
        weights = data.mixture.weights.items()
        fixed["weights"] = ", ".join(f"{name} {weight}" for name, weight in weights)
    # The best BLEU so far can be compared with one of the same tokens on the same sets alone.
    if (select := config.training.select) != "valid":
        digests = []
        for name, valid in sorted(data.valid_sets.items()):
            if name != "valid" and select in (name, "mean"):
                digests.append(f"{name} {valid.split.fingerprint[:16]}")
        fixed["valid_sets"] = ", ".join(digests)
    return fixed, changeable


def data_changes(run: Path, config: Config) -> str:
    """Name the keys of the data that differ from those of a run's `config.yaml`, with values."""
    try:
        before = flat(asdict(read_config(run).data))
    except UserError:
        return ""
    now = flat(asdict(config.data))
    changes = [
        f"data.{key}={before.get(key)!r}, now {now.get(key)!r}"
        for key in sorted({**before, **now}, key=_is_place)  # the text counts, not its place
        if before.get(key) != now.get(key) and not key.startswith(_NOT_TRAINED_ON)
    ]
    more = [f"{len(changes) - _MAX_CHANGES} more changes"] if len(changes) > _MAX_CHANGES else []
    return "; ".join([*changes[:_MAX_CHANGES], *more])


_NOT_TRAINED_ON = ("name", "valid_sets.", "test.", "test_sets.")


def _is_place(key: str) -> bool:
    return key.rpartition(".")[2] in ("source", "target", "pairs", "split")


def saved_micro_batches(run: Path) -> int:
    """Return the number of micro-batches of a run's steps; 0 if no checkpoint can be read."""
    for folder in reversed(checkpoints(run)):
        with suppress(UserError):
            fixed = read_progress(folder).get("fixed")
            number = fixed.get("micro_batches") if isinstance(fixed, dict) else None
            if type(number) is int and number > 0:
                return number
    return 0


def named_settings(config: Config, kind: Kind) -> dict[str, Setting]:
    """Return the settings of a class by the last part of their names, as checkpoints have them."""
    return {name.rpartition(".")[2]: value for name, value in settings_of(config, kind)}


def default_settings() -> dict[str, Setting]:
    """Return the defaults of the settings that a checkpoint has."""
    default = Config()
    return named_settings(default, Kind.fixed) | named_settings(default, Kind.changeable)
