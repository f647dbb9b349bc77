"""From raw text to what training reads: a tokenizer and encoded corpora, made once per content.

The result lies in a cache folder named by a digest of the text and of the settings that shape it,
so that a second run with the same content starts at once, and changed content is never mistaken
for the old. A folder is built under a temporary name and renamed when it is whole; its report
holds a sha256 of every file, and a folder that does not agree with its report is built again.
"""

import fcntl
import hashlib
import json
import os
import re
import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from itertools import compress, islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from seq2seq.data.checks import AlignmentCheck, TrainTestOverlap
from seq2seq.data.corpus import (
    DataConfig,
    FilterConfig,
    SentencePair,
    describe,
    fingerprint,
    read_pairs,
    sha256_of_file,
)
from seq2seq.data.encoded import EncodedCorpus, EncodedCorpusWriter
from seq2seq.data.tokenizer import Tokenizer
from seq2seq.errors import UserError

Report: TypeAlias = Callable[[str], None]

FORMAT_VERSION = 1
TOKENIZER_FILE = "tokenizer.model"
TRAIN_FILE, VALID_FILE = "train.arrow", "valid.arrow"
VALID_TEXT_FILE = "valid.jsonl"
REPORT_FILE = "report.json"

_PAIRS_AT_ONCE = 10_000
_PAIRS_PER_MESSAGE = 1_000_000
_ABANDONED_SECONDS = 24 * 3600
_LOCK_SUFFIX = ".lock"
_TEMPORARY_NAME = re.compile(r"\.[0-9a-f]{32}-[0-9a-f]{32}")


@dataclass(kw_only=True)
class FilterCounts:
    """What became of the pairs of one part; a pair counts under the first reason that applies."""

    read: int = 0
    blank_source: int = 0
    """No token on the source side."""
    blank_target: int = 0
    """No token on the target side."""
    too_long: int = 0
    """More than ``max_tokens`` tokens on a side."""
    length_ratio: int = 0
    """One side more than ``max_length_ratio`` times as long as the other."""

    @property
    def kept(self) -> int:
        """Pairs that passed every filter."""
        return self.read - sum(self._dropped.values())

    @property
    def _dropped(self) -> dict[str, int]:
        return {
            "blank source": self.blank_source,
            "blank target": self.blank_target,
            "too long": self.too_long,
            "length ratio": self.length_ratio,
        }

    def __str__(self) -> str:
        reasons = [f"{number:,} {reason}" for reason, number in self._dropped.items() if number]
        left_out = f"; left out: {', '.join(reasons)}" if reasons else ""
        return f"{self.read:,} pairs read, {self.kept:,} kept{left_out}"


@dataclass(frozen=True, kw_only=True)
class PreparedData:
    """A corpus ready for training.

    Attributes:
        folder: the cache folder that holds the files.
        valid_pairs: every validation pair, its text untouched, to be translated and scored.
        valid: the validation pairs that the loss can be taken on: without blank and over-long ones.
        counts: what the filters did, under ``train`` and ``valid``.
        warnings: what a person should look at, one line each.
    """

    folder: Path
    tokenizer: Tokenizer
    train: EncodedCorpus
    valid: EncodedCorpus
    valid_pairs: list[SentencePair]
    counts: dict[str, FilterCounts]
    warnings: list[str]


def prepare(config: DataConfig, cache: Path, report: Report) -> PreparedData:
    """Read, check, filter, learn the tokenizer from the training pairs, and encode; or reuse that.

    Memory is bounded by the validation part and the tokenizer's sample, not by the training part.

    Args:
        config: the corpus.
        cache: folder of prepared corpora; a new one gets a folder of its own in it.
        report: told in one line each what was done and what looks wrong.

    Raises:
        UserError: the text can't be used, or the cache folder can't be written.
    """
    folder = Path(cache).expanduser() / _digest(config)
    prepared = _open(folder)
    if prepared is not None:
        report(f"data: reusing {folder}")
    else:
        if folder.exists():
            report(f"data: {folder} is damaged and is made again")
        try:
            _build(config, folder, report)
        except OSError as error:
            raise UserError(
                f"{folder}: can't be written: {error.strerror or error};"
                " free some space or choose another cache folder"
            ) from error
        prepared = _open(folder)
        if prepared is None:
            raise UserError(f"{folder}: changed while it was written; try again")
    for part, counts in prepared.counts.items():
        report(f"data: {part}: {counts}")
    for warning in prepared.warnings:
        report(f"warning: {warning}")
    return prepared


def _digest(config: DataConfig) -> str:
    """Name the content: the text of both parts and every setting that shapes the result."""
    content = {
        "format": FORMAT_VERSION,
        "train": fingerprint(config, "train"),
        "valid": fingerprint(config, "valid"),
        "languages": [config.source_language, config.target_language],
        "filter": asdict(config.filter),
        "tokenizer": asdict(config.tokenizer),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]


def _open(folder: Path) -> PreparedData | None:
    """Open a prepared folder, or give None where it is missing or not what its report says."""
    try:
        content = json.loads((folder / REPORT_FILE).read_bytes())
        if any(
            sha256_of_file(folder / name) != digest for name, digest in content["sha256"].items()
        ):
            return None
        return PreparedData(
            folder=folder,
            tokenizer=Tokenizer.load(folder / TOKENIZER_FILE),
            train=EncodedCorpus(folder / TRAIN_FILE),
            valid=EncodedCorpus(folder / VALID_FILE),
            valid_pairs=[
                SentencePair(*json.loads(line))
                for line in (folder / VALID_TEXT_FILE).read_bytes().splitlines()
            ],
            counts={part: FilterCounts(**counts) for part, counts in content["counts"].items()},
            warnings=list(content["warnings"]),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, UserError):
        return None


def _build(config: DataConfig, folder: Path, report: Report) -> None:
    """Make the folder under a temporary name, and give it its own when it is whole."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(folder.parent)
    with _temporary_folder(folder) as temporary:
        content = _fill(temporary, config, report)
        content["sha256"] = {
            file.name: sha256_of_file(file) for file in sorted(temporary.iterdir())
        }
        with (temporary / REPORT_FILE).open("w") as file:
            json.dump(content, file, indent=2)
            file.flush()
            os.fsync(file.fileno())
        _publish(temporary, folder)


@contextmanager
def _temporary_folder(folder: Path) -> Iterator[Path]:
    """A folder to build another in: locked while its process lives, gone when the block ends."""
    temporary = folder.with_name(f".{folder.name}-{uuid.uuid4().hex}")
    lock = _lock_of(temporary)
    with lock.open("w") as file:
        try:
            with suppress(OSError):  # some file systems have no locks: then age decides
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            temporary.mkdir()
            yield temporary
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
            lock.unlink(missing_ok=True)


def _fill(folder: Path, config: DataConfig, report: Report) -> dict[str, Any]:
    """Write everything but the report, whose counts and warnings are returned."""
    report(f"data: preparing {describe(config, 'train')}")
    valid_pairs = list(read_pairs(config, "valid"))
    if not valid_pairs:
        raise UserError(f"{describe(config, 'valid')}: is empty; validation needs pairs")
    lines = (json.dumps(pair).encode() + b"\n" for pair in valid_pairs)
    (folder / VALID_TEXT_FILE).write_bytes(b"".join(lines))
    overlap, watch = TrainTestOverlap(config, valid_pairs), AlignmentCheck(config)
    tokenizer = Tokenizer.train(
        _training_sentences(config), config.tokenizer, lambda text: report(f"data: {text}")
    )
    (folder / TOKENIZER_FILE).write_bytes(tokenizer.model_bytes)
    train_pairs = overlap.watch(read_pairs(config, "train"))
    length_only = replace(config.filter, max_length_ratio=float("inf"))
    counts = {
        "train": _encode(
            train_pairs, tokenizer, folder / TRAIN_FILE, config.filter, report, watch.see
        ),
        "valid": _encode(valid_pairs, tokenizer, folder / VALID_FILE, length_only, report),
    }
    for part, count in counts.items():
        if not count.kept:
            raise UserError(f"data.{part}: no pair is left after the filters: {count}")
    return {
        "counts": {part: asdict(count) for part, count in counts.items()},
        "warnings": [*watch.warnings(), *overlap.warnings()],
    }


def _training_sentences(config: DataConfig) -> Iterator[str]:
    """Both sides of every training pair that has two sides."""
    read = blank_source = blank_target = 0
    for pair in read_pairs(config, "train"):
        read += 1
        if not pair.source.strip():
            blank_source += 1
        elif not pair.target.strip():
            blank_target += 1
        else:
            yield from pair
    if not read:
        raise UserError(f"{describe(config, 'train')}: is empty; training needs pairs")
    if blank_source + blank_target == read:
        raise UserError(
            f"{describe(config, 'train')}: no pair has text on both sides: of {read:,},"
            f" {blank_source:,} have a blank source and {blank_target:,} more a blank target"
        )


def _encode(
    pairs: Iterable[SentencePair],
    tokenizer: Tokenizer,
    path: Path,
    limits: FilterConfig,
    report: Report,
    see: Callable[[int, NDArray[np.int64], NDArray[np.int64]], None] | None = None,
) -> FilterCounts:
    """Tokenise, filter and write pairs; ``see`` is shown the lengths of those that aren't blank."""
    counts = FilterCounts()
    stream = iter(pairs)
    with EncodedCorpusWriter(path, tokenizer.vocab_size) as writer:
        while chunk := list(islice(stream, _PAIRS_AT_ONCE)):
            sources = tokenizer.encode([pair.source for pair in chunk])
            targets = tokenizer.encode([pair.target for pair in chunk])
            # (chunk,), the end symbol counted
            source_lengths = np.fromiter(map(len, sources), dtype=np.int64) + 1
            target_lengths = np.fromiter(map(len, targets), dtype=np.int64) + 1
            if see is not None:
                see(counts.read, source_lengths, target_lengths)
            kept = _filter(source_lengths, target_lengths, limits, counts)
            writer.write(list(compress(sources, kept)), list(compress(targets, kept)))
            if counts.read % _PAIRS_PER_MESSAGE == 0:
                report(f"data: {counts.read:,} pairs encoded")
    return counts


def _filter(
    source_lengths: NDArray[np.int64],
    target_lengths: NDArray[np.int64],
    limits: FilterConfig,
    counts: FilterCounts,
) -> list[bool]:
    """Which pairs stay; each other one is counted under the first reason that applies."""
    longer = np.maximum(source_lengths, target_lengths)
    shorter = np.minimum(source_lengths, target_lengths)
    reasons: dict[str, NDArray[np.bool_]] = {
        "blank_source": source_lengths == 1,
        "blank_target": target_lengths == 1,
        "too_long": longer > limits.max_tokens,
        "length_ratio": longer > limits.max_length_ratio * shorter,
    }
    kept = np.ones(len(longer), dtype=bool)
    for reason, applies in reasons.items():
        setattr(counts, reason, getattr(counts, reason) + int((kept & applies).sum()))
        kept &= ~applies
    counts.read += len(longer)
    return [bool(keep) for keep in kept]


def _publish(temporary: Path, folder: Path) -> None:
    """Give a finished folder its name, unless another process has put a sound one there."""
    for _ in range(10):
        try:
            temporary.rename(folder)
            return
        except OSError:
            if not folder.exists():
                raise
        if _open(folder) is not None:
            return
        damaged = folder.with_name(f".{folder.name}-{uuid.uuid4().hex}")
        try:
            folder.rename(damaged)
        except FileNotFoundError:
            continue  # another process moved it first
        shutil.rmtree(damaged, ignore_errors=True) if damaged.is_dir() else damaged.unlink()
    raise UserError(f"{folder}: other processes keep writing it; try again")


def _remove_abandoned(cache: Path) -> None:
    """Remove what killed processes left behind."""
    names = {path.name.removesuffix(_LOCK_SUFFIX) for path in cache.iterdir()}
    for folder in (cache / name for name in names if _TEMPORARY_NAME.fullmatch(name)):
        if _is_abandoned(folder):
            shutil.rmtree(folder, ignore_errors=True)
            _lock_of(folder).unlink(missing_ok=True)


def _is_abandoned(temporary: Path) -> bool:
    """Whether the process that made a temporary folder, on this machine or another, has ended."""
    try:
        with _lock_of(temporary).open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
    except OSError:  # there is no lock, or no locks in this file system
        try:
            return time.time() - temporary.stat().st_mtime > _ABANDONED_SECONDS
        except FileNotFoundError:  # another process is tidying too
            return False


def _lock_of(temporary: Path) -> Path:
    return temporary.with_name(temporary.name + _LOCK_SUFFIX)
