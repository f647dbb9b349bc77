"""The loss in chunks against the plain loss of all the logits, in values and gradients."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from seq2seq.fast.training import projected_loss
from seq2seq.loss import label_smoothed_loss
from tests.training.test_loss import PADDING, TARGETS, V, random

D = 6
LossOf = Callable[..., tuple[Tensor, Tensor]]


def plain_loss(
    states: Tensor, weight: Tensor, targets: Tensor, *, smoothing: float
) -> tuple[Tensor, Tensor]:
    return label_smoothed_loss(states @ weight.T, targets, smoothing=smoothing, padding_id=PADDING)


def value_and_gradients(
    loss_of: LossOf, states: Tensor, weight: Tensor, smoothing: float
) -> list[Tensor]:
    states, weight = states.clone().requires_grad_(), weight.clone().requires_grad_()
    targets = TARGETS[TARGETS != PADDING]
    smoothed, cross_entropy = loss_of(
        states[TARGETS != PADDING], weight, targets, smoothing=smoothing
    )
    (smoothed / 7).backward()
    return [smoothed.detach(), cross_entropy.detach(), states.grad, weight.grad]


@pytest.mark.parametrize("chunk_rows", [1, 5, 100])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_projected_loss_is_the_plain_one(smoothing: float, chunk_rows: int) -> None:
    arguments = random(3, 4, D), random(V, D, seed=1), smoothing
    in_chunks = partial(projected_loss, chunk_elements=chunk_rows * V)
    found = value_and_gradients(in_chunks, *arguments)
    for one, other in zip(found, value_and_gradients(plain_loss, *arguments), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_low_precision_comes_close() -> None:
    states, weight = random(3, 4, D).float(), random(V, D, seed=1).float()
    exact = value_and_gradients(projected_loss, states, weight, 0.1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = value_and_gradients(projected_loss, states, weight, 0.1)
    for one, other in zip(low, exact, strict=True):
        assert one.dtype == other.dtype == torch.float32
        assert 0 < (one - other).norm() < 0.03 * other.norm()


def test_the_gradient_of_the_weight_is_summed_in_float32_under_autocast() -> None:
    # Of many chunks, in bfloat16 each further addition would round: the sum would stand still.
    states, weight = torch.ones(2000, D) / 8, random(V, D, seed=1).float().requires_grad_()
    targets = torch.full((2000,), 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        smoothed, _ = projected_loss(states, weight, targets, smoothing=0.1, chunk_elements=V)
    smoothed.backward()
    found, weight.grad = weight.grad.clone(), None
    plain_loss(states, weight, targets, smoothing=0.1)[0].backward()
    assert weight.grad.dtype == torch.float32
    torch.testing.assert_close(found, weight.grad, rtol=0.01, atol=0.01)
    # Nor is the sum itself rounded on its way to the weight.
    assert (found.bfloat16() != found).float().mean() > 0.9
