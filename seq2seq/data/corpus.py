"""Pairs of sentences, streamed from files or from a Hugging Face dataset.

The two sides of a pair stay together from here on.
"""

import hashlib
import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from seq2seq.data.config import DataConfig, Split, SplitConfig, is_configured, split_place
from seq2seq.data.dataset import library_fingerprint, local_folder, read_dataset, row_name
from seq2seq.data.pair_files import SentencePair, pairs_suffix, read_pairs_file, read_two_files
from seq2seq.errors import UserError

_FULL_COMMIT = re.compile(r"[0-9a-f]{40}")


def read_pairs(config: DataConfig, name: Split) -> Iterator[SentencePair]:
    """Stream the pairs of a split, in order, blank ones included.

    Raises:
        UserError: if the split is not configured or not found, or is a pipe or a device; while
            reading, if a line is malformed or the two files differ in their number of lines.
    """
    place = _checked_place(config, name)
    if place.split is None:
        _split_files(config, place)  # a device may have no end, and a pipe no writer
    if place.source and place.target:
        return read_two_files(place.source, place.target)
    languages = (config.source_language, place.target_language or config.target_language)
    if place.pairs:
        return read_pairs_file(place.pairs, languages)
    return read_dataset(config, str(place.split), languages)


def sums_of_files(config: DataConfig, name: Split) -> dict[Path, str]:
    """Compute the sha256 of each file of a split, in order; a dataset on the hub has no files.

    Raises:
        UserError: if the split is not configured, or a file can't be read.
    """
    files = _split_files(config, _checked_place(config, name))
    return {file: sha256_of_file(file) for file in files}


def fingerprint(config: DataConfig, name: Split, sums: Mapping[Path, str] | None = None) -> str:
    """Compute a sha256 of the content of a split.

    It covers the bytes of files and local folders; the name, revision and split of a
    dataset on the hub whose revision is a full commit hash; the library's own fingerprint of
    any other dataset.

    Args:
        config: the corpus.
        name: the split.
        sums: of its files, from `sums_of_files`; computed if not given.

    Raises:
        UserError: if the split is not configured, or a file can't be read.
    """
    place = _checked_place(config, name)
    digest = hashlib.sha256()
    sums = sums_of_files(config, name) if sums is None else sums
    if place.split is None:
        for file_sum in sums.values():
            digest.update(file_sum.encode())
    else:
        digest.update(repr((config.dataset_config, config.dataset_folder, place.split)).encode())
        if (folder := local_folder(config.dataset)) is not None:
            for file, file_sum in sums.items():
                digest.update(os.fsencode(file.relative_to(folder)))
                digest.update(f"\0{file_sum}".encode())
        elif config.revision and _FULL_COMMIT.fullmatch(config.revision):
            digest.update(f"{config.dataset}\0{config.revision}".encode())
        else:
            digest.update(library_fingerprint(config, place.split).encode())
    return digest.hexdigest()


def changes_of_files(config: DataConfig, name: Split) -> list[tuple[int, int, int]]:
    """Size and times of the last changes of a split's files, by which a replacement is noticed."""
    files = _split_files(config, _checked_place(config, name))
    found = [file.stat() for file in files]
    return [(status.st_size, status.st_mtime_ns, status.st_ctime_ns) for status in found]


def describe(config: DataConfig, name: Split) -> str:
    """Name the place of a split, for messages."""
    place = split_place(config, name)
    if place.split:
        return f"{config.dataset} ({place.split})"
    return " and ".join(path for path in (place.pairs, place.source, place.target) if path)


def locate(config: DataConfig, name: Split, number: int) -> str:
    """Name the place of a pair, counted from 1: ``file:line``, a unit, or the row of a dataset."""
    place = split_place(config, name)
    path = place.pairs or place.source
    if path and pairs_suffix(path) == ".tmx":
        return f"{path}, unit {number:,}"
    return f"{path}:{number}" if path else row_name(config, str(place.split), number)


def sha256_of_file(path: Path) -> str:
    """Compute the sha256 of a file's bytes, read in blocks.

    Raises:
        UserError: if the file can't be read.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UserError(f"{path}: can't be read: {error.strerror}; check the path") from None


def _checked_place(config: DataConfig, name: Split) -> SplitConfig:
    place, key = split_place(config, name), f"data.{name}"
    if not is_configured(config, name):
        raise UserError(
            f"{key}: not set; give {key}.source=FILE {key}.target=FILE, or {key}.pairs=FILE"
            + (f", or {key}.split=NAME" if config.dataset else "")
        )
    if bool(place.source) != bool(place.target):
        given, missing = ("source", "target") if place.source else ("target", "source")
        raise UserError(f"{key}: has a {given} but no {missing}; give {key}.{missing}=FILE")
    if sum(map(bool, (place.source, place.pairs, place.split))) > 1:
        raise UserError(
            f"{key}: names several places; keep one of source and target, pairs, or split,"
            f" and set the others to null, such as {key}.split=null"
        )
    if place.split and not config.dataset:
        raise UserError(f"{key}.split={place.split}: no dataset is named; give data.dataset=NAME")
    if place.source and place.target and _same_file(place.source, place.target):
        raise UserError(f"{key}: source and target are the same file {place.source}")
    return place


def _split_files(config: DataConfig, place: SplitConfig) -> list[Path]:
    """The files of a split; none for a dataset on the hub.

    Raises:
        UserError: if one is missing, or can be read only once, as a pipe can.
    """
    if place.split is not None:
        folder = local_folder(config.dataset)
        return sorted(file for file in folder.rglob("*") if file.is_file()) if folder else []
    names = [place.pairs] if place.pairs else [place.source, place.target]
    files = [Path(str(name)).expanduser() for name in names]
    for file in files:
        try:
            mode = file.stat().st_mode
        except FileNotFoundError:
            raise UserError(f"{file}: no such file; check the path") from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", error)
            raise UserError(f"{file}: can't be read: {reason}; check the path") from None
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise UserError(
                f"{file}: not a regular file: a corpus is read several times; write it to a file"
                " first"
            )
    return files


def _same_file(first: str, second: str) -> bool:
    try:
        return Path(first).expanduser().samefile(Path(second).expanduser())
    except OSError:
        return False
