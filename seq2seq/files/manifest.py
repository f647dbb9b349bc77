"""The manifest of a folder: the sha256 of each of its files, by which damage is found."""

import hashlib
import json
import os
import re
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from seq2seq.errors import UserError
from seq2seq.files.strict import MAX_BYTES, parse_json, read_regular_file

MANIFEST = "manifest.json"
_DIGEST = re.compile("[0-9a-f]{64}")


def manifest_of(digests: Mapping[str, str]) -> bytes:
    """Return the content of the manifest that holds these sums."""
    return json.dumps({"sha256": digests}, indent=2).encode()


def read_manifest(folder: Path) -> dict[str, str]:
    """Read the sums of a folder's files, by their names.

    Raises:
        UserError: if the manifest is missing, unreadable or not one that was written.
    """
    path = folder / MANIFEST
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(
            f"{folder}: no {MANIFEST} in it; this program's folders have one;"
            " seq2seq import reads those of Marian"
        ) from None
    except OSError as error:  # such as a folder that only its owner may read
        raise UserError(f"{path}: can't be read: {error.strerror}") from error
    manifest = parse_json(path, read_regular_file(path, MAX_BYTES))
    if not isinstance(manifest, dict) or manifest.keys() != {"sha256"}:
        raise UserError(f"{path}: damaged, not a list of sha256 sums alone")
    digests = manifest["sha256"]
    if not isinstance(digests, dict):
        raise UserError(f"{path}: damaged, not a list of sha256 sums")
    for name, digest in digests.items():
        if name in ("", ".", "..") or "/" in name:
            raise UserError(f"{path}: damaged, {name[:100]!r} is not a file's name")
        if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
            raise UserError(f"{path}: damaged, no sha256 sum for {name[:100]!r}")
    return digests


def read_folder(
    folder: Path, names: Iterable[str], *, max_bytes: int = sys.maxsize
) -> dict[str, bytes]:
    """Read files that are in the folder's manifest and match it.

    Args:
        folder: the folder; no path is taken from its manifest.
        names: the files' names.
        max_bytes: the largest size of a file; a larger one is not read.

    Raises:
        UserError: if the manifest or a file is missing, unreadable, too large or not what was
            written.
    """
    digests = read_manifest(folder)
    files = {}
    for name in names:
        content = read_regular_file(folder / name, max_bytes)
        if hashlib.sha256(content).hexdigest() != digests.get(name):
            raise UserError(f"{folder / name}: damaged, its content is not what was written")
        files[name] = content
    return files


def read_listed_file(folder: Path, name: str, max_bytes: int) -> bytes:
    """Read one file as `read_folder` does.

    Raises:
        UserError: as `read_folder`.
    """
    return read_folder(folder, (name,), max_bytes=max_bytes)[name]


def manifest_sum(folder: Path) -> str:
    """Return the sha256 of a folder's manifest, and so of all that it lists.

    Raises:
        UserError: if it can't be read.
    """
    return hashlib.sha256(read_regular_file(folder / MANIFEST, MAX_BYTES)).hexdigest()


def check_replaceable(folder: Path) -> None:
    """Check that a new folder may have this name: it is free, empty or written by this program.

    A folder that this program wrote has a manifest.

    Raises:
        UserError: if something else is there: a file, a link, a device, a folder of other things.
    """
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
