"""Later changes of the paper's layers; each has a key of its own.

| `model.` | in place of | changed by |
|---|---|---|
| `norm_position=pre` | the norm after the residual sum (3.1) | Xiong et al. 2020 |
| `norm=rms` | LayerNorm (3.1) | Zhang and Sennrich 2019 |
| `positions=rotary` | sinusoids, added to the embeddings (3.5) | Su et al. 2021 |
| `activation=swiglu` | max(0, x) (3.3) | Shazeer 2020 |
| `num_kv_heads=2` | keys and values of each head (3.2.2) | Ainslie et al. 2023 |
| `bias=false` | the biases of feed-forward networks (3.3) and norms | Chowdhery et al. 2022 |

`model=modern_small` and `model=modern_base` have all of them. This file is in the order of
`transformer.py`, and G is the number of heads of keys and values.
"""

import torch
from torch import Tensor, nn

from seq2seq.config import Activation, Norm, NormPosition, Positions, TransformerConfig
from seq2seq.transformer import (
    DecoderLayer,
    EncoderLayer,
    FeedForward,
    MultiHeadAttention,
    PositionalEncoding,
)
from seq2seq.zoo.variants import ACTIVATIONS, VariantTransformer


class ModernTransformer(VariantTransformer):
    """A Transformer of modern layers; with Pre-LN, each stack ends with a norm."""

    def __init__(
        self, config: TransformerConfig, *, init_std: float | None = None, **sizes: int
    ) -> None:
        super().__init__(config, init_std=init_std, **sizes)
        self.encoder.layers = nn.ModuleList(ModernEncoderLayer(config) for _ in self.encoder.layers)
        self.decoder.layers = nn.ModuleList(ModernDecoderLayer(config) for _ in self.decoder.layers)
        if config.positions is Positions.rotary:
            self.positions = NoPositions()
        pre = config.norm_position is NormPosition.pre
        self.encoder_norm = make_norm(config) if pre else nn.Identity()
        self.decoder_norm = make_norm(config) if pre else nn.Identity()
        self.reset_parameters(init_std)

    def encode(self, source: Tensor, source_mask: Tensor) -> Tensor:
        """See `Transformer.encode`."""
        return self.encoder_norm(super().encode(source, source_mask))

    def decode(self, target_input: Tensor, memory: Tensor, source_mask: Tensor) -> Tensor:
        """See `Transformer.decode`."""
        return self.decoder_norm(super().decode(target_input, memory, source_mask))


# 3.1 Encoder and decoder stacks: "Pre-LN" is x + Dropout(Sublayer(LayerNorm(x))), so that no norm
# stands between a layer's input and its output; otherwise a layer is put together as in the paper.


class ModernEncoderLayer(EncoderLayer):
    """A layer of the encoder: self-attention and feed-forward."""

    def __init__(self, config: TransformerConfig) -> None:
        nn.Module.__init__(self)  # without the parts of the paper's layer
        self.pre_norm = config.norm_position is NormPosition.pre
        self.self_attention = ModernAttention(config, is_self=True)
        self.self_attention_norm = make_norm(config)
        self.feed_forward = ModernFeedForward(config)
        self.feed_forward_norm = make_norm(config)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, source_mask: Tensor) -> Tensor:
        """Map x (B, S, D) and source_mask (B, 1, 1, S) to (B, S, D)."""
        if not self.pre_norm:
            return super().forward(x, source_mask)
        y = self.self_attention_norm(x)
        x = x + self.dropout(self.self_attention(y, y, source_mask))
        x = x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        return x


class ModernDecoderLayer(DecoderLayer):
    """A layer of the decoder: self-attention, cross-attention, feed-forward."""

    def __init__(self, config: TransformerConfig) -> None:
        nn.Module.__init__(self)
        self.pre_norm = config.norm_position is NormPosition.pre
        self.self_attention = ModernAttention(config, is_self=True)
        self.self_attention_norm = make_norm(config)
        self.cross_attention = ModernAttention(config, is_self=False)
        self.cross_attention_norm = make_norm(config)
        self.feed_forward = ModernFeedForward(config)
        self.feed_forward_norm = make_norm(config)
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self, x: Tensor, memory: Tensor, target_mask: Tensor, source_mask: Tensor
    ) -> Tensor:
        """Map x (B, T, D), memory (B, S, D), masks (T, T) and (B, 1, 1, S) to (B, T, D)."""
        if not self.pre_norm:
            return super().forward(x, memory, target_mask, source_mask)
        y = self.self_attention_norm(x)
        x = x + self.dropout(self.self_attention(y, y, target_mask))
        y = self.cross_attention_norm(x)
        x = x + self.dropout(self.cross_attention(y, memory, source_mask))
        x = x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        return x


class RMSNorm(nn.LayerNorm):
    """g x / sqrt(mean(x^2) + epsilon): LayerNorm without the mean, and without a bias."""

    def __init__(self, d_model: int, eps: float) -> None:
        super().__init__(d_model, eps=eps, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Normalize x (..., D), in float32 or its own precision, if that is higher."""
        exact = x.to(torch.promote_types(x.dtype, torch.float32))
        mean_square = exact.square().mean(dim=-1, keepdim=True)  # (..., 1)
        return (self.weight * exact * torch.rsqrt(mean_square + self.eps)).to(x.dtype)


def make_norm(config: TransformerConfig) -> nn.LayerNorm:
    """Make the norm of a sublayer, or the last one of a stack."""
    if config.norm is Norm.rms:
        return RMSNorm(config.d_model, config.layer_norm_epsilon)
    return nn.LayerNorm(config.d_model, eps=config.layer_norm_epsilon, bias=config.bias)


# 3.2 Attention


class ModernAttention(MultiHeadAttention):
    """Multi-head attention with rotary positions, if chosen, and G heads of keys and values.

    Query head i uses the keys and values of head i G / H, rounded down. In cross-attention, whose
    queries and keys are in different sentences, there are no positions, as in the paper.
    """

    def __init__(self, config: TransformerConfig, *, is_self: bool) -> None:
        nn.Module.__init__(self)
        d_model, heads, bias = config.d_model, config.num_heads, config.attention_bias
        self.num_heads, self.kv_heads = heads, config.kv_heads
        self.w_q = nn.Linear(d_model, heads * config.key_width, bias=bias)
        self.w_k = nn.Linear(d_model, self.kv_heads * config.key_width, bias=bias)
        self.w_v = nn.Linear(d_model, self.kv_heads * config.value_width, bias=bias)
        self.w_o = nn.Linear(heads * config.value_width, d_model, bias=bias)
        self.dropout = nn.Dropout(config.attention_dropout)
        self.angles: PositionalEncoding | None = None
        if is_self and config.positions is Positions.rotary:
            self.angles = PositionalEncoding()

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        """See `MultiHeadAttention.forward`."""
        key, value = self.keys_and_values(memory)  # (B, G, S, K), (B, G, S, d_v)
        query = self.turn(self.split_heads(self.w_q(x)))  # (B, H, T, K)
        shared_by = self.num_heads // self.kv_heads
        key = key.repeat_interleave(shared_by, dim=1)  # (B, H, S, K)
        value = value.repeat_interleave(shared_by, dim=1)  # (B, H, S, d_v)
        heads = self.equation_1(query, key, value, mask)  # (B, H, T, d_v)
        return self.w_o(self.concatenate_heads(heads))

    def keys_and_values(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Map memory (B, S, D) to keys (B, G, S, K), turned, and values (B, G, S, d_v)."""
        key = self.w_k(memory).unflatten(2, (self.kv_heads, -1)).transpose(1, 2)
        value = self.w_v(memory).unflatten(2, (self.kv_heads, -1)).transpose(1, 2)
        return self.turn(key), value

    def turn(self, heads: Tensor) -> Tensor:
        """Rotate queries or keys (B, H or G, T, K) by their positions, if that is chosen."""
        return heads if self.angles is None else rotate(heads, self.angles(heads[:, 0]))


def rotate(x: Tensor, sinusoids: Tensor) -> Tensor:
    """Turn the pair of features i and i + K / 2 at position pos by pos / 10000^(2i/K).

    So the product of a query and a key depends on how far apart they are, not on where they are.
    Takes x (B, H, T, K), and sines and cosines as section 3.5 interleaves them (T, K).
    """
    sine, cosine = sinusoids[:, 0::2], sinusoids[:, 1::2]  # (T, K / 2)
    first, second = x.chunk(2, dim=-1)  # (B, H, T, K / 2)
    return torch.cat((first * cosine - second * sine, first * sine + second * cosine), dim=-1)


# 3.3 Position-wise feed-forward networks


class ModernFeedForward(FeedForward):
    """SwiGLU, (swish(x W_g) * x W_1) W_2, or equation 2; with or without biases."""

    def __init__(self, config: TransformerConfig) -> None:
        nn.Module.__init__(self)
        width, bias = config.inner_width, config.bias
        self.inner = nn.Linear(config.d_model, width, bias=bias)
        self.outer = nn.Linear(width, config.d_model, bias=bias)
        self.gate: nn.Linear | None = None
        if config.activation is Activation.swiglu:
            self.gate = nn.Linear(config.d_model, width, bias=bias)
        self.activation = ACTIVATIONS[config.activation]
        self.dropout = nn.Dropout(config.relu_dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Map x (B, T, D) to (B, T, D), each position by itself."""
        if self.gate is None:
            return super().forward(x)
        hidden = self.activation(self.gate(x)) * self.inner(x)  # (B, T, inner_width)
        return self.outer(self.dropout(hidden))


# 3.5 Positional encoding


class NoPositions(PositionalEncoding):
    """Zeros, since rotary positions are in the attention."""

    compute = staticmethod(lambda length, d_model: torch.zeros(length, d_model))


def variant_class(config: TransformerConfig) -> type[VariantTransformer]:
    """Return the class of a model that is not the paper's."""
    return ModernTransformer if modern_choices(config) else VariantTransformer


def modern_choices(config: TransformerConfig) -> list[str]:
    """Return the choices that only this file has, such as `norm=rms`."""
    choices = {
        "norm_position": config.norm_position is NormPosition.pre,
        "norm": config.norm is Norm.rms,
        "positions": config.positions is Positions.rotary,
        "activation": config.activation is Activation.swiglu,
        "num_kv_heads": config.num_kv_heads is not None,
        "bias": not config.bias,
    }
    values = ((name, getattr(config, name)) for name, is_modern in choices.items() if is_modern)
    return [f"{name}={getattr(value, 'value', value)}".lower() for name, value in values]
