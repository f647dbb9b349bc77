"""The loss computed in chunks of the logits, in place of `label_smoothed_loss`."""

from collections.abc import Callable
from functools import cache
from typing import TypeAlias

import torch
from torch import Tensor
from torch.autograd.function import Function, FunctionCtx
from torch.nn import functional as F

LossAndGradient: TypeAlias = Callable[[Tensor, Tensor, float], tuple[Tensor, Tensor, Tensor]]
"""`loss_and_gradient`, compiled or not."""


def loss_and_gradient(
    logits: Tensor, targets: Tensor, smoothing: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the label-smoothed loss, the cross-entropy and the gradient of the first.

    Args:
        logits: (tokens, V).
        targets: (tokens, 1).
        smoothing: eps in the paper.

    Returns:
        Two sums over the tokens, at least float32, and the gradient (tokens, V) in the precision of
        the logits.
    """
    vocab_size = logits.size(1)
    other = smoothing / (vocab_size - 1)  # of each token but the reference
    exact = logits.to(torch.promote_types(logits.dtype, torch.float32))
    normalizer = exact.logsumexp(dim=1, keepdim=True)  # (tokens, 1)
    gold = exact.gather(1, targets) - normalizer  # (tokens, 1)
    all_tokens = exact.sum() - vocab_size * normalizer.sum()
    smoothed = -(1.0 - smoothing - other) * gold.sum() - other * all_tokens
    is_gold = torch.arange(vocab_size, device=logits.device) == targets  # (tokens, V)
    gradient = (exact - normalizer).exp() - other - is_gold * (1.0 - smoothing - other)
    return smoothed, -gold.sum(), gradient.to(logits.dtype)


def can_compile(device: torch.device) -> bool:
    """Return whether PyTorch has a compiler for a device.

    Not on a CPU, where a chunk of logits stays in the cache from one operation to the next.
    """
    from torch.utils._triton import has_triton

    return device.type == "cuda" and has_triton()


@cache
def compiled_loss() -> LossAndGradient:
    """Return `loss_and_gradient` compiled, one program for all numbers of tokens."""
    compiled: LossAndGradient = torch.compile(loss_and_gradient, dynamic=True)
    return compiled


# Elements of the logits in memory at a time: 32 MB of float32 on a CPU, close to its caches; 1 GB
# on a GPU, for large products.
_CHUNK_ELEMENTS = 8 * 2**20
_CHUNK_ELEMENTS_ON_GPU = 256 * 2**20


def projected_loss(
    states: Tensor,
    weight: Tensor,
    target_output: Tensor,
    *,
    smoothing: float,
    padding_id: int,
    rows: Tensor | None = None,
    of_chunk: LossAndGradient | None = None,
    bias: Tensor | None = None,
    chunk_elements: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute the label-smoothed loss and the cross-entropy of the logits `states @ weight.T`.

    Chunks of rows go through projection, loss and gradient while they are in the processor's
    cache; padding is left out before the projection. The products run in the precision of
    autocast, the softmax and the sum of the weight's gradient in float32.

    Args:
        states: (B, T, D), the decoder's output.
        weight: (V, D), the matrix that projects to the vocabulary.
        target_output: (B, T).
        smoothing: eps in the paper.
        padding_id: the target id to ignore.
        rows: the indices into B * T that are not padding, if known; a GPU is waited for otherwise.
        of_chunk: `kernels.compiled.loss_and_gradient`, compiled; not used with a bias.
        bias: (V,), added to the logits.
        chunk_elements: elements of the logits in memory at a time.

    Returns:
        Two sums over the target tokens, in nats; gradients flow through the first one alone.
    """
    if chunk_elements is None:
        chunk_elements = _CHUNK_ELEMENTS_ON_GPU if states.is_cuda else _CHUNK_ELEMENTS
    if rows is None:
        rows = (target_output != padding_id).flatten().nonzero().squeeze(1)
    kept = states.flatten(0, -2).index_select(0, rows)  # (tokens, D)
    targets = target_output.flatten().index_select(0, rows)  # (tokens,)
    if torch.is_autocast_enabled(states.device.type):
        kept = kept.to(torch.get_autocast_dtype(states.device.type))
    loss: tuple[Tensor, Tensor] = _ProjectedLoss.apply(  # type: ignore[no-untyped-call]
        kept,
        weight,
        bias,
        targets,
        smoothing,
        max(1, chunk_elements // weight.size(0)),
        of_chunk if bias is None else None,
    )
    return loss


class _ProjectedLoss(Function):
    """Computes the gradient along with the loss: both need the logits of a chunk."""

    @staticmethod
    def forward(
        ctx: FunctionCtx,
        states: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        smoothing: float,
        chunk_rows: int,
        of_chunk: LossAndGradient | None,
    ) -> tuple[Tensor, Tensor]:
        other = smoothing / (weight.size(0) - 1)  # of each token but the reference
        exact = torch.promote_types(states.dtype, torch.float32)
        smoothed = torch.zeros((), dtype=exact, device=states.device)
        cross_entropy = torch.zeros_like(smoothed)
        states_gradient = torch.empty_like(states)
        weight_gradient = torch.zeros(weight.shape, dtype=exact, device=weight.device)
        low = weight.to(states.dtype)
        low_bias = None if bias is None else bias.to(states.dtype)
        bias_gradient = None if bias is None else torch.zeros_like(bias, dtype=exact)
        for first in range(0, len(states), chunk_rows):
            rows = slice(first, first + chunk_rows)
            logits = F.linear(states[rows], low, low_bias)
            if of_chunk is not None:
                losses = of_chunk(logits, targets[rows].unsqueeze(1), smoothing)
                smoothed += losses[0]
                cross_entropy += losses[1]
                states_gradient[rows] = losses[2] @ low
                weight_gradient += losses[2].t() @ states[rows]
                continue
            log_probabilities = logits.log_softmax(dim=-1, dtype=exact)
            target = targets[rows].unsqueeze(1)
            gold = log_probabilities.gather(1, target)
            cross_entropy -= gold.sum()
            smoothed -= (1.0 - smoothing - other) * gold.sum() + other * log_probabilities.sum()
            if any(ctx.needs_input_grad):  # type: ignore[attr-defined]
                # softmax - target distribution
                gradient = log_probabilities.exp_().sub_(other)
                gold_gradient = gradient.new_full(target.shape, -(1.0 - smoothing - other))
                gradient = gradient.scatter_add_(1, target, gold_gradient)
                if bias_gradient is not None:
                    bias_gradient += gradient.sum(dim=0)
                gradient = gradient.to(states.dtype)
                states_gradient[rows] = gradient @ low
                weight_gradient += gradient.t() @ states[rows]
        ctx.save_for_backward(
            states_gradient,
            weight_gradient,
            bias_gradient,  # type: ignore[arg-type]
        )
        ctx.mark_non_differentiable(cross_entropy)
        return smoothed, cross_entropy

    @staticmethod
    def backward(ctx: FunctionCtx, scale: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        states, weight, bias = ctx.saved_tensors  # type: ignore[attr-defined]
        return (
            states * scale,
            weight * scale,
            None if bias is None else bias * scale,
            *([None] * 4),
        )
