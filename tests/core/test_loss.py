"""The loss, of all logits and in chunks, against PyTorch's own, in values and gradients."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from seq2seq.fast.training import loss_by_sums, loss_of_chunk, projected_loss
from seq2seq.loss import label_smoothed_loss

PADDING, V, D = 0, 7, 6
TARGETS = torch.tensor([3, 1, 6, 2, 5, 5, 3, PADDING, 3, PADDING, PADDING])
LossOf = Callable[..., tuple[Tensor, Tensor]]


def random(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, dtype=torch.float64, generator=generator)


def plain_loss(
    states: Tensor, weight: Tensor, targets: Tensor, *, smoothing: float
) -> tuple[Tensor, Tensor]:
    return label_smoothed_loss(states @ weight.T, targets, smoothing=smoothing, padding_id=PADDING)


def pytorchs_loss(
    states: Tensor, weight: Tensor, targets: Tensor, *, smoothing: float
) -> tuple[Tensor, Tensor]:
    """It shares the smoothing out among all tokens, the reference included."""
    loss = partial(F.cross_entropy, states @ weight.T, targets, ignore_index=0, reduction="sum")
    return loss(label_smoothing=smoothing * V / (V - 1)), loss()


def value_and_gradients(
    loss_of: LossOf, states: Tensor, weight: Tensor, smoothing: float
) -> list[Tensor]:
    states, weight = states.clone().requires_grad_(), weight.clone().requires_grad_()
    smoothed, cross_entropy = loss_of(states, weight, TARGETS, smoothing=smoothing)
    (smoothed / 7).backward()
    return [smoothed.detach(), cross_entropy.detach(), states.grad, weight.grad]


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.2, 0.8])
@pytest.mark.parametrize("rows", [None, 1, 5, 100])
def test_the_loss_is_its_definition(smoothing: float, rows: int | None) -> None:
    arguments = 2 * random(len(TARGETS), D), random(V, D, seed=1), smoothing
    loss_of = partial(projected_loss, chunk_elements=rows * V) if rows else plain_loss
    found = value_and_gradients(loss_of, *arguments)
    expected = value_and_gradients(pytorchs_loss, *arguments)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("chunk", [loss_of_chunk, loss_by_sums])
@pytest.mark.parametrize("rows", [5, 100])
def test_the_loss_of_an_aligned_vocabulary_is_that_of_its_tokens(
    chunk: Callable[..., Any], rows: int
) -> None:
    results = []
    for aligned in (False, True):
        states = (2 * random(len(TARGETS), D)).requires_grad_()
        weight, bias = (random(*shape, seed=1).requires_grad_() for shape in ((V, D), (V,)))
        options = {"smoothing": 0.1, "chunk_elements": rows * 64, "chunk": chunk}
        for each in (None, bias):
            loss = projected_loss(states, weight, TARGETS, bias=each, aligned=aligned, **options)
            loss.smoothed.backward()
        results.append([*loss, states.grad, weight.grad, bias.grad])
    torch.testing.assert_close(*results, rtol=1e-12, atol=1e-12)


def test_aligned_matmuls_have_a_multiple_of_64_columns() -> None:
    widths = []

    def chunk(logits: Tensor, *arguments: Any, **named: Any) -> tuple[Tensor, Tensor, Tensor]:
        widths.append(logits.size(1))
        return loss_of_chunk(logits, *arguments, **named)

    for vocab_size in (7, 8, 65, 72):
        weight = random(vocab_size, D)
        states = random(len(TARGETS), D)
        projected_loss(states, weight, TARGETS, smoothing=0.1, chunk=chunk, aligned=True)
    assert widths == [64, 8, 128, 72]


def test_low_precision_comes_close() -> None:
    states, weight = random(len(TARGETS), D).float(), random(V, D, seed=1).float()
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
