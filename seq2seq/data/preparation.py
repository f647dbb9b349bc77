"""Preparation of raw text for training: tokenized, checked, filtered, encoded and cached.

The result is a cache folder named by a digest of the text and of the settings that shape it: a
second run with the same content starts at once, and changed content is never mistaken for the old.
The folder is written whole or not at all. Its report holds a sha256 of every file, and a folder
that does not match its report is rebuilt.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from seq2seq.controls import language_piece
from seq2seq.data.checks import (
    FilterCounts,
    Findings,
    Sample,
    check_overlap,
    check_references,
    different,
)
from seq2seq.data.corpus import (
    DataConfig,
    FileState,
    FilterConfig,
    Split,
    sha256_of_file,
    training_splits,
)
from seq2seq.data.encoding import Log, PairEncoder, encode
from seq2seq.data.mixture import Mixture
from seq2seq.data.noise import add_noise
from seq2seq.encoded_corpus import EncodedCorpus, new_corpus
from seq2seq.errors import UserError
from seq2seq.files import new_folder, remove_folder, temporary_folder
from seq2seq.system import lock_file
from seq2seq.text import SentencePair, has_text
from seq2seq.tokenizer import TOKENIZER_FILE, Tokenizer

FORMAT_VERSION = 4
TRAIN_FILE, TRAIN_TEXT_FILE = "train.ids", "train.jsonl"
DIGESTS_FILE = "train_pairs.npy"  # of the different training pairs
REPORT_FILE = "report.json"


@dataclass(frozen=True)
class ValidSet:
    """A validation set."""

    split: Split
    pairs: list[SentencePair]
    """Every pair that has text on both sides, unchanged, to translate and score."""
    corpus: EncodedCorpus
    """The pairs for the loss, without blank and over-long ones."""


@dataclass(frozen=True, kw_only=True)
class PreparedData:
    """A corpus ready for training."""

    folder: Path
    """The cache folder that holds the files."""
    splits: list[Split]
    tokenizer: Tokenizer
    train: EncodedCorpus
    """The training pairs that passed every filter."""
    valid_sets: dict[str, ValidSet] = field(default_factory=dict)
    """The validation sets by name, `valid` first."""
    mixture: Mixture | None = None
    """The mixture of several training corpora, whose pairs follow one another in `train`."""
    counts: dict[str, FilterCounts]
    warnings: list[str]
    """Signs of unsuitable data, one line each."""


def prepare(
    config: DataConfig, cache: Path, log: Log, tokenizer: Tokenizer | None = None
) -> PreparedData:
    """Read, check and filter the pairs, learn the tokenizer and encode them, or reuse a cache.

    Memory grows with the validation split, the tokenizer's sample and, by some 55 bytes a pair, the
    training split. `tokenizer` is that of a trained model; without it, one is learned.
    """
    corpus = _CachedCorpus(config, cache, log, tokenizer)
    further = [Split(config, name) for name in config.validation_names()[1:]]
    test = [Split(config, name) for name in config.test_names()]
    for split in test:
        split.files()  # whose absence is better known before the work, as is that of the others
    valid_pairs = {split: list(split.pairs()) for split in (corpus.valid, *further)}
    for split, pairs in valid_pairs.items():
        if not pairs:
            raise UserError(f"{split}: is empty; validation needs pairs")
    data = corpus.open_or_build()
    train = np.load(data.folder / DIGESTS_FILE, mmap_mode="r", allow_pickle=False)
    remedy = _remedy(config, tokenizer)
    warnings, counts, sets = list(data.warnings), data.counts, {}
    for split, pairs in valid_pairs.items():
        encoded, counts[split.name] = _encode_valid_set(
            split, pairs, data.tokenizer, config.filter, log
        )
        scored = list(filter(has_text, pairs))
        sets[split.name.removeprefix("valid_sets.")] = ValidSet(split, scored, encoded)
        warnings += [*split.remarks(), *check_overlap(split.name, pairs, train)]
        warnings += check_references(split, pairs, data.tokenizer, remedy)
    for split in test:
        pairs = list(filter(has_text, split.pairs()))
        if not pairs:  # better known before hours of training, as is a language
            raise UserError(
                f"data.{split.name}: {split}: no pair has text on both sides; give pairs, or set it"
                " to null"
            )
        split.control_ids(data.tokenizer.controls)
        warnings += [*split.remarks(), *check_overlap(split.name, pairs, train)]
    for name, filtered in counts.items():
        log(f"data: {name}: {filtered}")
    mixture = None
    if config.corpora:
        sizes, weights = {}, {}
        for split in corpus.train:
            name = split.name.removeprefix("corpora.")
            sizes[name], weights[name] = counts[split.name].kept, split.weight
        mixture = Mixture(sizes, weights)
        log(f"data: {mixture}")
    for warning in warnings:
        log(f"warning: {warning}")
    splits = [*data.splits, *further, *test]
    return replace(data, splits=splits, valid_sets=sets, mixture=mixture, warnings=warnings)


class _CachedCorpus:
    """The training text, and the folder in which its encoding is cached.

    The folder is named by the text of `valid`, too: a run with another one is not resumed.
    """

    def __init__(
        self, config: DataConfig, cache: Path, log: Log, tokenizer: Tokenizer | None
    ) -> None:
        self.config = config
        self.log = log
        self.tokenizer = tokenizer
        self.valid = Split(config, "valid")
        self.train = training_splits(config, self.valid)
        self.splits = [*self.train, self.valid]
        self.states = self._file_states()
        self.folder = Path(cache).expanduser() / self._digest()

    def open_or_build(self) -> PreparedData:
        if data := self._open():
            self.log(f"data: reusing {self.folder}")
            return data
        try:
            with self._only_builder():
                if self._open() is None:  # nor has another process made it meanwhile
                    self._build()
        except OSError as error:
            raise UserError(
                f"{self.folder}: can't be written: {error.strerror or error};"
                " free some space, or choose another folder with cache=FOLDER"
            ) from error
        data = self._open()
        assert data is not None
        return data

    @contextmanager
    def _only_builder(self) -> Iterator[None]:
        """Lock the name of the folder, after other processes that prepare the same corpus."""
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        waiting = f"data: another process prepares {self.folder}: waiting for it"
        with lock_file(self.folder.with_suffix(".lock"), lambda: self.log(waiting)):
            yield

    def _digest(self) -> str:
        """Digest the text of training and validation and every setting that shapes the result."""
        options: dict[str, Any] = asdict(self.config.tokenizer)
        del options["sampling"]
        if self.tokenizer is not None:
            files = self.tokenizer.files()
            options = {name: hashlib.sha256(file).hexdigest() for name, file in files.items()}
        content = {
            "format": FORMAT_VERSION,
            "text": {split.name: split.fingerprint for split in self.splits},
            "prefixes": {split.name: self._prefix(split) for split in self.splits},
            "languages": [self.config.source_language, self.config.target_language],
            "filter": asdict(self.config.filter),
            "tokenizer": options,
            "keeps text": self.config.samples_text,
        }
        if self.config.noise:
            content["noise"] = asdict(self.config.noise)
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]

    def _prefix(self, split: Split) -> Sequence[object]:
        if self.tokenizer is None:
            return split.target_language, split.tag
        return split.control_ids(self.tokenizer.controls)

    def _file_states(self) -> list[list[FileState]]:
        return [split.file_states() for split in self.splits]

    def _open(self) -> PreparedData | None:
        """Open the prepared folder; None if it is missing or does not agree with its report."""
        folder = self.folder
        try:
            report = json.loads((folder / REPORT_FILE).read_bytes())
            for name, digest in report["sha256"].items():
                if sha256_of_file(folder / name) != digest:
                    return None
            counts = {name: FilterCounts(**count) for name, count in report["counts"].items()}
            warnings = list(report["warnings"])
        except Exception:  # whatever is wrong with it, it is made again
            return None
        # The files are sound: an error is one of the machine, such as a lack of memory.
        return PreparedData(
            folder=folder,
            splits=self.splits,
            tokenizer=self.tokenizer or Tokenizer((folder / TOKENIZER_FILE).read_bytes()),
            train=EncodedCorpus(folder / TRAIN_FILE),
            counts=counts,
            warnings=warnings,
        )

    def _build(self) -> None:
        if self.folder.exists():
            self.log(f"data: {self.folder} is corrupt, or of another version, and is rebuilt")
            remove_folder(self.folder)
        with new_folder(self.folder) as temporary:
            report = self._fill(temporary) | {"sha256": {}}
            # The folder is named by the text as it was before.
            if self._file_states() != self.states:
                raise UserError("the text of the corpus was changed while it was read; start again")
            for file in sorted(temporary.iterdir()):
                report["sha256"][file.name] = sha256_of_file(file)
            (temporary / REPORT_FILE).write_bytes(json.dumps(report, indent=2).encode())

    def _fill(self, folder: Path) -> dict[str, Any]:
        """Write everything but the report, and return its counts and warnings."""
        limits = self.config.filter
        self.log(f"data: preparing {', '.join(map(str, self.train))}")
        whole = Findings()
        tokenizer = self.tokenizer or self._train_tokenizer()
        if self.tokenizer is None:
            (folder / TOKENIZER_FILE).write_bytes(tokenizer.model_bytes)
        counts: dict[str, FilterCounts] = {}
        warnings: list[str] = []
        keeps_text = self.config.samples_text
        text_path = folder / TRAIN_TEXT_FILE
        with (
            new_corpus(folder / TRAIN_FILE) as write,
            text_path.open("wb") if keeps_text else nullcontext() as text,
        ):
            for split in self.train:
                controls = split.control_ids(tokenizer.controls)
                encoder = PairEncoder(tokenizer, controls, limits, keeps_text)
                sample = Sample(split)
                findings = encode(sample.pairs(), encoder, write, self.log, text)
                counts[split.name] = findings.counts
                if split.held_out:  # and was read as blank
                    findings.counts.dropped["blank source"] -= split.held_out
                    findings.counts.dropped["source in data.valid"] = split.held_out
                _check_kept(split.name, findings.counts)
                warnings += [*split.remarks(), *findings.counts.warnings(split.name)]
                warnings += findings.warnings(split)
                of_languages = split.target_language == self.valid.target_language
                warnings += sample.warnings(
                    list(self.valid.pairs()) if of_languages else [], tokenizer
                )
                whole += findings
        np.save(folder / DIGESTS_FILE, different(whole.digests))
        if self.tokenizer is not None:
            warnings += whole.warnings_of_unknown(self.tokenizer)
        return {"counts": {name: asdict(n) for name, n in counts.items()}, "warnings": warnings}

    def _train_tokenizer(self) -> Tokenizer:
        languages = set(filter(None, (split.target_language for split in self.train)))
        tags = set(filter(None, (split.tag for split in self.train)))
        return Tokenizer.train(
            chain.from_iterable(map(self._training_sentences, self.train)),
            self.config.tokenizer,
            lambda text: self.log(f"data: {text}"),
            [*map(language_piece, sorted(languages)), *sorted(tags)],
        )

    def _training_sentences(self, split: Split) -> Iterator[str]:
        """Yield both sides of every pair that has text on both, some of them in capitals."""
        config = self.config
        capitals = replace(config.noise, typos=0.0)  # no piece is learned from an error
        languages = config.source_language, split.target_language or config.target_language
        is_empty = True
        for row, pair in enumerate(split.pairs()):
            if has_text(pair):
                is_empty = False
                number = "vocabulary", row
                yield from add_noise(pair, capitals, languages, number) if capitals else pair
        if is_empty:
            raise UserError(f"{split}: no pair has text on both sides; training needs pairs")


def _check_kept(name: str, count: FilterCounts) -> None:
    if not count.kept:
        raise UserError(f"data.{name}: no pair is left after the filters: {count}")


def _remedy(config: DataConfig, given: Tokenizer | None) -> str:
    """Say what makes references possible that a tokenizer can't write."""
    if given is not None:
        return "the vocabulary is that of init_from; a new model can have its own"
    if config.tokenizer.normalization != "identity":
        return "set data.tokenizer.normalization=identity"
    if config.tokenizer.byte_fallback:
        return "replace these characters in the text, whose spaces the tokenizer writes as ▁"
    return "set data.tokenizer.byte_fallback=true, or train on text with these characters"


def _encode_valid_set(
    split: Split, pairs: list[SentencePair], tokenizer: Tokenizer, limits: FilterConfig, log: Log
) -> tuple[EncodedCorpus, FilterCounts]:
    """Encode a validation set at each start: one can be added to a run that is resumed."""
    limits = replace(limits, max_length_ratio=float("inf"))
    encoder = PairEncoder(tokenizer, split.control_ids(tokenizer.controls), limits)
    with temporary_folder() as folder:  # once they are mapped, files need no name
        with new_corpus(folder / "valid") as write:
            count = encode(pairs, encoder, write, log).counts
        _check_kept(split.name, count)
        return EncodedCorpus(folder / "valid"), count
