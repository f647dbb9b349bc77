"""A parallel corpus: its languages, its splits and their pairs, streamed from files or datasets.

Target languages and tags become control symbols, `>>de<<` and `<bt>`, which stand before a source.
The two sides of a pair stay together from here on.
"""

import hashlib
import os
import re
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias

from seq2seq.controls import UNNAMED, control_ids, language_piece
from seq2seq.data.noise import NoiseConfig
from seq2seq.data.pairs import HeldOut, PairsFile, check_csv, hold_out, pair_of, source_digest
from seq2seq.errors import UsageError, UserError, check_number, reason_of
from seq2seq.settings import digested
from seq2seq.text import SentencePair, is_url, open_raw, read_two_files
from seq2seq.tokenizer import CONTROL_PIECES, TokenizerConfig

_NAME = re.compile(r"[A-Za-z0-9_-]+")
_RESERVED_NAMES = ("train", "valid", "mean")  # the first two are splits, the last two selections
_TAG = re.compile(r"<[A-Za-z][A-Za-z0-9_-]*>")
_MAX_WEIGHT = 1000  # an epoch is made in memory


@dataclass(kw_only=True)
class SplitConfig:
    """Two files, a file of pairs (compressed or not), or the split of a dataset."""

    source: str | None = digested(None)
    """Text file with one source sentence per line."""

    target: str | None = digested(None)
    """Text file with one target sentence per line; line k belongs to line k of the source."""

    pairs: str | None = digested(None)
    """File with one pair per line, .tsv (source, tab, target) or .jsonl, or a .tmx file."""

    split: str | None = digested(None)
    """Name of a split of the Hugging Face dataset, such as ``validation`` or ``train[:1000]``."""

    target_language: str | None = digested(None)
    """Code of the target language, for a model of several: ``>>de<<`` stands before the source."""

    def __post_init__(self) -> None:
        self.split = self.split or None  # `data.train.split=` on the command line

    @property
    def is_configured(self) -> bool:
        """Whether anything says where the text is."""
        return any((self.source, self.target, self.pairs, self.split))


@dataclass(kw_only=True)
class CorpusConfig(SplitConfig):
    """One of several training corpora."""

    weight: float = digested(1.0)
    """How often an epoch takes each pair that passed the filters; 0.5 is every other one."""

    tag: str | None = digested(None)
    """A piece such as ``<bt>``, which no text contains, to stand before each source."""


@dataclass(kw_only=True)
class FilterConfig:
    """The rules by which training pairs are skipped; lengths are in tokens, with the end symbol."""

    max_tokens: int = digested(256)
    """The most tokens on either side."""

    max_length_ratio: float = digested(9.0)
    """The largest ratio of the longer side to the shorter."""

    def __post_init__(self) -> None:
        check_number("data.filter.max_tokens", self.max_tokens, at_least=2)
        check_number("data.filter.max_length_ratio", self.max_length_ratio, at_least=1)


@dataclass(kw_only=True)
class DataConfig:
    """A parallel corpus: its languages, its three splits, and how it becomes token ids."""

    name: str = digested("files")
    """Short name of the corpus, for folders and reports."""

    source_language: str = digested(UNNAMED[1])
    """Code of the language to translate from; also its key in rows of .jsonl and datasets."""

    target_language: str = digested(UNNAMED[2])
    """Code of the language to translate into; also its key in rows of .jsonl and datasets."""

    train: SplitConfig = field(default_factory=SplitConfig)
    """The training split; the tokenizer is learned from it and from ``corpora`` alone."""

    corpora: dict[str, CorpusConfig] = digested({})
    """More training corpora, by name; ``train``, if there is one, has the weight 1 among them."""

    valid: SplitConfig = field(default_factory=SplitConfig)
    """The validation split."""

    valid_from_train: int | None = digested(None)
    """Number of pairs of ``train`` that become `valid`, chosen by hashes of their sources. Pairs
    with these sources are not trained on."""

    valid_sets: dict[str, SplitConfig] = digested({})
    """More validation sets, by name: each is validated and recorded as `valid` is."""

    test: SplitConfig = field(default_factory=SplitConfig)
    """The test split, which the model scores when its training has ended."""

    test_sets: dict[str, SplitConfig] = digested({})
    """More test sets, by name: each is scored as `test` is."""

    dataset: str | None = digested(None)
    """Hugging Face dataset: a name on the hub, or a local parquet, json or csv file, or a folder
    of them."""

    dataset_config: str | None = digested(None)
    """Configuration of the dataset, if it has several."""

    dataset_folder: str | None = digested(None)
    """Folder of the dataset that has the files, if it has no configurations."""

    revision: str | None = digested(None)
    """Commit of the dataset; a full hash pins its content."""

    filter: FilterConfig = field(default_factory=FilterConfig)
    """The rules by which training pairs are skipped."""

    noise: NoiseConfig = field(default_factory=NoiseConfig)
    """Capitals and typing errors that are added to the training text at random."""

    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    """The options of the vocabulary."""

    def __post_init__(self) -> None:
        check_number("data.valid_from_train", self.valid_from_train, at_least=1)
        for section in ("valid_sets", "test_sets", "corpora"):
            for name in getattr(self, section):
                if not _NAME.fullmatch(name) or name in _RESERVED_NAMES:
                    raise UsageError(
                        f"data.{section}.{name}: choose a name of letters, digits, _ and - other"
                        f" than {', '.join(_RESERVED_NAMES)}"
                    )
        for name, corpus in self.corpora.items():
            weight = f"data.corpora.{name}.weight"
            check_number(weight, corpus.weight, above=0, at_most=_MAX_WEIGHT)
            reserved, tag = CONTROL_PIECES.values(), corpus.tag
            if tag is not None and (not _TAG.fullmatch(tag) or tag in reserved):
                raise UsageError(
                    f"data.corpora.{name}.tag: {tag!r} is not a tag: use a word such as <bt>, other"
                    f" than {', '.join(reserved)}"
                )
        self._check_languages()

    def _check_languages(self) -> None:
        """Check that all splits that a model sees have a target language, or none."""
        named, missing = [], []
        for name in (*self.training_names(), *self.validation_names()):
            code = self.split_config(name).target_language
            if code is None:
                missing.append(name)
            else:
                named.append(name)
                with prefix_errors(f"data.{name}.target_language"):
                    language_piece(code)
        for name in self.test_names():
            if code := self.split_config(name).target_language:
                with prefix_errors(f"data.{name}.target_language"):
                    language_piece(code)
                if not named:
                    raise UsageError(
                        f"data.{name}.target_language={code}: the model has one target language;"
                        " give data.train one, too, or remove it"
                    )
        if named and missing:
            raise UsageError(
                f"data.{missing[0]}: has no target_language, but data.{named[0]} has: give"
                f" data.{missing[0]}.target_language"
            )

    def training_names(self) -> list[str]:
        """Return the names of `train` and the further corpora, in the order of encoding."""
        corpora = [f"corpora.{name}" for name in sorted(self.corpora)]
        return ["train", *corpora] if self.train.is_configured or not corpora else corpora

    def validation_names(self) -> list[str]:
        """Return the names of `valid` and the further validation sets."""
        return ["valid", *(f"valid_sets.{name}" for name in self.valid_sets)]

    def test_names(self) -> list[str]:
        """Return the names of `test`, if there is one, and the further test sets."""
        test = ["test"] if self.test.is_configured else []
        return [*test, *(f"test_sets.{name}" for name in self.test_sets)]

    def split_config(self, name: str) -> SplitConfig:
        """Return the configuration of a split, named by its key: `train` or `corpora.web`."""
        section, _, member = name.partition(".")
        splits = getattr(self, section)
        return splits[member] if member else splits

    @property
    def samples_text(self) -> bool:
        """Whether the training text is encoded again for each epoch."""
        return self.tokenizer.sampling > 0 or bool(self.noise)


@contextmanager
def prefix_errors(key: str) -> Iterator[None]:
    """Put a key before the message of a user error."""
    try:
        yield
    except UserError as error:
        raise type(error)(f"{key}: {error}") from None


_FULL_COMMIT = re.compile(r"[0-9a-f]{40}")
_CHUNK_ROWS = 1000
_DATASET_SUFFIXES = (".parquet", ".csv", ".tsv", ".json", ".jsonl")
_HUB_SECONDS = 10


class Split:
    """One split of a corpus: its pairs, its files, and what stands before each source."""

    def __init__(self, config: DataConfig, name: str, valid: "Split | None" = None) -> None:
        self.name = name
        """The key of the split below `data`: `train`, `valid`, `test`, or `SECTION.NAME`."""
        self._config = text = config.split_config(name)
        self.is_dataset = text.split is not None
        self._dataset = _DatasetSplit(config, str(text.split))
        self._languages = (config.source_language, text.target_language or config.target_language)
        self._file = PairsFile(text.pairs, self._languages) if text.pairs else None
        self.target_language = text.target_language
        self.tag = text.tag if isinstance(text, CorpusConfig) else None
        self.weight = text.weight if isinstance(text, CorpusConfig) else 1.0
        number = config.valid_from_train
        self._cut = (number, Split(config, "train")) if number and name == "valid" else None
        self._valid = valid if number else None
        self.held_out = 0
        """Pairs of this training split that are not trained on, as it was read last."""

    def __str__(self) -> str:
        """Name the files or the dataset, for messages."""
        text = self._config
        if self._cut:
            return "{:,} pairs of {}".format(*self._cut)
        if self.is_dataset:
            return str(self._dataset)
        return " and ".join(filter(None, (text.pairs, text.source, text.target)))

    def locate(self, number: int, side: Literal["source", "target"] = "source") -> str:
        """Name a pair, counted from 1: ``file:line``, a unit, or the row of a dataset."""
        if self._cut:
            return self._cut[1].locate(list(self._chosen.values())[number - 1][0], side)
        if self._file:
            return self._file.locate(number)
        path = getattr(self._config, side)
        return f"{path}:{number}" if path else f"{self._dataset}, row {number}"

    def pairs(self) -> Iterator[SentencePair]:
        """Stream the pairs, in order, blank ones included; those that are held out are blank."""
        if self._cut:
            self._check()
            return (pair for _, pair in self._chosen.values())
        return self._without(self._valid._chosen) if self._valid else self._all_pairs()

    @cached_property
    def _chosen(self) -> HeldOut:
        assert self._cut
        return hold_out(self._cut[1].pairs(), self._cut[0])

    def _without(self, held_out: HeldOut) -> Iterator[SentencePair]:
        """Blank the pairs with these sources, so that the numbers of the others stay."""
        self.held_out = 0
        for pair in self._all_pairs():
            is_held_out = source_digest(pair) in held_out
            self.held_out += is_held_out
            yield SentencePair("", "") if is_held_out else pair

    def _all_pairs(self) -> Iterator[SentencePair]:
        text = self._config
        self.files()  # checked: a device may have no end, and a pipe no writer
        if self.is_dataset:
            return self._dataset.pairs(self._languages)
        if self._file:
            return self._file.pairs()
        return read_two_files(str(text.source), str(text.target))

    def remarks(self) -> list[str]:
        """Say what in a file of pairs is not read as it stands there."""
        return list(self._file.remarks()) if self._file else []

    def files(self) -> dict[str, str]:
        """Return the files or URLs by their keys or names.

        A dataset on the hub has none, nor has `valid` if it is cut from the training split.
        """
        self._check()
        if self.is_dataset:
            return self._dataset.files()
        files = {}
        for key in ("pairs", "source", "target"):
            if path := getattr(self._config, key):
                files[key] = os.path.expanduser(path)
                _check_rereadable(files[key])
        return files

    @cached_property
    def sums(self) -> dict[str, str]:
        """The sha256 of each file, by its key; computed once."""
        return {key: sha256_of_file(file) for key, file in self.files().items()}

    @cached_property
    def fingerprint(self) -> str:
        """A sha256 of all files, or of what determines a dataset on the hub; computed once."""
        digest, sums = hashlib.sha256(), self.sums
        if self._cut:
            digest.update(f"{self._cut[0]} of {self._cut[1].fingerprint}".encode())
        elif self.is_dataset:
            self._dataset.update(digest, sums)
        else:
            digest.update("".join(sums.values()).encode())
        return digest.hexdigest()

    def file_states(self) -> list["FileState"]:
        """Return the state of each file, by which a replacement is noticed."""
        return list(map(file_state, self.files().values()))

    def control_ids(self, controls: Mapping[str, int]) -> list[int]:
        """Return the ids, of a tokenizer's control symbols, that stand before each source."""
        with prefix_errors(f"data.{self.name}"):
            return control_ids(controls, self.target_language, self.tag)

    def _check(self) -> None:
        """Check that the configuration says in exactly one way where the text is."""
        text, key = self._config, f"data.{self.name}"
        if not text.is_configured and not self._cut:
            ways = [f"{key}.source=FILE {key}.target=FILE", f"{key}.pairs=FILE"]
            if self._dataset.name:
                ways.append(f"{key}.split=NAME")
            if self.name == "valid":
                ways.append(f"{key}_from_train=NUMBER to cut it from train")
            raise UserError(f"{key}: not set; give {', or '.join(ways)}")
        if bool(text.source) != bool(text.target):
            side, missing = ("source", "target") if text.source else ("target", "source")
            raise UserError(f"{key}: has a {side} but no {missing}; give {key}.{missing}=FILE")
        if sum(map(bool, (text.source, text.pairs, text.split, self._cut))) > 1:
            raise UserError(
                f"{key}: has several texts; keep one of source and target, pairs, or split,"
                f" and set the others to null, such as {key}.split=null"
            )
        if text.split and not self._dataset.name:
            raise UserError(
                f"{key}.split={text.split}: no dataset is named; give data.dataset=NAME"
            )
        if text.source and text.source == text.target:
            raise UserError(f"{key}: source and target are the same file {text.source}")


def training_splits(config: DataConfig, valid: Split | None = None) -> list[Split]:
    """Return the training split and the further corpora, in the order in which they are encoded."""
    valid = valid or Split(config, "valid")
    return [Split(config, name, valid) for name in config.training_names()]


FileState: TypeAlias = tuple[str, int | str, int, int]
"""The path, size and times of change (in ns) of a file, which change with its content; or a URL and
what its protocol says of the content."""


def file_state(path: str | Path) -> FileState:
    """Return the state of a file or URL."""
    if is_url(path):
        import fsspec

        file_system, name = fsspec.url_to_fs(str(path))
        return str(path), str(file_system.ukey(name)), 0, 0
    state = os.stat(path)
    return os.path.realpath(path), state.st_size, state.st_mtime_ns, state.st_ctime_ns


def sha256_of_file(path: str | Path) -> str:
    """Compute the sha256 of the bytes of a file or URL, read in blocks."""
    with open_raw(path) as file:
        try:
            return hashlib.file_digest(file, "sha256").hexdigest()
        except Exception as error:  # those of networks share no class
            raise UserError(f"{path}: can't be read: {reason_of(error)}") from None


def _check_rereadable(path: str) -> None:
    """Check that a file is there, and can be read more than once, which a pipe can't."""
    read_once = os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path))
    if read_once and not is_url(path):
        raise UserError(
            f"{path}: not a regular file: a corpus is read several times; write it to a file first"
        )
    open_raw(path).close()


class _DatasetSplit:
    """A split of a Hugging Face dataset, of the hub or of a local folder."""

    def __init__(self, config: DataConfig, split: str) -> None:
        self.name, self.revision = config.dataset, config.revision
        self.config, self.data_folder = config.dataset_config, config.dataset_folder
        self.split = split

    def __str__(self) -> str:
        return f"{self.name} ({self.split})"

    def pairs(self, languages: tuple[str, str]) -> Iterator[SentencePair]:
        number = 0
        try:
            for columns in self._rows().iter(batch_size=_CHUNK_ROWS):
                for values in zip(*columns.values(), strict=True):
                    number += 1
                    row = dict(zip(columns, values, strict=True))
                    yield pair_of(row, languages, f"{self}, row {number}")
        except Exception as error:  # the library's errors share no class
            for file in self.files().values():
                if file.lower().endswith(".csv"):
                    check_csv(file)
            if isinstance(error, UserError):
                raise
            raise UserError(
                f"dataset {self.name}, split {self.split}: can't be read: {reason_of(error)};"
                " repair the file, or give other files instead (data=files)"
            ) from error

    def files(self) -> dict[str, str]:
        """The file, or the files of a local folder, by their names in it."""
        if (folder := self._local()) is None:
            return {}
        if folder.is_file():
            return {folder.name: str(folder)}
        files = filter(Path.is_file, sorted(folder.rglob("*")))
        return {str(file.relative_to(folder)): str(file) for file in files}

    def update(self, digest: Any, sums: Mapping[str, str]) -> None:
        """Add to a digest what determines the content."""
        digest.update(repr((self.config, self.data_folder, self.split)).encode())
        if self._local() is not None:
            for file, file_sum in sums.items():
                digest.update(os.fsencode(file) + f"\0{file_sum}".encode())
        elif self.revision and _FULL_COMMIT.fullmatch(self.revision):
            digest.update(f"{self.name}\0{self.revision}".encode())
        else:
            digest.update(str(self._rows()._fingerprint).encode())

    def _local(self) -> Path | None:
        """The local folder or file, or None for a name on the hub."""
        name = str(self.name)
        path = Path(name).expanduser()
        if path.is_dir() or path.is_file():
            return path
        if path.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1:
            raise UserError(f"data.dataset={name}: no such folder")
        if path.suffix.lower() in _DATASET_SUFFIXES:
            raise UserError(f"data.dataset={name}: no such file")
        return None

    def _rows(self) -> Any:
        """Open the split, memory-mapped or streamed."""
        import datasets  # late, because the import takes more than a second

        if not sys.stderr.isatty():
            datasets.disable_progress_bars()
        datasets.logging.set_verbosity(datasets.logging.CRITICAL)  # errors are raised below
        local = self._local()
        try:
            if local is None:
                self._go_offline_if_unreachable()
                return datasets.load_dataset(
                    self.name,
                    self.config,
                    data_dir=self.data_folder,
                    split=self.split,
                    revision=self.revision,
                )
            if any((local / name).exists() for name in ("dataset_dict.json", "state.json")):
                return _select(local, _saved_splits(local), self.split)
            builder = datasets.load_dataset_builder(
                str(local.parent if local.is_file() else local),
                self.config,
                data_dir=self.data_folder,
                data_files=[local.name] if local.is_file() else None,
            )
            if hasattr(builder.config, "keep_default_na"):  # of CSV files
                # Else the sentences "None", "null" and "NA" would be missing values.
                builder.config.keep_default_na = False
                # Else, if rows have one field more than the header, the first one is skipped.
                builder.config.index_col = False
                warnings.filterwarnings("error", "Length of header or names does not match")
            # Streamed: else the library keeps a copy and may serve it when files change.
            return _select(local, builder.as_streaming_dataset(), self.split)
        except UserError:
            raise
        except Exception as error:  # the library's errors share no class
            raise UserError(
                f"dataset {self.name}, split {self.split}: can't be loaded: {reason_of(error):.300}"
                "; check the name, the split and the network, or give files instead (data=files)"
            ) from error

    def _go_offline_if_unreachable(self) -> None:
        """Let the libraries use their copy alone, or none, rather than try again for minutes."""
        import datasets
        import huggingface_hub
        from huggingface_hub.errors import HfHubHTTPError

        try:
            huggingface_hub.HfApi().dataset_info(str(self.name), timeout=_HUB_SECONDS)
        except (HfHubHTTPError, ValueError):  # an answer, or a name that the hub can't have
            pass
        except Exception:  # those of networks share no class
            huggingface_hub.constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = True


def _saved_splits(folder: Path) -> dict[str, Any]:
    """Open the splits of what `save_to_disk` wrote."""
    import datasets

    saved = datasets.load_from_disk(folder)
    if isinstance(saved, datasets.Dataset):
        name = str(saved.split)
        return {name if saved.split and name.isidentifier() else "train": saved}
    return dict(saved)


def _select(path: Path, splits: Mapping[str, Any], wanted: str) -> Any:
    """Return a split, a slice such as ``train[:90%]``, or a sum of them."""
    import datasets

    if wanted in splits:
        return splits[wanted]
    names = re.findall(r"\w[\w.]*(?=\s*(?:\[|\(|\+|$))", wanted)
    for name in names or [wanted]:
        if name not in splits:
            raise UserError(f"{path}: has no split {name} but {', '.join(map(str, splits))}")
    rows = {
        name: sum(len(next(iter(b.values()))) for b in splits[name].iter(batch_size=_CHUNK_ROWS))
        for name in names
    }
    parts = datasets.ReadInstruction.from_spec(wanted).to_absolute(rows)
    return datasets.concatenate_datasets(
        [splits[part.splitname].skip(part.from_).take(part.to - part.from_) for part in parts]
    )
