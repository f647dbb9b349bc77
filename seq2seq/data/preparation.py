"""Preparation of raw text for training: a tokenizer and encoded corpora, made once and cached.

The result is a cache folder named by a digest of the text and of the settings that shape it: a
second run with the same content starts at once, and changed content is never mistaken for the old.
The folder is written whole or not at all. Its report holds a sha256 of every file, and a folder
that does not agree with its report is made again.
"""

import hashlib
import json
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from seq2seq.data.batching import Mixture
from seq2seq.data.checks import AlignmentCheck, TrainTestOverlap, UnknownCharacters
from seq2seq.data.config import (
    DataConfig,
    Split,
    control_marks,
    control_pieces,
    is_configured,
    split_control_ids,
    training_splits,
)
from seq2seq.data.corpus import (
    changes_of_files,
    describe,
    fingerprint,
    read_pairs,
    sha256_of_file,
    sums_of_files,
)
from seq2seq.data.encoded import EncodedCorpus, temporary_folder
from seq2seq.data.encoding import FilterCounts, Report, encode, encode_valid, new_writer
from seq2seq.data.pair_files import SentencePair
from seq2seq.data.tokenizer import TOKENIZER_FILE, Tokenizer
from seq2seq.errors import UserError
from seq2seq.files.atomic import new_folder, write_file

FORMAT_VERSION = 1
TRAIN_FILE, VALID_FILE = "train.arrow", "valid.arrow"
TRAIN_TEXT_FILE, VALID_TEXT_FILE = "train.jsonl", "valid.jsonl"
REPORT_FILE = "report.json"


@dataclass(frozen=True)
class ValidSet:
    """A further validation set.

    Attributes:
        pairs: every pair, its text unchanged, to translate and score.
        corpus: the pairs for the loss, without blank and over-long ones.
        digest: of the text.
    """

    pairs: list[SentencePair]
    corpus: EncodedCorpus
    digest: str


@dataclass(frozen=True, kw_only=True)
class PreparedData:
    """A corpus ready for training.

    Attributes:
        folder: the cache folder that holds the files.
        tokenizer: learned from the training pairs.
        train: the training pairs that passed every filter.
        valid: the validation pairs for the loss, without blank and over-long ones.
        valid_pairs: every validation pair, its text unchanged, to translate and score.
        valid_sets: the further validation sets, by name.
        mixture: of several training corpora, whose pairs follow one another in `train`.
        counts: the results of the filters, by split.
        warnings: signs of unsuitable data, one line each.
        file_sums: the sha256 of each file, by split; a dataset on the hub has no files.
        digests: the digest of each split's text.
    """

    folder: Path
    tokenizer: Tokenizer
    train: EncodedCorpus
    valid: EncodedCorpus
    valid_pairs: list[SentencePair]
    valid_sets: dict[str, ValidSet]
    mixture: Mixture | None
    counts: dict[str, FilterCounts]
    warnings: list[str]
    file_sums: dict[Split, dict[Path, str]]
    digests: dict[Split, str]


def prepare(
    config: DataConfig, cache: Path, report: Report, tokenizer: Tokenizer | None = None
) -> PreparedData:
    """Read, check and filter the pairs, learn the tokenizer and encode them, or reuse a cache.

    Memory grows with the validation split and the tokenizer's sample, not with the training split.

    Args:
        config: the corpus.
        cache: folder of prepared corpora, each in a folder of its own.
        report: called with each line of progress and each warning.
        tokenizer: of a trained model; a new one is learned from the training pairs if not given.

    Raises:
        UserError: if the text can't be used or changes meanwhile, the tokenizer does not know its
            characters, or the cache folder can't be written.
    """
    held_out = [f"valid_sets.{name}" for name in config.valid_sets]
    held_out += ["test"] if is_configured(config, "test") else []
    changes = _changes(config)
    splits = [*training_splits(config), "valid", *held_out]
    file_sums = {split: sums_of_files(config, split) for split in splits}
    digests = {split: fingerprint(config, split, file_sums[split]) for split in splits}
    folder = Path(cache).expanduser() / _digest(config, tokenizer, digests)
    prepared = _open(folder, tokenizer)
    if prepared is not None:
        report(f"data: reusing {folder}")
    else:
        if folder.exists():
            report(f"data: {folder} is damaged and is made again")
        try:
            _build(config, folder, changes, report, tokenizer)
        except OSError as error:
            raise UserError(
                f"{folder}: can't be written: {error.strerror or error};"
                " free some space or choose another cache folder"
            ) from error
        prepared = _open(folder, tokenizer)
        if prepared is None:
            raise UserError(f"{folder}: changed while it was written; try again")
    overlaps = _overlaps(config, folder, {split: digests[split] for split in held_out})
    warnings = [*prepared.warnings, *overlaps]
    prepared = replace(prepared, warnings=warnings, file_sums=file_sums, digests=digests)
    prepared = _with_valid_sets(prepared, config, digests, report)
    for split, counts in prepared.counts.items():
        report(f"data: {split}: {counts}")
    if config.corpora:
        prepared = replace(prepared, mixture=_mixture(config, prepared.counts))
        report(f"data: {prepared.mixture}")
    for warning in prepared.warnings:
        report(f"warning: {warning}")
    return prepared


def _digest(config: DataConfig, tokenizer: Tokenizer | None, digests: Mapping[Split, str]) -> str:
    """Digest the text of training and validation and every setting that shapes the result."""
    splits = [*training_splits(config), "valid"]
    options = asdict(config.tokenizer)
    sampling = options.pop("sampling")
    content: dict[str, Any] = {
        "format": FORMAT_VERSION,
        **{split: digests[split] for split in splits},
        "languages": [config.source_language, config.target_language],
        "filter": asdict(config.filter),
        "tokenizer": options,
    }
    if tokenizer is not None:
        sums = {name: hashlib.sha256(file) for name, file in tokenizer.files().items()}
        content["tokenizer"] = {name: digest.hexdigest() for name, digest in sums.items()}
    controls: dict[str, Any] = {split: control_marks(config, split) for split in splits}
    if tokenizer is not None and not any(map(any, controls.values())):
        # Those of a model of one target language stand there without being named.
        controls = {split: split_control_ids(config, split, tokenizer) for split in splits}
    if controls := {split: marks for split, marks in controls.items() if any(marks)}:
        content["controls"] = controls
    if sampling:  # at any rate: it only makes the text be kept
        content["training text"] = True
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]


def _open(folder: Path, tokenizer: Tokenizer | None) -> PreparedData | None:
    """Open a prepared folder; None if it is missing or does not agree with its report."""
    try:
        content = json.loads((folder / REPORT_FILE).read_bytes())
        if any(
            sha256_of_file(folder / name) != digest for name, digest in content["sha256"].items()
        ):
            return None
        return PreparedData(
            folder=folder,
            tokenizer=tokenizer or Tokenizer.load(folder / TOKENIZER_FILE),
            train=EncodedCorpus(folder / TRAIN_FILE),
            valid=EncodedCorpus(folder / VALID_FILE),
            valid_pairs=[
                SentencePair(*json.loads(line))
                for line in (folder / VALID_TEXT_FILE).read_bytes().splitlines()
            ],
            valid_sets={},
            mixture=None,
            counts={split: FilterCounts(**counts) for split, counts in content["counts"].items()},
            warnings=list(content["warnings"]),
            file_sums={},
            digests={},
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, UserError):
        return None


Changes: TypeAlias = list[tuple[int, int, int]]


def _changes(config: DataConfig) -> Changes:
    splits = [*training_splits(config), "valid"]
    return [change for split in splits for change in changes_of_files(config, split)]


def _build(
    config: DataConfig,
    folder: Path,
    changes: Changes,
    report: Report,
    tokenizer: Tokenizer | None,
) -> None:
    """Make the folder, unless another process has made a sound one by the time it is whole.

    Raises:
        UserError: if a file of the corpus has other `changes` in the end.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with new_folder(folder, replaces=lambda there: _open(there, tokenizer) is None) as temporary:
        content = _fill(temporary, config, report, tokenizer)
        # The folder is named by the text as it was before.
        if _changes(config) != changes:
            raise UserError("the text of the corpus was changed while it was read; start again")
        content["sha256"] = {
            file.name: sha256_of_file(file) for file in sorted(temporary.iterdir())
        }
        (temporary / REPORT_FILE).write_text(json.dumps(content, indent=2))


def _fill(
    folder: Path, config: DataConfig, report: Report, tokenizer: Tokenizer | None
) -> dict[str, Any]:
    """Write everything but the report, and return its counts and warnings."""
    splits = training_splits(config)
    report(f"data: preparing {', '.join(describe(config, split) for split in splits)}")
    valid_pairs = _valid_pairs(config, "valid")
    lines = (json.dumps(pair).encode() + b"\n" for pair in valid_pairs)
    (folder / VALID_TEXT_FILE).write_bytes(b"".join(lines))
    overlap = TrainTestOverlap("valid", valid_pairs)
    unknown = None if tokenizer is None else UnknownCharacters()
    if tokenizer is None:
        tokenizer = Tokenizer.train(
            chain.from_iterable(_training_sentences(config, split) for split in splits),
            config.tokenizer,
            lambda text: report(f"data: {text}"),
            control_pieces(config),
        )
        (folder / TOKENIZER_FILE).write_bytes(tokenizer.model_bytes)
    counts: dict[str, FilterCounts] = {}
    warnings: list[str] = []
    with ExitStack() as whole:
        writer = whole.enter_context(new_writer(folder / TRAIN_FILE, tokenizer))
        text: BinaryIO | None = None
        if config.tokenizer.sampling:
            text = whole.enter_context((folder / TRAIN_TEXT_FILE).open("wb"))
        for split in splits:
            alignment = AlignmentCheck(config, split)
            pairs = overlap.check(read_pairs(config, split))
            controls = split_control_ids(config, split, tokenizer)
            counts[split] = encode(
                pairs, tokenizer, writer, controls, config.filter, report, alignment, unknown, text
            )
            warnings += alignment.warnings()
    counts["valid"] = encode_valid(
        config, "valid", valid_pairs, tokenizer, folder / VALID_FILE, report
    )
    for split, count in counts.items():
        _check_kept(split, count)
    warnings += overlap.warnings()
    if unknown is not None:
        warnings += unknown.warnings()
    return {
        "counts": {split: asdict(count) for split, count in counts.items()},
        "warnings": warnings,
    }


def _mixture(config: DataConfig, counts: Mapping[Split, FilterCounts]) -> Mixture:
    names = {split: split.removeprefix("corpora.") for split in training_splits(config)}
    return Mixture(
        {name: counts[split].kept for split, name in names.items()},
        {name: 1.0 if name == "train" else config.corpora[name].weight for name in names.values()},
    )


def _valid_pairs(config: DataConfig, split: Split) -> list[SentencePair]:
    pairs = list(read_pairs(config, split))
    if not pairs:
        raise UserError(f"{describe(config, split)}: is empty; validation needs pairs")
    return pairs


def _with_valid_sets(
    prepared: PreparedData, config: DataConfig, digests: Mapping[Split, str], report: Report
) -> PreparedData:
    """Add the further validation sets.

    They are encoded at each start and not kept in the cache, so that one can be added to a training
    that is resumed.
    """
    sets, counts = {}, dict(prepared.counts)
    for name in config.valid_sets:
        split = f"valid_sets.{name}"
        pairs = _valid_pairs(config, split)
        with temporary_folder() as folder:  # once it is mapped, a file needs no name
            path = folder / VALID_FILE
            counts[split] = encode_valid(config, split, pairs, prepared.tokenizer, path, report)
            _check_kept(split, counts[split])
            sets[name] = ValidSet(pairs, EncodedCorpus(path), digests[split])
    return replace(prepared, valid_sets=sets, counts=counts)


def _check_kept(split: Split, count: FilterCounts) -> None:
    if not count.kept:
        raise UserError(f"data.{split}: no pair is left after the filters: {count}")


def _overlaps(config: DataConfig, folder: Path, digests: Mapping[Split, str]) -> list[str]:
    """Warn of held-out pairs that are training pairs; what was found is kept in the folder."""
    paths = {split: folder / f"{split}_{digest[:32]}.json" for split, digest in digests.items()}
    found = {split: _read_warnings(path) for split, path in paths.items()}
    unknown = [split for split, warnings in found.items() if warnings is None]
    overlaps = []
    for split in unknown:
        try:
            overlaps.append(TrainTestOverlap(split, read_pairs(config, split)))
        except UserError as error:
            if split != "test":  # which training does not need
                raise
            found[split] = [f"test is not compared with the training pairs: {error}"]
    for training_split in training_splits(config) if overlaps else ():
        pairs = read_pairs(config, training_split)
        for overlap in overlaps:
            pairs = overlap.check(pairs)
        deque(pairs, maxlen=0)
    for overlap in overlaps:
        found[overlap.split] = overlap.warnings()
        with suppress(UserError):  # the folder may be another user's
            write_file(paths[overlap.split], json.dumps(overlap.warnings()).encode())
    return [warning for warnings in found.values() for warning in warnings or ()]


def _read_warnings(path: Path) -> list[str] | None:
    with suppress(OSError, ValueError):
        found = json.loads(path.read_bytes())
        if isinstance(found, list) and all(isinstance(warning, str) for warning in found):
            return found
    return None


def _training_sentences(config: DataConfig, split: Split) -> Iterator[str]:
    """Yield both sides of every pair of a training split that has text on both."""
    read = blank_source = blank_target = 0
    for pair in read_pairs(config, split):
        read += 1
        if not pair.source.strip():
            blank_source += 1
        elif not pair.target.strip():
            blank_target += 1
        else:
            yield from pair
    if not read:
        raise UserError(f"{describe(config, split)}: is empty; training needs pairs")
    if blank_source + blank_target == read:
        raise UserError(
            f"{describe(config, split)}: no pair has text on both sides: of {read:,},"
            f" {blank_source:,} have a blank source and {blank_target:,} more a blank target"
        )
