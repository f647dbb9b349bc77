"""How items are divided into batches: all of them, within the bound, some for every worker."""

from hypothesis import given
from hypothesis import strategies as st

from seq2seq.decoding.translator import make_batches

LIMIT = 40


@given(st.lists(st.integers(1, 60), max_size=30), st.integers(1, 12))
def test_every_item_is_in_one_batch_within_the_limit_and_every_worker_has_one(
    sizes: list[int], workers: int
) -> None:
    batches = make_batches(sizes, LIMIT, workers)
    items = [item for batch in batches for item in batch]
    assert sorted(items) == [item for item, size in enumerate(sizes) if size > 1]
    assert len(batches) >= min(workers, len(items))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(sizes[item] for item in batch) <= LIMIT


def test_a_few_items_are_shared_evenly() -> None:
    batches = make_batches([4, 3, 3, 2, 2, 2], LIMIT, workers=3)
    assert batches == [[0, 3], [1, 4], [2, 5]]


def test_of_two_batches_each_is_divided() -> None:
    batches = make_batches([10] * 4 + [9] * 4, LIMIT, workers=4)
    assert batches == [[0, 2], [1, 3], [4, 6], [5, 7]]
