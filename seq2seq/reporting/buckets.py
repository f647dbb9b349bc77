"""Scores of parts of a test set: by source length, by kind and training frequency of words."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice

import numpy as np
from numpy.typing import NDArray

from seq2seq.reporting.significance import SAMPLES, SEED, bleu_with_interval, interval, words
from seq2seq.text import SentencePair

LENGTHS = (0, 5, 10, 15, 20, 30, 40, 60, 100)
"""Lower bounds of the buckets by source length, in tokens of the model."""
FREQUENCIES = (0, 1, 5, 10, 100, 1000, 10_000)
"""Lower bounds of the buckets by frequency in training."""
KINDS = ("with digits", "with a capital", "repeated in the line", "other")
"""Kinds of words; a word is of the first that fits. In German, nouns have capitals."""
MAX_TRAINING_PAIRS = 1_000_000
"""Training pairs in which words are counted: the first ones."""
_TOGETHER = 1000


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

    The words are those that BLEU's tokenizer finds between spaces. The second result is the number
    of pairs read, at most `MAX_TRAINING_PAIRS`.
    """
    wanted = {word for line in lines for word in words(line, tokenize)}
    texts: Counter[str] = Counter()
    read = 0
    for pair in islice(train, MAX_TRAINING_PAIRS):
        texts.update(pair.target.split())
        read += 1
    # Tokenize what stands between spaces once, many of those that are equally frequent together.
    frequent = sorted(texts, key=texts.__getitem__)
    counts: Counter[str] = Counter()
    for number, equal in groupby(frequent, key=texts.__getitem__):
        while line := " ".join(islice(equal, _TOGETHER)):
            for word in filter(wanted.__contains__, words(line, tokenize)):
                counts[word] += number
    return counts, read


def make_buckets(
    lengths: Sequence[int],
    counts: Mapping[str, int] | None,
    hypotheses: Sequence[str],
    references: Sequence[str],
    tokenize: str | None = None,
) -> list[Bucket]:
    """Score by source length, by kind of word and, if `counts` has them, by training frequency."""
    outputs = [words(line, tokenize) for line in hypotheses]
    expected = [words(line, tokenize) for line in references]
    sizes = dict(enumerate(lengths))
    buckets = _lines("source_length", LENGTHS, sizes, hypotheses, references, tokenize)
    if counts is not None:
        # Lines whose reference has no word are skipped.
        rarest = {
            line: min(counts.get(word, 0) for word in reference)
            for line, reference in enumerate(expected)
            if reference
        }
        buckets += _lines("rarest_word", FREQUENCIES, rarest, hypotheses, references, tokenize)
        buckets += by_word_frequency(counts, outputs, expected)
    return buckets + by_word_kind(outputs, expected)


def _lines(
    by: str,
    bounds: Sequence[int],
    sizes: Mapping[int, int],
    hypotheses: Sequence[str],
    references: Sequence[str],
    tokenize: str | None,
) -> list[Bucket]:
    members: dict[int, list[int]] = {}
    for line, size in sizes.items():
        members.setdefault(bisect_right(bounds, size) - 1, []).append(line)
    buckets = []
    for index, lines in sorted(members.items()):
        sides = [hypotheses[line] for line in lines], [references[line] for line in lines]
        score = bleu_with_interval(*sides, tokenize)
        buckets.append(Bucket(by, *_range(bounds, index), len(lines), "BLEU", *score))
    return buckets


def by_word_frequency(
    counts: Mapping[str, int],
    hypotheses: Sequence[Sequence[str]],
    references: Sequence[Sequence[str]],
) -> list[Bucket]:
    """Compute the F1 of the words by their frequency in training, as compare-mt's word accuracy.

    A word of an output is correct if the reference of its line has it, as often as there.
    """

    def group(word: str, in_reference: int) -> int:
        return bisect_right(FREQUENCIES, counts.get(word, 0)) - 1

    buckets = []
    for i, found in _word_f1(group, len(FREQUENCIES), hypotheses, references):
        start, end = _range(FREQUENCIES, i)
        buckets.append(Bucket("word_frequency", start, end, *found))
    return buckets


def by_word_kind(
    hypotheses: Sequence[Sequence[str]], references: Sequence[Sequence[str]]
) -> list[Bucket]:
    """Compute the F1 of words with digits, with capitals, repeated in the reference, and others."""

    def group(word: str, in_reference: int) -> int:
        if any(character.isdigit() for character in word):
            return 0
        return 1 if word[:1].isupper() else 2 if in_reference > 1 else 3

    return [
        Bucket("word_kind", 0, None, *found, kind=KINDS[i])
        for i, found in _word_f1(group, len(KINDS), hypotheses, references)
    ]


def _word_f1(
    group_of: Callable[[str, int], int],
    groups: int,
    hypotheses: Sequence[Sequence[str]],
    references: Sequence[Sequence[str]],
) -> Iterator[tuple[int, tuple[int, str, float, float, float]]]:
    """Yield each group with a word in a reference, and its bucket's values from `count` on.

    `group_of` returns the group of a word, given how often the line's reference has the word.
    """
    # (lines, groups, 3): correct words, words of the output, words of the reference.
    table = np.zeros((len(references), groups, 3), dtype=np.int64)
    for line, (hypothesis, reference) in enumerate(zip(hypotheses, references, strict=True)):
        output, expected = Counter(hypothesis), Counter(reference)
        for column, found in enumerate((output & expected, output, expected)):
            for word, number in found.items():
                table[line, group_of(word, expected[word]), column] += number
    # Each sample draws as many lines as there are; one by one, to fit into memory.
    random, lines = np.random.default_rng(SEED), len(references)
    samples = [table[random.integers(lines, size=lines)].sum(axis=0) for _ in range(SAMPLES)]
    drawn, totals = np.stack(samples), table.sum(axis=0)
    for group in range(groups):
        if count := int(totals[group, 2]):
            value = float(_f1(totals[group]))
            yield group, (count, "F1", value, *interval(_f1(drawn[:, group])))


def _f1(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Compute F1 from 0 to 100 from counts (..., 3) of correct, output and reference words."""
    correct, output, expected = np.moveaxis(counts, -1, 0)
    return np.asarray(200.0 * correct / np.maximum(output + expected, 1))


def _range(bounds: Sequence[int], index: int) -> tuple[int, int | None]:
    return bounds[index], bounds[index + 1] if index + 1 < len(bounds) else None
