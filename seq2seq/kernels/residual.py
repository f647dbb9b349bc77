"""The sums between the layers in the precision of the products, under autocast.

By itself autocast leaves x in x + Dropout(Sublayer(x)) in float32: twice the memory traffic. Every
sum is normalised at once, and the norms compute in float32 whatever they read.
"""

from typing import Any

import torch
from torch import Tensor, nn

from seq2seq.model.transformer import Transformer


def keep_residuals_low(model: Transformer) -> None:
    """Cast what enters the layers, and what a norm returns, to the precision of autocast.

    On a CPU norms return the precision that they read; on a GPU autocast makes it float32.
    """
    norms = [module for module in model.modules() if isinstance(module, nn.LayerNorm)]
    for module in (model.dropout, *norms):
        module.register_forward_hook(_to_autocast_dtype)


def _to_autocast_dtype(_: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Tensor:
    device = output.device.type
    if torch.is_autocast_enabled(device):
        return output.to(torch.get_autocast_dtype(device))
    return output
