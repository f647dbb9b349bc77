"""The fast forms for training, put in place by one call."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seq2seq.device import Compute
from seq2seq.fast import replace_modules
from seq2seq.fast.joined import Parts
from seq2seq.fast.loss import can_compile
from seq2seq.model.config import TransformerConfig
from seq2seq.model.transformer import (
    DecoderLayer,
    EncoderLayer,
    MultiHeadAttention,
    Transformer,
    attention,
)


def fused_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, dropout: nn.Module
) -> Tensor:
    """Compute `model.transformer.attention`; dropout must be an `nn.Dropout`."""
    assert isinstance(dropout, nn.Dropout)
    if dropout._forward_pre_hooks:  # a hook reads the weights, which the fused kernel never stores
        return attention(query, key, value, mask, dropout)
    rate = dropout.p if dropout.training else 0.0
    return F.scaled_dot_product_attention(query, key, value, mask, rate)


class FusedAttention(MultiHeadAttention):
    """Multi-head attention by the fused kernel, sharing the parameters of a plain module."""

    def __init__(self, plain: MultiHeadAttention) -> None:
        nn.Module.__init__(self)
        self.num_heads = plain.num_heads
        self.w_q, self.w_k, self.w_v, self.w_o = plain.w_q, plain.w_k, plain.w_v, plain.w_o
        self.dropout = plain.dropout

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor | Parts) -> Tensor:
        """See `MultiHeadAttention.forward`; `Parts` are of several batches at once."""
        output: Tensor
        if not isinstance(mask, Tensor):
            assert isinstance(self.dropout, nn.Dropout)
            rate = self.dropout.p if self.dropout.training else 0.0
            projected = self.w_q(x), self.w_k(memory), self.w_v(memory)
            output = self.w_o(mask.attend(*projected, self.num_heads, rate))
            return output
        query = self.split_heads(self.w_q(x))  # (B, H, T, K)
        key = self.split_heads(self.w_k(memory))  # (B, H, S, K)
        value = self.split_heads(self.w_v(memory))  # (B, H, S, d_v)
        heads = fused_attention(query, key, value, mask, self.dropout)  # (B, H, T, d_v)
        output = self.w_o(self.concatenate_heads(heads))
        return output


_RANDOM_BITS = 16


def random_keep_mask(x: Tensor, rate: float) -> Tensor:
    """Draw a mask of the shape and dtype of x: 0 with probability `rate`, else 1 / (1 - rate).

    PyTorch draws a random number for each element. Here each 64-bit number serves four elements,
    and the comparison writes the dtype of x: 4,600 x 512 elements take 1.5 ms instead of 14. The
    rate is rounded to a multiple of 2**-16.
    """
    seed = int(torch.randint(2**63 - 1, ()))
    generator = np.random.Generator(np.random.SFC64(seed))
    words = generator.integers(0, 2**64, -(-x.numel() // 4), dtype=np.uint64)
    bits = torch.from_numpy(words.view(np.int16))[: x.numel()].view(x.shape)
    threshold = round(rate * 2**_RANDOM_BITS) - 2 ** (_RANDOM_BITS - 1)
    return torch.ge(bits, threshold, out=torch.empty_like(x)).mul_(1.0 / (1.0 - rate))


class CpuDropout(nn.Dropout):
    """Zero each element with probability p in training and scale the others up, on a CPU."""

    def forward(self, x: Tensor) -> Tensor:
        """Drop elements of x, of any shape; in evaluation mode, return x itself."""
        if not self.training or self.p == 0.0:
            return x
        return x * random_keep_mask(x, self.p)


def cast_residuals(model: Transformer) -> None:
    """Cast the embedded tokens to the precision of autocast, which all norms then keep."""
    replace_modules(model, nn.LayerNorm, ResidualNorm)
    model.dropout.register_forward_hook(_to_autocast_dtype)


class ResidualNorm(nn.LayerNorm):
    """A norm that returns the precision that it reads, sharing the parameters of a plain one.

    A CPU's norm does so by itself. On a GPU autocast copies the input to float32, and without it
    the kernel wants weights in the precision of the input.
    """

    def __init__(self, plain: nn.LayerNorm) -> None:
        nn.Module.__init__(self)
        self.normalized_shape, self.eps = plain.normalized_shape, plain.eps
        self.elementwise_affine = plain.elementwise_affine
        self.weight, self.bias = plain.weight, plain.bias

    def forward(self, x: Tensor) -> Tensor:
        """Normalize x (..., D)."""
        if not x.is_cuda:
            return super().forward(x)
        with torch.autocast("cuda", enabled=False):
            weight, bias = self.weight.to(x.dtype), self.bias.to(x.dtype)
            return F.layer_norm(x, self.normalized_shape, weight, bias, self.eps)


def _to_autocast_dtype(_: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Tensor:
    device = output.device.type
    if torch.is_autocast_enabled(device):
        return output.to(torch.get_autocast_dtype(device))
    return output


AddAndNorm: TypeAlias = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
"""`add_and_norm` of one rate and one epsilon, compiled or not."""
MakeAddAndNorm: TypeAlias = Callable[[float, float], AddAndNorm]
"""Makes it for a rate and an epsilon."""


def keep_mask(shape: torch.Size, rate: float, key: Tensor) -> Tensor:
    """Make a mask that is False with probability `rate`, a function of the key and the place.

    It is the same on every device, compiled or not, because it is a hash in integers.

    Args:
        shape: of the mask.
        rate: rounded to a multiple of 2**-32.
        key: (2,), int32.
    """
    places = torch.arange(shape.numel(), dtype=torch.int32, device=key.device)
    bits = _hash(_hash(places ^ key[0]) ^ key[1])
    return torch.ge(bits, round(rate * 2**32) - 2**31).view(shape)


def _hash(x: Tensor) -> Tensor:
    """Hash int32 numbers by Wellons' `lowbias32`."""
    x = (x ^ _shift_right(x, 16)) * 0x7FEB352D
    x = (x ^ _shift_right(x, 15)) * (0x846CA68B - 2**32)
    return x ^ _shift_right(x, 16)


def _shift_right(x: Tensor, bits: int) -> Tensor:
    """Shift int32 numbers to the right, with zeros from the left."""
    shifted: Tensor = (x >> bits) & (2 ** (32 - bits) - 1)
    return shifted


def add_and_norm(
    x: Tensor, y: Tensor, weight: Tensor, bias: Tensor, key: Tensor, *, rate: float, epsilon: float
) -> Tensor:
    """Compute LayerNorm(x + Dropout(y)) in at least float32; the result has the precision of x.

    Args:
        x: (..., D), what the sublayer read.
        y: (..., D), what it computed.
        weight: (D,), the norm's.
        bias: (D,), the norm's.
        key: the key of dropout's mask.
        rate: of dropout.
        epsilon: the norm's.
    """
    exact = torch.promote_types(x.dtype, torch.float32)
    dropped = y.to(exact) * keep_mask(y.shape, rate, key) / (1.0 - rate)
    return F.layer_norm(x.to(exact) + dropped, weight.shape, weight, bias, epsilon).to(x.dtype)


@cache
def compiled_add_and_norm(rate: float, epsilon: float) -> AddAndNorm:
    """Compile `add_and_norm`: for the first number of tokens, then once for all others."""
    # Not with dynamic=True: then the rate varies too, and forward takes three kernels, not one.
    compiled: AddAndNorm = torch.compile(partial(add_and_norm, rate=rate, epsilon=epsilon))
    return compiled


def fuse_sublayer_ends(model: Transformer, make: MakeAddAndNorm = compiled_add_and_norm) -> None:
    """Let each layer end its sublayers by `add_and_norm` in training, in place."""
    replace_modules(model, EncoderLayer, lambda plain: FusedEncoderLayer(plain, make))
    replace_modules(model, DecoderLayer, lambda plain: FusedDecoderLayer(plain, make))


class FusedEncoderLayer(EncoderLayer):
    """A layer of the encoder with the modules of a plain one."""

    def __init__(self, plain: EncoderLayer, make: MakeAddAndNorm) -> None:
        nn.Module.__init__(self)
        self._modules.update(plain._modules)
        self.make = make

    def forward(self, x: Tensor, source_mask: Tensor) -> Tensor:
        """See `EncoderLayer.forward`."""
        attended = self.self_attention(x, x, source_mask)
        x = _end(self, self.self_attention_norm, x, attended)
        return _end(self, self.feed_forward_norm, x, self.feed_forward(x))


class FusedDecoderLayer(DecoderLayer):
    """A layer of the decoder with the modules of a plain one."""

    def __init__(self, plain: DecoderLayer, make: MakeAddAndNorm) -> None:
        nn.Module.__init__(self)
        self._modules.update(plain._modules)
        self.make = make

    def forward(
        self, x: Tensor, memory: Tensor, target_mask: Tensor, source_mask: Tensor
    ) -> Tensor:
        """See `DecoderLayer.forward`."""
        attended = self.self_attention(x, x, target_mask)
        x = _end(self, self.self_attention_norm, x, attended)
        attended = self.cross_attention(x, memory, source_mask)
        x = _end(self, self.cross_attention_norm, x, attended)
        return _end(self, self.feed_forward_norm, x, self.feed_forward(x))


def _end(
    layer: FusedEncoderLayer | FusedDecoderLayer, norm: nn.LayerNorm, x: Tensor, y: Tensor
) -> Tensor:
    rate = layer.dropout.p
    if not layer.training or rate == 0.0:
        plain: Tensor = norm(x + y)
        return plain
    limits = torch.iinfo(torch.int32)
    key = torch.randint(limits.min, limits.max, (2,), dtype=torch.int32, device=x.device)
    with torch.autocast(x.device.type, enabled=False):
        return layer.make(rate, norm.eps)(x, y, norm.weight, norm.bias, key)


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

    def join_on(self, compute: Compute) -> bool:
        """Return whether micro-batches are joined, which needs the fast attention and loss."""
        return self.joined and self.attention and self.loss and compute.on_gpu

    def pack_on(self, compute: Compute, config: TransformerConfig) -> bool:
        """Return whether joined micro-batches are packed."""
        return (
            self.packed
            and self.join_on(compute)
            and compute.dtype is torch.bfloat16
            and config.attention_dropout == 0.0
            and config.key_width == config.value_width
        )


PLAIN = TrainingKernels(attention=False, dropout=False, residual=False, loss=False, joined=False)


def use_training_kernels(model: Transformer, kernels: TrainingKernels, compute: Compute) -> None:
    """Put the fast forms of attention, dropout and residuals into a model, in place.

    Parameters and their names don't change.
    """
    if kernels.attention and compute.on_gpu:
        replace_modules(model, MultiHeadAttention, FusedAttention)
    if kernels.dropout and not compute.on_gpu:
        replace_modules(model, nn.Dropout, lambda plain: CpuDropout(plain.p))
    if kernels.residual:
        cast_residuals(model)
    if kernels.compiled and can_compile(compute.device):
        fuse_sublayer_ends(model)
