"""A lookup table in place of a model, and searches over it."""

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from seq2seq.search import DecodingConfig, Hypothesis, SearchConfig, beam_search

START, END = 0, 1
Ids = tuple[int, ...]


class Table:
    """Each sentence's random logits after each prefix of tokens."""

    def __init__(
        self, seed: int, vocab_size: int, sharpness: float = 2.0, end: float = 0.0
    ) -> None:
        self.vocab_size = vocab_size

        @cache
        def logits(sentence: int, prefix: Ids) -> list[float]:
            random = np.random.default_rng([seed, sentence, *prefix])
            row = random.normal(size=vocab_size) * sharpness
            row[END] += end
            return row.tolist()

        self.logits = logits

    @cache  # noqa: B019  a table lives as long as its test
    def log_probabilities(self, sentence: int, prefix: Ids) -> list[float]:
        row = self.logits(sentence, prefix)
        total = math.log(sum(map(math.exp, row)))
        return [logit - total for logit in row]

    def step(self, tokens: Tensor, state: "Prefixes") -> Tensor:
        state.rows = [
            (s, (*prefix, token))
            for (s, prefix), token in zip(state.rows, tokens.tolist(), strict=True)
        ]
        rows = [self.logits(s, prefix[1:]) for s, prefix in state.rows]
        return torch.tensor(rows, dtype=torch.float64)


class Prefixes:
    """What each row has read, the start symbol included."""

    def __init__(self, sentences: Sequence[int]) -> None:
        self.rows: list[tuple[int, Ids]] = [(s, ()) for s in sentences]

    def reorder(self, parents: Tensor) -> None:
        present = list(dict.fromkeys(s for s, _ in self.rows))
        self.rows = [self.rows[parent] for parent in parents.tolist()]
        each = len(self.rows) // len(present)
        assert [s for s, _ in self.rows] == [s for s in present for _ in range(each)]

    def keep(self, sentences: Tensor, rows: Tensor) -> None:
        present = list(dict.fromkeys(s for s, _ in self.rows))
        self.rows = [self.rows[row] for row in rows.tolist()]
        kept = list(dict.fromkeys(s for s, _ in self.rows))
        assert kept == [present[i] for i in sentences.tolist()]


tables = st.builds(
    Table,
    seed=st.integers(0, 2**32 - 1),
    vocab_size=st.integers(2, 5),
    sharpness=st.floats(0.3, 5),
    end=st.floats(-4, 4),
)


def search(
    table: Table,
    max_lengths: Sequence[int],
    *how: Any,
    by: Callable[..., list[list[Hypothesis]]] = beam_search,
    config: type[DecodingConfig] = SearchConfig,
    sentences: Sequence[int] | None = None,
    suppressed: Ids = (),
    **choices: Any,
) -> list[list[Hypothesis]]:
    return by(
        table.step,
        Prefixes(sentences or range(len(max_lengths))),
        torch.tensor(max_lengths),
        config(**choices),
        *how,
        start_id=START,
        end_id=END,
        suppressed_ids=suppressed,
    )
