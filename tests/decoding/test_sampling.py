"""Samples from a lookup table against the exact probability of every output."""

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
import torch

from seq2seq.decoding.options import SamplingConfig
from seq2seq.decoding.sampling import sample, sampling_weights, uniform_numbers
from seq2seq.search import Hypothesis
from tests.core.table import END, Ids, Table, search

TABLE = Table(1, vocab_size=4, sharpness=1.0)


def draw(
    sentences: Sequence[int], max_lengths: Sequence[int], **choices: Any
) -> list[list[Hypothesis]]:
    by = partial(sample, keys=[[s] for s in sentences])
    return search(TABLE, max_lengths, by=by, config=SamplingConfig, sentences=sentences, **choices)


def distribution(
    row: list[float], temperature: float, top_k: int | None, top_p: float, suppressed: Ids = ()
) -> dict[int, float]:
    """The probability with which each token is drawn, by the definitions."""
    powers = {
        t: math.exp(x / temperature) if t not in suppressed else 0.0 for t, x in enumerate(row)
    }
    ranked = sorted(powers, key=lambda t: -powers[t])[:top_k]
    total = sum(powers[t] for t in ranked)
    nucleus: list[int] = []
    for token in ranked:
        if sum(powers[t] for t in nucleus) / total >= top_p:
            break
        nucleus.append(token)
    total = sum(powers[t] for t in nucleus)
    return {t: powers[t] / total for t in nucleus if powers[t] > 0}


def probabilities(max_length: int, suppressed: Ids, choices: dict[str, Any]) -> dict[Ids, float]:
    """Of every output of sentence 0."""
    cuts = (choices.get("temperature", 1.0), choices.get("top_k"), choices.get("top_p", 1.0))

    def probability(ids: Ids) -> float:
        p = 1.0
        for i in range(min(len(ids) + 1, max_length)):
            drawn = distribution(TABLE.logits(0, ids[:i]), *cuts, suppressed)
            p *= drawn.get(ids[i] if i < len(ids) else END, 0.0)
        return p

    outputs = (itertools.product((0, 2, 3), repeat=length) for length in range(max_length + 1))
    found = {ids: probability(ids) for ids in itertools.chain(*outputs)}
    assert sum(found.values()) == pytest.approx(1)
    return {ids: p for ids, p in found.items() if p > 0}


@pytest.mark.parametrize(
    ("choices", "suppressed"),
    [
        ({}, ()),
        ({"temperature": 3.0}, (0,)),
        ({"temperature": 1.5, "top_k": 3, "top_p": 0.8}, (0,)),
    ],
    ids=str,
)
def test_outputs_come_as_often_as_they_are_probable(
    choices: dict[str, Any], suppressed: Ids
) -> None:
    count = 4000
    (samples,) = draw([0], [3], suppressed=suppressed, nbest=count, **choices)
    seen = Counter(tuple(hypothesis.token_ids) for hypothesis in samples)
    expected = probabilities(3, suppressed, choices)
    assert set(seen) <= set(expected)
    # Pearson's statistic, rare outputs taken together; its mean is the degrees of freedom d and
    # its variance 2 d.
    groups = [(seen[ids], p * count) for ids, p in expected.items() if p * count >= 5]
    rest = count - sum(e for _, e in groups)
    if rest > 5:
        groups.append((count - sum(o for o, _ in groups), rest))
    statistic = sum((o - e) ** 2 / e for o, e in groups)
    freedom = len(groups) - 1
    assert freedom > 1
    assert statistic < freedom + 4 * math.sqrt(2 * freedom)


def test_scores_are_the_model_s_own_whatever_is_drawn_from() -> None:
    for hypothesis in draw([0], [5], nbest=20, temperature=2.0, top_k=3, top_p=0.9, alpha=0.8)[0]:
        ids = (*hypothesis.token_ids, END)
        total = sum(TABLE.log_probabilities(0, ids[:i])[token] for i, token in enumerate(ids))
        assert hypothesis.score == pytest.approx(total / ((5 + len(ids)) / 6) ** 0.8, abs=1e-6)
        assert hypothesis.truncated == (len(ids) == 6)


@pytest.mark.parametrize("choices", [{"top_k": 1}, {"top_p": 1e-9}, {"temperature": 1e-300}])
def test_the_narrowest_sampling_is_greedy_search(choices: dict[str, Any]) -> None:
    sentences, max_lengths = range(6), [4, 1, 6, 9, 9, 2]
    greedy = search(TABLE, max_lengths, beam_size=1)
    found = draw(sentences, max_lengths, **choices)
    assert [h[0].token_ids for h in found] == [h[0].token_ids for h in greedy]
    scores = [h[0].score for h in greedy]
    assert [h[0].score for h in found] == pytest.approx(scores)


@pytest.mark.parametrize("temperature", [0.5, 4.0])
@pytest.mark.parametrize("top_k", [None, 3, 50])
@pytest.mark.parametrize("top_p", [1e-6, 0.9, 1.0])
def test_weights_follow_the_definitions(
    temperature: float, top_k: int | None, top_p: float
) -> None:
    generator = torch.Generator().manual_seed(1)
    table = torch.randn(8, 9, generator=generator, dtype=torch.float64) * 2
    config = SamplingConfig(temperature=temperature, top_k=top_k, top_p=top_p)
    weights, tokens = sampling_weights(table.log_softmax(1), config)
    for row, row_weights, row_tokens in zip(table, weights, tokens, strict=True):
        drawn = row_weights > 0
        shares = (row_weights / row_weights.sum())[drawn].tolist()
        found = dict(zip(row_tokens[drawn].tolist(), shares, strict=True))
        assert found == pytest.approx(distribution(row.tolist(), temperature, top_k, top_p))


def test_each_seed_sentence_and_sample_follows_numbers_of_its_own() -> None:
    found = [uniform_numbers(seed, key, 3, 4) for seed in (1, 2) for key in ([5], [6], [5, 6])]
    rows = torch.cat(found)
    assert ((rows >= 0) & (rows < 1)).all()
    assert len(rows.unique(dim=0)) == 2 * 3 * 3
    # Neither the number of samples nor the longest of the batch changes the first of them.
    assert torch.equal(uniform_numbers(1, [5], 5, 6)[:3, :4], found[0])
