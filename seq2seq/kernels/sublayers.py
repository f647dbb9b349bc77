"""The end of a sublayer, LayerNorm(x + Dropout(y)), in one function, to be compiled for a GPU.

One by one, its operations write the mask, the product and the sum to memory, read them again, and
keep them for the backward pass. Compiled, one kernel reads x and y and writes the result. The mask
is computed where it is needed, forward and backward, and never stored.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seq2seq.kernels.replace import replace_modules
from seq2seq.model.transformer import DecoderLayer, EncoderLayer, Transformer

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
