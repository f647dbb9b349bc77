"""Scores of given targets against log-probabilities gathered by hand."""

import math
from collections.abc import Callable

import pytest
import torch

from seq2seq.decoding.ensemble import TargetScore, score_targets
from seq2seq.transformer import Transformer

MakeModel = Callable[..., Transformer]
SOURCES = [[4, 5, 6, 3], [7, 3], [8, 8, 3]]


@pytest.mark.parametrize("chunk_elements", [25, 2**23])
@torch.no_grad()
def test_scores_are_the_sums_of_the_target_s_log_probabilities(
    make_model: MakeModel, chunk_elements: int
) -> None:
    model = make_model(vocab_size=9)
    pairs = list(zip(SOURCES, ([3], [4, 4, 7, 1, 3], [8, 3]), strict=True))
    found = score_targets([model], pairs, chunk_elements=chunk_elements)
    assert [score.tokens for score in found] == [1, 5, 2]
    for (source, target), score in zip(pairs, found, strict=True):
        logits = model(torch.tensor([source]), torch.tensor([[2, *target[:-1]]]))[0]
        gold = [float(row.log_softmax(0)[token]) for row, token in zip(logits, target, strict=True)]
        assert score.log_probability == pytest.approx(sum(gold), abs=1e-9)
        assert score.perplexity == pytest.approx(math.prod(math.exp(-g / len(gold)) for g in gold))


def test_low_precision_takes_log_probabilities_in_float32(make_model: MakeModel) -> None:
    model = make_model(vocab_size=9).bfloat16()
    (score,) = score_targets([model], [([4, 5, 3], [6, 7, 3])])
    with torch.no_grad():
        logits = model(torch.tensor([[4, 5, 3]]), torch.tensor([[2, 6, 7]]))[0]
    gold = logits.float().log_softmax(-1).gather(1, torch.tensor([[6], [7], [3]]))
    assert score.log_probability == pytest.approx(float(gold.sum()), abs=1e-5)


def test_totals_and_perplexities() -> None:
    total = TargetScore.total([TargetScore(-3.0, 2), TargetScore(0.0, 0), TargetScore(-1.0, 2)])
    assert total == TargetScore(-4.0, 4)
    assert total.perplexity == pytest.approx(math.e)
    assert TargetScore(0.0, 0).perplexity == 1
    assert math.isfinite(TargetScore(-1e6, 1).perplexity)
