"""From pairs of sentences to token ids on disk: tokenized, checked, filtered, each drop counted."""

import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import compress, count, islice
from typing import BinaryIO, TypeAlias

import numpy as np
from numpy.typing import NDArray

from seq2seq.data.checks import FilterCounts, Findings
from seq2seq.data.config import FilterConfig
from seq2seq.data.encoded import EncodedPairs, encode_ids
from seq2seq.data.pair_files import SentencePair
from seq2seq.data.processes import map_in_processes
from seq2seq.data.tokenizer import Tokenizer

Log: TypeAlias = Callable[[str], None]
"""Called with a line of progress."""
Chunk: TypeAlias = tuple[int, Sequence[Sequence[str]]]
"""How many pairs come before, and the two sides of some pairs."""

_CHUNK_PAIRS = 10_000
_PAIRS_PER_MESSAGE = 1_000_000


@dataclass(frozen=True)
class Encoder:
    """Tokenizes, checks and filters the pairs of a split, some at a time and in any process."""

    tokenizer: Tokenizer
    controls: list[int]
    """What stands before each source."""
    limits: FilterConfig
    keeps_text: bool = False

    def __call__(self, numbered: Chunk) -> tuple[EncodedPairs, bytes, Findings]:
        """Encode some pairs: see `encode_ids`; with the text of those that are kept, and findings.

        The text is a JSON list for each pair, in lines, or empty if not `keeps_text`.
        """
        before, chunk = numbered
        found = Findings()
        # Tokenize both sides, unless there is only white space: (chunk,) lists of ids each.
        texts = [[text if text.strip() else "" for text in side] for side in chunk]
        sources, targets = self.tokenizer.encode(texts[0]), self.tokenizer.encode_target(texts[1])
        found.count_unknown(0, texts[0], sources)
        found.count_unknown(1, texts[1], targets)
        # Check and filter by length, (chunk,): the end symbol counts, control symbols don't.
        source_lengths = np.fromiter(map(len, sources), dtype=np.int64) + 1
        target_lengths = np.fromiter(map(len, targets), dtype=np.int64) + 1
        max_ratio = self.limits.max_length_ratio
        found.check(before, chunk, source_lengths, target_lengths, max_ratio)
        kept, found.counts = filter_lengths(source_lengths, target_lengths, self.limits)
        if self.controls:
            sources = [self.controls + source for source in sources]
        vocab_size = max(self.tokenizer.source_vocab_size, self.tokenizer.vocab_size)
        ids = encode_ids(list(compress(sources, kept)), list(compress(targets, kept)), vocab_size)
        text = b""
        if self.keeps_text:
            pairs = compress(zip(*chunk, strict=True), kept)
            text = b"".join(json.dumps(pair).encode() + b"\n" for pair in pairs)
        return ids, text, found


def encode(
    pairs: Iterable[SentencePair],
    encoder: Encoder,
    write: Callable[[EncodedPairs], None],
    log: Log,
    text: BinaryIO | None = None,
) -> Findings:
    """Encode and write pairs; `text` gets the text of those that are kept."""
    found, remaining = Findings(), iter(pairs)
    chunks = iter(lambda: tuple(zip(*islice(remaining, _CHUNK_PAIRS), strict=True)), ())
    with closing(map_in_processes(encoder, zip(count(0, _CHUNK_PAIRS), chunks))) as encoded:
        for ids, lines, later in encoded:
            write(ids)
            if text is not None:
                text.write(lines)
            found += later
            if found.counts.read % _PAIRS_PER_MESSAGE == 0:
                log(f"data: {found.counts.read:,} pairs encoded")
    return found


def filter_lengths(
    source_lengths: NDArray[np.int64], target_lengths: NDArray[np.int64], limits: FilterConfig
) -> tuple[list[bool], FilterCounts]:
    """Select the pairs to keep; count each other one under the first reason that applies."""
    longer = np.maximum(source_lengths, target_lengths)
    shorter = np.minimum(source_lengths, target_lengths)
    reasons = {
        "blank source": source_lengths == 1,
        "blank target": target_lengths == 1,
        "too long": longer > limits.max_tokens,
        "length ratio": longer > limits.max_length_ratio * shorter,
    }
    counts, kept = FilterCounts(read=len(longer)), np.ones(len(longer), dtype=bool)
    for reason, applies in reasons.items():
        counts.dropped[reason] = int((kept & applies).sum())
        kept &= ~applies
    return kept.tolist(), counts
