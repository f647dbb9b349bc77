"""The choice of pairs from several corpora for an epoch, a function of (seed, epoch) alone."""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import floor

import numpy as np
from numpy.typing import NDArray

from seq2seq.errors import UserError


@dataclass(frozen=True)
class Mixture:
    """The choice of an encoded corpus's pairs for an epoch, a function of (seed, epoch) alone."""

    sizes: Mapping[str, int]
    """The pairs of each corpus, by name; the corpora follow one another in this order."""
    weights: Mapping[str, float]
    """How often an epoch takes each pair of a corpus, by name."""

    def __post_init__(self) -> None:
        if not sum(self.counts(0).values()):
            raise UserError("data.corpora: with these weights an epoch has no pair: raise a weight")

    def __str__(self) -> str:
        counts = self.counts(0)
        shares = [f"{n:,} of {name} ({n / sum(counts.values()):.1%})" for name, n in counts.items()]
        return f"an epoch takes {', '.join(shares)}"

    def counts(self, epoch: int) -> dict[str, int]:
        """Return how many pairs of each corpus an epoch takes: weight x N, rounded up or down."""
        return {n: self._start(n, epoch + 1) - self._start(n, epoch) for n in self.sizes}

    def epoch(self, seed: int, epoch: int) -> NDArray[np.int32]:
        """Return the pairs of an epoch, as indices into the encoded corpus, corpus by corpus."""
        taken, first = [], 0
        for name, size in self.sizes.items():
            # Passes over the corpus, each in its own order, form an endless sequence. Each epoch
            # continues where the one before ended: this one takes positions start to end.
            start, end = self._start(name, epoch), self._start(name, epoch + 1)
            for number in range(start // size, -(-end // size)):
                random = np.random.default_rng([seed, number, *name.encode()])
                one_pass = random.permutation(np.arange(first, first + size, dtype=np.int32))
                taken.append(one_pass[max(start - number * size, 0) : end - number * size])
            first += size
        return np.concatenate(taken)

    def _start(self, name: str, epoch: int) -> int:
        # Exact: 0.1 x 1,000 is 100 in every epoch.
        return floor(epoch * self.sizes[name] * Fraction(str(self.weights[name])))
