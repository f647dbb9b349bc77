"""The search in few shapes against the plain one: over a table, and over a model."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from seq2seq.config import Positions
from seq2seq.decoder import IncrementalDecoder
from seq2seq.fast.decoder import (
    MULTIPLE,
    TranslationKernels,
    round_down,
    round_up,
    use_translation_kernels,
)
from seq2seq.fast.graphs import Buffers
from seq2seq.fast.search import StaticSearch
from seq2seq.search import Hypothesis, SearchConfig, beam_search
from tests.conftest import MakeModel
from tests.core.table import END, START, Prefixes, Table, tables

V = 30


class Rows(Prefixes):
    """What each row has read; sentences may be there several times."""

    def __init__(self, sentences: Sequence[int]) -> None:
        super().__init__(sentences)
        self.shape = (0, len(sentences))

    def reorder(self, parents: Tensor) -> None:
        before = [s for s, _ in self.rows]
        self.rows = [self.rows[parent] for parent in parents.tolist()]
        assert [s for s, _ in self.rows] == before

    def keep(self, sentences: Tensor, rows: Tensor) -> None:
        self.rows = [self.rows[row] for row in rows.tolist()]
        assert len(sentences) in {1, 2, 3, 4, 6, 8, 12, 16, 24, 32}

    def reserve(self, positions: int) -> None:
        assert positions % MULTIPLE == 0


def assert_same(found: list[list[Hypothesis]], expected: list[list[Hypothesis]]) -> None:
    for ours, theirs in zip(chain(*found), chain(*expected), strict=True):
        assert replace(ours, score=0.0) == replace(theirs, score=0.0)
        assert ours.score == pytest.approx(theirs.score, abs=1e-9)


@settings(max_examples=25)
@given(
    tables,
    st.integers(1, 6),
    st.floats(0, 3),
    st.lists(st.integers(1, 20), min_size=1, max_size=9),
    st.data(),
)
def test_it_finds_what_the_plain_search_finds(
    table: Table, beam: int, alpha: float, max_lengths: list[int], data: st.DataObject
) -> None:
    nbest = data.draw(st.integers(1, beam), label="nbest")
    lengths, sentences = torch.tensor(max_lengths), range(len(max_lengths))
    config = SearchConfig(beam_size=beam, alpha=alpha, nbest=nbest)
    rules = {"start_id": START, "end_id": END}
    found = StaticSearch(Buffers())(table.step, Rows(sentences), lengths, config, **rules)
    assert_same(found, beam_search(table.step, Prefixes(sentences), lengths, config, **rules))


def batch(seed: int, sentences: int) -> tuple[Tensor, Tensor]:
    """Padded sources, and lengths of their outputs that go beyond the first room."""
    chance = torch.Generator().manual_seed(seed)
    source = torch.randint(4, V, (sentences, 9), generator=chance)
    for row in source[1:]:
        row[int(torch.randint(1, 9, (), generator=chance)) :] = 0
    return source, torch.randint(3, 40, (sentences,), generator=chance)


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize(
    "choices", [{}, {"positions": Positions.learned, "max_learned_positions": 41}]
)
@torch.inference_mode()
def test_every_batch_of_a_model_is_searched_as_by_the_plain_decoder(
    make_model: MakeModel, choices: dict[str, Any], beam: int
) -> None:
    model = make_model(vocab_size=V, **choices)
    model.output_matrix[3] *= 0.2  # `</s>` comes late
    plain, buffers = IncrementalDecoder(model), Buffers()
    fast = use_translation_kernels(
        make_model(vocab_size=V, **choices), torch.float64, TranslationKernels(), buffers
    )
    fast.model.load_state_dict(model.state_dict(), strict=False)
    search = StaticSearch(buffers)
    config = SearchConfig(beam_size=beam, nbest=beam)
    rules: dict[str, Any] = {"start_id": 2, "end_id": 3, "suppressed_ids": (0, 2)}
    longest = []
    for seed, sentences in enumerate((5, 1, 13, 5, 2)):
        source, lengths = batch(seed, sentences)
        expected = beam_search(plain.step, plain.begin(source), lengths, config, **rules)
        found = search(fast.step, fast.begin(source), lengths, config, **rules)
        assert_same(found, expected)
        longest.append(max(len(best.token_ids) for best, *_ in found))
        for block in buffers.blocks.values():  # nothing of it is read by the next search
            block.fill_(torch.nan if block.is_floating_point() else 1)
    assert max(longest) > 2 * MULTIPLE


def test_sizes_are_few_and_at_most_half_as_large_again() -> None:
    counts = range(1, 1025)
    assert {round_up(count) for count in counts} == {round_down(count) for count in counts}
    assert sorted({round_up(count) for count in counts})[:8] == [1, 2, 3, 4, 6, 8, 12, 16]
    assert all(round_down(count) <= count <= round_up(count) < 1.5 * count for count in counts)
    assert all(round_up(size) == round_down(size) == size for size in map(round_up, counts))
