"""The fast forms for translation, put in place by one call."""

from dataclasses import dataclass

import torch

from seq2seq.decoder import IncrementalDecoder, incremental_decoder
from seq2seq.fast.decoder import FastIncrementalDecoder, StaticDecoder
from seq2seq.fast.graphs import Buffers, Graphs
from seq2seq.fast.packed import Pack, can_pack, pack_linears, packed_matmul, plain_matmul
from seq2seq.fast.rows import fused_attention
from seq2seq.transformer import Transformer, attention
from seq2seq.zoo.modern import ModernTransformer


@dataclass(frozen=True, kw_only=True)
class TranslationKernels:
    """The fast forms to use in translation; without any, the plain model is searched."""

    packed: bool = True  # matrices in oneDNN's layout, on a CPU
    step: bool = True  # packed projections and cheap self-attention in a search step
    static: bool | None = None  # beam search in few shapes at fixed addresses; by default on a GPU
    graphs: bool = True  # the steps of such a search as CUDA graphs, on a GPU


def use_translation_kernels(
    model: Transformer,
    dtype: torch.dtype,
    kernels: TranslationKernels,
    buffers: Buffers | None = None,
    graphs: Graphs | None = None,
) -> IncrementalDecoder:
    """Put the fast forms into a model, in place; it can no longer be trained or saved.

    With `buffers`, the decoder is a `StaticDecoder`, which keeps its tensors in them. A modern
    model's decoder is the plain one.
    """
    on_gpu = model.embedding.weight.is_cuda
    pack: Pack = plain_matmul
    if kernels.packed and not on_gpu and can_pack(dtype):
        pack = packed_matmul
    if kernels.step or buffers is not None or pack is not plain_matmul:
        pack_linears(model, pack, fused_attention if on_gpu else attention)
    if buffers is not None:
        return StaticDecoder(model, pack, buffers, graphs)
    if kernels.step and not isinstance(model, ModernTransformer):
        return FastIncrementalDecoder(model, pack)
    return incremental_decoder(model)
