"""Locks, signals, limits and open files of operating systems, of which some lack one or another.

The program is made on Linux, which has all of it. No other file asks which system this is: it asks
here, and what is missing is left out.
"""

import errno
import hashlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import gettempdir
from typing import Any, BinaryIO

POSIX_FILES = hasattr(os, "O_DIRECTORY")
"""Whether folders can be opened, locked and flushed, and open files moved and removed; Windows
refuses all of that."""

_MOST_OPEN_FILES = 10_240  # that macOS grants, though it names no limit


# Files.


def open_itself(path: Path) -> int:
    """Open a file to read it, without following a link or waiting for the writer of a pipe."""
    if not hasattr(os, "O_NOFOLLOW") and path.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    return os.open(path, _flags("O_RDONLY", "O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"))


def _flags(*names: str) -> int:
    """Join those of some flags that the system has."""
    return sum(getattr(os, name, 0) for name in names)


def readable_name(file: BinaryIO, path: Path) -> str:
    """Return a name of an open file for libraries that open no path that is not UTF-8."""
    name = f"/proc/self/fd/{file.fileno()}"
    return name if os.path.exists(name) else str(path)


def let_go(file: BinaryIO) -> None:
    """Close a file that is to be moved or removed, if the system refuses that for an open file.

    Elsewhere it stays open, and locked.
    """
    if not POSIX_FILES:
        file.close()


def set_mode(file: BinaryIO, mode: int) -> None:
    """Set the permissions of an open file."""
    if hasattr(os, "fchmod"):
        os.fchmod(file.fileno(), mode)


def flush(path: Path) -> None:
    """Write what is in the system's memory of a file, or the names in a folder, to the disk."""
    if not POSIX_FILES and path.is_dir():
        return
    descriptor = os.open(path, os.O_RDONLY if POSIX_FILES else os.O_RDWR)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some file systems can't flush a folder, such as those shared with a virtual machine.
        if not path.is_dir() or error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


# Locks, which end with their process.


@contextmanager
def locked(path: Path, file: BinaryIO | None = None, *, wait: bool = True) -> Iterator[bool | None]:
    """Lock a file or a folder itself; `file` is the file, if it is open already.

    Yields whether this process has the lock: False if another one has it, and None if the file
    system has no locks.
    """
    from filelock import lock_descriptor, unlock_descriptor  # late: only what is written needs it

    if not POSIX_FILES:
        with _locked_by_name(path, wait=wait) as is_held:
            yield is_held
        return
    descriptor = os.open(path, _flags("O_RDONLY", "O_NONBLOCK")) if file is None else file.fileno()
    is_held = None
    try:
        with suppress(OSError):
            is_held = lock_descriptor(descriptor, blocking=wait, poll_interval=0.005)
        yield is_held
    finally:
        if is_held:
            with suppress(OSError):
                # Closing does not suffice: a process forked by another thread has it open, too.
                unlock_descriptor(descriptor)
        if file is None:
            os.close(descriptor)


@contextmanager
def _locked_by_name(path: Path, *, wait: bool) -> Iterator[bool | None]:
    """Lock a file that stands for a path, in this user's folder for temporary files."""
    from filelock import FileLock, Timeout

    name = os.path.normcase(os.path.realpath(path))
    digest = hashlib.sha256(os.fsencode(name)).hexdigest()[:32]
    lock = FileLock(Path(gettempdir(), f"seq2seq_{digest}.lock"))
    is_held: bool | None = True
    try:
        lock.acquire(blocking=wait, poll_interval=0.005)
    except Timeout:
        is_held = False
    except OSError:
        is_held = None
    try:
        yield is_held
    finally:
        lock.release()


@contextmanager
def lock_file(path: Path, if_held: Callable[[], object]) -> Iterator[None]:
    """Hold the lock of a file that is made for it, and removed afterwards.

    If another process has it, `if_held` is called, which may raise an error, before that process is
    waited for.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(path)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        if_held()
        lock.acquire()
    try:
        yield
    finally:
        if POSIX_FILES:  # elsewhere filelock removes its files itself
            path.unlink(missing_ok=True)
        lock.release()


# Processes.


def signals(*names: str) -> list[signal.Signals]:
    """Return those of some signals that the system has."""
    return [getattr(signal, name) for name in names if hasattr(signal, name)]


def out_of_reach() -> dict[str, Any]:
    """Return arguments of `subprocess.Popen` for a process that Ctrl-C does not reach."""
    flags = getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)
    return {"start_new_session": True, "creationflags": flags}


def lower_priority() -> None:
    """Let other processes come before this one."""
    if hasattr(os, "nice"):
        os.nice(10)


def limit(name: str, soft: int, hard: int) -> None:
    """Limit a resource of this process, such as `CPU`, unless its limit is lower already."""
    with suppress(ModuleNotFoundError, AttributeError, OSError, ValueError):
        import resource

        module: Any = resource  # mypy knows nothing in it for Windows
        module.setrlimit(getattr(module, f"RLIMIT_{name}"), (soft, hard))


def allow_open_files() -> None:
    """Let this process open as many files as it may at most."""
    with suppress(ModuleNotFoundError, OSError, ValueError):
        import resource

        module: Any = resource
        soft, hard = module.getrlimit(module.RLIMIT_NOFILE)
        if soft != module.RLIM_INFINITY:
            most = max(soft, _MOST_OPEN_FILES) if hard == module.RLIM_INFINITY else hard
            module.setrlimit(module.RLIMIT_NOFILE, (most, hard))


def after_fork(act: Callable[[], object]) -> None:
    """Call a function in each process that is forked from this one."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=act)


def cores() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_bytes() -> int | None:
    """Return the size of this machine's memory, or None if the system does not say it."""
    if not hasattr(os, "sysconf"):
        return None
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
