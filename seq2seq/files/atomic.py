"""Files and folders that are written whole or not at all.

Each is written beside its place as `.NAME.TOKEN.new`, flushed to disk and renamed. A folder that it
replaces is `.NAME.TOKEN.old` for the moment between two renames. Meanwhile the writer locks
`.NAME.TOKEN.lock`, by which other processes tell its files from those of a dead process.
"""

import errno
import fcntl
import hashlib
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, TypeAlias

from seq2seq.errors import UserError
from seq2seq.files.manifest import MANIFEST, check_replaceable, manifest_of, read_manifest

_TEMPORARY_NAME = re.compile(r"\.(.+)\.[0-9a-f]{16}\.(?:new|old|lock|unlocked)")
# Of files without a lock: some file systems have none.
_ABANDONED_SECONDS = 24 * 3600
_MAX_RENAMES = 10
_LONGEST_STEM = 200  # bytes, of 255; tokens and suffixes have fewer than 40
_OCCUPIED = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)

Pieces: TypeAlias = Iterable[bytes | memoryview]


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """Write a file that gets its name when the block ends without an error.

    It keeps the mode of the file that it replaces.

    Raises:
        OSError: if it can't be written.
    """
    with _temporary_name(path, _shortened(path.name)) as fresh, _growing(fresh, path) as file:
        yield file


@contextmanager
def new_folder(folder: Path, replaces: Callable[[Path], bool] | None = None) -> Iterator[Path]:
    """Fill a folder that gets its name when the block ends without an error.

    A reader of `folder` never sees a part of it. While a folder is replaced there is a moment with
    neither; if the process dies then, `present_name` finds the earlier one and `remove_leftovers`
    puts it back.

    Args:
        folder: the final name.
        replaces: called with `folder` if something is there in the end; True to replace it, False
            to keep it and drop the new folder. By default only what `check_replaceable` accepts is
            replaced.

    Raises:
        OSError: if it can't be written.
        UserError: if what is there must not be replaced.
    """
    folder = Path(os.path.abspath(folder))  # a name even for ".", and no link followed
    with _temporary_name(folder) as fresh:
        fresh.mkdir()
        yield fresh
        for path in (*fresh.rglob("*"), fresh):
            _flush(path)
        with _locked(folder.parent):
            _publish(fresh, folder, replaces or _is_replaceable)
        _flush(folder.parent)


@contextmanager
def output_file(path: Path) -> Iterator[BinaryIO]:
    """Write a file that the user named; it is replaced when the block ends without an error.

    Until then it is NAME.TOKEN.part, which is left if there is an error and something in it. If the
    name is a link, the file that it points to is replaced. Pipes, devices and standard output are
    written to directly.

    Raises:
        OSError: if it can't be written.
    """
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "is a folder; give the path of a file")
    if path.exists() and (not path.is_file() or _is_standard_output(path)):
        with path.open("wb") as file:
            yield file
        return
    path = Path(os.path.realpath(path))
    if path.is_symlink():  # links that point to each other
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    part = path.with_name(f"{_shortened(path.name)}.{secrets.token_hex(4)}.part")
    with _growing(part, path) as file:
        yield file


def write_file(path: Path, content: bytes) -> None:
    """Write one file whole or not at all.

    Raises:
        UserError: if it can't be written; what was there before stays.
    """
    with errors_as_user_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with new_file(path) as file:
            file.write(content)


def write_folder(folder: Path, files: Mapping[str, bytes | Pieces]) -> None:
    """Write a folder of files and a manifest of their sha256 whole or not at all.

    Args:
        folder: the final name.
        files: contents by name, each at once or in pieces.

    Raises:
        UserError: if it can't be written, or what is there must not be replaced; what was there
            before stays.
    """
    digests = {}
    with errors_as_user_errors(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with new_folder(folder) as fresh:
            for name, content in files.items():
                digest = hashlib.sha256()
                with (fresh / name).open("wb") as file:
                    for piece in [content] if isinstance(content, bytes) else content:
                        file.write(piece)
                        digest.update(piece)
                digests[name] = digest.hexdigest()
            (fresh / MANIFEST).write_bytes(manifest_of(digests))


def add_file(folder: Path, name: str, content: bytes) -> None:
    """Add a file to a folder with a manifest, which lists it once it is whole.

    Raises:
        UserError: if it can't be written; what was there before stays.
    """
    digests = read_manifest(folder) | {name: hashlib.sha256(content).hexdigest()}
    write_file(folder / name, content)
    write_file(folder / MANIFEST, manifest_of(digests))


@contextmanager
def errors_as_user_errors(path: Path) -> Iterator[None]:
    """Turn errors of writing into user errors.

    Raises:
        UserError: if a file or a folder can't be written.
    """
    try:
        yield
    except (OSError, RecursionError) as error:  # pathlib makes parent folders recursively
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{str(path)[:300]}: can't be written: {reason}") from error


def remove_folder(folder: Path) -> None:
    """Remove a folder, if it exists, so that no reader sees a part of it."""
    if folder.exists():
        with suppress(OSError), _temporary_name(folder) as gone:
            folder.rename(gone)


def present_name(folder: Path) -> Path:
    """Find a folder, under its name or where an interrupted replacement left it."""
    if folder.exists() or not folder.parent.is_dir():
        return folder
    moved = (path for path in folder.parent.iterdir() if path.suffix == ".old")
    return next((path for path in moved if _final_name(path) == folder.name), folder)


def remove_leftovers(parent: Path) -> None:
    """Remove leftovers of dead processes from a folder, and put back what they moved away."""
    if not parent.is_dir():
        return
    names = {path.with_suffix(".new"): _final_name(path) for path in parent.iterdir()}
    for fresh, name in names.items():
        if name is not None and _is_abandoned(fresh):
            _settle(fresh, parent / name)
            for suffix in (".new", ".lock", ".unlocked"):
                _remove(fresh.with_suffix(suffix))


def is_temporary(path: Path) -> bool:
    """Return whether a path has one of the temporary names of this module."""
    return _final_name(path) is not None


def _shortened(name: str) -> str:
    """Cut a file's name so that the longest that is legal still is with a token and a suffix."""
    return os.fsdecode(os.fsencode(name)[:_LONGEST_STEM].decode(errors="ignore").encode())


@contextmanager
def _temporary_name(path: Path, stem: str = "") -> Iterator[Path]:
    """Provide a temporary name, locked until the block ends, when anything left there is removed.

    The leftovers of dead processes beside it are removed first.

    Args:
        path: the final name.
        stem: stands for that of `path` in the temporary name, if nothing is ever put back.
    """
    remove_leftovers(path.parent)
    fresh = path.with_name(f".{stem or path.name}.{secrets.token_hex(8)}.new")
    lock, unlocked = fresh.with_suffix(".lock"), fresh.with_suffix(".unlocked")
    with unlocked.open("x") as file:
        try:
            with suppress(OSError):  # some file systems have no locks
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Renamed once it is locked, or another process could take it for that of a dead one.
            unlocked.rename(lock)
            yield fresh
        finally:
            for name in (fresh, lock, unlocked):
                _remove(name)


@contextmanager
def _growing(part: Path, path: Path) -> Iterator[BinaryIO]:
    """Open a new file with the mode of `path`; it replaces `path` when the block ends."""
    with part.open("xb") as file:
        with suppress(FileNotFoundError):
            status = path.lstat()
            if stat.S_ISREG(status.st_mode):
                os.fchmod(file.fileno(), stat.S_IMODE(status.st_mode))
        try:
            yield file
        except BaseException:
            if not file.closed and file.tell() == 0:
                part.unlink()
            raise
        file.flush()
        os.fsync(file.fileno())
        part.replace(path)
        _flush(path.parent)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock a folder, so that processes on this machine rename in it one after the other."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # some file systems have no locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _publish(fresh: Path, folder: Path, replaces: Callable[[Path], bool]) -> None:
    """Give a folder its name, even if processes on other machines do the same."""
    try:
        for _ in range(_MAX_RENAMES):
            try:
                fresh.rename(folder)
                return
            except OSError as error:
                if error.errno not in _OCCUPIED:
                    raise
            if not replaces(folder):
                return
            with suppress(FileNotFoundError):  # another process has moved it
                replaced = fresh.with_suffix(".old")
                _remove(replaced)
                folder.rename(replaced)
        raise OSError(errno.EBUSY, "other processes keep writing it; try again")
    finally:
        _settle(fresh, folder)


def _settle(fresh: Path, folder: Path) -> None:
    """Put a replaced folder back, or mark it for removal if another has taken its place."""
    replaced = fresh.with_suffix(".old")
    with suppress(FileNotFoundError):  # nothing was replaced, or another process has settled it
        if os.path.lexists(folder):
            _remove(fresh)
            # Renamed before it is removed: a part of it must never be put back.
            replaced.rename(fresh)
        else:
            replaced.rename(folder)


def _is_replaceable(folder: Path) -> bool:
    check_replaceable(folder)
    return True


def _final_name(path: Path) -> str | None:
    """Return the final name of a temporary one, or None for any other name."""
    found = _TEMPORARY_NAME.fullmatch(path.name)
    return found[1] if found else None


def _is_abandoned(fresh: Path) -> bool:
    """Return whether the process that made a temporary name has ended, on any machine."""
    lock = fresh.with_suffix(".lock")
    try:
        with lock.open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
    except OSError:  # there is no lock, or no locks in this file system
        times = []
        for suffix in (".unlocked", ".lock", ".new", ".old"):  # in the order of their appearance
            with suppress(FileNotFoundError):
                times.append(fresh.with_suffix(suffix).lstat().st_mtime)
        return bool(times) and time.time() - max(times) > _ABANDONED_SECONDS


def _is_standard_output(path: Path) -> bool:
    """Return whether a file is this process's standard output, as /dev/stdout is."""
    try:
        return os.path.samestat(path.stat(), os.fstat(1))
    except OSError:
        return False


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some file systems can't flush a folder, such as those shared with a virtual machine.
        if not path.is_dir() or error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)
