"""The loss in chunks of the logits, for `label_smoothed_loss` of `training/loss.py`."""

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor
from torch.autograd.function import Function, FunctionCtx
from torch.nn import functional as F

from seq2seq.tokenizer import PADDING_ID

# Elements of the logits in memory at a time: 32 MB of float32 on a CPU, close to its caches; 1 GB
# of bfloat16 on a GPU, for large matmuls.
_CHUNK_ELEMENTS = 8 * 2**20
_CHUNK_ELEMENTS_ON_GPU = 512 * 2**20


def projected_loss(
    states: Tensor,
    weight: Tensor,
    targets: Tensor,
    *,
    smoothing: float,
    bias: Tensor | None = None,
    chunk_elements: int | None = None,
    chunk: "Chunk | None" = None,
) -> tuple[Tensor, Tensor]:
    """Compute the label-smoothed loss and the cross-entropy of the logits `states @ weight.T`.

    Chunks of rows go through projection, loss and gradient while they are in the processor's
    cache. The matmuls run in the precision of autocast, the softmax and the sum of the weight's
    gradient in float32.

    Shapes: states (N, D), weight (V, D), targets (N,), bias (V,). Rows whose target is padding
    don't count. Both are sums over the target tokens, in nats; gradients flow through the first
    one alone. `chunk` is `loss_of_chunk`, or the same compiled.
    """
    if chunk_elements is None:
        chunk_elements = _CHUNK_ELEMENTS_ON_GPU if states.is_cuda else _CHUNK_ELEMENTS
    chunks = -(-len(states) * weight.size(0) // chunk_elements)
    chunk_rows = max(1, -(-len(states) // max(1, chunks)))  # all about equal
    if torch.is_autocast_enabled(states.device.type):
        states = states.to(torch.get_autocast_dtype(states.device.type))
    loss: tuple[Tensor, Tensor] = _ProjectedLoss.apply(  # type: ignore[no-untyped-call]
        states, weight, bias, targets, smoothing, chunk_rows, chunk or loss_of_chunk
    )
    return loss


Chunk: TypeAlias = Callable[[Tensor, Tensor, float], tuple[Tensor, Tensor, Tensor]]


def loss_of_chunk(
    logits: Tensor, targets: Tensor, smoothing: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute loss, cross-entropy and gradient of logits (rows, V) and targets (rows,).

    Returns two sums and (rows, V), the softmax minus the target distribution, padding included.
    """
    other = smoothing / (logits.size(1) - 1)  # of each token but the reference
    gold_weight = 1.0 - smoothing - other
    targets = targets.unsqueeze(1)  # (rows, 1)
    counts = targets != PADDING_ID
    exact = torch.promote_types(logits.dtype, torch.float32)
    log_probabilities = logits.log_softmax(dim=-1, dtype=exact)  # (rows, V)
    gold = (log_probabilities.gather(1, targets) * counts).sum()
    everything = (log_probabilities.sum(dim=1, keepdim=True) * counts).sum()
    if torch.compiler.is_compiling():  # one kernel, where scattering would need two
        is_gold = torch.arange(logits.size(1), device=logits.device) == targets  # (rows, V)
        gradient = log_probabilities.exp() - other - gold_weight * is_gold
    else:
        gradient = log_probabilities.exp_().sub_(other)
        gradient.scatter_add_(1, targets, gradient.new_full(targets.shape, -gold_weight))
    smoothed = -(gold_weight * gold + other * everything)
    return smoothed, -gold, gradient.to(logits.dtype)


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
        chunk: Chunk,
    ) -> tuple[Tensor, Tensor]:
        exact = torch.promote_types(states.dtype, torch.float32)
        smoothed = torch.zeros((), dtype=exact, device=states.device)
        cross_entropy = torch.zeros_like(smoothed)
        states_gradient = torch.empty_like(states)  # (N, D)
        weight_gradient = torch.zeros(weight.shape, dtype=exact, device=weight.device)  # (V, D)
        low = weight.to(states.dtype)
        low_bias = None if bias is None else bias.to(states.dtype)
        bias_gradient = None if bias is None else torch.zeros_like(bias, dtype=exact)
        for first in range(0, len(states), chunk_rows):
            rows = slice(first, first + chunk_rows)
            logits = F.linear(states[rows], low, low_bias)  # (rows, V)
            of_chunk, gold, gradient = chunk(logits, targets[rows], smoothing)
            smoothed, cross_entropy = smoothed + of_chunk, cross_entropy + gold
            # Padding has no gradient.
            counts = (targets[rows] != PADDING_ID).to(states.dtype).unsqueeze(1)  # (rows, 1)
            if bias_gradient is not None:
                bias_gradient += (counts.t() @ gradient).squeeze(0)
            states_gradient[rows] = gradient @ low * counts
            weight_gradient += gradient.t() @ (states[rows] * counts)
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
            *(None, None, None, None),
        )
