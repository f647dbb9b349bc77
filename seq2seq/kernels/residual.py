"""Residual sums in autocast's precision.

Autocast leaves x in x + Dropout(Sublayer(x)) in float32, which doubles the memory traffic. Each sum
is normalized at once, and the norms compute in float32 whatever precision they read.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seq2seq.kernels.replace import replace_modules
from seq2seq.model.transformer import Transformer


def cast_residuals(model: Transformer) -> None:
    """Cast the embedded tokens to the precision of autocast, which all norms then keep."""
    replace_modules(model, nn.LayerNorm, ResidualNorm)
    model.dropout.register_forward_hook(_to_autocast_dtype)


class ResidualNorm(nn.LayerNorm):
    """A norm that returns the precision that it reads, sharing the parameters of a plain one.

    A CPU's norm does so by itself. On a GPU autocast copies the input to float32, and without it
    the kernel wants weights in the precision of the input.
    """

    def __init__(self, plain: nn.LayerNorm) -> None:
        nn.Module.__init__(self)
        self.normalized_shape, self.eps = plain.normalized_shape, plain.eps
        self.elementwise_affine = plain.elementwise_affine
        self.weight, self.bias = plain.weight, plain.bias

    def forward(self, x: Tensor) -> Tensor:
        """Normalize x (..., D)."""
        if not x.is_cuda:
            return super().forward(x)
        with torch.autocast("cuda", enabled=False):
            weight, bias = self.weight.to(x.dtype), self.bias.to(x.dtype)
            return F.layer_norm(x, self.normalized_shape, weight, bias, self.eps)


def _to_autocast_dtype(_: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Tensor:
    device = output.device.type
    if torch.is_autocast_enabled(device):
        return output.to(torch.get_autocast_dtype(device))
    return output
