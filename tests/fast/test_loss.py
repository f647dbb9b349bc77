"""The loss in chunks against the plain loss of all the logits, in values and gradients."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from seq2seq.fast.loss import projected_loss
from seq2seq.training.loss import label_smoothed_loss

PADDING, V, D = 0, 7, 6
TARGETS = torch.tensor([[3, 1, 6, 2], [5, 5, 3, PADDING], [3, PADDING, PADDING, PADDING]])
LossOf = Callable[..., tuple[Tensor, Tensor]]


def random(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, dtype=torch.float64, generator=generator)


def plain_loss(
    states: Tensor, weight: Tensor, targets: Tensor, *, smoothing: float, padding_id: int
) -> tuple[Tensor, Tensor]:
    return label_smoothed_loss(
        states @ weight.T, targets, smoothing=smoothing, padding_id=padding_id
    )


def value_and_gradients(
    loss_of: LossOf, states: Tensor, weight: Tensor, smoothing: float
) -> list[Tensor]:
    states, weight = states.clone().requires_grad_(), weight.clone().requires_grad_()
    smoothed, cross_entropy = loss_of(
        states, weight, TARGETS, smoothing=smoothing, padding_id=PADDING
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


def test_the_projected_loss_has_the_gradient_of_its_value() -> None:
    def smoothed(states: Tensor, weight: Tensor) -> Tensor:
        return projected_loss(
            states, weight, TARGETS, smoothing=0.1, padding_id=PADDING, chunk_elements=2 * V
        )[0]

    states, weight = random(3, 4, D).requires_grad_(), random(V, D, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(smoothed, (states, weight))
    assert torch.autograd.gradcheck(smoothed, (states.detach(), weight))
    assert torch.autograd.gradcheck(smoothed, (states, weight.detach()))


@pytest.mark.parametrize("chunk_rows", [5, 100])
def test_a_bias_of_the_logits_has_its_gradient(chunk_rows: int) -> None:
    states, weight = random(3, 4, D), random(V, D, seed=1)
    found = []
    for in_chunks in (True, False):
        bias = random(V, seed=2).requires_grad_()
        options = {"smoothing": 0.1, "padding_id": PADDING}
        if in_chunks:
            smoothed, cross_entropy = projected_loss(
                states, weight, TARGETS, bias=bias, chunk_elements=chunk_rows * V, **options
            )
        else:
            logits = states @ weight.T + bias
            smoothed, cross_entropy = label_smoothed_loss(logits, TARGETS, **options)
        (smoothed / 7).backward()
        found.append([smoothed.detach(), cross_entropy.detach(), bias.grad])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_padding_weighs_nothing() -> None:
    states, weight = random(3, 4, D), random(V, D, seed=1)
    elsewhere = states.clone()
    elsewhere[TARGETS == PADDING] = 9.0
    before = value_and_gradients(projected_loss, states, weight, 0.1)
    after = value_and_gradients(projected_loss, elsewhere, weight, 0.1)
    for one, other in zip(before, after, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-13)
    assert (after[2][TARGETS == PADDING] == 0).all()
    assert (after[2][TARGETS != PADDING] != 0).any(dim=-1).all()


def test_a_batch_of_padding_alone_costs_nothing() -> None:
    states, weight = random(1, 2, D).requires_grad_(), random(V, D).requires_grad_()
    targets = torch.full((1, 2), PADDING)
    smoothed, cross_entropy = projected_loss(
        states, weight, targets, smoothing=0.1, padding_id=PADDING
    )
    smoothed.backward()
    assert smoothed == cross_entropy == 0
    assert (states.grad == 0).all()
    assert (weight.grad == 0).all()


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
    states, weight = torch.ones(1, 2000, D) / 8, random(V, D, seed=1).float().requires_grad_()
    targets = torch.full((1, 2000), 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        smoothed, _ = projected_loss(
            states, weight, targets, smoothing=0.1, padding_id=PADDING, chunk_elements=V
        )
    smoothed.backward()
    found, weight.grad = weight.grad.clone(), None
    plain_loss(states, weight, targets, smoothing=0.1, padding_id=PADDING)[0].backward()
    assert weight.grad.dtype == torch.float32
    torch.testing.assert_close(found, weight.grad, rtol=0.01, atol=0.01)
    # Nor is the sum itself rounded on its way to the weight.
    assert (found.bfloat16() != found).float().mean() > 0.9
