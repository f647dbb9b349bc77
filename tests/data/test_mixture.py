"""The pairs that epochs take of several corpora, against one long list of passes."""

from collections import Counter
from fractions import Fraction
from math import floor

import numpy as np
import pytest

from seq2seq.data.mixture import Mixture
from seq2seq.errors import UserError

SIZES = {"train": 7, "back": 100, "tiny": 2}
WEIGHTS = {"train": 1.0, "back": 0.29, "tiny": 2.5}
EPOCHS = 40


def by_corpus(pairs: np.ndarray) -> dict[str, list[int]]:
    """The pairs of each corpus, counted within it."""
    found, first = {}, 0
    for name, size in SIZES.items():
        found[name] = [int(i) - first for i in pairs if first <= i < first + size]
        first += size
    return found


def test_each_epoch_takes_its_share_and_all_pairs_equally_often() -> None:
    mixture = Mixture(SIZES, WEIGHTS)
    counts: dict[str, Counter[int]] = {name: Counter() for name in SIZES}
    for epoch in range(EPOCHS):
        for name, pairs in by_corpus(mixture.epoch(3, epoch)).items():
            assert len(pairs) == mixture.counts(epoch)[name]
            counts[name].update(pairs)
        for name, size in SIZES.items():
            often = [counts[name][i] for i in range(size)]
            assert max(often) - min(often) <= 1
            exact = (epoch + 1) * Fraction(str(WEIGHTS[name])) * size
            assert sum(often) == floor(exact)


def test_the_choice_follows_the_seed_the_epoch_and_the_name() -> None:
    names = ("ab", "ba")
    mixture = Mixture(dict.fromkeys(names, 50), dict.fromkeys(names, 0.5))
    first, second = mixture.epoch(1, 0)[:25], mixture.epoch(1, 0)[25:] - 50
    assert not np.array_equal(first, second)
    assert not np.array_equal(first, mixture.epoch(2, 0)[:25])
    assert not np.array_equal(first, mixture.epoch(1, 1)[:25])
    # What one corpus gives does not depend on the others.
    alone = Mixture({"ab": 50}, {"ab": 0.5})
    assert np.array_equal(first, alone.epoch(1, 0))


def test_an_epoch_without_pairs_is_refused() -> None:
    with pytest.raises(UserError, match="raise a weight"):
        Mixture({"a": 10, "b": 3}, {"a": 0.05, "b": 0.3})
    assert len(Mixture({"a": 10}, {"a": 0.1}).epoch(1, 7)) == 1
