"""Strict reading of untrusted files, JSON and folders: what is unexpected is an error of one line.

A folder's manifest has the sha256 of each of its files, by which corruption is found.
"""

import errno
import hashlib
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, Literal

from seq2seq.errors import UserError

MANIFEST = "manifest.json"

MAX_BYTES = 64 * 1024
"""The largest file of settings that is read; this program's are far smaller."""


@contextmanager
def open_regular_file(path: Path, max_bytes: int) -> Iterator[BufferedReader]:
    """Open a regular file, not a link, pipe or device, of at most `max_bytes` bytes."""
    try:
        # A pipe would wait here for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
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
    except MemoryError:
        raise UserError(f"{path}: too large for this machine's memory") from None


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
    except RecursionError:
        raise UserError(f"{path}: corrupt, nested too deeply") from None
    except ValidationError as error:
        raise UserError(f"{path}: corrupt: {str(error)[:200]}") from None
    except ValueError as error:
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


def read_folder(
    folder: Path, names: Iterable[str], max_bytes: int = sys.maxsize
) -> dict[str, bytes]:
    """Read files that match the folder's manifest; no path is taken from it."""
    return {name: read_listed_file(folder, name, max_bytes) for name in names}


def read_listed_file(folder: Path, name: str, max_bytes: int) -> bytes:
    """Read one file that matches the folder's manifest, of at most `max_bytes` bytes."""
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


def manifest_sum(folder: Path) -> str:
    """Return the sha256 of a folder's manifest, and so of all that it lists."""
    return hashlib.sha256(read_regular_file(folder / MANIFEST, MAX_BYTES)).hexdigest()
