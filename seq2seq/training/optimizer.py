"""Adam and its learning rate (section 5.3)."""

from torch import nn
from torch.optim import Adam


def learning_rate(step: int, *, d_model: int, warmup_steps: int, scale: float = 1.0) -> float:
    """The rate scale * d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5) (equation 3).

    Args:
        step: the number of the update, from 1.
        d_model: width of the model.
        warmup_steps: updates over which the rate rises; the paper's 4000.
        scale: 1 in the paper.
    """
    return float(scale * d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5))


def make_adam(model: nn.Module) -> Adam:
    """Adam with beta_1 = 0.9, beta_2 = 0.98, epsilon = 1e-9, no weight decay.

    The rate is set before each update from `learning_rate`.
    """
    return Adam(model.parameters(), lr=0.0, betas=(0.9, 0.98), eps=1e-9, fused=True)
