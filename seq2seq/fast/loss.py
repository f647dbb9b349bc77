"""The loss in chunks of the logits, for `label_smoothed_loss` of `training/loss.py`."""

import torch
from torch import Tensor
from torch.autograd.function import Function, FunctionCtx
from torch.nn import functional as F

# Elements of the logits in memory at a time: 32 MB of float32 on a CPU, close to its caches; 1 GB
# on a GPU, for large matmuls.
_CHUNK_ELEMENTS = 8 * 2**20
_CHUNK_ELEMENTS_ON_GPU = 256 * 2**20


def projected_loss(
    states: Tensor,
    weight: Tensor,
    targets: Tensor,
    *,
    smoothing: float,
    bias: Tensor | None = None,
    chunk_elements: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute the label-smoothed loss and the cross-entropy of the logits `states @ weight.T`.

    Chunks of rows go through projection, loss and gradient while they are in the processor's
    cache. The matmuls run in the precision of autocast, the softmax and the sum of the weight's
    gradient in float32.

    Shapes: states (N, D) of the tokens, weight (V, D), targets (N,), bias (V,). More states than
    targets take part in the matmuls alone, whose shapes are then few (`rows.py`). Both are sums
    over the target tokens, in nats; gradients flow through the first one alone.
    """
    if chunk_elements is None:
        chunk_elements = _CHUNK_ELEMENTS_ON_GPU if states.is_cuda else _CHUNK_ELEMENTS
    chunk_rows = max(1, chunk_elements // weight.size(0))
    if len(states) > len(targets):
        chunk_rows = max(64, chunk_rows - chunk_rows % 64)
    if torch.is_autocast_enabled(states.device.type):
        states = states.to(torch.get_autocast_dtype(states.device.type))
    loss: tuple[Tensor, Tensor] = _ProjectedLoss.apply(  # type: ignore[no-untyped-call]
        states, weight, bias, targets, smoothing, chunk_rows
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
    ) -> tuple[Tensor, Tensor]:
        other = smoothing / (weight.size(0) - 1)  # of each token but the reference
        exact = torch.promote_types(states.dtype, torch.float32)
        smoothed = torch.zeros((), dtype=exact, device=states.device)
        cross_entropy = torch.zeros_like(smoothed)
        states_gradient = torch.empty_like(states)  # (tokens, D)
        weight_gradient = torch.zeros(weight.shape, dtype=exact, device=weight.device)  # (V, D)
        low = weight.to(states.dtype)
        low_bias = None if bias is None else bias.to(states.dtype)
        bias_gradient = None if bias is None else torch.zeros_like(bias, dtype=exact)
        for first in range(0, len(states), chunk_rows):
            rows = slice(first, first + chunk_rows)
            logits = F.linear(states[rows], low, low_bias)  # (rows, V)
            target = targets[rows].unsqueeze(1)  # (rows, 1); fewer than logits if these are filled
            log_probabilities = logits[: len(target)].log_softmax(dim=-1, dtype=exact)  # (rows, V)
            gold = log_probabilities.gather(1, target)  # (rows, 1)
            cross_entropy -= gold.sum()
            smoothed -= (1.0 - smoothing - other) * gold.sum() + other * log_probabilities.sum()
            if any(ctx.needs_input_grad):  # type: ignore[attr-defined]
                # softmax - target distribution, (rows, V)
                gradient = log_probabilities.exp_().sub_(other)
                gold_gradient = gradient.new_full(target.shape, -(1.0 - smoothing - other))
                gradient = gradient.scatter_add_(1, target, gold_gradient)
                if bias_gradient is not None:
                    bias_gradient += gradient.sum(dim=0)
                gradient = gradient.to(states.dtype)
                if filled := len(logits) - len(gradient):
                    gradient = F.pad(gradient, (0, 0, 0, filled))
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
            *(None, None, None),
        )
