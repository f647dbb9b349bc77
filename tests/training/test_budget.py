"""The tokens of a step: asked for, met or refused; and what is recorded of the loss."""

import pytest
import torch

from seq2seq.errors import UserError
from seq2seq.reproduction.synthetic import SyntheticLengths
from seq2seq.training.config import TrainingConfig
from seq2seq.training.loss import label_smoothed_loss, target_entropy


@pytest.mark.parametrize("count_longer_side", [False, True])
def test_a_large_corpus_meets_the_papers_budget(count_longer_side: bool) -> None:
    config = TrainingConfig(count_longer_side=count_longer_side)
    batching = config.batching(SyntheticLengths(50_000, mean_length=27, max_length=200), seed=1)
    config.check_budget(batching.statistics(batching.epoch(0)))


def test_a_small_corpus_is_refused() -> None:
    config = TrainingConfig()
    batching = config.batching(SyntheticLengths(60, mean_length=27, max_length=200), seed=1)
    with pytest.raises(UserError, match="can't be met: 7 micro-batches of this corpus hold"):
        config.check_budget(batching.statistics(batching.epoch(0)))


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.3])
def test_the_least_loss_is_that_of_the_target_distribution(smoothing: float) -> None:
    vocab_size, target = 7, torch.tensor([3])
    other = max(smoothing / (vocab_size - 1), 1e-300)
    best = torch.full((1, vocab_size), other, dtype=torch.float64)
    best[0, 3] = 1.0 - smoothing
    loss = label_smoothed_loss(best.log(), target, smoothing=smoothing, padding_id=0)
    assert target_entropy(smoothing, vocab_size) == pytest.approx(loss.smoothed.item(), abs=1e-12)
    worse = best.clone()
    worse[0, 3] -= 0.05
    worse[0, 4] += 0.05
    more = label_smoothed_loss(worse.log(), target, smoothing=smoothing, padding_id=0)
    assert more.smoothed > loss.smoothed
