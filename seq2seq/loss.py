"""Cross-entropy with label smoothing (section 5.4).

The target distribution gives the reference token 1 - eps and each of the other V - 1 tokens
eps / (V - 1), as in tensor2tensor (Szegedy et al. and PyTorch spread eps over all V).
"""

from typing import NamedTuple

from torch import Tensor


class Loss(NamedTuple):
    """Sums over the target tokens that are not padding, in nats."""

    smoothed: Tensor
    """The loss that training minimizes; gradients flow through this one alone."""
    cross_entropy: Tensor
    """The loss without smoothing; the exponential of its mean is the perplexity."""


def label_smoothed_loss(
    logits: Tensor, target_output: Tensor, *, smoothing: float, padding_id: int
) -> Loss:
    """The loss of logits (..., V) and target_output (...); `fast/training.py` has a fast form."""
    log_probabilities = logits.log_softmax(dim=-1)
    gold = log_probabilities.gather(-1, target_output.unsqueeze(-1)).squeeze(-1)
    rest = log_probabilities.sum(dim=-1) - gold
    smoothed = -(1.0 - smoothing) * gold - smoothing / (logits.size(-1) - 1) * rest
    counts = target_output != padding_id
    return Loss(smoothed[counts].sum(), -gold[counts].sum())
