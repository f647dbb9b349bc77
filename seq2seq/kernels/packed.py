"""Matrices laid out for a processor's kernels, for a model that only translates.

A step of a search multiplies few rows: it takes as long as the matrices take to be read. oneDNN
reads what it has laid out itself faster: a step of 4 rows took 5.0 ms, packed 3.1 (`small`, fp32).
"""

from collections.abc import Callable
from typing import Any, TypeAlias, cast

import torch
from torch import Tensor, nn

from seq2seq.kernels.int8 import input_levels, quantized_product
from seq2seq.model.embedding import Embedding
from seq2seq.model.transformer import Transformer

Product: TypeAlias = Callable[[Tensor], Tensor]
LayOut: TypeAlias = Callable[[Tensor, Tensor | None], Product]
"""What makes a product of a matrix (M, K) and a bias (M,)."""

_OPERATIONS = ("_reorder_linear_weight", "_linear_pointwise", "_is_mkldnn_bf16_supported")


def pack(model: Transformer) -> None:
    """Lay out the matrices of a model on the CPU, in place: it computes the same, untrainable.

    Nothing happens where PyTorch has no oneDNN for the model's precision.
    """
    if can_pack(model.embedding.weight.dtype):
        _replace_products(model, _packed_product)


def quantize(model: Transformer) -> None:
    """Let a float32 model on the CPU multiply in eight bits from now on, untrainable.

    Raises:
        UserError: PyTorch has no such products for this processor.
    """
    input_levels()
    _replace_products(model, quantized_product)


def can_pack(precision: torch.dtype) -> bool:
    """Whether PyTorch has oneDNN's products here, its operations by the names used below."""
    if not (torch.backends.mkldnn.enabled and torch.backends.mkldnn.is_available()):  # type: ignore[no-untyped-call]
        return False
    if not all(hasattr(torch.ops.mkldnn, name) for name in _OPERATIONS):
        return False
    if precision is torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return precision is torch.float32


def _packed_product(matrix: Tensor, bias: Tensor | None) -> Product:
    packed = torch.ops.mkldnn._reorder_linear_weight(matrix)
    return lambda x: cast(
        Tensor, torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")
    )


def _replace_products(model: Transformer, lay_out: LayOut) -> None:
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.Linear):
                setattr(module, name, _PackedLinear(child.weight, child.bias, lay_out))
    model.embedding = cast(Embedding, _PackedEmbedding(model.embedding, lay_out))


class _PackedLinear(nn.Module):
    """In place of nn.Linear and JointProjection; lays out the rows it is asked for, once."""

    def __init__(self, weight: Tensor, bias: Tensor | None, lay_out: LayOut) -> None:
        super().__init__()
        self.weight = weight
        self.bias = bias
        self.lay_out = lay_out
        self.all_rows = (0, len(weight))
        self.products: dict[tuple[int, int], Product] = {}

    def __getstate__(self) -> dict[str, Any]:
        # What is laid out can't be copied: a copy does so for itself.
        return {**self.__dict__, "products": {}}

    def forward(self, x: Tensor) -> Tensor:
        return self.part(x, *self.all_rows)

    def part(self, x: Tensor, first: int, last: int) -> Tensor:
        rows = (first, last)
        if rows not in self.products:
            bias = None if self.bias is None else self.bias[first:last]
            self.products[rows] = self.lay_out(self.weight[first:last], bias)
        return self.products[rows](x)


class _PackedEmbedding(nn.Module):
    """An Embedding whose projection is packed; tokens are looked up in the plain matrix."""

    def __init__(self, embedding: Embedding, lay_out: LayOut) -> None:
        super().__init__()
        self.embedding = embedding
        self.projection = _PackedLinear(embedding.weight, None, lay_out)

    def forward(self, token_ids: Tensor, first_position: int = 0) -> Tensor:
        return cast(Tensor, self.embedding(token_ids, first_position))

    @property
    def weight(self) -> Tensor:
        return self.embedding.weight

    def project(self, states: Tensor) -> Tensor:
        return cast(Tensor, self.projection(states))
