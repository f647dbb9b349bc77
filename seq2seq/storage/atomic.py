"""Folders that are written whole or not at all, and whose content can be checked."""

import errno
import glob
import hashlib
import json
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from seq2seq.errors import UserError
from seq2seq.storage.strict import MAX_BYTES, parse_json

MANIFEST = "manifest.json"
_DIGEST = re.compile("[0-9a-f]{64}")


def write_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files and a manifest of their sha256, then move the folder to its name.

    Whoever reads `folder` never sees a part of it: the files are flushed to disk under a temporary
    name first. Where it replaces a folder there is a moment, between two renames, without either; a
    process that dies then leaves the earlier one under another name, which `present_name` finds and
    `remove_leftovers` puts back.

    Raises:
        UserError: the disk is full, or the place can't be written; what was there before is left.
    """
    fresh, replaced = _sibling(folder, "new"), _sibling(folder, "old")
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    manifest = json.dumps({"sha256": digests}, indent=2).encode()
    try:
        # A process that had this one's number may have died and left its own.
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        for name, content in {**files, MANIFEST: manifest}.items():
            _write_flushed(fresh / name, content)
        _flush_folder(fresh)
        if folder.exists():
            # Remains of earlier deaths, perhaps in part: none may be taken for the folder itself.
            for remains in _replaced(folder):
                shutil.rmtree(remains, ignore_errors=True)
            folder.rename(replaced)
        fresh.rename(folder)
        _flush_folder(folder.parent)
    except OSError as error:
        shutil.rmtree(fresh, ignore_errors=True)
        if replaced.exists() and not folder.exists():
            replaced.rename(folder)
        raise UserError(f"{folder}: can't be written: {error.strerror or error}") from error
    shutil.rmtree(replaced, ignore_errors=True)


def read_folder(
    folder: Path, names: Iterable[str], *, max_bytes: int = sys.maxsize
) -> dict[str, bytes]:
    """Read files that are in the folder's manifest and match it.

    Args:
        folder: whose names are opened; no path is taken from the manifest.
        names: of the files.
        max_bytes: what a file may hold; a larger one is not read.

    Raises:
        UserError: the manifest or a file is missing, unreadable, too large or not what was written.
    """
    digests = _read_manifest(folder)
    files = {}
    for name in names:
        content = read_regular_file(folder / name, max_bytes)
        if hashlib.sha256(content).hexdigest() != digests.get(name):
            raise UserError(f"{folder / name}: damaged, its content is not what was written")
        files[name] = content
    return files


def read_regular_file(path: Path, max_bytes: int) -> bytes:
    """Read a file, but no link, pipe or device, and no more than a number of bytes.

    Raises:
        UserError: it is missing, unreadable, too large or no regular file.
    """
    try:
        # A pipe would wait here for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise UserError(f"{path}: not a regular file")
            if status.st_size > max_bytes:
                raise UserError(
                    f"{path}: damaged, {status.st_size:,} bytes; it can't hold more than"
                    f" {max_bytes:,}"
                )
            with open(descriptor, "rb", closefd=False) as file:
                return file.read(status.st_size)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise UserError(f"{path}: a link, not a regular file; copy the file itself") from None
        raise UserError(f"{path}: {error.strerror}") from error
    except MemoryError:
        raise UserError(f"{path}: too large for this machine's memory") from None


def _read_manifest(folder: Path) -> dict[str, str]:
    path = folder / MANIFEST
    if not os.path.lexists(path):
        raise UserError(
            f"{folder}: no {MANIFEST} in it; this program's folders have one, those of other"
            " programs can't be read"
        )
    manifest = parse_json(path, read_regular_file(path, MAX_BYTES))
    if not isinstance(manifest, dict) or manifest.keys() != {"sha256"}:
        raise UserError(f"{path}: damaged, no list of sha256 sums alone")
    digests = manifest["sha256"]
    if not isinstance(digests, dict):
        raise UserError(f"{path}: damaged, no list of sha256 sums")
    for name, digest in digests.items():
        if name in ("", ".", "..") or "/" in name:
            raise UserError(f"{path}: damaged, {name[:100]!r} is no file's name")
        if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
            raise UserError(f"{path}: damaged, no sha256 sum for {name[:100]!r}")
    return digests


def write_file(path: Path, content: bytes) -> None:
    """Write one file whole or not at all.

    Raises:
        UserError: it can't be written.
    """
    fresh = _sibling(path, "new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _write_flushed(fresh, content)
        fresh.replace(path)
    except OSError as error:
        with suppress(OSError):
            fresh.unlink()
        raise UserError(f"{path}: can't be written: {error.strerror or error}") from error


def remove_folder(folder: Path) -> None:
    """Remove a folder, if it is there, so that nobody ever sees a part of it."""
    going = _sibling(folder, "gone")
    with suppress(OSError):
        folder.rename(going)
    shutil.rmtree(going, ignore_errors=True)


def check_writable(folder: Path) -> None:
    """Make sure that a folder can be made, or written to, and leave all as it is.

    Raises:
        UserError: it can't.
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


def present_name(folder: Path) -> Path:
    """Where a folder is: under its name, or where a replacement that was cut short has left it."""
    return folder if folder.exists() else next(iter(_replaced(folder)), folder)


def remove_leftovers(parent: Path) -> None:
    """Remove what interrupted writes have left in a folder, and put back what they had moved."""
    for replaced in parent.glob(".*.old"):
        folder = replaced.with_name(replaced.name[1:].rsplit(".", 2)[0])
        if not folder.exists():
            with suppress(OSError):
                replaced.rename(folder)
    for leftover in (path for end in ("new", "old", "gone") for path in parent.glob(f".*.{end}")):
        if leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.unlink(missing_ok=True)


def _replaced(folder: Path) -> list[Path]:
    return sorted(folder.parent.glob(f".{glob.escape(folder.name)}.*.old"))


def _sibling(path: Path, suffix: str) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.{suffix}")


def _write_flushed(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _flush_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
