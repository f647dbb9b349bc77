"""Matrices in oneDNN's own layout, for `nn.Linear` and `MultiHeadAttention` in translation.

A search step multiplies few rows, so it spends its time on reading the matrices: a step of 4 rows
took 5.0 ms, with packed matrices 3.1 ms (`model=small`, float32). Where oneDNN can't pack, and on a
GPU, the matrices stay as they are; attention still gets its projections by fewer matmuls.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seq2seq.decoder import cache_of_step
from seq2seq.fast import replace_modules
from seq2seq.fast.fused import has_matrices
from seq2seq.transformer import MultiHeadAttention, Transformer


def round_batch_size(sentences: int) -> int:
    """Round a number of sentences up to one of few: all to 8, then four to each power of two."""
    multiple = 1 << max(0, (sentences - 1).bit_length() - 3)
    return -(-sentences // multiple) * multiple


def round_rows(rows: int) -> int:
    """Round a number of rows up to 1, 2 or four times a `round_batch_size`."""
    # Four rows take no longer than one.
    return rows if rows <= 2 else 4 * round_batch_size(-(-rows // 4))


Matmul: TypeAlias = Callable[[Tensor], Tensor]
"""Maps x (..., K) to (..., M), each row from its own row alone."""
Pack: TypeAlias = Callable[[Tensor, Tensor | None], Matmul]
"""Takes a matrix W (M, K) and a bias b (M,) or None, and makes the function x -> x W^T + b."""


def fill_up_rows(matmul: Matmul) -> Matmul:
    """Make a matmul that computes rounded numbers of rows, filled up with zeros.

    oneDNN compiles code for each new number of rows, and keeps it.
    """

    def filled_up(x: Tensor) -> Tensor:
        count = x.numel() // x.size(-1)
        missing = round_rows(count) - count
        if not missing:
            return matmul(x)
        y = matmul(F.pad(x.reshape(count, -1), (0, 0, 0, missing)))
        return y[:count].view(*x.shape[:-1], -1)

    return filled_up


_OPERATIONS = ("_reorder_linear_weight", "_linear_pointwise", "_is_mkldnn_bf16_supported")


def can_pack(dtype: torch.dtype) -> bool:
    """Return whether PyTorch has the oneDNN operations on this processor."""
    if not (torch.backends.mkldnn.enabled and torch.backends.mkldnn.is_available()):  # type: ignore[no-untyped-call]
        return False
    if not all(hasattr(torch.ops.mkldnn, name) for name in _OPERATIONS):
        return False
    if dtype is torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return dtype is torch.float32


def packed_matmul(matrix: Tensor, bias: Tensor | None) -> Matmul:
    """Make the matmul with a matrix (M, K) in oneDNN's layout."""
    packed = torch.ops.mkldnn._reorder_linear_weight(matrix)

    def matmul(x: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")

    return fill_up_rows(matmul)


def plain_matmul(matrix: Tensor, bias: Tensor | None) -> Matmul:
    """Make the matmul with a matrix (M, K) as it is."""
    return partial(F.linear, weight=matrix, bias=bias)


def pack_linears(model: Transformer, pack: Pack, *, attentions: bool) -> None:
    """Replace the linear layers of a model, in place; it can no longer be trained or saved.

    With `attentions`, those of the paper get their projections by fewer matmuls.
    """
    if attentions:
        replace_modules(
            model, MultiHeadAttention, lambda m: PackedAttention(m, pack) if has_matrices(m) else m
        )
    replace_modules(model, nn.Linear, lambda m: PackedLinear(m, pack))


class PackedMatmul:
    """The matmul with several matrices, stacked by rows and packed at the first use.

    There is a bias for each matrix, or None for all of them.
    """

    def __init__(self, pack: Pack, *layers: tuple[Tensor, Tensor | None]) -> None:
        self.pack, self.layers = pack, layers
        self.matmul: Matmul | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """Map x (..., K) to (..., rows of all matrices)."""
        if self.matmul is None:
            matrices, biases = zip(*self.layers, strict=True)
            bias = None if biases[0] is None else torch.cat(biases)
            self.matmul = self.pack(torch.cat(matrices), bias)
        return self.matmul(x)

    def __getstate__(self) -> dict[str, Any]:
        # A packed matrix can't be copied, so a copy packs its own.
        return {**self.__dict__, "matmul": None}


class PackedLinear(nn.Linear):
    """A linear layer with a packed matrix."""

    def __init__(self, plain: nn.Linear, pack: Pack) -> None:
        self.__dict__.update(plain.__dict__)
        self.matmul = PackedMatmul(pack, (plain.weight, plain.bias))

    def forward(self, x: Tensor) -> Tensor:
        """Map x (..., in_features) to (..., out_features)."""
        return self.matmul(x)


class PackedAttention(MultiHeadAttention):
    """Self-attention by one matmul for W^Q, W^K and W^V, cross-attention by one for W^K and W^V."""

    def __init__(self, plain: MultiHeadAttention, pack: Pack) -> None:
        self.__dict__.update(plain.__dict__)
        layers = [(linear.weight, linear.bias) for linear in (plain.w_q, plain.w_k, plain.w_v)]
        self.sizes = [len(matrix) for matrix, _ in layers]
        self.kv = PackedMatmul(pack, *layers[1:])
        self.qkv = PackedMatmul(pack, *layers)

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        """See `MultiHeadAttention.forward`."""
        if memory is not x or cache_of_step() is not None:  # other keys are in the cache
            return super().forward(x, memory, mask)
        query, key, value = map(self.split_heads, self.project_self(x))
        heads = self.equation_1(query, key, value, mask)  # (B, H, T, d_v)
        return self.w_o(self.concatenate_heads(heads))

    def project_self(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Map x (B, T, D) to queries and keys (B, T, H * K), and values (B, T, H * d_v)."""
        query, key, value = torch.split(self.qkv(x), self.sizes, dim=-1)
        return query, key, value

    def keys_and_values(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """See `MultiHeadAttention.keys_and_values`."""
        key, value = torch.split(self.kv(memory), self.sizes[1:], dim=-1)
        return self.split_heads(key), self.split_heads(value)
