"""Adam and its learning rate (section 5.3)."""

import copy
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.optim import Adam

from seq2seq.model import Transformer, TransformerConfig
from seq2seq.model.config import NormPosition
from seq2seq.training.config import TrainingConfig


def learning_rate(step: int, *, d_model: int, warmup_steps: int, scale: float = 1.0) -> float:
    """Compute scale * d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5) (equation 3).

    Steps count from 1. In the paper, the rate rises over 4000 steps, and the scale is 1.
    """
    return float(scale * d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5))


def dropout_share(step: int, warmup_steps: int | None) -> float:
    """Compute dropout's share of its rates, min(1, step / warmup_steps); always 1 in the paper."""
    return 1.0 if warmup_steps is None else min(1.0, step / warmup_steps)


def unfinished_dropout(training: TrainingConfig, steps: int | None) -> str:
    """Explain that a run of `steps` updates ends before dropout reaches its rate, or return ""."""
    rise = training.dropout_warmup_steps
    if rise is None or steps is None or steps >= rise:
        return ""
    return (
        f"dropout reaches {dropout_share(steps, rise):.2g} of its rate in the {steps:,} updates of"
        f" this run: it rises over training.dropout_warmup_steps={rise}"
    )


def risky_start(model: TransformerConfig, training: TrainingConfig) -> str:
    """Explain why a Post-LN model is likely to fail in warm-up, or return the empty string.

    Xiong et al. (2020), "On Layer Normalization in the Transformer Architecture", show the reason.
    The thresholds are from runs of this code: with six layers on each side, a rise to 1.2e-3
    within 200 updates never got below the entropy of single words; slower and lower, it learned.
    """
    steps, scale = training.warmup_steps, training.learning_rate_scale
    peak = learning_rate(steps, d_model=model.d_model, warmup_steps=steps, scale=scale)
    pre_norm = model.norm_position is NormPosition.pre
    if pre_norm or model.num_layers < 6 or steps > 500 or peak < 1e-3:
        return ""
    return (
        f"a rate that rises to {peak:.2g} within {steps} updates is likely to make a Post-LN model"
        f" of {model.num_layers} layers fail: raise training.warmup_steps or lower"
        " training.learning_rate_scale"
    )


def make_adam(model: nn.Module) -> Adam:
    """Make Adam with beta_1 = 0.9, beta_2 = 0.98, epsilon = 1e-9; the rate is set in each step."""
    on_gpu = next(model.parameters()).is_cuda
    return Adam(
        model.parameters(), lr=0.0, betas=(0.9, 0.98), eps=1e-9, fused=True, capturable=on_gpu
    )


def start_moments(adam: Adam) -> None:
    """Set the moments to zero, as the first update would, so that they can be saved before it."""
    for group in adam.param_groups:
        for parameter in group["params"]:
            adam.state[parameter] = {
                "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }


_POWER = 16


class WeightAverage:
    """The average of a model's weights over its updates, of which the newest have most weight.

    Update k has a weight proportional to k^16 (polynomial-decay averaging, Shamir and Zhang 2013),
    so that it reaches back over about a twentieth of the updates, however many there are. The mean
    of the last checkpoints (section 6.1) is coarser: of a short run, they are too old.
    """

    def __init__(self, model: Transformer) -> None:
        self.model = copy.deepcopy(model).eval()
        """Has the average as its weights, to be validated and saved."""
        self.weights = {name: p.detach() for name, p in self.model.named_parameters()}

    @staticmethod
    def share(step: int) -> float:
        """Compute the share of the weights after update number `step`, from 1."""
        return 1.0 - (1.0 - 1.0 / step) ** (_POWER + 1)

    @torch.no_grad()
    def update(self, model: Transformer, share: Tensor) -> None:
        """Add the weights after an update, with their share."""
        new: list[Tensor] = list(model.parameters())
        average = list(self.weights.values())
        if share.is_cuda:  # in few kernels
            changes = torch._foreach_sub(new, average)
            torch._foreach_mul_(changes, share)
            torch._foreach_add_(average, changes)
            return
        for before, parameter in zip(average, new, strict=True):
            before.lerp_(parameter, share.to(parameter.dtype))

    def load(self, weights: Mapping[str, Tensor]) -> None:
        """Continue from an average that was saved."""
        for name, value in weights.items():
            self.weights[name].copy_(value)
