"""The filters of sentence pairs, by their lengths in tokens, with counts of what they leave out."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seq2seq.data.config import FilterConfig


@dataclass(kw_only=True)
class FilterCounts:
    """Counts of the pairs of a split that were left out, under the first reason that applies."""

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
        return self.read - sum(self.dropped.values())

    @property
    def dropped(self) -> dict[str, int]:
        """Pairs left out, by reason."""
        return {
            "blank source": self.blank_source,
            "blank target": self.blank_target,
            "too long": self.too_long,
            "length ratio": self.length_ratio,
        }

    def __str__(self) -> str:
        reasons = [f"{number:,} {reason}" for reason, number in self.dropped.items() if number]
        left_out = f"; left out: {', '.join(reasons)}" if reasons else ""
        return f"{self.read:,} pairs read, {self.kept:,} kept{left_out}"


def filter_lengths(
    source_lengths: NDArray[np.int64],
    target_lengths: NDArray[np.int64],
    limits: FilterConfig,
    counts: FilterCounts,
) -> list[bool]:
    """Select the pairs to keep; count each other one under the first reason that applies."""
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
