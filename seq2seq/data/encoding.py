"""From pairs of sentences to token ids on disk: tokenized, checked, filtered, each drop counted."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import compress, islice
from pathlib import Path
from typing import BinaryIO, TypeAlias

import numpy as np
from numpy.typing import NDArray

from seq2seq.data.checks import PairCheck, UnknownCharacters
from seq2seq.data.config import FilterConfig
from seq2seq.data.encoded import EncodedCorpusWriter
from seq2seq.data.pair_files import SentencePair
from seq2seq.data.tokenizer import Tokenizer

Log: TypeAlias = Callable[[str], None]
"""Called with a line of progress."""

_CHUNK_PAIRS = 10_000
_PAIRS_PER_MESSAGE = 1_000_000


def encode(
    pairs: Iterable[SentencePair],
    tokenizer: Tokenizer,
    writer: EncodedCorpusWriter,
    controls: list[int],
    limits: FilterConfig,
    log: Log,
    check: PairCheck | None = None,
    unknown: UnknownCharacters | None = None,
    text: BinaryIO | None = None,
) -> "FilterCounts":
    """Tokenize, check, filter and write pairs; `text` gets the text of those that are kept."""
    counts = FilterCounts()
    stream = iter(pairs)
    while chunk := list(islice(stream, _CHUNK_PAIRS)):
        # Tokenize both sides, unless there is only white space: (chunk,) lists of ids each.
        source_texts, target_texts = (
            [text if text.strip() else "" for text in side] for side in zip(*chunk, strict=True)
        )
        sources, targets = tokenizer.encode(source_texts), tokenizer.encode_target(target_texts)
        if unknown is not None:
            unknown.count(0, source_texts, sources)
            unknown.count(1, target_texts, targets)
        # Check and filter by length, (chunk,): the end symbol counts, control symbols don't.
        source_lengths = np.fromiter(map(len, sources), dtype=np.int64) + 1
        target_lengths = np.fromiter(map(len, targets), dtype=np.int64) + 1
        if check is not None:
            check.check(counts.read, chunk, source_lengths, target_lengths)
        kept = filter_lengths(source_lengths, target_lengths, limits, counts)
        if controls:
            sources = [controls + source for source in sources]
        writer.write(list(compress(sources, kept)), list(compress(targets, kept)))
        if text is not None:
            text.writelines(json.dumps(pair).encode() + b"\n" for pair in compress(chunk, kept))
        if counts.read % _PAIRS_PER_MESSAGE == 0:
            log(f"data: {counts.read:,} pairs encoded")
    return counts


def encode_valid(
    pairs: Iterable[SentencePair],
    tokenizer: Tokenizer,
    path: Path,
    controls: list[int],
    limits: FilterConfig,
    log: Log,
) -> "FilterCounts":
    """Write the validation pairs that are not blank or over-long."""
    limits = replace(limits, max_length_ratio=float("inf"))
    with new_writer(path, tokenizer) as writer:
        return encode(pairs, tokenizer, writer, controls, limits, log)


def new_writer(path: Path, tokenizer: Tokenizer) -> EncodedCorpusWriter:
    """Open a new file for pairs encoded by a tokenizer."""
    return EncodedCorpusWriter(path, max(tokenizer.source_vocab_size, tokenizer.vocab_size))


@dataclass(kw_only=True)
class FilterCounts:
    """Counts of the pairs of a split, and of those that were skipped."""

    read: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    """Pairs that were skipped, under the first reason that applies."""

    @property
    def kept(self) -> int:
        """Pairs that passed every filter."""
        return self.read - sum(self.dropped.values())

    def __str__(self) -> str:
        reasons = [f"{number:,} {reason}" for reason, number in self.dropped.items() if number]
        skipped = f"; skipped: {', '.join(reasons)}" if reasons else ""
        return f"{self.read:,} pairs read, {self.kept:,} kept{skipped}"


def filter_lengths(
    source_lengths: NDArray[np.int64],
    target_lengths: NDArray[np.int64],
    limits: FilterConfig,
    counts: FilterCounts,
) -> list[bool]:
    """Select the pairs to keep; count each other one under the first reason that applies."""
    longer = np.maximum(source_lengths, target_lengths)
    shorter = np.minimum(source_lengths, target_lengths)
    reasons = {
        "blank source": source_lengths == 1,
        "blank target": target_lengths == 1,
        "too long": longer > limits.max_tokens,
        "length ratio": longer > limits.max_length_ratio * shorter,
    }
    kept = np.ones(len(longer), dtype=bool)
    for reason, applies in reasons.items():
        counts.dropped[reason] = counts.dropped.get(reason, 0) + int((kept & applies).sum())
        kept &= ~applies
    counts.read += len(longer)
    return kept.tolist()
