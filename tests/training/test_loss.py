"""The loss against its definition."""

import math

import pytest
import torch
from torch import Tensor

from seq2seq.loss import label_smoothed_loss

PADDING, V = 0, 7
TARGETS = torch.tensor([[3, 1, 6, 2], [5, 5, 3, PADDING], [3, PADDING, PADDING, PADDING]])


def random(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, dtype=torch.float64, generator=generator)


def definition(logits: Tensor, targets: Tensor, smoothing: float) -> tuple[float, float]:
    """The cross-entropy with the smoothed distribution, and with the reference alone."""
    smoothed = cross_entropy = 0.0
    for row, target in zip(logits.flatten(0, -2).tolist(), targets.flatten().tolist(), strict=True):
        if target == PADDING:
            continue
        total = math.log(math.fsum(math.exp(x) for x in row))
        distribution = [smoothing / (V - 1)] * V
        distribution[target] = 1 - smoothing
        assert math.fsum(distribution) == pytest.approx(1, abs=1e-15)
        smoothed -= math.fsum(q * (x - total) for q, x in zip(distribution, row, strict=True))
        cross_entropy -= row[target] - total
    return smoothed, cross_entropy


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.2, 0.9])
def test_the_loss_is_its_definition(smoothing: float) -> None:
    logits = 2 * random(3, 4, V)
    loss = label_smoothed_loss(logits, TARGETS, smoothing=smoothing, padding_id=PADDING)
    expected = definition(logits, TARGETS, smoothing)
    assert (loss.smoothed.item(), loss.cross_entropy.item()) == pytest.approx(expected, abs=1e-12)
