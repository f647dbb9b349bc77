"""The lock of a run's folder: one process writes to it, and only to files of this program."""

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from seq2seq import files, system
from seq2seq.errors import UserError
from seq2seq.machine.processes import OneProcess
from seq2seq.model_folder import checkpoints
from seq2seq.run.config import read_config
from seq2seq.run.folder import RunFolder

logger = logging.getLogger("seq2seq")


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
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    path = RunFolder(folder).lock

    def refuse_or_say() -> None:
        if not wait:
            raise UserError(
                f"{folder}: another process writes to it; wait until it ends, or choose another"
                " folder"
            ) from None
        logger.info(f"{folder}: waiting until another process has written to it")

    try:
        with files.errors_as_user_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            with files.errors_as_user_errors(path):
                stack.enter_context(system.lock_file(path, refuse_or_say))
            yield
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
    # Temporary files are those of a process that was killed, such as the first configuration.
    paths = [p for p in sorted(folder.iterdir()) if p != run.lock and not files.is_temporary(p)]
    try:
        read_config(folder)
    except UserError:
        return next(iter(paths), None)
    left_over = {*run.files, run.events} - {run.finished}
    if not any(run.checkpoints.glob("[!.]*")):
        left_over.add(run.checkpoints)
    return next((path for path in paths if path not in left_over), None)
