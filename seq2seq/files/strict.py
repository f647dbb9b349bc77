"""Strict reading of untrusted files and JSON: anything unexpected is an error of one line."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, Literal

from seq2seq.errors import UserError

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
        found = json.decode(content)
        value = convert(found, schema, strict=True)
    except RecursionError:
        raise UserError(f"{path}: corrupt, nested too deeply") from None
    except ValidationError as error:
        raise UserError(f"{path}: corrupt: {str(error)[:200]}") from None
    except ValueError as error:
        raise UserError(f"{path}: corrupt, not valid JSON: {error}") from None
    except UserError as error:  # a dataclass's own checks
        raise UserError(f"{path}: {error}") from None
    if extra == "forbid":
        _check_keys(path, found, value)
    return value


def _check_keys(path: Path, found: Any, value: object) -> None:
    """Check that each key is the field of a dataclass, which msgspec ignores otherwise."""
    if is_dataclass(value) and isinstance(found, dict):
        names = {field.name for field in fields(value)}
        if odd := sorted(found.keys() - names):
            raise UserError(f"{path}: corrupt, unknown keys: {', '.join(map(repr, odd))[:200]}")
        for name, part in found.items():
            _check_keys(path, part, getattr(value, name))
