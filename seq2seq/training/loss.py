"""Cross-entropy with label smoothing (section 5.4), the projection to the vocabulary included.

The target distribution gives the reference token 1 - eps and each of the other V - 1 tokens
eps / (V - 1), as the authors' code does (PyTorch's own smoothing spreads eps over all V).
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import Function, FunctionCtx
from torch.nn import functional as F

# Elements of the logits that are held at a time: on a CPU 32 MB of float32, near its caches; on a
# GPU 1 GB, so that its products are large ones.
_BLOCK_ELEMENTS = 8 * 2**20
_BLOCK_ELEMENTS_ON_GPU = 256 * 2**20


class Loss(NamedTuple):
    """Sums over the target tokens that are not padding, in nats."""

    smoothed: Tensor
    """What training minimises; a gradient flows through this one alone."""
    cross_entropy: Tensor
    """Without smoothing: its mean's exponential is the perplexity."""


def target_entropy(smoothing: float, vocab_size: int) -> float:
    """The entropy of the target distribution, in nats: no smoothed loss of a token is below it."""
    if smoothing == 0.0:
        return 0.0
    other = smoothing / (vocab_size - 1)
    return -(1.0 - smoothing) * math.log(1.0 - smoothing) - smoothing * math.log(other)


def label_smoothed_loss(
    logits: Tensor, target_output: Tensor, *, smoothing: float, padding_id: int
) -> Loss:
    """The loss as it is defined, from all the logits: the readable form and the tests' oracle.

    Args:
        logits: (..., V).
        target_output: (...), token ids.
        smoothing: eps in the paper.
        padding_id: targets that don't count.
    """
    log_probabilities = logits.log_softmax(dim=-1)
    gold = log_probabilities.gather(-1, target_output.unsqueeze(-1)).squeeze(-1)
    others = log_probabilities.sum(dim=-1) - gold
    smoothed = -(1.0 - smoothing) * gold - smoothing / (logits.size(-1) - 1) * others
    counts = target_output != padding_id
    return Loss(smoothed[counts].sum(), -gold[counts].sum())


def projected_loss(
    states: Tensor, weight: Tensor, target_output: Tensor, *, smoothing: float, padding_id: int
) -> Loss:
    """`label_smoothed_loss(states @ weight.T, ...)` without ever holding the logits whole.

    Blocks of rows go through projection, loss and gradient while they are in the processor's
    cache; padding is left out before the projection. The products run in the autocast precision,
    the softmax in float32.

    Args:
        states: (B, T, D), the decoder's output.
        weight: (V, D), the shared matrix.
        target_output: (B, T).
        smoothing: eps in the paper.
        padding_id: targets that don't count.
    """
    rows = (target_output != padding_id).flatten().nonzero().squeeze(1)
    kept = states.flatten(0, -2).index_select(0, rows)
    targets = target_output.flatten().index_select(0, rows)
    if torch.is_autocast_enabled(states.device.type):
        dtype = torch.get_autocast_dtype(states.device.type)
        kept, weight = kept.to(dtype), weight.to(dtype)
    smoothed, cross_entropy = _ProjectedLoss.apply(  # type: ignore[no-untyped-call]
        kept, weight, targets, smoothing
    )
    return Loss(smoothed, cross_entropy)


class _ProjectedLoss(Function):
    """Computes the gradient along with the loss: the logits of a block are needed for both."""

    @staticmethod
    def forward(
        ctx: FunctionCtx, states: Tensor, weight: Tensor, targets: Tensor, smoothing: float
    ) -> tuple[Tensor, Tensor]:
        vocab_size = weight.size(0)
        other = smoothing / (vocab_size - 1)
        exact = torch.promote_types(states.dtype, torch.float32)
        smoothed = torch.zeros((), dtype=exact, device=states.device)
        cross_entropy = torch.zeros_like(smoothed)
        states_gradient = torch.empty_like(states)
        weight_gradient = torch.zeros(weight.shape, dtype=exact, device=weight.device)
        elements = _BLOCK_ELEMENTS_ON_GPU if states.is_cuda else _BLOCK_ELEMENTS
        block = max(1, elements // vocab_size)
        for first in range(0, len(states), block):
            rows = slice(first, first + block)
            logits = F.linear(states[rows], weight)  # (block, V)
            log_probabilities = logits.log_softmax(dim=-1, dtype=exact)
            target = targets[rows].unsqueeze(1)
            gold = log_probabilities.gather(1, target)
            cross_entropy -= gold.sum()
            smoothed -= (1.0 - smoothing - other) * gold.sum() + other * log_probabilities.sum()
            if any(ctx.needs_input_grad):  # type: ignore[attr-defined]
                # softmax - target distribution
                gradient = log_probabilities.exp_().sub_(other)
                gold_gradient = gradient.new_full(target.shape, -(1.0 - smoothing - other))
                gradient.scatter_add_(1, target, gold_gradient)
                gradient = gradient.to(states.dtype)
                states_gradient[rows] = gradient @ weight
                weight_gradient += gradient.t() @ states[rows]
        ctx.save_for_backward(states_gradient, weight_gradient)
        ctx.mark_non_differentiable(cross_entropy)
        return smoothed, cross_entropy

    @staticmethod
    def backward(ctx: FunctionCtx, scale: Tensor, _: Tensor) -> tuple[Tensor, Tensor, None, None]:
        states_gradient, weight_gradient = ctx.saved_tensors  # type: ignore[attr-defined]
        return states_gradient * scale, weight_gradient * scale, None, None
