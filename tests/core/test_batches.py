"""Batches keep the token budget, each epoch has every pair once, and targets are shifted."""

import itertools
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seq2seq.batches import Batching, cut
from seq2seq.data.mixture import Mixture
from seq2seq.encoded_corpus import EncodedCorpus, encode_ids, new_corpus
from seq2seq.errors import UserError
from seq2seq.tokenizer import END_ID, PADDING_ID, START_ID
from tests.toy import PairLengths

Lengths = list[tuple[int, int]]


def batching(lengths: Lengths, source: int, target: int, seed: int = 1, **options) -> Batching:
    budgets = {"source_tokens": source, "target_tokens": target}
    return Batching(PairLengths(lengths), **budgets, seed=seed, **options)


def random_lengths(count: int, longest: int = 60) -> Lengths:
    generator = random.Random(3)
    sources = [generator.randint(1, longest) for _ in range(count)]
    return [(s, max(1, min(longest, round(s * generator.uniform(0.7, 1.4))))) for s in sources]


def as_lists(batches: list) -> list[list[int]]:
    return [batch.tolist() for batch in batches]


def assert_complete_and_within_budget(made: Batching, batches: list, lengths: Lengths) -> None:
    assert sorted(i for batch in as_lists(batches) for i in batch) == list(range(len(lengths)))
    budgets = (made.source_tokens, made.target_tokens)
    for batch in batches:
        sides = np.array(lengths)[batch]  # (B, 2)
        assert (sides.sum(axis=0) / budgets).sum() <= 2 + 1e-9
        assert (sides.sum(axis=0) <= made.most_tokens).all()
        if made.count_longer_side:
            assert (len(batch) * sides.max(axis=0) <= budgets).all()


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), min_size=1, max_size=80),
    st.integers(30, 200),
    st.integers(30, 200),
    st.integers(0, 5),
    st.booleans(),
)
def test_every_pair_comes_once_an_epoch_within_the_budgets(
    lengths: Lengths, source: int, target: int, epoch: int, count_longer_side: bool
) -> None:
    made = batching(lengths, source, target, count_longer_side=count_longer_side)
    assert_complete_and_within_budget(made, made.epoch(epoch), lengths)
    assert_complete_and_within_budget(made, made.in_order(), lengths)


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("count_longer_side", [False, True])
def test_an_epoch_is_ordered_as_by_the_plain_form(
    monkeypatch: pytest.MonkeyPatch, count_longer_side: bool, mixed: bool
) -> None:
    """Whatever the size of the blocks in which lengths are read."""
    lengths = random_lengths(3000)
    made = batching(lengths, 300, 280, count_longer_side=count_longer_side)
    pairs = np.arange(3000)
    if mixed:
        mixture = Mixture({"a": 1000, "b": 2000}, {"a": 0.5, "b": 1.5})
        made.pairs_of_epoch = mixture.epoch
        pairs = mixture.epoch(1, 4)
    random = np.random.default_rng([1, 4])
    source, target = np.array(lengths).T[:, pairs]
    keys = np.rint((source + target) * (1 + 0.05 * random.random(len(pairs))))
    shuffled = random.permutation(len(pairs))
    order = shuffled[np.argsort(keys[shuffled], kind="stable")]
    batches = list(made._split(pairs[order]))
    expected = [batches[i].tolist() for i in random.permutation(len(batches))]
    monkeypatch.setattr("seq2seq.batches._BLOCK_PAIRS", 400)
    assert as_lists(made.epoch(4)) == expected


def test_validation_batches_are_shortest_first_and_not_random() -> None:
    lengths = random_lengths(300)
    for seed in (1, 9):
        order = np.concatenate(batching(lengths, 200, 200, seed).in_order()).tolist()
        assert order == sorted(range(300), key=lambda i: sum(lengths[i]))


def test_statistics_of_known_batches() -> None:
    made = batching([(2, 3), (4, 1), (5, 5)], 100, 100)
    statistics = made.statistics([np.array([0, 1]), np.array([2])])
    assert (statistics.batches, statistics.sentences) == (2, 1.5)
    assert (statistics.source_tokens, statistics.target_tokens) == (11 / 2, 9 / 2)


@pytest.mark.parametrize("lengths", [[(31, 3), (1, 1)], [(3, 31), (1, 1)]])
def test_a_pair_longer_than_the_budget_is_refused(lengths: Lengths) -> None:
    with pytest.raises(UserError, match=r"31 .*does not fit"):
        batching(lengths, 30, 30)


def test_the_target_input_is_the_output_shifted_by_one(tmp_path: Path) -> None:
    sources = [[7, 8], [9], [4, 5, 6, 7]]
    targets = [[10, 11, 12], [], [13]]
    with new_corpus(tmp_path / "corpus") as write:
        write(encode_ids(sources, targets, 20))
    made = Batching(EncodedCorpus(tmp_path / "corpus"), source_tokens=50, target_tokens=50, seed=1)
    batch = made.collate(np.array([2, 0, 1]))
    p, s, e = PADDING_ID, START_ID, END_ID
    assert batch.source.tolist() == [[4, 5, 6, 7, e], [7, 8, e, p, p], [9, e, p, p, p]]
    assert batch.target_output.tolist() == [[13, e, p, p], [10, 11, 12, e], [e, p, p, p]]
    assert batch.target_input.tolist() == [[s, 13, p, p], [s, 10, 11, 12], [s, p, p, p]]
    assert {t.dtype for t in vars(batch).values()} == {torch.int64}


@pytest.mark.parametrize(
    ("lengths", "count_longer_side"),
    [
        ([(8, 8)] * 8, False),  # the two budgets are used up
        ([(8, 3)] * 8, True),
        ([(4, 12)] * 8, False),  # of the corpus' proportion
        ([(64, 64)], False),
    ],
)
def test_a_batch_that_just_fits_is_one_batch(lengths: Lengths, count_longer_side: bool) -> None:
    made = batching(lengths, 64, 64, count_longer_side=count_longer_side)
    assert [len(batch) for batch in made.in_order()] == [len(lengths)]


def test_full_batches_have_almost_the_most_tokens_of_both_sides() -> None:
    lengths = random_lengths(3000)
    made = batching(lengths, 1000, 1000)
    tokens = np.array([np.sum([lengths[i] for i in batch], axis=0) for batch in made.epoch(0)])
    assert (tokens / made.most_tokens).mean() > 0.93


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=40),
    st.tuples(st.integers(9, 50), st.integers(9, 50)),
)
def test_a_batch_is_cut_where_it_has_too_many_tokens_or_pairs(
    lengths: Lengths, most: tuple[int, int]
) -> None:
    sides = tuple(np.array(lengths).T)
    parts = cut(np.arange(len(lengths)), sides, most)
    assert np.concatenate(parts).tolist() == list(range(len(lengths)))

    def fits(pairs: np.ndarray) -> bool:
        tokens = all(side[pairs].sum() <= n for side, n in zip(sides, most, strict=True))
        return tokens and len(pairs) <= min(most) // 2

    assert all(map(fits, parts))
    for one, following in itertools.pairwise(parts):
        assert not fits(np.append(one, following[0]))
