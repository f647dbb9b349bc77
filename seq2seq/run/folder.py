"""The folder of a run: which run may write to it, and with which settings it may be resumed."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from seq2seq.config import Config, read_config
from seq2seq.data.config import DataConfig
from seq2seq.data.preparation import PreparedData
from seq2seq.errors import UserError
from seq2seq.files.atomic import is_temporary
from seq2seq.files.lock import LOCK, check_writable, sole_writer
from seq2seq.model.config import DROPOUTS
from seq2seq.storage.checkpoint import checkpoints
from seq2seq.training.config import TrainingConfig
from seq2seq.training.distributed import World
from seq2seq.training.state import Setting

# What a run leaves that has ended before its first checkpoint.
_WITHOUT_WORK = {
    "config.yaml",
    "data.json",
    "train.log",
    "metrics.jsonl",
    "learning_curve.png",
    "tensorboard",
    LOCK,
}


@contextmanager
def lock_run_folder(folder: Path, world: World, *, resume: bool) -> Iterator[None]:
    """Keep all other runs out of a run folder, which is made if need be.

    A run that fails before it has written anything leaves no folder behind. The main process holds
    the lock. If not `resume`, there must be no work of an earlier run; if `resume`, a checkpoint.
    """

    def lock() -> None:
        _check_work(folder, resume=resume)
        check_writable(folder)
        stack.enter_context(sole_writer(folder))
        _check_work(folder, resume=resume)  # another run may just have left it
        _check_links(folder)

    with ExitStack() as stack:
        world.on_main(lock)
        yield


def _check_work(folder: Path, *, resume: bool) -> None:
    if resume and not checkpoints(folder):
        raise UserError(
            f"{folder}: no checkpoint to resume from; with resume=auto, a new run starts"
        )
    if resume or not (found := _in_the_way(folder)):
        return
    if checkpoints(folder):
        raise UserError(
            f"{folder}: already exists; choose another run_dir, or add resume=true to continue"
        )
    raise UserError(
        f"{found}: in the way of a new run; choose another run_dir, or move it elsewhere"
    )


def _check_links(folder: Path) -> None:
    """What is written in the folder must not end up elsewhere."""
    for path in folder.rglob("*"):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise UserError(f"{path}: a link or a device in the run folder; remove it")


def _in_the_way(folder: Path) -> Path | None:
    """Return a path that a new run must not overwrite; None if there is none.

    It may overwrite what a run left that ended before its first checkpoint. A folder without a
    configuration is not this program's: nothing in it may be overwritten.
    """
    if not folder.is_dir():
        return folder if folder.exists() else None
    paths = [path for path in sorted(folder.iterdir()) if path.name != LOCK]
    try:
        read_config(folder)
    except UserError:
        return next(iter(paths), None)
    if not any((folder / "checkpoints").glob("[!.]*")):
        paths = [path for path in paths if path.name != "checkpoints"]
    unknown = (path for path in paths if path.name not in _WITHOUT_WORK)
    return next((path for path in unknown if not is_temporary(path)), None)


_LISTED = 5
_SHAPING = ("model.", "training.", "search.")
# When a run ends, what it keeps, and how it goes about its work.
_FREE = {
    f"training.{name}"
    for name in (
        *("max_steps", "max_minutes", "patience", "log_steps", "micro_batch_tokens"),
        *("checkpoint_steps", "checkpoint_minutes", "keep_checkpoints"),
    )
}


def settings(
    config: Config,
    data: PreparedData,
    *,
    processes: int,
    dtype: torch.dtype,
    slices: int,
    compiled: bool,
) -> tuple[dict[str, Setting], dict[str, Setting]]:
    """Return the settings that a resumed run has to keep, and those that it may change.

    Args:
        config: the configuration.
        data: the prepared data.
        processes: the number of processes that share the work.
        dtype: the precision of the matmuls.
        slices: the number of slices in which a micro-batch is computed.
        compiled: whether compiled forms are used.
    """
    model = config.model.settings()
    changeable: dict[str, Setting] = {name: model.pop(name) for name in DROPOUTS}
    changeable |= {
        "warmup_steps": config.training.warmup_steps,
        "learning_rate_scale": config.training.learning_rate_scale,
        "label_smoothing": config.training.label_smoothing,
        "dropout_warmup_steps": config.training.dropout_warmup_steps or 0,
        "validate_mean": config.training.validate_mean,
        "beam_size": config.search.beam_size,
        "alpha": config.search.alpha,
        "processes": processes,
        "threads": torch.get_num_threads(),
        "dtype": str(dtype).removeprefix("torch."),
        "slices": slices,
        "compiled": compiled,
    }
    budget = config.training.budget(processes)
    text, rate = data.folder.name, config.data.tokenizer.sampling
    source = f"{text} sampled at {rate}" if rate else text
    fixed: dict[str, Setting] = {"data": source, "seed": config.seed, **budget, **model}
    if data.mixture is not None:
        weights = data.mixture.weights.items()
        fixed["weights"] = ", ".join(f"{name} {weight}" for name, weight in weights)
    # The best BLEU so far can be compared with one of the same tokens on the same sets alone.
    if config.bleu_tokenizer is not None:
        fixed["bleu_tokenizer"] = config.bleu_tokenizer
    if (select := config.training.select) != "valid":
        sets = sorted(data.valid_sets.items())
        digests = [
            f"{name} {s.split.fingerprint[:16]}" for name, s in sets if select in (name, "mean")
        ]
        fixed |= {"select": select, "valid_sets": ", ".join(digests)}
    return fixed, changeable


def micro_batch_hint(training: TrainingConfig, before: object, processes: int) -> str:
    """Say how this number of processes gets as many micro-batches a step as `before`, of a file."""
    if not isinstance(before, int) or before < 1:
        return ""
    if before % processes:
        return f" (the number of processes must divide {before}, and {processes} does not)"
    tokens = math.ceil(max(training.source_tokens, training.target_tokens) / before)
    same = replace(training, micro_batch_tokens=tokens).micro_batches_on(processes) == before
    return f" (training.micro_batch_tokens={tokens})" if same else ""


def changes_of_data(run: Path, now: DataConfig) -> str:
    """Name the keys of `data` that are no longer those of a run's config.yaml, for a message."""
    try:
        before = read_config(run).data
    except UserError:  # corrupt; what is to be explained is in the checkpoint
        return ""
    keys = list(_differing(asdict(before), asdict(now), "data."))
    if not keys:
        return "; the keys of data are the same, but the text has changed"
    return f"; changed: {_listed(keys)}"


def settings_not_used(run: Path, now: Config) -> str:
    """Name the settings of now with which a finished run was not trained; empty if there are none.

    Data is not among them: a resumed run compares its text, whatever the keys say.
    """
    try:
        before = read_config(run)
    except UserError:  # corrupt
        return ""
    keys = _differing(asdict(before), asdict(now), "")
    return _listed([k for k in keys if k not in _FREE and k.startswith(_SHAPING)])


def _listed(keys: Sequence[str]) -> str:
    return ", ".join(keys[:_LISTED]) + (", ..." if len(keys) > _LISTED else "")


def _differing(before: Mapping[str, Any], now: Mapping[str, Any], prefix: str) -> Iterator[str]:
    for name in {**before, **now}:
        one, other = before.get(name), now.get(name)
        if isinstance(one, dict) or isinstance(other, dict):
            yield from _differing(one or {}, other or {}, f"{prefix}{name}.")
        elif one != other:
            yield f"{prefix}{name}"
