"""Pairs of sentences, streamed from files or from a Hugging Face dataset.

The two sides of a pair stay together from here on.
"""

import hashlib
import math
import re
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from seq2seq.data import controls
from seq2seq.data.controls import check_tag, language_piece
from seq2seq.data.pair_files import (
    Languages,
    SentencePair,
    pair_of,
    pairs_suffix,
    read_pairs_file,
    read_two_files,
)
from seq2seq.data.tokenizer import Tokenizer, TokenizerConfig
from seq2seq.errors import UsageError, UserError
from seq2seq.options import check_types

Split: TypeAlias = str
"""`train`, `valid`, `test`, `corpora.NAME` or `valid_sets.NAME`: its key below `data`."""

_CHUNK_ROWS = 1000
_FULL_COMMIT = re.compile(r"[0-9a-f]{40}")
_NAME = re.compile(r"[A-Za-z0-9_-]+")
_RESERVED_NAMES = ("train", "valid", "mean")  # the first two are splits, the last two selections


@dataclass(kw_only=True)
class SplitConfig:
    """The place of a split: two files, one file of pairs, or the split of a dataset.

    A file may be compressed (.gz, .xz, .zst, .bz2).
    """

    source: str | None = None
    """Text file with one source sentence per line."""

    target: str | None = None
    """Text file with one target sentence per line; line k belongs to line k of the source."""

    pairs: str | None = None
    """File with one pair per line, .tsv (source, tab, target) or .jsonl, or a .tmx file."""

    split: str | None = None
    """Name of a split of the Hugging Face dataset, such as ``validation`` or ``train[:1000]``."""

    target_language: str | None = None
    """Code of the target language, for a model of several: ``>>de<<`` stands before the source."""

    def __post_init__(self) -> None:
        check_types(self)


@dataclass(kw_only=True)
class CorpusConfig(SplitConfig):
    """One of several training corpora."""

    weight: float = 1.0
    """How often an epoch takes each pair that passed the filters; 0.5 is every other one."""

    tag: str | None = None
    """A piece such as ``<bt>``, which no text contains, to stand before each source."""


@dataclass(kw_only=True)
class FilterConfig:
    """Which training pairs are left out; lengths are in tokens, the end symbol counted."""

    max_tokens: int = 256
    """The most tokens on either side."""

    max_length_ratio: float = 9.0
    """The largest ratio of the longer side to the shorter."""

    def __post_init__(self) -> None:
        check_types(self)
        if self.max_tokens < 2:
            raise UsageError(f"data.filter.max_tokens={self.max_tokens}: must be at least 2")
        if not self.max_length_ratio >= 1:
            raise UsageError(
                f"data.filter.max_length_ratio={self.max_length_ratio}: must be at least 1"
            )


@dataclass(kw_only=True)
class DataConfig:
    """A parallel corpus: its languages, its three splits, and how it becomes token ids."""

    name: str = "files"
    """Short name of the corpus, for folders and reports."""

    source_language: str = "source"
    """Code of the language to translate from; also its key in rows of .jsonl and datasets."""

    target_language: str = "target"
    """Code of the language to translate into; also its key in rows of .jsonl and datasets."""

    train: SplitConfig = field(default_factory=SplitConfig)
    """The training split; the tokenizer is learned from it and from ``corpora`` alone."""

    corpora: dict[str, CorpusConfig] = field(default_factory=dict)
    """More training corpora, by name; ``train``, if there is one, has the weight 1 beside them."""

    valid: SplitConfig = field(default_factory=SplitConfig)
    """The validation split."""

    valid_sets: dict[str, SplitConfig] = field(default_factory=dict)
    """More validation sets, by name: each is validated and recorded as `valid` is."""

    test: SplitConfig = field(default_factory=SplitConfig)
    """The test split; training never needs it."""

    dataset: str | None = None
    """Hugging Face dataset: a name on the hub, or a local folder of parquet, json or csv files."""

    dataset_config: str | None = None
    """Configuration of the dataset, if it has several."""

    dataset_folder: str | None = None
    """Folder of the dataset that has the files, if it has no configurations."""

    revision: str | None = None
    """Commit of the dataset; a full hash pins its content."""

    filter: FilterConfig = field(default_factory=FilterConfig)
    """Which training pairs are left out."""

    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    """The options of the vocabulary."""

    def __post_init__(self) -> None:
        check_types(self)
        for key in ("source_language", "target_language"):
            if not getattr(self, key).isprintable():  # a model's files could not hold it
                raise UsageError(f"data.{key}={getattr(self, key)!a}: must be printable")
        for section, names in (("valid_sets", self.valid_sets), ("corpora", self.corpora)):
            for name in names:
                if not _NAME.fullmatch(name) or name in _RESERVED_NAMES:
                    raise UsageError(
                        f"data.{section}.{name}: choose a name of letters, digits, _ and - other"
                        f" than {', '.join(_RESERVED_NAMES)}"
                    )
        for name, corpus in self.corpora.items():
            if not 0 < corpus.weight < math.inf:
                raise UsageError(
                    f"data.corpora.{name}.weight={corpus.weight}: must be above 0 and finite"
                )
            if corpus.tag is not None:
                with _prefixed(f"data.corpora.{name}.tag"):
                    check_tag(corpus.tag)
        self._check_languages()

    def _check_languages(self) -> None:
        """Check that all splits that a model sees have a target language, or none."""
        splits = [*training_splits(self), "valid", *(f"valid_sets.{n}" for n in self.valid_sets)]
        codes = {name: _place(self, name).target_language for name in splits}
        for name, code in codes.items():
            if code is not None:
                with _prefixed(f"data.{name}.target_language"):
                    language_piece(code)
        given = [name for name, code in codes.items() if code is not None]
        if given and len(given) < len(codes):
            missing = next(name for name, code in codes.items() if code is None)
            raise UsageError(
                f"data.{missing}: has no target_language, but data.{given[0]} has: give"
                f" data.{missing}.target_language"
            )


@contextmanager
def _prefixed(key: str) -> Iterator[None]:
    try:
        yield
    except UserError as error:
        raise type(error)(f"{key}: {error}") from None


def training_splits(config: DataConfig) -> list[Split]:
    """Return the training split and the further corpora, in the order in which they are encoded."""
    corpora: list[Split] = [f"corpora.{name}" for name in sorted(config.corpora)]
    return ["train", *corpora] if is_configured(config, "train") or not corpora else corpora


def control_marks(config: DataConfig, name: Split) -> tuple[str | None, str | None]:
    """Return target language and tag of a split, which stand before each source."""
    place = _place(config, name)
    return place.target_language, place.tag if isinstance(place, CorpusConfig) else None


def control_pieces(config: DataConfig) -> list[str]:
    """Return the control symbols that the vocabulary needs: target languages, then tags."""
    marks = [control_marks(config, name) for name in training_splits(config)]
    languages = {code for code, _ in marks if code is not None}
    tags = {tag for _, tag in marks if tag is not None}
    return [*map(language_piece, sorted(languages)), *sorted(tags)]


def control_ids(config: DataConfig, name: Split, tokenizer: Tokenizer) -> list[int]:
    """Return the ids that stand before each source of a split.

    Raises:
        UserError: if the tokenizer, which may be that of a trained model, has no such piece.
    """
    with _prefixed(f"data.{name}"):
        return controls.control_ids(tokenizer.controls, *control_marks(config, name))


def is_configured(config: DataConfig, name: Split) -> bool:
    """Return whether the configuration names a place for this split."""
    place = _place(config, name)
    return any((place.source, place.target, place.pairs, place.split))


def read_pairs(config: DataConfig, name: Split) -> Iterator[SentencePair]:
    """Stream the pairs of a split, in order, blank ones included.

    Raises:
        UserError: if the split is not configured or not found; while reading, if a line is
            malformed or the two files differ in their number of lines.
    """
    place = _checked_place(config, name)
    if place.source and place.target:
        return read_two_files(place.source, place.target)
    languages = (config.source_language, place.target_language or config.target_language)
    if place.pairs:
        return read_pairs_file(place.pairs, languages)
    return _read_dataset(config, str(place.split), languages)


def fingerprint(config: DataConfig, name: Split) -> str:
    """Compute a sha256 of the content of a split.

    It covers the bytes of files and local folders; the name, revision and split of a
    dataset on the hub whose revision is a full commit hash; the library's own fingerprint of
    any other dataset.
    """
    place = _checked_place(config, name)
    digest = hashlib.sha256()
    files = _split_files(config, place)
    if place.split is None:
        for file in files:
            digest.update(sha256_of_file(file).encode())
    else:
        digest.update(repr((config.dataset_config, config.dataset_folder, place.split)).encode())
        if (folder := _local_folder(config.dataset)) is not None:
            for file in files:
                digest.update(f"{file.relative_to(folder)}\0{sha256_of_file(file)}".encode())
        elif config.revision and _FULL_COMMIT.fullmatch(config.revision):
            digest.update(f"{config.dataset}\0{config.revision}".encode())
        else:
            digest.update(str(_load_split(config, place.split)._fingerprint).encode())
    return digest.hexdigest()


def changes_of_files(config: DataConfig, name: Split) -> list[tuple[int, int, int]]:
    """Size and times of the last changes of a split's files, by which a replacement is noticed."""
    files = _split_files(config, _checked_place(config, name))
    found = [file.stat() for file in files]
    return [(status.st_size, status.st_mtime_ns, status.st_ctime_ns) for status in found]


def describe(config: DataConfig, name: Split) -> str:
    """Name the place of a split, for messages."""
    place = _place(config, name)
    if place.split:
        return f"{config.dataset} ({place.split})"
    return " and ".join(path for path in (place.pairs, place.source, place.target) if path)


def locate(config: DataConfig, name: Split, number: int) -> str:
    """Name the place of a pair, counted from 1: ``file:line``, a unit, or the row of a dataset."""
    place = _place(config, name)
    path = place.pairs or place.source
    if path and pairs_suffix(path) == ".tmx":
        return f"{path}, unit {number:,}"
    return f"{path}:{number}" if path else _row_name(config, str(place.split), number)


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


def _place(config: DataConfig, name: Split) -> SplitConfig:
    split, _, member = name.partition(".")
    place: SplitConfig | Mapping[str, SplitConfig] = getattr(config, split)
    return place if isinstance(place, SplitConfig) else place[member]


def _checked_place(config: DataConfig, name: Split) -> SplitConfig:
    place, key = _place(config, name), f"data.{name}"
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
        folder = _local_folder(config.dataset)
        return sorted(file for file in folder.rglob("*") if file.is_file()) if folder else []
    names = [place.pairs] if place.pairs else [place.source, place.target]
    files = [Path(str(name)).expanduser() for name in names]
    for file in files:
        try:
            mode = file.stat().st_mode
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", error)
            raise UserError(f"{file}: can't be read: {reason}; check the path") from None
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise UserError(
                f"{file}: not a regular file: training reads its text several times; write it to a"
                " file first"
            )
    return files


def _same_file(first: str, second: str) -> bool:
    try:
        return Path(first).expanduser().samefile(Path(second).expanduser())
    except OSError:
        return False


def _read_dataset(config: DataConfig, split: str, languages: Languages) -> Iterator[SentencePair]:
    number = 0
    for columns in _load_split(config, split).iter(batch_size=_CHUNK_ROWS):
        for values in zip(*columns.values(), strict=True):
            number += 1
            row = dict(zip(columns, values, strict=True))
            yield pair_of(row, languages, _row_name(config, split, number))


def _row_name(config: DataConfig, split: str, number: int) -> str:
    return f"{config.dataset} ({split}), row {number}"


def _local_folder(dataset: str | None) -> Path | None:
    """Return the folder that a dataset's name denotes, or None for a name on the hub."""
    if dataset is None:
        return None
    folder = Path(dataset).expanduser()
    if folder.is_dir():
        return folder
    if folder.is_absolute() or dataset.startswith((".", "~")):
        raise UserError(f"data.dataset={dataset}: no such folder")
    return None


def _load_split(config: DataConfig, split: str) -> Any:
    """Open one split of a dataset of the hub or of a local folder, memory-mapped or streamed."""
    import datasets  # late, because the import takes more than a second

    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
    folder = _local_folder(config.dataset)
    try:
        if folder is None:
            return datasets.load_dataset(
                config.dataset,
                config.dataset_config,
                data_dir=config.dataset_folder,
                split=split,
                revision=config.revision,
            )
        if (folder / "dataset_dict.json").exists():
            return datasets.load_from_disk(folder)[split]
        if (folder / "state.json").exists():
            return datasets.load_from_disk(folder)
        return datasets.load_dataset(
            str(folder),
            config.dataset_config,
            data_dir=config.dataset_folder,
            split=split,
            streaming=True,  # else the library keeps a copy and may serve it when files change
            **_csv_options(folder),
        )
    except Exception as error:  # the library's errors share no class
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(
            f"dataset {config.dataset}, split {split}: can't be loaded: {reason}; check the name,"
            " the split and the network, or give files instead (data=files)"
        ) from error


def _csv_options(folder: Path) -> dict[str, Any]:
    """Keep the library from reading the sentences "None", "null" and "NA" as missing values."""
    return {"keep_default_na": False} if any(folder.rglob("*.csv")) else {}
