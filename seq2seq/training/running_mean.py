"""A running mean of the weights, which validates better while a model still learns fast."""

from collections.abc import Mapping

import torch
from torch import Tensor

from seq2seq.model import Transformer

_POWER = 16


class RunningMean:
    """The mean of a model's weights over its updates, of which the newest have most weight.

    Update k has a weight proportional to k^16 (polynomial-decay averaging, Shamir and Zhang 2013),
    so that the mean reaches back over about a twentieth of the training, however long that is. The
    mean of the last checkpoints (section 6.1) is coarser: of a short training, they are too old.

    Attributes:
        weights: the mean, by the names of the model's parameters.
    """

    def __init__(self, model: Transformer) -> None:
        self.weights = {name: p.detach().clone() for name, p in model.named_parameters()}

    @torch.no_grad()
    def update(self, model: Transformer, step: int) -> None:
        """Let the mean follow the weights after an update, the step-th from 1."""
        share = 1.0 - (1.0 - 1.0 / step) ** (_POWER + 1)
        for name, parameter in model.named_parameters():
            self.weights[name].lerp_(parameter, share)

    def load(self, weights: Mapping[str, Tensor]) -> None:
        """Go on from a mean that was saved."""
        for name, value in weights.items():
            self.weights[name].copy_(value)
