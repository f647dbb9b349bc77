"""Scores of parts of a test set: by source length, by kind and training frequency of words."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from seq2seq.data.pair_files import SentencePair
from seq2seq.evaluation.significance import LineBleu, percentiles, resample, words

LENGTHS = (0, 5, 10, 15, 20, 30, 40, 60, 100)
"""Lower bounds of the buckets by source length, in tokens of the model."""
FREQUENCIES = (0, 1, 5, 10, 100, 1000, 10_000)
"""Lower bounds of the buckets by frequency in training."""
KINDS = ("with digits", "with a capital", "repeated in the line", "other")
"""Kinds of words; a word is of the first that fits. In German, nouns have capitals."""
MAX_TRAINING_PAIRS = 1_000_000
"""Training pairs in which words are counted; the first ones."""


@dataclass(frozen=True)
class Bucket:
    """A part of a test set and its score, with the bounds of its 95 % bootstrap interval."""

    by: str
    """`source_length` and `rarest_word` have lines and their BLEU; `word_frequency` and `word_kind`
    have reference words and their F1."""
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
    kind: str = ""
    """Of `word_kind`, the kind of words; `start` and `end` mean nothing then."""


def training_frequencies(
    lines: Iterable[str], train: Iterable[SentencePair], tokenize: str | None = None
) -> tuple[Counter[str], int]:
    """Count the words of outputs and references in the target sides of the training pairs.

    Args:
        lines: outputs and references.
        train: the training pairs.
        tokenize: BLEU's tokenizer, which makes words of lines.

    Returns:
        The counts, and the number of pairs read, at most `MAX_TRAINING_PAIRS`.
    """
    wanted = {word for line in lines for word in words(line, tokenize)}
    counts: Counter[str] = Counter()
    read = 0
    for pair in islice(train, MAX_TRAINING_PAIRS):
        counts.update(word for word in words(pair.target, tokenize) if word in wanted)
        read += 1
    return counts, read


def make_buckets(
    lengths: Sequence[int],
    counts: Mapping[str, int] | None,
    hypotheses: Sequence[str],
    references: Sequence[str],
    bleu: LineBleu,
) -> list[Bucket]:
    """Score by source length, by kind of word and, if they are known, by training frequencies.

    Args:
        lengths: of the sources.
        counts: how often words occur in training, if that is known.
        hypotheses: lines.
        references: lines.
        bleu: of the hypotheses; its tokenizer makes words of lines.
    """
    outputs = [words(line, bleu.tokenize) for line in hypotheses]
    expected = [words(line, bleu.tokenize) for line in references]
    buckets = by_length(lengths, bleu)
    if counts is not None:
        buckets += by_rarest_word(counts, expected, bleu)
        buckets += by_word_frequency(counts, outputs, expected)
    return buckets + by_word_kind(outputs, expected)


def by_length(lengths: Sequence[int], bleu: LineBleu) -> list[Bucket]:
    """Score the lines by the length of their sources."""
    return _lines("source_length", LENGTHS, dict(enumerate(lengths)), bleu)


def by_rarest_word(
    counts: Mapping[str, int], references: Sequence[Sequence[str]], bleu: LineBleu
) -> list[Bucket]:
    """Score the lines by the training frequency of the rarest word of their references.

    Lines whose reference has no word are left out.
    """
    rarest = {
        line: min(counts.get(word, 0) for word in reference)
        for line, reference in enumerate(references)
        if reference
    }
    return _lines("rarest_word", FREQUENCIES, rarest, bleu)


def by_word_frequency(
    counts: Mapping[str, int],
    hypotheses: Sequence[Sequence[str]],
    references: Sequence[Sequence[str]],
) -> list[Bucket]:
    """Compute the F1 of the words by their frequency in training, as compare-mt's word accuracy.

    A word of an output is correct if the reference of its line has it, as often as there.
    """

    def place(word: str, in_reference: int) -> int:
        return _place(FREQUENCIES, counts.get(word, 0))

    return [
        replace(found, by="word_frequency", start=FREQUENCIES[i], end=_end(FREQUENCIES, i))
        for i, found in _word_f1(place, len(FREQUENCIES), hypotheses, references)
    ]


def by_word_kind(
    hypotheses: Sequence[Sequence[str]], references: Sequence[Sequence[str]]
) -> list[Bucket]:
    """Compute the F1 of words with digits, with capitals, repeated in the reference, and others."""

    def place(word: str, in_reference: int) -> int:
        if any(character.isdigit() for character in word):
            return 0
        return 1 if word[:1].isupper() else 2 if in_reference > 1 else 3

    return [
        replace(found, by="word_kind", kind=KINDS[i])
        for i, found in _word_f1(place, len(KINDS), hypotheses, references)
    ]


def _word_f1(
    place: Callable[[str, int], int],
    places: int,
    hypotheses: Sequence[Sequence[str]],
    references: Sequence[Sequence[str]],
) -> Iterator[tuple[int, Bucket]]:
    """Compute F1 of groups of words.

    Args:
        place: returns the group of a word, given how often the line's reference has it.
        places: the number of groups.
        hypotheses: the words of each line.
        references: the words of each line.

    Yields:
        Each group with a word in a reference, and its bucket, to be completed.
    """
    # For each line and group: correct words, words of the output, words of the reference.
    table = np.zeros((len(references), places, 3), dtype=np.int64)
    for line, (hypothesis, reference) in enumerate(zip(hypotheses, references, strict=True)):
        output, expected = Counter(hypothesis), Counter(reference)
        for column, found in enumerate((output & expected, output, expected)):
            for word, number in found.items():
                table[line, place(word, expected[word]), column] += number
    for group in range(places):
        totals = table[:, group].sum(axis=0)
        if totals[2]:
            low, high = percentiles(_f1(resample(table[:, group])))
            value = float(_f1(totals[None])[0])
            yield group, Bucket("", 0, None, int(totals[2]), "F1", value, low, high)


def _f1(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Compute F1 from 0 to 100 of rows of correct, output and reference words."""
    correct, output, expected = counts.T
    f1: NDArray[np.float64] = 200.0 * correct / np.maximum(output + expected, 1)
    return f1


def _lines(
    by: str, bounds: Sequence[int], values: Mapping[int, int], bleu: LineBleu
) -> list[Bucket]:
    members: list[list[int]] = [[] for _ in bounds]
    for line, size in values.items():
        members[_place(bounds, size)].append(line)
    buckets = []
    for place, lines in enumerate(members):
        if lines:
            start, end = bounds[place], _end(bounds, place)
            interval = bleu.interval(lines)
            buckets.append(Bucket(by, start, end, len(lines), "BLEU", bleu.score(lines), *interval))
    return buckets


def _end(bounds: Sequence[int], place: int) -> int | None:
    return bounds[place + 1] if place + 1 < len(bounds) else None


def _place(bounds: Sequence[int], value: int) -> int:
    return bisect_right(bounds, value) - 1
