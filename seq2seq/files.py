"""Files that are written whole or not at all, and files that are read strictly.

A crash at any moment leaves the old content or the new one. What is read is checked: sizes, sums,
and that it is a regular file.
"""

import errno
import hashlib
import json
import logging
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import fields, is_dataclass
from io import BufferedReader
from pathlib import Path
from tempfile import gettempdir, mkdtemp
from typing import Any, BinaryIO, Literal, TypeAlias

from seq2seq import system
from seq2seq.errors import UserError

MANIFEST = "manifest.json"
_DEVICES = (Path("/dev"), Path("/dev/fd"), Path("/proc/self/fd"))
"""Folders of devices and of streams, such as /dev/stdout, which may be a file."""
_NAME_BYTES = 220  # so that more may be added to a name; 255 are allowed
_TEMPORARY_NAME = re.compile(r"\.(.+)\.[0-9a-f]{16}\.(?:new|old)")

_still_open: set[str] = set()
"""Temporary folders that could not be removed."""

Content: TypeAlias = bytes | Callable[[Path], object]
"""The content of a file, or a function that writes a file of that path."""


def check_replaceable(folder: Path) -> None:
    """Refuse to replace anything but an empty folder or one with a manifest."""
    if not os.path.lexists(folder):
        return
    if folder.is_dir() and not folder.is_symlink():
        if not any(folder.iterdir()):
            return
        with suppress(UserError):
            read_manifest(folder)
            return
    raise UserError(
        f"{folder}: already exists and was not written by this program; choose another name, or"
        " move it away"
    )


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Fill a folder that gets its name when the block ends without an error.

    A reader of `folder` never sees a part of it. While a folder is replaced there is a moment with
    neither; if the process dies then, `present_name` finds the earlier one and `remove_leftovers`
    puts it back.
    """
    folder = Path(os.path.abspath(folder))  # a name even for ".", and no link followed
    with ExitStack() as lock:
        with system.locked(folder.parent):
            _remove_leftovers(filter(Path.is_dir, folder.parent.iterdir()))
            new = _temporary_name(folder)
            new.mkdir()
            lock.enter_context(system.locked(new))
        try:
            yield new
            for path in (*new.rglob("*"), new):
                system.flush(path)
            with system.locked(folder.parent):
                _publish(new, folder)
            system.flush(folder.parent)
        finally:
            _remove(new)


@contextmanager
def output_file(path: Path) -> Iterator[BinaryIO]:
    """Write a file that the user named; it is replaced when the block ends without an error.

    Until then it is NAME.TOKEN.part, which is left if there is an error and something in it. If the
    name is a link, the file that it points to is replaced. Pipes, devices and standard output are
    written to directly.
    """
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "is a folder; give the path of a file")
    if is_stream(path):
        with path.open("ab") as file:  # what a shell has opened by >> keeps what is in it
            yield file
        return
    path = Path(os.path.realpath(path))
    partial_path = path.with_name(f"{_shortened(path).name}.{secrets.token_hex(4)}.part")
    with partial_path.open("xb") as file:
        try:
            _keep_mode(file, path)
            yield file
            give_name(path, file, partial_path)
        except BaseException:
            if not file.closed and file.tell() == 0:
                file.close()
                partial_path.unlink()
            else:
                message = f"seq2seq: {partial_path}: has what was written until then"
                logging.getLogger("seq2seq").warning(message)
            raise


def is_stream(path: Path) -> bool:
    """Return whether a path is a pipe, a device or standard output, which can't be replaced."""
    return path.parent in _DEVICES or (path.exists() and not path.is_file() and not path.is_dir())


def give_name(path: Path, file: BinaryIO, partial_path: Path) -> None:
    """Flush an open file, and give it the name and the mode of the file that it replaces."""
    _keep_mode(file, path)
    file.flush()
    os.fsync(file.fileno())
    system.let_go(file)
    partial_path.replace(path)
    system.flush(path.parent)


def write_file(path: Path, content: bytes, max_bytes: int | None = None) -> None:
    """Write one file whole or not at all; what was there before stays if it can't be written.

    Content of more than `max_bytes` bytes, which its readers would refuse, is refused.
    """
    if max_bytes is not None and len(content) > max_bytes:
        size = f"it would have {len(content):,} bytes, and {max_bytes:,} are read"
        raise UserError(f"{path}: can't be written: {size}")
    with errors_as_user_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with _new_file(path) as (new, file):
            _keep_mode(file, path)
            file.write(content)
            give_name(path, file, new)


def copy_file(path: Path, copy: Path) -> None:
    """Copy a file or a link whole or not at all, with its mode and times."""
    with errors_as_user_errors(copy):
        if path.is_symlink():
            new = _temporary_name(_shortened(copy))
            try:
                shutil.copy2(path, new, follow_symlinks=False)
                new.replace(copy)
            finally:
                _remove(new)
            return
        with _new_file(copy) as (new, file):
            shutil.copy2(path, new)
            system.let_go(file)
            new.replace(copy)


@contextmanager
def _new_file(path: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """Open a file beside the one that it is to replace, locked, so that no process removes it."""
    while True:
        new = _temporary_name(_shortened(path))
        try:
            with new.open("xb") as file, system.locked(new, file):
                if new.exists():  # no process has taken it for a leftover before it was locked
                    yield new, file
                    return
        finally:
            _remove(new)


def write_folder(folder: Path, files: Mapping[str, Content]) -> None:
    """Write a folder of files and a manifest of their sha256 whole or not at all."""
    digests = {}
    with errors_as_user_errors(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with new_folder(folder) as new:
            for name, content in files.items():
                (new / name).parent.mkdir(exist_ok=True)
                if isinstance(content, bytes):
                    (new / name).write_bytes(content)
                else:
                    content(new / name)
                with (new / name).open("rb") as file:
                    digests[name] = hashlib.file_digest(file, "sha256").hexdigest()
            (new / MANIFEST).write_bytes(_manifest_of(digests))


def add_file(folder: Path, name: str, content: bytes) -> None:
    """Add a file to a folder with a manifest, which lists it once it is whole."""
    digests = read_manifest(folder) | {name: hashlib.sha256(content).hexdigest()}
    write_file(folder / name, content)
    write_file(folder / MANIFEST, _manifest_of(digests))


@contextmanager
def errors_as_user_errors(path: Path) -> Iterator[None]:
    """Turn errors of writing into user errors that name the path."""
    try:
        yield
    except BrokenPipeError:  # its reader has closed it, which ends a command
        raise
    except OSError as error:
        raise UserError(f"{path}: can't be written: {error.strerror or error}") from error


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Make a folder for files that need no name once they are open, and remove it afterwards.

    Where the system removes no open file, it is removed when the next one is made.
    """
    with errors_as_user_errors(Path(gettempdir())):
        for folder in [*_still_open]:
            _remove_temporary(folder)
        folder = mkdtemp()
        try:
            yield Path(folder)
        finally:
            _remove_temporary(folder)


def _remove_temporary(folder: str) -> None:
    # Not by TemporaryDirectory, which tries without end to remove an open file on Windows.
    shutil.rmtree(folder, ignore_errors=not system.POSIX_FILES)
    (_still_open.add if os.path.exists(folder) else _still_open.discard)(folder)


@contextmanager
def temporary_file(write: Callable[[Path], object]) -> Iterator[Path]:
    """Write a file by a function, and remove it afterwards."""
    with temporary_folder() as folder:
        write(folder / "file")
        yield folder / "file"


def remove_folder(folder: Path) -> None:
    """Remove a folder, if it exists, so that no reader sees a part of it."""
    gone = _temporary_name(folder)
    with suppress(OSError):
        folder.rename(gone)
    _remove(gone)


def present_name(folder: Path) -> Path:
    """Find a folder, under its name or where an interrupted replacement left it."""
    if folder.exists() or not folder.parent.is_dir():
        return folder
    for path in folder.parent.iterdir():
        if path.suffix == ".old" and _final_name(path) == folder.name:
            return path
    return folder


def remove_leftovers(parent: Path) -> None:
    """Remove leftovers of dead processes from a folder, and put back what they moved away."""
    if parent.is_dir():
        with system.locked(parent):
            _remove_leftovers(parent.iterdir())


def is_temporary(path: Path) -> bool:
    """Return whether a path has one of the temporary names of this module."""
    return _final_name(path) is not None


def _remove_leftovers(paths: Iterable[Path]) -> None:
    """Do so where their folder is locked: whatever is moved away was left by a dead process."""
    for path in list(paths):
        name = _final_name(path)
        if name is not None and path.suffix == ".old":
            _put_back(path, path.with_name(name))
        elif name is not None:
            _remove_unlocked(path)


def _publish(new: Path, folder: Path) -> None:
    """Give a new folder its name where the parent is locked; what it replaces is removed last."""
    old = new.with_suffix(".old")
    try:
        check_replaceable(folder)
        if os.path.lexists(folder):
            folder.rename(old)
        new.rename(folder)
    finally:
        _put_back(old, folder)


def _put_back(old: Path, folder: Path) -> None:
    """Give a replaced folder its name again, or remove it if another has the name."""
    if not os.path.lexists(folder):
        with suppress(FileNotFoundError):  # nothing was replaced
            old.rename(folder)
    else:
        _remove(old)


def _manifest_of(digests: Mapping[str, str]) -> bytes:
    return json.dumps({"sha256": digests}, indent=2).encode()


def _temporary_name(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(8)}.new")


def _shortened(path: Path) -> Path:
    """Cut the name of a file where no more could be added to it."""
    name = os.fsencode(path.name)
    if len(name) <= _NAME_BYTES:
        return path
    return path.with_name(name[:_NAME_BYTES].decode(errors="ignore") or "name")


def _final_name(path: Path) -> str | None:
    """Return the final name of a temporary one, or None for any other name."""
    match = _TEMPORARY_NAME.fullmatch(path.name)
    return match[1] if match else None


def _keep_mode(file: BinaryIO, path: Path) -> None:
    """Give an open file the mode of the file that it is to replace."""
    with suppress(FileNotFoundError):
        status = path.lstat()
        if stat.S_ISREG(status.st_mode):
            system.set_mode(file, stat.S_IMODE(status.st_mode))


def _remove_unlocked(path: Path) -> None:
    """Remove a file or a folder, but no link, if it can be locked."""
    if path.is_symlink():
        return
    with suppress(OSError), system.locked(path, wait=False) as is_held:
        if is_held:
            _remove(path)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


MAX_BYTES = 2 * 2**20
"""The largest JSON file of settings, progress or scores; one for a hundred languages has 200 KB."""


@contextmanager
def open_regular_file(path: Path, max_bytes: int) -> Iterator[BufferedReader]:
    """Open a regular file, not a link, pipe or device, of at most `max_bytes` bytes."""
    try:
        descriptor = system.open_itself(path)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise UserError(f"{path}: not a regular file")
            if status.st_size > max_bytes:
                raise UserError(
                    f"{path}: corrupt, {status.st_size:,} bytes; it can't hold more than"
                    f" {max_bytes:,}"
                )
            with open(descriptor, "rb", closefd=False) as file:
                yield file
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise UserError(f"{path}: a link, not a regular file; copy the file itself") from None
        raise UserError(f"{path}: {error.strerror}") from error


def read_regular_file(path: Path, max_bytes: int) -> bytes:
    """Read a file that `open_regular_file` opens."""
    with open_regular_file(path, max_bytes) as file:
        return file.read(max_bytes)


def parse_json(
    path: Path,
    content: bytes,
    schema: Any = Any,
    *,
    extra: Literal["forbid", "ignore"] = "forbid",
) -> Any:
    """Parse UTF-8 JSON of a type, without NaN or half a surrogate pair.

    With `extra="forbid"`, keys that a dataclass lacks are errors. Messages name `path`.
    """
    from msgspec import ValidationError, convert, json

    try:
        raw = json.decode(content)
        value = convert(raw, schema, strict=True)
    except ValidationError as error:
        raise UserError(f"{path}: corrupt: {str(error)[:200]}") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: corrupt, not valid JSON: {error}") from None
    except UserError as error:  # a dataclass's own checks
        raise UserError(f"{path}: {error}") from None
    if extra == "forbid":
        _check_keys(path, raw, value)
    return value


def _check_keys(path: Path, raw: Any, value: object) -> None:
    """Check that each key is the field of a dataclass, which msgspec ignores otherwise."""
    if is_dataclass(value) and isinstance(raw, dict):
        names = {field.name for field in fields(value)}
        if unknown := sorted(raw.keys() - names):
            raise UserError(f"{path}: corrupt, unknown keys: {', '.join(map(repr, unknown))[:200]}")
        for name, content in raw.items():
            _check_keys(path, content, getattr(value, name))


def read_manifest(folder: Path) -> dict[str, str]:
    """Read the sums of a folder's files, by their names."""
    path = folder / MANIFEST
    try:
        written = read_regular_file(path, MAX_BYTES)
    except UserError as error:
        if not isinstance(error.__cause__, FileNotFoundError | NotADirectoryError):
            raise
        raise UserError(
            f"{folder}: no {MANIFEST} in it; this program's folders have one;"
            " seq2seq import reads those of Marian"
        ) from None
    content: dict[str, dict[str, str]] = parse_json(path, written, dict[str, dict[str, str]])
    if content.keys() != {"sha256"}:
        raise UserError(f"{path}: corrupt, not a list of sha256 sums alone")
    return content["sha256"]


def read_listed_file(folder: Path, name: str, max_bytes: int) -> bytes:
    """Read a file that matches the folder's manifest; no path is taken from it."""
    with _open_listed_file(folder, name, max_bytes) as file:
        return file.read()


def check_listed_file(folder: Path, name: str, max_bytes: int) -> None:
    """Check a file as `read_listed_file` does, without holding it in memory."""
    with _open_listed_file(folder, name, max_bytes):
        pass


@contextmanager
def _open_listed_file(folder: Path, name: str, max_bytes: int) -> Iterator[BufferedReader]:
    digest = read_manifest(folder).get(name)
    with open_regular_file(folder / name, max_bytes) as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != digest:
            raise UserError(f"{folder / name}: corrupt, its content is not what was written")
        file.seek(0)
        yield file
