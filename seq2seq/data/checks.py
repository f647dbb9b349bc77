"""Checks of a parallel corpus, made while it is read: what a model should not learn from."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import compress, repeat
from random import Random
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from seq2seq.data.corpus import FilterConfig, Split
from seq2seq.encoded_corpus import EncodedCorpus
from seq2seq.errors import UserError
from seq2seq.text import SentencePair, has_text
from seq2seq.tokenizer import UNKNOWN_ID, Tokenizer

SideLengths: TypeAlias = NDArray[np.int64]
"""The lengths of the sources and of the targets of some pairs, (2, pairs), in tokens."""

# In five real corpora, the log-lengths of 1,000 aligned pairs correlate by 0.75 or more; shifted
# by one line, they correlate by 0.3 or less in most windows.
_WINDOW_PAIRS = 1000
_SMALLEST_WINDOW = 200
_LOWEST_CORRELATION = 0.3
_ALARMING_SHARE = 0.01
_ALARMING_UNKNOWN = 0.0001
_MAX_UNKNOWN = 0.05
_MANY_SKIPPED = 0.1
_EXAMPLES = 5
_FIRST = 3  # suspicious pairs that a warning names
# Of six pairs of honest training and validation text, also of different domains, at most 0.2 % of
# the pairs have such a score.
_SWAPPED_SCORE = -3.0
_SEPARATED = 0.95
_FEWEST_HELD_OUT = 10
_MANY = 50
_COPIES = "are copies of another one"
_DIGEST_BYTES = 8
_QUOTED = re.compile('"(?:(?!"").)*+"".*"$')
_PIECES = re.compile("@@( |$)|\u2581")
_ENTITY = re.compile(r"&(?:#\d+|#x[\da-fA-F]+|[a-zA-Z]+);")


@dataclass(kw_only=True)
class FilterCounts:
    """Counts of the pairs of a split, and of those that were skipped."""

    read: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    """Pairs that were skipped, under the first reason that applies."""

    def __iadd__(self, later: "FilterCounts") -> "FilterCounts":
        self.read += later.read
        self.dropped = {why: self.dropped.get(why, 0) + n for why, n in later.dropped.items()}
        return self

    @property
    def kept(self) -> int:
        """Pairs that passed every filter."""
        return self.read - sum(self.dropped.values())

    def warnings(self, name: str) -> list[str]:
        """Warn if many pairs were skipped, with the keys that decide on it."""
        skipped = self.read - self.kept - self.dropped.get("source in data.valid", 0)
        if skipped <= _MANY_SKIPPED * self.read:
            return []
        keys = {
            "too long": "data.filter.max_tokens",
            "length ratio": "data.filter.max_length_ratio",
        }
        reasons = [
            f"{number:,} {reason}{f' (raise {keys[reason]})' if reason in keys else ''}"
            for reason, number in self.dropped.items()
            if number and reason != "source in data.valid"
        ]
        return [
            f"{skipped:,} of {self.read:,} pairs of {name} are skipped and not learned from:"
            f" {', '.join(reasons)}"
        ]

    def __str__(self) -> str:
        reasons = [f"{number:,} {reason}" for reason, number in self.dropped.items() if number]
        skipped = f"; skipped: {', '.join(reasons)}" if reasons else ""
        return f"{self.read:,} pairs read, {self.kept:,} kept{skipped}"


@dataclass
class Findings:
    """The findings in some consecutive pairs of a split, collected while they are encoded.

    Misaligned lines show in the lengths of the two sides.
    """

    counts: FilterCounts = field(default_factory=FilterCounts)
    digests: bytearray = field(default_factory=bytearray)
    """A digest of each pair that is not blank, to find copies."""
    suspicious: Counter[str] = field(default_factory=Counter)
    """Pairs by what is wrong with them."""
    first: list[tuple[str, int]] = field(default_factory=list)
    """The first suspicious pairs of each chunk: the reason, and the pair's number from 1."""
    windows: list[tuple[int, int, float]] = field(default_factory=list)
    """Windows of consecutive pairs: the first, the last, and the correlation of their lengths."""
    characters: int = 0
    unknown: Counter[tuple[int, str]] = field(default_factory=Counter)
    """The characters of sources (0) and of targets (1) that have unknown tokens."""

    def __iadd__(self, later: "Findings") -> "Findings":
        """Add what was found in the pairs that follow."""
        for name, value in vars(later).items():
            total = getattr(self, name)
            total += value
            setattr(self, name, total)
        return self

    def check(
        self, before: int, chunk: Sequence[Sequence[str]], lengths: SideLengths, max_ratio: float
    ) -> None:
        """Check the two sides of some pairs, and their lengths, after `before` others."""
        not_blank = lengths.min(axis=0) > 1
        pair_numbers = before + 1 + np.flatnonzero(not_blank)
        lengths = np.ascontiguousarray(lengths[:, not_blank])
        pairs = list(compress(zip(*chunk, strict=True), not_blank))
        self.digests += b"".join(map(_digest, pairs))
        ratio = lengths.max(axis=0) / lengths.min(axis=0)
        signs: dict[str, Iterable[bool]] = {
            f"have one side over {max_ratio:g} times as long as the other": ratio > max_ratio,
            "have a target equal to its source": (a == b for a, b in pairs),
            "are quoted as by a spreadsheet": (any(map(_QUOTED.match, pair)) for pair in pairs),
            "have pieces of words in them (@@ or \u2581)": (
                any(map(_PIECES.search, pair)) for pair in pairs
            ),
            "have HTML entities such as &quot;": (any(map(_ENTITY.search, pair)) for pair in pairs),
        }
        for sign, holds in signs.items():
            numbers = list(compress(pair_numbers.tolist(), holds))
            self.suspicious[sign] = len(numbers)
            self.first += zip(repeat(sign), numbers[:_FIRST], strict=False)
        logs = np.log(lengths)  # (2, pairs)
        for start in range(0, len(pairs), _WINDOW_PAIRS):
            window = slice(start, start + _WINDOW_PAIRS)
            numbers = pair_numbers[window].tolist()
            differs = np.ptp(lengths[:, window], axis=1) > 0
            if len(numbers) >= _SMALLEST_WINDOW and differs.all():
                correlation = float(np.corrcoef(logs[:, window])[0, 1])
                self.windows.append((numbers[0], numbers[-1], correlation))

    def select(self, lengths: SideLengths, limits: FilterConfig) -> list[bool]:
        """Select the pairs to keep; count each other one under the first reason that applies."""
        longer, shorter = lengths.max(axis=0), lengths.min(axis=0)
        reasons = {
            "blank source": lengths[0] == 1,
            "blank target": lengths[1] == 1,
            "too long": longer > limits.max_tokens,
            "length ratio": longer > limits.max_length_ratio * shorter,
        }
        self.counts.read, passes = len(longer), np.ones(len(longer), dtype=bool)
        for reason, applies in reasons.items():
            self.counts.dropped[reason] = int((passes & applies).sum())
            passes &= ~applies
        return passes.tolist()

    def count_unknown(
        self, side: int, texts: Sequence[str], encoded: Sequence[Sequence[int]]
    ) -> None:
        """Count the characters of sources (0) or targets (1), given with their token ids."""
        self.characters += sum(map(len, texts))
        for text, token_ids in zip(texts, encoded, strict=True):
            if UNKNOWN_ID in token_ids:
                self.unknown.update((side, character) for character in text)

    def warnings(self, split: Split) -> list[str]:
        """Describe each sign of misalignment or of noise in one line."""
        pairs = len(self.digests) // _DIGEST_BYTES
        suspicious = {**self.suspicious, _COPIES: pairs - len(different(self.digests))}
        warnings = []
        for sign, count in suspicious.items():
            if count > _ALARMING_SHARE * pairs:
                numbers = [number for of_sign, number in self.first if of_sign == sign][:_FIRST]
                lines = ", ".join(map(split.locate, numbers))
                warnings.append(
                    f"{count:,} of {pairs:,} training pairs {sign}"
                    f"{lines and f', first {lines}'}: check whether they should be learned from;"
                    " OpusFilter can remove such pairs"
                )
        uncorrelated = [window for window in self.windows if window[-1] < _LOWEST_CORRELATION]
        if len(uncorrelated) > _ALARMING_SHARE * len(self.windows):
            first, last, correlation = uncorrelated[0]
            warnings.append(
                f"source and target lengths hardly correlate in {len(uncorrelated):,} of"
                f" {len(self.windows):,} windows of the training pairs, first at"
                f" {split.locate(first)} to {last} (correlation"
                f" {correlation:.2f}): check whether a line is missing on one side"
            )
        return warnings

    def warnings_of_unknown(self, tokenizer: Tokenizer) -> list[str]:
        """Describe the characters that a trained model does not know, if they matter."""
        unknown: Counter[str] = Counter()
        for (side, character), count in self.unknown.items():
            encode = tokenizer.encode_target if side else tokenizer.encode
            if UNKNOWN_ID in encode([character])[0]:
                unknown[character] += count
        share = unknown.total() / max(self.characters, 1)
        examples = ", ".join(dict(unknown.most_common(_EXAMPLES)))
        message = (
            f"{share:.2%} of the training text are characters that the model of init_from does not"
            f" know ({examples})"
        )
        if share > _MAX_UNKNOWN:
            raise UserError(
                f"{message}: remove the lines with these characters, start from another model,"
                " or train a new one"
            )
        return [message] if share > _ALARMING_UNKNOWN else []


class Sample:
    """Some pairs of a split, drawn uniformly while all are read; their numbers count from 1."""

    def __init__(self, split: Split, size: int = 10_000) -> None:
        self._split, self._size = split, size
        self._numbered: list[tuple[int, SentencePair]] = []

    def pairs(self) -> Iterator[SentencePair]:
        """Stream the pairs of the split, and draw among those that have text."""
        generator, seen = Random(0), 0
        for number, pair in enumerate(self._split.pairs(), start=1):
            if has_text(pair):
                seen += 1
                if len(self._numbered) < self._size:
                    self._numbered.append((number, pair))
                elif (index := int(generator.random() * seen)) < self._size:
                    self._numbered[index] = number, pair
            yield pair

    def warnings(self, valid: Sequence[SentencePair], tokenizer: Tokenizer) -> list[str]:
        """Warn of sides that are swapped against `valid`, and of one side for many others.

        `valid` must have the same languages.
        """
        self._numbered.sort()
        return [*self._warn_of_swapped(valid, tokenizer), *self._warn_of_many()]

    def _warn_of_swapped(self, valid: Sequence[SentencePair], tokenizer: Tokenizer) -> list[str]:
        valid = list(filter(has_text, valid))[: self._size]
        half = _SideScores(valid[::2], tokenizer)(valid[1::2])
        if len(half) < _FEWEST_HELD_OUT or np.mean(half > 0) < _SEPARATED:
            return []  # the sides do not differ in their words
        pairs = [pair for _, pair in self._numbered]
        swapped = np.flatnonzero(_SideScores(valid, tokenizer)(pairs) < _SWAPPED_SCORE)
        if len(swapped) <= _ALARMING_SHARE * len(pairs):
            return []
        lines = ", ".join(self._split.locate(self._numbered[i][0]) for i in swapped[:_FIRST])
        return [
            f"{len(swapped) / len(pairs):.0%} of the pairs of {self._split.name} seem to have"
            f" source and target swapped, compared with data.valid, first {lines}: check which side"
            " is which"
        ]

    def _warn_of_many(self) -> Iterator[str]:
        different_pairs = {pair for _, pair in self._numbered}
        for side, other in (("source", "target"), ("target", "source")):
            texts = Counter(getattr(pair, side) for pair in different_pairs)
            for text, count in texts.most_common(1):
                if count > max(_MANY, _ALARMING_SHARE * len(self._numbered)):
                    numbers = (n for n, pair in self._numbered if getattr(pair, side) == text)
                    yield (
                        f"{count:,} of {len(self._numbered):,} pairs of {self._split.name} have the"
                        f" same {side} with different {other}s, first"
                        f" {self._split.locate(next(numbers))}: check whether they should be"
                        " learned from"
                    )


class _SideScores:
    """Tells source from target by how often each piece is in the two sides of some pairs."""

    def __init__(self, pairs: Sequence[SentencePair], tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        counts = np.full((2, tokenizer.source_vocab_size), 0.5)
        for count, texts in zip(counts, zip(*pairs, strict=True), strict=bool(pairs)):
            for token_ids in tokenizer.encode(list(texts)):
                np.add.at(count, token_ids, 1)
        logs = np.log(counts / counts.sum(axis=1, keepdims=True))
        self._weights = logs[0] - logs[1]  # (vocabulary,)

    def __call__(self, pairs: Sequence[SentencePair]) -> NDArray[np.float64]:
        """Return the log of how much likelier each pair is as it stands than swapped, (pairs,)."""
        sums = [
            [self._weights[token_ids].sum() for token_ids in self._tokenizer.encode(list(texts))]
            for texts in zip(*pairs, strict=True)
        ]
        return np.subtract(sums[0], sums[1]) if sums else np.zeros(0)


def check_references(
    split: Split, pairs: Sequence[SentencePair], tokenizer: Tokenizer, remedy: str
) -> list[str]:
    """Warn of references that the tokenizer can't write; spaces and line ends may change."""
    references = [" ".join(filter(None, re.split("[ \n]", pair.target))) for pair in pairs]
    written = tokenizer.decode(tokenizer.encode_target(references))
    lost = [i for i, text in enumerate(references) if text != written[i]]
    if len(lost) <= _ALARMING_SHARE * len(references):
        return []
    reference, known = references[lost[0]], set(written[lost[0]])
    characters = "".join(list(dict.fromkeys(c for c in reference if c not in known))[:_EXAMPLES])
    return [
        f"{len(lost) / len(references):.1%} of the references of {split.name} can't be written by"
        f" the tokenizer, first {split.locate(lost[0] + 1, 'target')} ({characters!r}): {remedy}"
    ]


def _digest(pair: tuple[str, ...]) -> bytes:
    return blake2b("\t".join(pair).encode(), digest_size=_DIGEST_BYTES).digest()


def different(digests: bytes | bytearray) -> NDArray[np.uint64]:
    """Return each digest once, sorted."""
    ordered = np.sort(np.frombuffer(digests, np.uint64))
    is_first = np.ones(len(ordered), dtype=bool)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    return ordered[is_first]  # np.unique would hash, in ten times the time


def check_overlap(name: str, pairs: Iterable[SentencePair], train: NDArray[np.uint64]) -> list[str]:
    """Warn of held-out pairs whose digests are in `train`, those of the training pairs, sorted."""
    held_out = different(b"".join(map(_digest, filter(has_text, pairs))))
    shared = np.sum(train[np.searchsorted(train, held_out) % len(train)] == held_out)
    if not shared:
        return []
    return [
        f"{shared:,} of {len(held_out):,} different {name} pairs are training pairs too: scores on"
        f" {name} will be too high"
    ]


def check_lengths(name: str, corpus: EncodedCorpus, max_tokens: int) -> None:
    """Check that a model with learned positions has one for every token of a corpus."""
    longest = max(corpus.longest)
    if longest > max_tokens:
        raise UserError(
            f"a pair of {name} has {longest} tokens, but positions are learned up to {max_tokens}:"
            " lower data.filter.max_tokens, or raise model.max_learned_positions"
        )
