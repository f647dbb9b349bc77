"""The loss against its definition, and the blockwise form against the readable one."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from seq2seq.training.loss import Loss, label_smoothed_loss, projected_loss, target_entropy

PADDING, V, D = 0, 7, 6
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


def test_the_cross_entropy_is_that_of_pytorch() -> None:
    logits = random(3, 4, V)
    expected = F.cross_entropy(
        logits.flatten(0, 1), TARGETS.flatten(), ignore_index=PADDING, reduction="sum"
    )
    for smoothing in (0.0, 0.3):
        loss = label_smoothed_loss(logits, TARGETS, smoothing=smoothing, padding_id=PADDING)
        torch.testing.assert_close(loss.cross_entropy, expected)


def test_smoothing_is_not_pytorchs_own() -> None:
    logits = random(3, 4, V)
    other = F.cross_entropy(
        logits.flatten(0, 1), TARGETS.flatten(),
        ignore_index=PADDING, reduction="sum", label_smoothing=0.1,
    )  # fmt: skip
    loss = label_smoothed_loss(logits, TARGETS, smoothing=0.1, padding_id=PADDING)
    assert (loss.smoothed - other).abs() > 1e-3


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.3])
def test_the_least_loss_is_the_target_entropy(smoothing: float) -> None:
    """At the target distribution itself, where the gradient is zero."""
    other = max(smoothing / (V - 1), 1e-300)
    logits = torch.full((1, 1, V), math.log(other), dtype=torch.float64)
    logits[..., 3] = math.log(1 - smoothing)
    logits.requires_grad_()
    loss = label_smoothed_loss(logits, torch.tensor([[3]]), smoothing=smoothing, padding_id=PADDING)
    loss.smoothed.backward()
    assert target_entropy(smoothing, V) == pytest.approx(loss.smoothed.item(), abs=1e-12)
    assert logits.grad.abs().max() < 1e-15


@pytest.fixture(params=[1, 2, 5, 100])
def rows_per_block(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seq2seq.training.loss._BLOCK_ELEMENTS", request.param * V)


def readable(
    states: Tensor, weight: Tensor, targets: Tensor, *, smoothing: float, padding_id: int
) -> Loss:
    return label_smoothed_loss(
        states @ weight.T, targets, smoothing=smoothing, padding_id=padding_id
    )


def value_and_gradients(
    loss_of: Callable[..., Loss], states: Tensor, weight: Tensor, smoothing: float
) -> list[Tensor]:
    states, weight = states.clone().requires_grad_(), weight.clone().requires_grad_()
    loss = loss_of(states, weight, TARGETS, smoothing=smoothing, padding_id=PADDING)
    (loss.smoothed / 7).backward()
    return [loss.smoothed.detach(), loss.cross_entropy.detach(), states.grad, weight.grad]


@pytest.mark.usefixtures("rows_per_block")
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_projected_loss_is_the_readable_one(smoothing: float) -> None:
    arguments = random(3, 4, D), random(V, D, seed=1), smoothing
    found = value_and_gradients(projected_loss, *arguments)
    for one, other in zip(found, value_and_gradients(readable, *arguments), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


@pytest.mark.usefixtures("rows_per_block")
def test_the_projected_loss_has_the_gradient_of_its_value() -> None:
    def smoothed(states: Tensor, weight: Tensor) -> Tensor:
        return projected_loss(states, weight, TARGETS, smoothing=0.1, padding_id=PADDING).smoothed

    states, weight = random(3, 4, D).requires_grad_(), random(V, D, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(smoothed, (states, weight))
    assert torch.autograd.gradcheck(smoothed, (states.detach(), weight))
    assert torch.autograd.gradcheck(smoothed, (states, weight.detach()))


@pytest.mark.parametrize("loss_of", [projected_loss, readable])
def test_padding_weighs_nothing(loss_of: Callable[..., Loss]) -> None:
    states, weight = random(3, 4, D), random(V, D, seed=1)
    elsewhere = states.clone()
    elsewhere[TARGETS == PADDING] = 9.0
    before = value_and_gradients(loss_of, states, weight, 0.1)
    after = value_and_gradients(loss_of, elsewhere, weight, 0.1)
    for one, other in zip(before, after, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-13)
    assert (after[2][TARGETS == PADDING] == 0).all()
    assert (after[2][TARGETS != PADDING] != 0).any(dim=-1).all()


def test_a_batch_of_padding_alone_costs_nothing() -> None:
    states, weight = random(1, 2, D).requires_grad_(), random(V, D).requires_grad_()
    targets = torch.full((1, 2), PADDING)
    loss = projected_loss(states, weight, targets, smoothing=0.1, padding_id=PADDING)
    loss.smoothed.backward()
    assert loss.smoothed == loss.cross_entropy == 0
    assert (states.grad == 0).all()
    assert (weight.grad == 0).all()


def test_parts_of_a_batch_add_up_to_the_batch() -> None:
    states, weight = random(3, 4, D), random(V, D, seed=1)
    tokens = int((TARGETS != PADDING).sum())

    def gradient(parts: list[slice]) -> Tensor:
        shared = weight.clone().requires_grad_()
        for part in parts:
            loss = projected_loss(
                states[part], shared, TARGETS[part], smoothing=0.1, padding_id=PADDING
            )
            (loss.smoothed / tokens).backward()
        return shared.grad

    whole = gradient([slice(0, 3)])
    torch.testing.assert_close(gradient([slice(0, 1), slice(1, 2), slice(2, 3)]), whole)
    torch.testing.assert_close(gradient([slice(0, 1), slice(1, 3)]), whole)


def test_low_precision_comes_close() -> None:
    states, weight = random(3, 4, D).float(), random(V, D, seed=1).float()
    exact = value_and_gradients(projected_loss, states, weight, 0.1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = value_and_gradients(projected_loss, states, weight, 0.1)
    for one, other in zip(low, exact, strict=True):
        assert one.dtype == other.dtype == torch.float32
        assert 0 < (one - other).norm() < 0.01 * other.norm()
