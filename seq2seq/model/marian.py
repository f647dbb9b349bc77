"""Where models trained with Marian differ from the paper, beside their biases and matrices."""

import torch
from torch import Tensor
from torch.nn import functional as F

from seq2seq.model.config import Activation


def quick_gelu(x: Tensor) -> Tensor:
    """Compute x sigmoid(1.702 x), which Marian calls gelu."""
    return x * torch.sigmoid(1.702 * x)


ACTIVATIONS = {
    Activation.relu: torch.relu,
    Activation.swish: F.silu,
    Activation.gelu: F.gelu,
    Activation.quick_gelu: quick_gelu,
}
"""The function of equation 2 for each choice: in the paper, max(0, x)."""
