"""The fast forms that a translator uses, put in place by one call."""

from dataclasses import dataclass

import torch

from seq2seq.kernels.attention import FusedAttention, JoinedAttention
from seq2seq.kernels.incremental import FastIncrementalDecoder
from seq2seq.kernels.int8 import input_levels, quantized_product
from seq2seq.kernels.packed import can_pack, pack_linears, packed_product
from seq2seq.kernels.training import replace_modules
from seq2seq.model.incremental import IncrementalDecoder
from seq2seq.model.transformer import MultiHeadAttention, Transformer


@dataclass(frozen=True, kw_only=True)
class TranslationKernels:
    """Which fast forms a translator uses; without any it is the plain model's search."""

    packed: bool = True
    """Matrices laid out for oneDNN, on a CPU."""
    step: bool = True
    """Joined projections and cheap self-attention in a step."""


def use_translation_kernels(
    model: Transformer, dtype: torch.dtype, kernels: TranslationKernels
) -> IncrementalDecoder:
    """Put fast forms into a model, in place, that from now on only translates.

    Args:
        model: on its device, in evaluation mode; in float32 if dtype is torch.int8.
        dtype: of the matrix products: torch.float32, torch.bfloat16, or torch.int8 on a CPU.
        kernels: which ones.

    Returns:
        The decoder that predicts one token at a time.

    Raises:
        UserError: if dtype is torch.int8 and PyTorch has no exact such products for this processor.
    """
    on_gpu = model.embedding.weight.is_cuda
    pack = None
    if dtype is torch.int8:
        input_levels()
        pack = quantized_product
    elif kernels.packed and not on_gpu and can_pack(dtype):
        pack = packed_product
    if pack is not None:
        pack_linears(model, pack)
    elif kernels.step:
        replace_modules(model, MultiHeadAttention, FusedAttention if on_gpu else JoinedAttention)
    if not kernels.step:
        return IncrementalDecoder(model)
    return FastIncrementalDecoder(model, pack)
