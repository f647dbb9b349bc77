"""Takes away from every Python process what Windows lacks; Python imports this file at its start.

With this folder in PYTHONPATH, functions, signals and flags are missing, folders can't be opened,
nothing that is open can be moved or removed, and names have no special characters. The package
finds no `fcntl` and its kin. filelock locks, as it does on every system.
"""

import builtins
import contextlib
import errno
import importlib
import os
import shutil
import signal
import sys
from typing import Any

MODULES = ("fcntl", "grp", "pwd", "resource", "termios")
OF_OS = (
    *(
        "O_CLOEXEC",
        "O_DIRECTORY",
        "O_NOFOLLOW",
        "fchmod",
        "fork",
        "getpgid",
        "killpg",
    ),
    *(
        "mkfifo",
        "nice",
        "posix_fadvise",
        "pread",
        "pwrite",
        "sched_getaffinity",
        "setsid",
        "sysconf",
    ),
)  # not what libraries take by the name of the system: O_NONBLOCK, getuid, register_at_fork
SIGNALS = ("SIGALRM", "SIGHUP", "SIGPIPE", "SIGUSR1", "SIGUSR2", "SIGXCPU")
TEMPORARY = os.O_TMPFILE & ~os.O_DIRECTORY
NO_NAME = set('<>:"|?*')


def open_paths() -> set[str]:
    """Return the files that this process has open or mapped into its memory."""
    paths = set()
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            paths.add(os.readlink(f"/proc/self/fd/{descriptor}"))
        except OSError:  # that of the list itself
            continue
    with open("/proc/self/maps", "rb") as maps:
        paths |= {os.fsdecode(line.split(maxsplit=5)[-1].strip()) for line in maps}
    return paths


def is_in_use(path: str) -> bool:
    """Tell whether a file, or one in a folder, is open."""
    real = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
    return any(each == real or each.startswith(f"{real}/") for each in open_paths())


def refuse(event: str, arguments: tuple[Any, ...]) -> None:
    """Raise the errors of Windows for what it does not do."""
    if event == "open":
        path, mode, flags = arguments
        if isinstance(path, int):
            return
        if mode is None and os.path.isdir(path) and not flags & TEMPORARY:
            raise PermissionError(errno.EACCES, "Permission denied", path)
        if flags & os.O_CREAT and NO_NAME & set(os.path.basename(os.fsdecode(path))):
            raise OSError(errno.EINVAL, "Invalid argument", path)
    elif event in ("os.rename", "os.remove", "os.rmdir"):
        path = os.fsdecode(arguments[0])
        if path.endswith(".lock"):  # filelock's
            return
        if is_in_use(path) or (event == "os.rename" and is_in_use(os.fsdecode(arguments[1]))):
            raise PermissionError(errno.EACCES, "It is used by another process", path)


def refuse_module(name: str, importer: str) -> None:
    """Raise the error of an import that finds no module; libraries know this system."""
    if name in MODULES and importer.partition(".")[0] == "seq2seq":
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def import_name(name: str, names: Any = None, *arguments: Any, **options: Any) -> Any:
    """Do what an import statement does."""
    refuse_module(name, (names or {}).get("__name__") or "")
    return found_by_statements(name, names, *arguments, **options)


def import_module(name: str, package: str | None = None) -> Any:
    """Do what `importlib.import_module` does."""
    refuse_module(name, sys._getframe(1).f_globals["__name__"])
    return found_by_calls(name, package)


found_by_statements, builtins.__import__ = builtins.__import__, import_name
found_by_calls, importlib.import_module = importlib.import_module, import_module
for name in OF_OS:
    if hasattr(os, name):
        delattr(os, name)
for name in SIGNALS:
    delattr(signal, name)
os.environ.setdefault("LOKY_MAX_CPU_COUNT", "2")  # or joblib warns of the lack on Linux
shutil._use_fd_functions = False  # type: ignore[attr-defined]
sys.addaudithook(refuse)
with contextlib.suppress(ImportError):
    import filelock

    class FileLock(filelock.UnixFileLock):
        """Removes its file when it is released, as the one of Windows does."""

        def _release(self) -> None:
            with contextlib.suppress(OSError):
                os.unlink(self.lock_file)
            super()._release()

    filelock.FileLock = FileLock
