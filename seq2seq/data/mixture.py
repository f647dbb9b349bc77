"""Epochs of several corpora with weights: how often each pair is taken.

Each corpus is an endless series of passes, and a pass is a permutation of its pairs. An epoch takes
the next `weight x N` pairs of that series, so that all pairs of a corpus are taken equally often,
and a weight need not be a whole number.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import floor

import numpy as np
from numpy.typing import NDArray

from seq2seq.errors import UserError

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Mixture:
    """Which pairs of an encoded corpus each epoch takes, as a function of (seed, epoch) alone.

    Attributes:
        sizes: the number of pairs of each corpus, by name; they follow one another in this order.
        weights: how often an epoch takes each pair of a corpus, by name.

    Raises:
        UserError: if an epoch would have no pair.
    """

    sizes: Mapping[str, int]
    weights: Mapping[str, float]

    def __post_init__(self) -> None:
        if not sum(self.counts(0).values()):
            raise UserError("data.corpora: with these weights an epoch has no pair: raise a weight")

    def __str__(self) -> str:
        counts = self.counts(0)
        shares = [f"{n:,} of {name} ({n / sum(counts.values()):.1%})" for name, n in counts.items()]
        return f"an epoch takes {', '.join(shares)}"

    def counts(self, epoch: int) -> dict[str, int]:
        """Return how many pairs of each corpus an epoch takes: weight x N, rounded up or down.

        Over all epochs until any one, their sum differs by less than 1 from weight x N for each.
        """
        return {name: self._end(name, epoch) - self._start(name, epoch) for name in self.sizes}

    def epoch(self, seed: int, epoch: int) -> Indices:
        """Return the pairs of an epoch, as indices into the encoded corpus, corpus by corpus."""
        taken, first = [], 0
        for name, size in self.sizes.items():
            start, end = self._start(name, epoch), self._end(name, epoch)
            for number in range(start // size, -(-end // size)):
                random = np.random.default_rng([seed, number, *name.encode()])
                one_pass = first + random.permutation(size)
                taken.append(one_pass[max(start - number * size, 0) : end - number * size])
            first += size
        return np.concatenate(taken)

    def _start(self, name: str, epoch: int) -> int:
        # Exact: 0.1 x 1,000 is 100 in every epoch.
        return floor(epoch * self.sizes[name] * Fraction(str(self.weights[name])))

    def _end(self, name: str, epoch: int) -> int:
        return self._start(name, epoch + 1)
