"""The lock of a folder: one process at a time works in it."""

import fcntl
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from seq2seq.errors import UserError
from seq2seq.files.atomic import errors_as_user_errors

LOCK = ".lock"


@contextmanager
def sole_writer(folder: Path) -> Iterator[Callable[[], bool]]:
    """Lock a folder, which is made if need be, so that no other process works in it.

    A folder that is empty in the end is removed. A dead process holds no lock.

    Yields:
        A function that returns whether the folder still has its name: it may be moved or removed.

    Raises:
        UserError: if another process has locked it, or it can't be made.
    """
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    lock = folder / LOCK
    try:
        with errors_as_user_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        with errors_as_user_errors(lock):
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
            descriptor = os.open(lock, flags, 0o666)
    except UserError:
        _remove_empty(made)
        raise
    try:
        if not _takes_lock(descriptor, lock):
            raise UserError(
                f"{folder}: another process writes to it; wait until it ends, or choose another"
                " folder"
            )
        try:
            yield lambda: _is_at(lock, descriptor)
        finally:
            if _is_at(lock, descriptor):
                with suppress(OSError):
                    lock.unlink()
                _remove_empty(made)
    finally:
        os.close(descriptor)


def is_locked(folder: Path) -> bool:
    """Return whether a process works in a folder; False where files can't be locked."""
    try:
        descriptor = os.open(folder / LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


def check_writable(folder: Path) -> None:
    """Check that a folder can be made, or written to, and change nothing.

    Raises:
        UserError: if it can't.
    """
    place = folder
    while not place.exists() and not place.is_symlink() and place != place.parent:
        place = place.parent
    try:
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(b"1")
            file.flush()
    except OSError as error:
        raise UserError(f"{folder}: can't be written: {place}: {error.strerror}") from error


def _takes_lock(descriptor: int, lock: Path) -> bool:
    """Return whether this process has the lock from now on."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # some file systems have no locks
        return True
    # The one that had it may have removed the file in between.
    return _is_at(lock, descriptor)


def _is_at(path: Path, descriptor: int) -> bool:
    """Return whether the name is still that of an open file."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except (FileNotFoundError, NotADirectoryError):
        return False


def _remove_empty(folders: Iterable[Path]) -> None:
    """Remove folders, the innermost first, as far as they hold nothing."""
    for path in folders:
        with suppress(OSError):
            path.rmdir()
