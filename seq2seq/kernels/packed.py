"""Matrices laid out once as oneDNN reads them, in place of `nn.Linear`, for translation on a CPU.

A step of a search multiplies few rows, and takes as long as the matrices take to be read: a step of
4 rows took 5.0 ms, packed 3.1 (`model=small`, float32).
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from seq2seq.kernels.attention import JoinedAttention
from seq2seq.model.transformer import MultiHeadAttention, Transformer

Product: TypeAlias = Callable[[Tensor], Tensor]
Pack: TypeAlias = Callable[[Tensor, Tensor | None], Product]
"""Makes x -> x W^T + b of a matrix W (M, K) and a bias b (M,)."""

_OPERATIONS = ("_reorder_linear_weight", "_linear_pointwise", "_is_mkldnn_bf16_supported")


def can_pack(dtype: torch.dtype) -> bool:
    """Whether PyTorch has oneDNN's products for this processor, under the names used here."""
    if not (torch.backends.mkldnn.enabled and torch.backends.mkldnn.is_available()):  # type: ignore[no-untyped-call]
        return False
    if not all(hasattr(torch.ops.mkldnn, name) for name in _OPERATIONS):
        return False
    if dtype is torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return dtype is torch.float32


def packed_product(matrix: Tensor, bias: Tensor | None) -> Product:
    """The product with a matrix (M, K) that is laid out for oneDNN."""
    packed = torch.ops.mkldnn._reorder_linear_weight(matrix)

    def product(x: Tensor) -> Tensor:
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")
        return y

    return product


def pack_linears(model: Transformer, pack: Pack) -> None:
    """Replace the linear layers of a model in place: it can no longer be trained or saved."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, MultiHeadAttention):
                setattr(parent, name, PackedAttention(child, pack))
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Linear):
                setattr(parent, name, PackedLinear(child, pack))


class PackedProduct:
    """The product with some matrices one below the other, packed when it is first used."""

    def __init__(
        self, weights: Sequence[Tensor], biases: Sequence[Tensor | None], pack: Pack
    ) -> None:
        self.weights = weights
        self.biases = [bias for bias in biases if bias is not None]
        self.pack = pack
        self.product: Product | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """(..., K) -> (..., rows of all matrices)."""
        if self.product is None:
            bias = torch.cat(self.biases) if self.biases else None
            self.product = self.pack(torch.cat(list(self.weights)), bias)
        return self.product(x)

    def __getstate__(self) -> dict[str, Any]:
        # What is packed can't be copied: a copy packs for itself.
        return {**self.__dict__, "product": None}


class PackedLinear(nn.Linear):
    """A linear layer that multiplies by its packed matrix."""

    def __init__(self, plain: nn.Linear, pack: Pack) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = plain.in_features, plain.out_features
        self.weight, self.bias = plain.weight, plain.bias
        self.product = PackedProduct([plain.weight], [plain.bias], pack)

    def forward(self, x: Tensor) -> Tensor:
        """(..., in_features) -> (..., out_features)."""
        return self.product(x)


class PackedAttention(JoinedAttention):
    """Attention that multiplies by packed matrices, joined as in `JoinedAttention`."""

    def __init__(self, plain: MultiHeadAttention, pack: Pack) -> None:
        super().__init__(plain)
        w_q, w_k, w_v = plain.w_q, plain.w_k, plain.w_v
        self.sizes = [w_q.out_features, w_k.out_features, w_v.out_features]
        weights, biases = [w_q.weight, w_k.weight, w_v.weight], [w_q.bias, w_k.bias, w_v.bias]
        self.q = PackedProduct(weights[:1], biases[:1], pack)
        self.kv = PackedProduct(weights[1:], biases[1:], pack)
        self.qkv = PackedProduct(weights, biases, pack)

    def project_self(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """As `JoinedAttention.project_self`."""
        query, key, value = torch.split(self.qkv(x), self.sizes, dim=-1)
        return query, key, value

    def project_query(self, x: Tensor) -> Tensor:
        """As `JoinedAttention.project_query`."""
        return self.q(x)

    def project_memory(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """As `JoinedAttention.project_memory`."""
        key, value = torch.split(self.kv(memory), self.sizes[1:], dim=-1)
        return key, value
