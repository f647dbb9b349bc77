"""Scores of parts of a test set: by source length, and by how often words occur in training."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from seq2seq.data.pair_files import SentencePair
from seq2seq.evaluation.intervals import bleu_interval, percentiles, resample, words
from seq2seq.evaluation.scores import bleu

LENGTHS = (0, 5, 10, 15, 20, 30, 40, 60, 100)
"""Lower bounds of the buckets by source length, in tokens of the model."""
FREQUENCIES = (0, 1, 5, 10, 100, 1000, 10_000)
"""Lower bounds of the buckets by frequency in training."""
MAX_TRAINING_PAIRS = 1_000_000
"""Training pairs in which words are counted; the first ones."""


@dataclass(frozen=True)
class Bucket:
    """A part of a test set and its score, with the bounds of its 95 % bootstrap interval."""

    by: str
    """`source_length` and `rarest_word` have lines and their BLEU; `word_frequency` has reference
    words and their F1."""
    start: int
    """The smallest value in the bucket."""
    end: int | None
    """The smallest value above the bucket; None for the last bucket."""
    count: int
    """Lines of the bucket, or words of the references."""
    metric: str
    value: float
    low: float
    high: float


def training_frequencies(
    lines: Iterable[str], train: Iterable[SentencePair]
) -> tuple[Counter[str], int]:
    """Count the words of outputs and references in the target sides of the training pairs.

    Returns:
        The counts, and the number of pairs read, at most `MAX_TRAINING_PAIRS`.
    """
    wanted = {word for line in lines for word in words(line)}
    counts: Counter[str] = Counter()
    read = 0
    for pair in islice(train, MAX_TRAINING_PAIRS):
        counts.update(word for word in words(pair.target) if word in wanted)
        read += 1
    return counts, read


def make_buckets(
    lengths: Sequence[int],
    counts: Mapping[str, int] | None,
    hypotheses: Sequence[str],
    references: Sequence[str],
) -> list[Bucket]:
    """Score by source length and, if frequencies in training are known, by these."""
    buckets = by_length(lengths, hypotheses, references)
    if counts is not None:
        buckets += by_rarest_word(counts, hypotheses, references)
        buckets += by_word_frequency(counts, hypotheses, references)
    return buckets


def by_length(
    lengths: Sequence[int], hypotheses: Sequence[str], references: Sequence[str]
) -> list[Bucket]:
    """Score the lines by the length of their sources."""
    return _lines("source_length", LENGTHS, lengths, hypotheses, references)


def by_rarest_word(
    counts: Mapping[str, int], hypotheses: Sequence[str], references: Sequence[str]
) -> list[Bucket]:
    """Score the lines by the training frequency of the rarest word of their references."""
    rarest = [min((counts.get(word, 0) for word in words(line)), default=0) for line in references]
    return _lines("rarest_word", FREQUENCIES, rarest, hypotheses, references)


def by_word_frequency(
    counts: Mapping[str, int], hypotheses: Sequence[str], references: Sequence[str]
) -> list[Bucket]:
    """Compute the F1 of the words by their frequency in training, as compare-mt's word accuracy.

    A word of an output is correct if the reference of its line has it, as often as there.
    """
    # For each line and bucket: correct words, words of the output, words of the reference.
    table = np.zeros((len(references), len(FREQUENCIES), 3), dtype=np.int64)
    for line, (hypothesis, reference) in enumerate(zip(hypotheses, references, strict=True)):
        output, expected = Counter(words(hypothesis)), Counter(words(reference))
        for column, found in enumerate((output & expected, output, expected)):
            for word, number in found.items():
                table[line, _place(FREQUENCIES, counts.get(word, 0)), column] += number
    buckets = []
    for place, start in enumerate(FREQUENCIES):
        totals = table[:, place].sum(axis=0)
        if totals[2]:
            low, high = percentiles(_f1(resample(table[:, place])))
            value = float(_f1(totals[None])[0])
            end = FREQUENCIES[place + 1] if place + 1 < len(FREQUENCIES) else None
            buckets.append(
                Bucket("word_frequency", start, end, int(totals[2]), "F1", value, low, high)
            )
    return buckets


def _f1(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Compute F1 from 0 to 100 of rows of correct, output and reference words."""
    correct, output, expected = counts.T
    f1: NDArray[np.float64] = 200.0 * correct / np.maximum(output + expected, 1)
    return f1


def _lines(
    by: str,
    bounds: Sequence[int],
    values: Sequence[int],
    hypotheses: Sequence[str],
    references: Sequence[str],
) -> list[Bucket]:
    members: list[list[int]] = [[] for _ in bounds]
    for line, size in enumerate(values):
        members[_place(bounds, size)].append(line)
    buckets = []
    for place, lines in enumerate(members):
        if lines:
            outputs = [hypotheses[line] for line in lines]
            targets = [references[line] for line in lines]
            end = bounds[place + 1] if place + 1 < len(bounds) else None
            low, high = bleu_interval(outputs, targets)
            value = bleu(outputs, [targets]).value
            buckets.append(Bucket(by, bounds[place], end, len(lines), "BLEU", value, low, high))
    return buckets


def _place(bounds: Sequence[int], value: int) -> int:
    return bisect_right(bounds, value) - 1
