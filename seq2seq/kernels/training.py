"""The fast forms that a training uses, put in place by one call."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import nn

from seq2seq.kernels.attention import FusedAttention, JoinedAttention
from seq2seq.kernels.dropout import CpuDropout
from seq2seq.kernels.residual import keep_residuals_low
from seq2seq.model.transformer import MultiHeadAttention, Transformer

M = TypeVar("M", bound=nn.Module)


@dataclass(frozen=True, kw_only=True)
class TrainingKernels:
    """Which fast forms a training uses; without any it is the plain model's, step for step."""

    attention: bool = True
    """Queries, keys and values by one product; on a GPU the fused kernel."""
    dropout: bool = True
    """Cheap masks on a CPU."""
    residual: bool = True
    """Under autocast, sums between the layers in its precision."""
    loss: bool = True
    """Projection, loss and gradient in chunks."""
    adam: bool = True
    """All of Adam in one operation."""


PLAIN = TrainingKernels(attention=False, dropout=False, residual=False, loss=False, adam=False)


def use_training_kernels(
    model: Transformer, kernels: TrainingKernels, device: torch.device
) -> None:
    """Put the fast forms of attention, dropout and residuals into a model, in place.

    Its parameters and their names stay.
    """
    on_gpu = device.type == "cuda"
    if kernels.attention:
        fast = FusedAttention if on_gpu else JoinedAttention
        replace_modules(model, MultiHeadAttention, fast)
    if kernels.dropout and not on_gpu:
        replace_modules(model, nn.Dropout, lambda plain: CpuDropout(plain.p))
    if kernels.residual:
        keep_residuals_low(model)


def replace_modules(model: nn.Module, kind: type[M], make: Callable[[M], nn.Module]) -> None:
    """Put what `make` makes of each module of a kind in its place."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, kind):
                setattr(parent, name, make(child).train(child.training))
