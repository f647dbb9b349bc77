"""The manifest of a folder: the sha256 of each of its files, by which corruption is found."""

import hashlib
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path

from seq2seq.errors import UserError
from seq2seq.files.strict import MAX_BYTES, open_regular_file, parse_json, read_regular_file

MANIFEST = "manifest.json"


def manifest_of(digests: Mapping[str, str]) -> bytes:
    """Return the content of the manifest that holds these sums."""
    return json.dumps({"sha256": digests}, indent=2).encode()


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
