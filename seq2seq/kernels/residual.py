"""Residual sums in autocast's precision.

Autocast leaves x in x + Dropout(Sublayer(x)) in float32, which doubles the memory traffic. Each sum
is normalized at once, and the norms compute in float32 whatever precision they read.
"""

from typing import Any

import torch
from torch import Tensor, nn

from seq2seq.model.transformer import Transformer


def cast_residuals(model: Transformer) -> None:
    """Cast the embedded tokens and the output of each norm to the precision of autocast.

    On a CPU a norm returns the precision that it reads; on a GPU autocast makes it float32.
    """
    norms = [module for module in model.modules() if isinstance(module, nn.LayerNorm)]
    for module in (model.dropout, *norms):
        module.register_forward_hook(_to_autocast_dtype)


def _to_autocast_dtype(_: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Tensor:
    device = output.device.type
    if torch.is_autocast_enabled(device):
        return output.to(torch.get_autocast_dtype(device))
    return output
