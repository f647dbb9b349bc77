"""Batches that count the longer side of each pair, padding included, as tensor2tensor did."""

import pytest

from seq2seq.data.batching import Batching
from seq2seq.fidelity.trace import SyntheticLengths

CORPUS = SyntheticLengths(4000, mean_length=27, max_length=200)


@pytest.mark.parametrize("epoch", [0, 1])
def test_neither_side_is_over_the_budget(epoch: int) -> None:
    batches = Batching(
        CORPUS, source_tokens=1024, target_tokens=1024, seed=1, count_longer_side=True
    ).epoch(epoch)
    assert sorted(i for batch in batches for i in batch.tolist()) == list(range(4000))
    longer = [
        len(b) * int(max(CORPUS.source_lengths[b].max(), CORPUS.target_lengths[b].max()))
        for b in batches
    ]
    assert max(longer) <= 1024
    # Most batches have no room for another pair.
    assert sum(longer) / len(longer) > 0.9 * 1024


def test_batches_are_smaller_than_those_of_both_sides_together() -> None:
    both = Batching(CORPUS, source_tokens=1024, target_tokens=1024, seed=1)
    longer = Batching(
        CORPUS, source_tokens=1024, target_tokens=1024, seed=1, count_longer_side=True
    )
    assert both.statistics(both.epoch(0)).sentences > longer.statistics(longer.epoch(0)).sentences
