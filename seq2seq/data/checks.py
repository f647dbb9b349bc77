"""Signs that a parallel corpus is not what it should be, noticed while it is read."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from seq2seq.data.corpus import DataConfig, SentencePair, is_configured, locate, read_pairs

# Of five real corpora, 1,000 aligned pairs at a time have log-lengths that correlate by 0.75 or
# more; shifted by one line, by 0.3 or less in most places.
_WINDOW_PAIRS = 1000
_SMALLEST_WINDOW = 200
_LOWEST_CORRELATION = 0.3
_ALARMING_SHARE = 0.01


@dataclass
class AlignmentCheck:
    """Notice text whose lines don't belong together, by the lengths of the two sides."""

    config: DataConfig
    seen: int = 0
    extreme: int = 0
    first_extreme: list[int] = field(default_factory=list)
    """Numbers, counted from 1, of the first pairs with an extreme length ratio."""
    windows: int = 0
    unrelated: int = 0
    first_unrelated: tuple[int, int, float] | None = None
    """First and last pair, and correlation, of the first window of unrelated lengths."""

    def see(
        self, before: int, source_lengths: NDArray[np.int64], target_lengths: NDArray[np.int64]
    ) -> None:
        """Look at a chunk of pairs that follows the first ``before`` ones."""
        worded = (source_lengths > 1) & (target_lengths > 1)
        numbers = before + 1 + np.flatnonzero(worded)
        sources, targets = source_lengths[worded], target_lengths[worded]
        ratio = np.maximum(sources, targets) / np.minimum(sources, targets)
        extreme = numbers[ratio > self.config.filter.max_length_ratio]
        self.seen += len(numbers)
        self.extreme += len(extreme)
        self.first_extreme += extreme[: 3 - len(self.first_extreme)].tolist()
        for start in range(0, len(numbers), _WINDOW_PAIRS):
            window = slice(start, start + _WINDOW_PAIRS)
            self._see_window(numbers[window], np.log(sources[window]), np.log(targets[window]))

    def _see_window(
        self, numbers: NDArray[Any], sources: NDArray[np.float64], targets: NDArray[np.float64]
    ) -> None:
        if len(numbers) < _SMALLEST_WINDOW or not (sources.std() > 0 and targets.std() > 0):
            return
        self.windows += 1
        correlation = float(np.corrcoef(sources, targets)[0, 1])
        if correlation < _LOWEST_CORRELATION:
            self.unrelated += 1
            if self.first_unrelated is None:
                self.first_unrelated = (int(numbers[0]), int(numbers[-1]), correlation)

    def warnings(self) -> list[str]:
        """One line for each sign that the corpus is misaligned."""
        found = []
        if self.extreme > _ALARMING_SHARE * self.seen:
            places = ", ".join(locate(self.config, "train", line) for line in self.first_extreme)
            found.append(
                f"{self.extreme:,} of {self.seen:,} training pairs have one side over"
                f" {self.config.filter.max_length_ratio:g} times as long as the other, first"
                f" {places}: look whether the lines belong together"
            )
        if self.first_unrelated and self.unrelated > _ALARMING_SHARE * self.windows:
            first, last, correlation = self.first_unrelated
            found.append(
                f"the lengths of source and target hardly go together in {self.unrelated:,} of"
                f" {self.windows:,} stretches of the training pairs, first at"
                f" {locate(self.config, 'train', first)} to {last} (correlation"
                f" {correlation:.2f}): look whether a line is missing on one side"
            )
        return found


class TrainTestOverlap:
    """Count the validation and test pairs that are training pairs too."""

    def __init__(self, config: DataConfig, valid_pairs: list[SentencePair]) -> None:
        self._held_out = {"valid": frozenset(valid_pairs)}
        if is_configured(config, "test"):
            self._held_out["test"] = frozenset(read_pairs(config, "test"))
        self._found: dict[str, set[SentencePair]] = {part: set() for part in self._held_out}

    def watch(self, pairs: Iterable[SentencePair]) -> Iterator[SentencePair]:
        """Pass training pairs on, noting those that are held out."""
        for pair in pairs:
            for part, held_out in self._held_out.items():
                if pair in held_out:
                    self._found[part].add(pair)
            yield pair

    def warnings(self) -> list[str]:
        """One line for each part that shares pairs with the training part."""
        return [
            f"{len(found):,} of {len(self._held_out[part]):,} different {part} pairs are training"
            f" pairs too: scores on {part} will flatter the model"
            for part, found in self._found.items()
            if found
        ]
