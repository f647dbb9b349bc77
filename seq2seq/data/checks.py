"""Checks of a parallel corpus, made while it is read: alignment, and overlap of its splits."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seq2seq.data.corpus import Split
from seq2seq.data.encoded import EncodedCorpus
from seq2seq.data.pair_files import SentencePair
from seq2seq.data.tokenizer import UNKNOWN_ID
from seq2seq.errors import UserError

# Of five real corpora, 1,000 aligned pairs at a time have log-lengths that correlate by 0.75 or
# more; shifted by one line, by 0.3 or less in most windows.
_WINDOW_PAIRS = 1000
_SMALLEST_WINDOW = 200
_LOWEST_CORRELATION = 0.3
_ALARMING_SHARE = 0.01
_ALARMING_UNKNOWN = 0.0001
_MAX_UNKNOWN = 0.05
_EXAMPLES = 5


@dataclass
class AlignmentCheck:
    """Detect misaligned lines by the lengths of the two sides."""

    split: Split
    max_length_ratio: float
    pairs: int = 0
    """Checked, blank ones not counted."""
    extreme: int = 0  # pairs above max_length_ratio
    first_extreme: list[int] = field(default_factory=list)
    """Numbers of the first three of them, counted from 1."""
    windows: int = 0  # of consecutive pairs, whose lengths were correlated
    uncorrelated: int = 0  # windows below _LOWEST_CORRELATION
    first_uncorrelated: tuple[int, int, float] | None = None
    """First pair, last pair and correlation of the first of them."""

    def check(
        self, before: int, source_lengths: NDArray[np.int64], target_lengths: NDArray[np.int64]
    ) -> None:
        """Check a chunk of pairs, given as lengths (chunk,), that follows `before` others."""
        not_blank = (source_lengths > 1) & (target_lengths > 1)
        pair_numbers = before + 1 + np.flatnonzero(not_blank)
        sources, targets = source_lengths[not_blank], target_lengths[not_blank]
        ratio = np.maximum(sources, targets) / np.minimum(sources, targets)
        extreme = pair_numbers[ratio > self.max_length_ratio]
        self.pairs += len(pair_numbers)
        self.extreme += len(extreme)
        self.first_extreme += extreme[: 3 - len(self.first_extreme)].tolist()
        for start in range(0, len(pair_numbers), _WINDOW_PAIRS):
            window = slice(start, start + _WINDOW_PAIRS)
            self._check_window(
                pair_numbers[window], np.log(sources[window]), np.log(targets[window])
            )

    def _check_window(
        self, pair_numbers: NDArray[Any], sources: NDArray[np.float64], targets: NDArray[np.float64]
    ) -> None:
        if len(pair_numbers) < _SMALLEST_WINDOW or not (sources.std() > 0 and targets.std() > 0):
            return
        self.windows += 1
        correlation = float(np.corrcoef(sources, targets)[0, 1])
        if correlation < _LOWEST_CORRELATION:
            self.uncorrelated += 1
            if self.first_uncorrelated is None:
                self.first_uncorrelated = (int(pair_numbers[0]), int(pair_numbers[-1]), correlation)

    def warnings(self) -> list[str]:
        """Describe each sign of misalignment in one line."""
        found = []
        if self.extreme > _ALARMING_SHARE * self.pairs:
            lines = ", ".join(self.split.locate(line) for line in self.first_extreme)
            found.append(
                f"{self.extreme:,} of {self.pairs:,} training pairs have one side over"
                f" {self.max_length_ratio:g} times as long as the other, first"
                f" {lines}: check that the lines belong together"
            )
        if self.first_uncorrelated and self.uncorrelated > _ALARMING_SHARE * self.windows:
            first, last, correlation = self.first_uncorrelated
            found.append(
                f"source and target lengths hardly correlate in {self.uncorrelated:,} of"
                f" {self.windows:,} windows of the training pairs, first at"
                f" {self.split.locate(first)} to {last} (correlation"
                f" {correlation:.2f}): check whether a line is missing on one side"
            )
        return found


class TrainTestOverlap:
    """Count the pairs of a held-out split that are also training pairs."""

    def __init__(self, split: str, pairs: Iterable[SentencePair]) -> None:
        self.split = split
        self._held_out = frozenset(p for p in pairs if p.source.strip() and p.target.strip())
        self._shared: set[SentencePair] = set()

    def check(self, train_pairs: Iterable[SentencePair]) -> Iterator[SentencePair]:
        """Yield the training pairs, and record those that are held out."""
        for pair in train_pairs:
            if pair in self._held_out:
                self._shared.add(pair)
            yield pair

    def warnings(self) -> list[str]:
        """Describe the overlap in one line, if there is any."""
        if not self._shared:
            return []
        return [
            f"{len(self._shared):,} of {len(self._held_out):,} different {self.split} pairs are"
            f" training pairs too: scores on {self.split} will be too high"
        ]


@dataclass
class UnknownCharacters:
    """Count the characters of a text that the tokenizer of a trained model does not know."""

    characters: int = 0
    unknown: int = 0
    examples: dict[str, None] = field(default_factory=dict)
    """The first distinct pieces of such characters."""

    def count(
        self,
        texts: Sequence[str],
        encoded: Sequence[Sequence[int]],
        unknown_pieces: Callable[[str], list[str]],
    ) -> None:
        """Count the characters of the texts of one side, given with their token ids."""
        for text, token_ids in zip(texts, encoded, strict=True):
            self.characters += len(text)
            if UNKNOWN_ID in token_ids:
                pieces = [piece.strip("▁") for piece in unknown_pieces(text)]
                self.unknown += sum(map(len, pieces))
                if len(self.examples) < _EXAMPLES:
                    self.examples |= dict.fromkeys(pieces)

    def warnings(self) -> list[str]:
        """Describe the unknown characters in one line, if they matter."""
        share = self.unknown / max(self.characters, 1)
        examples = ", ".join(list(self.examples)[:_EXAMPLES])
        found = (
            f"{share:.2%} of the training text are characters that the model of init_from does not"
            f" know ({examples})"
        )
        if share > _MAX_UNKNOWN:
            raise UserError(
                f"{found}: remove the lines with these characters, start from another model,"
                " or train a new one"
            )
        return [found] if share > _ALARMING_UNKNOWN else []


def check_lengths(name: str, corpus: EncodedCorpus, max_tokens: int) -> None:
    """Check that a model with learned positions has one for every token of a corpus."""
    longest = int(max(corpus.source_lengths.max(), corpus.target_lengths.max()))
    if longest > max_tokens:
        raise UserError(
            f"a pair of {name} has {longest} tokens, but positions are learned up to {max_tokens}:"
            " lower data.filter.max_tokens, or raise model.max_learned_positions"
        )
