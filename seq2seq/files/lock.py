"""The lock of a folder: one process at a time works in it."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from seq2seq.errors import UserError
from seq2seq.files.atomic import errors_as_user_errors

LOCK = ".lock"


@contextmanager
def sole_writer(folder: Path) -> Iterator[None]:
    """Lock a folder, made if it is missing, so that no other process works in it.

    A folder made here is removed if it is empty afterwards. A lock ends with its process.
    """
    from filelock import FileLock, Timeout

    made = [path for path in (folder, *folder.parents) if not path.exists()]
    lock = FileLock(folder / LOCK)
    try:
        with errors_as_user_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        with errors_as_user_errors(folder / LOCK):
            try:
                lock.acquire(blocking=False)
            except Timeout:
                raise UserError(
                    f"{folder}: another process writes to it; wait until it ends, or choose"
                    " another folder"
                ) from None
        try:
            yield
        finally:
            (folder / LOCK).unlink(missing_ok=True)
            lock.release()
    finally:
        for path in made:
            with suppress(OSError):  # not empty
                path.rmdir()


def is_locked(folder: Path) -> bool:
    """Return whether a process works in a folder; False where it can't be found out."""
    from filelock import FileLock, Timeout

    if not (folder / LOCK).exists():
        return False
    try:
        with FileLock(folder / LOCK, blocking=False):
            return False
    except Timeout:
        return True
    except OSError:  # such as a folder of another user
        return False
