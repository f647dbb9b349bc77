"""Cross-entropy with label smoothing (section 5.4).

The target distribution gives the reference token 1 - eps and each of the other V - 1 tokens
eps / (V - 1), as the authors' code does (PyTorch's own smoothing spreads eps over all V).
"""

import math
from typing import NamedTuple

from torch import Tensor


class Loss(NamedTuple):
    """Sums over the target tokens that are not padding, in nats."""

    smoothed: Tensor
    """What training minimizes; a gradient flows through this one alone."""
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
    """The loss as it is defined; `kernels.loss.projected_loss` is its fast form.

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
