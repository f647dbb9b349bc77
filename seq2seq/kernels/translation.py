"""The fast forms that a translator uses, put in place by one call."""

from dataclasses import dataclass

import torch

from seq2seq.kernels.attention import fused_attention
from seq2seq.kernels.incremental import FastIncrementalDecoder
from seq2seq.kernels.int8 import input_levels, quantized_product
from seq2seq.kernels.packed import (
    Pack,
    can_pack,
    pack_linears,
    packed_product,
    plain_product,
)
from seq2seq.model.incremental import IncrementalDecoder
from seq2seq.model.transformer import Transformer, attention


@dataclass(frozen=True, kw_only=True)
class TranslationKernels:
    """Which fast forms a translator uses; without any it is the plain model's search."""

    packed: bool = True
    """Matrices laid out for oneDNN, on a CPU."""
    step: bool = True
    """Joined projections and cheap self-attention in a step."""
    topk: bool = True
    """Candidates of a few sentences at a time, by the maxima of blocks."""


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
    pack: Pack = plain_product
    if dtype is torch.int8:
        input_levels()
        pack = quantized_product
    elif kernels.packed and not on_gpu and can_pack(dtype):
        pack = packed_product
    if kernels.step or pack is not plain_product:
        pack_linears(model, pack, fused_attention if on_gpu else attention)
    return FastIncrementalDecoder(model, pack) if kernels.step else IncrementalDecoder(model)
