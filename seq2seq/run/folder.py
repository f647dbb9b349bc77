"""The folder of a run: which run may write to it, and with which settings it may be resumed."""

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import torch

from seq2seq.config import Config, read_config
from seq2seq.data.preparation import PreparedData
from seq2seq.errors import UserError
from seq2seq.files.atomic import errors_as_user_errors, is_temporary
from seq2seq.settings import Kind, Setting, settings
from seq2seq.storage.run_folder import RunFolder, checkpoints
from seq2seq.training.distributed import World
from seq2seq.training.trainer import Trainer

logger = logging.getLogger("seq2seq")


@contextmanager
def lock_run_folder(
    folder: Path, world: World, *, resume: bool | str, wait: bool
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
        with errors_as_user_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        with errors_as_user_errors(path):
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
    if resume is True and not is_begun:
        raise UserError(
            f"{folder}: no checkpoint to resume from; with resume=auto, a new run starts"
        )
    if resume and is_begun:
        return True
    if not (found := _in_the_way(folder)):
        return False
    if is_begun:
        raise UserError(
            f"{folder}: already exists; choose another run_dir, or add resume=true to continue"
        )
    raise UserError(
        f"{found}: in the way of a new run; choose another run_dir, or move it elsewhere"
    )


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
    return next((path for path in unknown if not is_temporary(path)), None)


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
        "dtype": str(trainer.compute.dtype).removeprefix("torch."),
        "tokens at once": "{} and {}".format(*trainer.updater.most_tokens),
        "compiled": trainer.forms.compiled,
    }
    text, rate = data.folder.name, config.data.tokenizer.sampling
    fixed = named_settings(config, Kind.fixed) | {
        "data": f"{text} sampled at {rate}" if rate else text,
        "micro_batches": config.training.micro_batches(processes),
    }
    if data.mixture is not None:
        weights = data.mixture.weights.items()
        fixed["weights"] = ", ".join(f"{name} {weight}" for name, weight in weights)
    # The best BLEU so far can be compared with one of the same tokens on the same sets alone.
    if (select := config.training.select) != "valid":
        digests = [
            f"{name} {valid.split.fingerprint[:16]}"
            for name, valid in sorted(data.valid_sets.items())
            if name != "valid" and select in (name, "mean")
        ]
        fixed["valid_sets"] = ", ".join(digests)
    return fixed, changeable


def named_settings(config: Config, kind: Kind) -> dict[str, Setting]:
    """Return the settings of a class by the last part of their names, as checkpoints have them."""
    return {name.rpartition(".")[2]: value for name, value in settings(config, kind)}


def default_settings() -> dict[str, Setting]:
    """Return the defaults of the settings that a checkpoint has."""
    default = Config()
    return named_settings(default, Kind.fixed) | named_settings(default, Kind.changeable)
