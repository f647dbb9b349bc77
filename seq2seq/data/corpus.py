"""Pairs of sentences, streamed from files or from a Hugging Face dataset.

The two sides of a pair stay together from here on.
"""

import hashlib
import os
import re
import stat
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from seq2seq.data.config import DataConfig, Split, SplitConfig, is_configured, split_place
from seq2seq.data.pair_files import (
    Languages,
    SentencePair,
    pair_of,
    pairs_suffix,
    read_pairs_file,
    read_two_files,
)
from seq2seq.errors import UserError

_CHUNK_ROWS = 1000


def read_dataset(config: DataConfig, split: str, languages: Languages) -> Iterator[SentencePair]:
    """Stream the pairs of a split, in order.

    Raises:
        UserError: if the split can't be loaded; while reading, if a row is malformed.
    """
    number = 0
    for columns in _chunks(config, split):
        for values in zip(*columns.values(), strict=True):
            number += 1
            row = dict(zip(columns, values, strict=True))
            yield pair_of(row, languages, row_name(config, split, number))


def _chunks(config: DataConfig, split: str) -> Iterator[dict[str, list[Any]]]:
    """Yield the columns of some rows at a time."""
    rows = _load_split(config, split)
    try:
        yield from rows.iter(batch_size=_CHUNK_ROWS)
    except Exception as error:  # the library's errors share no class
        raise UserError(
            f"dataset {config.dataset}, split {split}: can't be read: {_first_line(error)}; repair"
            " the file, or give other files instead (data=files)"
        ) from error


def row_name(config: DataConfig, split: str, number: int) -> str:
    """Name a row, counted from 1, for messages."""
    return f"{config.dataset} ({split}), row {number}"


def local_folder(dataset: str | None) -> Path | None:
    """Return the folder that a dataset's name denotes, or None for a name on the hub.

    Raises:
        UserError: if it is a path, but not that of a folder.
    """
    if dataset is None:
        return None
    folder = Path(dataset).expanduser()
    if folder.is_dir():
        return folder
    if folder.is_absolute() or dataset.startswith((".", "~")):
        raise UserError(f"data.dataset={dataset}: no such folder")
    return None


def library_fingerprint(config: DataConfig, split: str) -> str:
    """Return the library's own fingerprint of a split."""
    return str(_load_split(config, split)._fingerprint)


def _load_split(config: DataConfig, split: str) -> Any:
    """Open one split of a dataset of the hub or of a local folder, memory-mapped or streamed."""
    import datasets  # late, because the import takes more than a second

    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
    folder = local_folder(config.dataset)
    try:
        if folder is None:
            return datasets.load_dataset(
                config.dataset,
                config.dataset_config,
                data_dir=config.dataset_folder,
                split=split,
                revision=config.revision,
            )
        if any((folder / name).exists() for name in ("dataset_dict.json", "state.json")):
            return _saved_split(folder, split)
        builder = datasets.load_dataset_builder(
            str(folder), config.dataset_config, data_dir=config.dataset_folder
        )
        if hasattr(builder.config, "keep_default_na"):  # of CSV files
            # Else the sentences "None", "null" and "NA" would be missing values.
            builder.config.keep_default_na = False
        # Streamed: else the library keeps a copy and may serve it when files change.
        return builder.as_streaming_dataset(split)
    except Exception as error:  # the library's errors share no class
        raise UserError(
            f"dataset {config.dataset}, split {split}: can't be loaded: {_first_line(error)}; check"
            " the name, the split and the network, or give files instead (data=files)"
        ) from error


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _saved_split(folder: Path, split: str) -> Any:
    """Open what `save_to_disk` wrote; a split may be a slice or a sum, as `train[:1000]+test`."""
    import datasets

    saved = datasets.load_from_disk(folder)
    if isinstance(saved, datasets.Dataset):
        name = str(saved.split)
        saved = {name if saved.split and name.isidentifier() else "train": saved}
    if split in saved:  # whatever its name
        return saved[split]
    lengths = {name: len(rows) for name, rows in saved.items()}
    parts = datasets.ReadInstruction.from_spec(split).to_absolute(lengths)
    return datasets.concatenate_datasets(
        [saved[part.splitname].select(range(part.from_, part.to)) for part in parts]
    )


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
