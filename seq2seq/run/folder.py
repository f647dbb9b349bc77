"""The folder of a run: which training may write to it, and when."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from seq2seq.config import read_config
from seq2seq.errors import UserError
from seq2seq.storage.atomic import is_temporary
from seq2seq.storage.checkpoint import checkpoints
from seq2seq.storage.lock import LOCK, check_writable, sole_writer
from seq2seq.training.distributed import World

# What a training leaves that has ended before its first checkpoint.
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
def reserved(folder: Path, world: World, *, resume: bool) -> Iterator[Callable[[], bool]]:
    """Keep all other trainings out of a run folder, which is made if need be.

    A training that fails before it has written anything leaves no folder behind.

    Args:
        folder: of the run.
        world: the processes that share the work; the main one holds the lock.
        resume: whether the training goes on from a checkpoint in it.

    Yields:
        A function that returns whether the folder still has its name; always True in processes
        other than the main one.

    Raises:
        UserError: if another training writes to it, it can't be written, there is a link or a
            device in it, there is no checkpoint to resume from, or there is work and `resume` is
            not set.
    """
    has_its_name = [lambda: True]

    def reserve() -> None:
        _check_work(folder, resume=resume)
        check_writable(folder)
        has_its_name[0] = stack.enter_context(sole_writer(folder))
        _check_work(folder, resume=resume)  # another training may just have left it
        _check_links(folder)

    with ExitStack() as stack:
        world.on_main(reserve)
        yield has_its_name[0]


def _check_work(folder: Path, *, resume: bool) -> None:
    if resume and not checkpoints(folder):
        raise UserError(
            f"{folder}: no checkpoint to resume from; with resume=auto, a new training starts"
        )
    if resume or not (found := _in_the_way(folder)):
        return
    if checkpoints(folder):
        raise UserError(
            f"{folder}: already exists; choose another run_dir, or add resume=true to continue"
        )
    raise UserError(
        f"{found}: in the way of a new training; choose another run_dir, or move it elsewhere"
    )


def _check_links(folder: Path) -> None:
    """What is written in the folder must not end up elsewhere."""
    for path in folder.rglob("*"):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise UserError(f"{path}: a link or a device in the run folder; remove it")


def _in_the_way(folder: Path) -> Path | None:
    """Return a path that a new training must not overwrite; None if there is none.

    It may overwrite what a training left that ended before its first checkpoint. A folder without a
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
