"""Layers in fewer kernels: equation 1, several projections, a linear layer and its ReLU."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import Function, FunctionCtx
from torch.nn import functional as F

from seq2seq.changes import has_hooks
from seq2seq.decoder import override
from seq2seq.fast import is_plain
from seq2seq.transformer import (
    Decoder,
    DecoderLayer,
    FeedForward,
    MultiHeadAttention,
    Transformer,
    attention,
)


def fused_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, dropout: nn.Module
) -> Tensor:
    """Compute `transformer.attention`; dropout must be an `nn.Dropout`."""
    assert isinstance(dropout, nn.Dropout)
    if has_hooks(dropout):  # a hook reads the weights, which the fused kernel never stores
        return attention(query, key, value, mask, dropout)
    rate = dropout.p if dropout.training else 0.0
    return F.scaled_dot_product_attention(query, key, value, mask, rate)


class FusedAttention(MultiHeadAttention):
    """Equation 1 by one kernel."""

    def equation_1(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        """See `MultiHeadAttention.equation_1`."""
        return fused_attention(query, key, value, mask, self.dropout)


def use_fused_attention(model: Transformer) -> None:
    """Compute equation 1 by one kernel in the attentions that compute it as the paper's do."""
    for module in model.modules():
        if isinstance(module, MultiHeadAttention) and has_equation_1(module):
            override(module, FusedAttention)


def has_equation_1(module: MultiHeadAttention) -> bool:
    """Return whether an attention computes equation 1 as the paper's do."""
    return type(module).equation_1 is MultiHeadAttention.equation_1


class JoinedProjections(MultiHeadAttention):
    """Queries, keys and values by one matmul in self-attention, keys and values in the other."""

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        """See `MultiHeadAttention.forward`."""
        if memory is not x:
            return super().forward(x, memory, mask)
        query, key, value = map(self.split_heads, _project(x, self.w_q, self.w_k, self.w_v))
        heads = self.equation_1(query, key, value, mask)  # (B, H, T, d_v)
        return self.w_o(self.concatenate_heads(heads))

    def keys_and_values(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """See `MultiHeadAttention.keys_and_values`."""
        key, value = _project(memory, self.w_k, self.w_v)
        return self.split_heads(key), self.split_heads(value)


def has_matrices(module: MultiHeadAttention) -> bool:
    """Return whether the projections are matrices, and not modules of a user's own."""
    return all(is_plain(linear, nn.Linear) for linear in (module.w_q, module.w_k, module.w_v))


def _project(x: Tensor, *linears: nn.Linear) -> Sequence[Tensor]:
    """Apply linear layers to x in one matmul."""
    weights: list[Tensor] = [linear.weight for linear in linears]
    biases: list[Tensor] = [linear.bias for linear in linears if linear.bias is not None]
    projected = F.linear(x, torch.cat(weights), torch.cat(biases) if biases else None)
    return torch.split(projected, [linear.out_features for linear in linears], dim=-1)


class DecoderWithOneProjection(Decoder):
    """The keys and values of all cross-attentions by one matmul over memory."""

    def forward(
        self, x: Tensor, memory: Tensor, target_mask: Tensor, source_mask: Tensor
    ) -> Tensor:
        """See `Decoder.forward`; a layer gets its keys and values (B, S, ...) as its memory."""
        cross: Any = [layer.cross_attention for layer in self.layers]
        projected = _project(memory, *(linear for each in cross for linear in (each.w_k, each.w_v)))
        keys_and_values = zip(projected[::2], projected[1::2], strict=True)
        for layer, memory_of_layer in zip(self.layers, keys_and_values, strict=True):
            x = layer(x, memory_of_layer, target_mask, source_mask)
        return x


class ProjectedMemory(MultiHeadAttention):
    """Cross-attention in a `DecoderWithOneProjection`."""

    def keys_and_values(self, memory: Any) -> tuple[Tensor, Tensor]:
        """Split keys (B, S, H * K) and values (B, S, H * d_v) into heads."""
        key, value = memory
        return self.split_heads(key), self.split_heads(value)


def project_memory_once(model: Transformer) -> None:
    """Project memory by one matmul in a decoder of the paper's classes with joined projections."""
    layers: Any = list(model.decoder.layers)
    if type(model.decoder) is not Decoder or any(type(each) is not DecoderLayer for each in layers):
        return
    if all(isinstance(layer.cross_attention, JoinedProjections) for layer in layers):
        override(model.decoder, DecoderWithOneProjection)
        for layer in layers:
            override(layer.cross_attention, ProjectedMemory)


class ReluInMatmul(FeedForward):
    """Equation 2 with its first bias and ReLU in the matmul before them."""

    def forward(self, x: Tensor) -> Tensor:
        """See `FeedForward.forward`."""
        weight: Tensor = self.inner.weight
        bias: Tensor = self.inner.bias
        device = x.device.type
        if torch.is_autocast_enabled(device):
            dtype = torch.get_autocast_dtype(device)
            x, weight, bias = x.to(dtype), weight.to(dtype), bias.to(dtype)
        rows = x.flatten(0, -2)  # (B * T, D)
        hidden: Tensor = _LinearRelu.apply(rows, weight, bias)  # type: ignore[no-untyped-call]
        return self.outer(self.dropout(hidden.view(*x.shape[:-1], -1)))


class _LinearRelu(Function):
    """Computes max(0, x W^T + b) of rows x (N, D) by one kernel."""

    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        hidden = torch._addmm_activation(bias, x, weight.t())
        ctx.save_for_backward(x, weight, hidden)
        return hidden

    @staticmethod
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor, ...]:
        x, weight, hidden = ctx.saved_tensors  # type: ignore[attr-defined]
        gradient = gradient * (hidden > 0)
        return gradient @ weight, gradient.t() @ x, gradient.sum(0)


def can_put_relu_in_matmul(module: nn.Module) -> bool:
    """Return whether a module computes equation 2 by a matrix, a bias and the ReLU."""
    if type(module) is not FeedForward or module.activation is not torch.relu:
        return False
    return is_plain(module.inner, nn.Linear) and module.inner.bias is not None
