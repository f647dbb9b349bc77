"""The fast forms for training, put in place by one call."""

from dataclasses import dataclass

import torch
from torch import nn

from seq2seq.kernels.attention import FusedAttention
from seq2seq.kernels.compiled import can_compile
from seq2seq.kernels.dropout import CpuDropout
from seq2seq.kernels.replace import replace_modules
from seq2seq.kernels.residual import cast_residuals
from seq2seq.kernels.sublayers import fuse_sublayer_ends
from seq2seq.model.config import TransformerConfig
from seq2seq.model.transformer import MultiHeadAttention, Transformer


@dataclass(frozen=True, kw_only=True)
class TrainingKernels:
    """The fast forms to use in training; without any, the plain model is trained."""

    attention: bool = True
    """The fused kernel, on a GPU."""
    dropout: bool = True
    """Cheap masks, on a CPU."""
    residual: bool = True
    """Residual sums in autocast's precision."""
    loss: bool = True
    """Projection, loss and gradient in chunks."""
    joined: bool = True
    """Several micro-batches in one forward pass, on a GPU."""
    packed: bool = False
    """Joined micro-batches without padding and one kernel for all of their attention, on a GPU, in
    bf16, without dropout of the weights."""
    compiled: bool = False
    """The loss of a chunk and the ends of sublayers compiled, on a GPU for which PyTorch has a
    compiler."""

    def join_on(self, device: torch.device) -> bool:
        """Return whether micro-batches are joined, which needs the fast attention and loss."""
        return self.joined and self.attention and self.loss and device.type == "cuda"

    def pack_on(self, device: torch.device, dtype: torch.dtype, config: TransformerConfig) -> bool:
        """Return whether joined micro-batches are packed."""
        return (
            self.packed
            and self.join_on(device)
            and dtype is torch.bfloat16
            and config.attention_dropout == 0.0
            and config.key_width == config.value_width
        )


PLAIN = TrainingKernels(attention=False, dropout=False, residual=False, loss=False, joined=False)


def use_training_kernels(
    model: Transformer, kernels: TrainingKernels, device: torch.device
) -> None:
    """Put the fast forms of attention, dropout and residuals into a model, in place.

    Parameters and their names don't change.
    """
    on_gpu = device.type == "cuda"
    if kernels.attention and on_gpu:
        replace_modules(model, MultiHeadAttention, FusedAttention)
    if kernels.dropout and not on_gpu:
        replace_modules(model, nn.Dropout, lambda plain: CpuDropout(plain.p))
    if kernels.residual:
        cast_residuals(model)
    if kernels.compiled and can_compile(device):
        fuse_sublayer_ends(model)
