"""The number of micro-batches at once, or of slices of one, for an injected memory limit."""

from collections.abc import Sequence

import pytest

from seq2seq.data.batching import Batching
from seq2seq.data.encoded import Rows
from seq2seq.errors import OutOfMemoryError
from seq2seq.fidelity.trace import SyntheticLengths
from seq2seq.training.memory import find_joined, find_slices, split

CORPUS = SyntheticLengths(2000, mean_length=20, max_length=60)
EPOCH = Batching(CORPUS, source_tokens=1000, target_tokens=1000, seed=1).epoch(0)


def padded_tokens(pairs: Rows) -> int:
    return len(pairs) * sum(int(side.max()) for side in CORPUS.lengths(pairs))


def slices_in(memory: int) -> tuple[int, list[int]]:
    """The slices found where a batch of at most `memory` padded tokens fits, and what was tried."""
    tried: list[int] = []

    def attempt(pairs: Rows) -> None:
        tried.append(padded_tokens(pairs))
        if padded_tokens(pairs) > memory:
            raise OutOfMemoryError("no memory")

    return find_slices(attempt, EPOCH, CORPUS), tried


@pytest.mark.parametrize("slices", [1, 2, 8])
def test_slices_are_doubled_until_all_fit(slices: int) -> None:
    largest = [
        max(padded_tokens(pairs) for micro_batch in EPOCH for pairs in split(micro_batch, count))
        for count in (1, 2, 4, 8)
        if count <= slices
    ]
    assert slices_in(largest[-1]) == (slices, largest)


def test_only_a_single_pair_that_does_not_fit_is_refused() -> None:
    longest = int(sum(CORPUS.lengths()).max())
    assert slices_in(longest)[0] > 8
    with pytest.raises(OutOfMemoryError, match=r"a single pair of \d+ source and \d+ target"):
        slices_in(longest - 1)


@pytest.mark.parametrize(("fit", "found"), [(9, 7), (7, 7), (6, 4), (4, 4), (3, 2), (1, 1)])
def test_micro_batches_are_joined_while_the_largest_of_them_fit(fit: int, found: int) -> None:
    largest = sorted(map(padded_tokens, EPOCH))[-7:]

    def attempt(parts: Sequence[Rows]) -> None:
        assert sorted(map(padded_tokens, parts)) == largest[-len(parts) :]
        if len(parts) > fit:
            raise OutOfMemoryError("no memory")

    assert find_joined(attempt, EPOCH, CORPUS, most=7) == found
