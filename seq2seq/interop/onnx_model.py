"""Encoder and decoder as two graphs of ONNX: section 3 of the paper, and what `zoo` has beside it.

The letters of the shapes are those of `transformer.py`; P is the number of target tokens in the
cache. Inputs and outputs have the names of Hugging Face's exports.
"""

import math
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray
from torch import nn

from seq2seq.config import Activation, NormPosition, Positions, TransformerConfig
from seq2seq.interop.onnx_graph import Graph, Precision
from seq2seq.tokenizer import UNKNOWN_ID
from seq2seq.transformer import (
    DecoderLayer,
    Embedding,
    EncoderLayer,
    FeedForward,
    MultiHeadAttention,
    Transformer,
)
from seq2seq.zoo.modern import ModernAttention, ModernFeedForward, ModernTransformer, RMSNorm
from seq2seq.zoo.variants import LearnedPositions, ZeroStartEmbedding

_LAST = 2**31 - 1
"""An end of a slice beyond any length."""


def encoder_graph(model: Transformer, precision: Precision, unlisted: int = 0) -> bytes:
    """Map `input_ids` and `attention_mask` (B, S) to `last_hidden_state` (B, S, D).

    If there are `unlisted` ids after those of the vocabulary, they are read as unknown pieces.
    """
    g = _Layers(model, precision)
    sizes = "batch_size", "encoder_sequence_length"
    ids = g.input("input_ids", "INT64", *sizes)
    mask = g.source_mask(g.input("attention_mask", "INT64", *sizes))  # (B, 1, 1, S)

    if unlisted:
        is_listed = g.node("Less", ids, g.integer(model.embedding.num_embeddings))
        ids = g.node("Where", is_listed, ids, g.integer(UNKNOWN_ID))
    positions = g.range(g.integer(0), g.size(ids, 1))  # (S,)
    x = g.embed(ids, model.embedding, positions)  # (B, S, D)
    for layer in model.encoder.layers:
        assert isinstance(layer, EncoderLayer)
        attend = partial(g.attention, layer.self_attention, mask=mask, positions=positions)
        x = g.sublayer(x, layer.self_attention_norm, attend)
        x = g.sublayer(x, layer.feed_forward_norm, partial(g.feed_forward, layer.feed_forward))
    if isinstance(model, ModernTransformer):
        x = g.norm(x, model.encoder_norm)
    g.output("last_hidden_state", x, *sizes, model.config.d_model)
    return g.serialize("encoder")


def decoder_graph(model: Transformer, precision: Precision) -> bytes:
    """Map `input_ids` (B, T), the encoder's states and the cache to `logits` (B, T, V).

    The cache has the keys and values of each layer: for the decoder's self-attention those of the
    P tokens before, for its attention to the encoder those of all S states. Both have the length 0
    at first; `present` has those of the next step.
    """
    g = _Layers(model, precision)
    sizes = "batch_size", "encoder_sequence_length"
    mask = g.source_mask(g.input("encoder_attention_mask", "INT64", *sizes))  # (B, 1, 1, S)
    ids = g.input("input_ids", "INT64", "batch_size", "decoder_sequence_length")
    memory = g.input("encoder_hidden_states", "FLOAT", *sizes, model.config.d_model)
    caches = [_LayerCache(g, model.config, number) for number in range(model.config.decoder_depth)]

    past, count = g.size(caches[0].past["decoder.key"], 2), g.size(ids, 1)  # P and T
    positions = g.range(past, count)  # (T,)
    causal = g.causal_mask(past, count)  # (T, P + T)
    # The states whose keys the cache doesn't have: all at first, then none.
    first = g.node("Shape", caches[0].past["encoder.key"], start=2, end=3)
    memory = g.node("Slice", memory, first, g.integers(_LAST), g.integers(1))
    x = g.embed(ids, model.target_embedding, positions)  # (B, T, D)
    for layer, cache in zip(model.decoder.layers, caches, strict=True):
        assert isinstance(layer, DecoderLayer)
        attend = partial(g.attention, layer.self_attention, mask=causal, positions=positions)
        x = g.sublayer(x, layer.self_attention_norm, partial(attend, cache=cache))
        cross = partial(g.attention, layer.cross_attention, mask=mask, memory=memory, cache=cache)
        x = g.sublayer(x, layer.cross_attention_norm, cross)
        x = g.sublayer(x, layer.feed_forward_norm, partial(g.feed_forward, layer.feed_forward))
    if isinstance(model, ModernTransformer):
        x = g.norm(x, model.decoder_norm)
    logits = g.product(x, model.output_matrix, model.output_bias)  # (B, T, V)
    g.output("logits", logits, "batch_size", "decoder_sequence_length", model.vocab_size)
    for cache in caches:
        cache.declare_outputs()
    return g.serialize("decoder")


class _Layers(Graph):
    """The parts of section 3 as nodes."""

    def __init__(self, model: Transformer, precision: Precision) -> None:
        super().__init__(model, precision)
        self.model, self.config = model, model.config

    # 3.1 Encoder and decoder stacks

    def sublayer(self, x: str, norm: nn.Module, compute: Callable[[str], str]) -> str:
        """Return LayerNorm(x + Sublayer(x)), or with Pre-LN x + Sublayer(LayerNorm(x))."""
        if self.config.norm_position is NormPosition.pre:
            return self.node("Add", x, compute(self.norm(x, norm)))
        return self.norm(self.node("Add", x, compute(x)), norm)

    def norm(self, x: str, norm: nn.Module) -> str:
        """Normalize x (B, T, D), or return it as it is if the norm is the identity."""
        if not isinstance(norm, nn.LayerNorm):
            return x
        if isinstance(norm, RMSNorm):
            mean_square = self.node("ReduceMean", self.node("Mul", x, x), axes=[-1])  # (B, T, 1)
            root = self.node("Sqrt", self.node("Add", mean_square, self.floats(norm.eps)))
            return self.node("Div", self.node("Mul", x, self.parameter(norm.weight)), root)
        parameters = [self.parameter(each) for each in (norm.weight, norm.bias) if each is not None]
        return self.node("LayerNormalization", x, *parameters, epsilon=norm.eps, axis=-1)

    # 3.2 Attention

    def attention(
        self,
        attention: MultiHeadAttention,
        x: str,
        *,
        mask: str,
        memory: str | None = None,
        positions: str | None = None,
        cache: "_LayerCache | None" = None,
    ) -> str:
        """Attend from x (B, T, D) to itself, or to memory (B, S, D): (B, T, D).

        Keys and values are appended to those in the cache. The positions (T,) are for rotary ones.
        """
        read, count = x if memory is None else memory, attention.num_heads
        shared = attention.kv_heads if isinstance(attention, ModernAttention) else count
        query = self.heads(x, attention.w_q, count)  # (B, H, T, K)
        key = self.heads(read, attention.w_k, shared)  # (B, H, S, K)
        value = self.heads(read, attention.w_v, shared)  # (B, H, S, d_v)
        if positions is not None and self.config.positions is Positions.rotary:
            query, key = self.rotate(query, positions), self.rotate(key, positions)
        if cache is not None:
            key, value = cache.append("decoder" if memory is None else "encoder", key, value)

        query = self.node("Mul", query, self.floats(self.config.key_width**-0.5))
        transposed = self.node("Transpose", key, perm=[0, 1, 3, 2])  # (B, H, K, S)
        scores = self.node("MatMul", query, transposed)  # (B, H, T, S)
        scores = self.node("Where", mask, scores, self.floats(-math.inf))
        y = self.node("MatMul", self.node("Softmax", scores, axis=-1), value)  # (B, H, T, d_v)
        y = self.node("Transpose", y, perm=[0, 2, 1, 3])  # (B, T, H, d_v)
        y = self.node("Reshape", y, self.integers(0, 0, attention.w_o.in_features))
        return self.linear(y, attention.w_o)

    def heads(self, x: str, linear: nn.Linear, count: int) -> str:
        """Map x (B, T, D) to queries, keys or values of each head: (B, H, T, K).

        If there are fewer than H heads, each is repeated for those that share it. No size of a
        shape is -1, because T may be 0.
        """
        width = linear.out_features // count
        y = self.node("Reshape", self.linear(x, linear), self.integers(0, 0, count, width))
        y = self.node("Transpose", y, perm=[0, 2, 1, 3])
        if count == self.config.num_heads:
            return y
        repeated = np.arange(count).repeat(self.config.num_heads // count)
        return self.node("Gather", y, self.integers(*repeated), axis=1)

    def rotate(self, x: str, positions: str) -> str:
        """Turn pairs of features of x (B, H, T, K) by their positions (T,): see `zoo.modern`."""
        width = self.config.key_width
        sine, cosine = self.sines_and_cosines(positions, _frequencies(width))  # (T, K / 2)
        first, second = self.nodes("Split", 2, x, axis=3)  # (B, H, T, K / 2)
        turned = (
            self.node("Sub", self.node("Mul", first, cosine), self.node("Mul", second, sine)),
            self.node("Add", self.node("Mul", first, sine), self.node("Mul", second, cosine)),
        )
        return self.node("Concat", *turned, axis=3)

    def source_mask(self, mask: str) -> str:
        """Map a mask (B, S) of integers to one that is True at tokens (B, 1, 1, S)."""
        is_token = self.node("Greater", mask, self.integer(0))
        return self.node("Unsqueeze", is_token, self.integers(1, 2))

    def causal_mask(self, past: str, count: str) -> str:
        """Let each of T tokens attend to itself and all before it: (T, P + T)."""
        queries = self.node("Unsqueeze", self.range(past, count), self.integers(1))  # (T, 1)
        keys = self.range(self.integer(0), self.node("Add", past, count))  # (P + T,)
        return self.node("LessOrEqual", keys, queries)

    # 3.3 Position-wise feed-forward networks

    def feed_forward(self, module: FeedForward, x: str) -> str:
        """Map x (B, T, D) to (B, T, D), by equation 2 or SwiGLU."""
        hidden = self.linear(x, module.inner)  # (B, T, d_ff)
        if isinstance(module, ModernFeedForward) and module.gate is not None:
            gate = self.activate(self.linear(x, module.gate))
            hidden = self.node("Mul", gate, hidden)
        else:
            hidden = self.activate(hidden)
        return self.linear(hidden, module.outer)

    def activate(self, x: str) -> str:
        """Compute the function of `zoo.variants.ACTIVATIONS` that the configuration names."""
        match self.config.activation:
            case Activation.relu:
                return self.node("Relu", x)
            case Activation.gelu:  # x Phi(x), where Phi(x) = (1 + erf(x / sqrt(2))) / 2
                error = self.node("Erf", self.node("Mul", x, self.floats(math.sqrt(0.5))))
                share = self.node("Add", error, self.floats(1))
                return self.node("Mul", self.node("Mul", x, self.floats(0.5)), share)
            case Activation.quick_gelu:
                scaled = self.node("Mul", x, self.floats(1.702))
                return self.node("Mul", x, self.node("Sigmoid", scaled))
            case Activation.swish | Activation.swiglu:
                return self.node("Mul", x, self.node("Sigmoid", x))

    # 3.4 Embeddings and softmax

    def embed(self, ids: str, embedding: Embedding, positions: str) -> str:
        """Map token ids (B, T) at positions (T,) to embedding + position (B, T, D)."""
        scale = self.floats(math.sqrt(self.config.d_model))
        x = self.node("Mul", self.rows(embedding.weight, ids), scale)
        if isinstance(embedding, ZeroStartEmbedding):
            is_start = self.node("Equal", ids, self.integer(embedding.start_id))
            is_start = self.node("Unsqueeze", is_start, self.integers(2))  # (B, T, 1)
            x = self.node("Where", is_start, self.floats(0), x)
        encodings = self.encode_positions(positions)
        return x if encodings is None else self.node("Add", x, encodings)

    # 3.5 Positional encoding

    def encode_positions(self, positions: str) -> str | None:
        """Map positions (T,) to their encodings (T, D); None if they are in the attention."""
        width = self.config.d_model
        match self.config.positions:
            case Positions.sinusoidal:
                pair = self.sines_and_cosines(positions, _frequencies(width))  # (T, D / 2)
                columns = [self.node("Unsqueeze", each, self.integers(2)) for each in pair]
                interleaved = self.node("Concat", *columns, axis=2)  # (T, D / 2, 2)
                return self.node("Reshape", interleaved, self.integers(0, width))
            case Positions.concatenated:
                half = width // 2
                frequencies = 10000.0 ** -(np.arange(half) / max(half - 1, 1))
                return self.node("Concat", *self.sines_and_cosines(positions, frequencies), axis=1)
            case Positions.learned:
                assert isinstance(self.model.positions, LearnedPositions)
                return self.node("Gather", self.parameter(self.model.positions.weight), positions)
            case Positions.rotary:
                return None

    def sines_and_cosines(self, positions: str, frequencies: NDArray[np.float64]) -> list[str]:
        """Map positions (T,) times frequencies (F,) to their sines and cosines, each (T, F).

        The part of a turn is found in float64, because float32 is too coarse for late positions.
        """
        position = self.node("Unsqueeze", self.cast(positions, "DOUBLE"), self.integers(1))
        turns = self.node("Mul", position, self.floats(frequencies / math.tau, np.float64))
        part = self.node("Mod", turns, self.floats(1, np.float64), fmod=1)
        angle = self.node("Mul", self.cast(part, "FLOAT"), self.floats(math.tau))
        return [self.node("Sin", angle), self.node("Cos", angle)]


def _frequencies(width: int) -> NDArray[np.float64]:
    """Return 1 / 10000^(2i / width), of section 3.5, for each pair of features: (width / 2,)."""
    frequencies: NDArray[np.float64] = 10000.0 ** -(np.arange(0, width, 2) / width)
    return frequencies


class _LayerCache:
    """The keys and values of a layer of the decoder: inputs of the graph, and longer, its outputs.

    They are named `decoder.key` and so on: the side whose states they are made of, and their use.
    """

    def __init__(self, graph: Graph, config: TransformerConfig, layer: int) -> None:
        self._graph, self._heads, self._layer = graph, config.num_heads, layer
        self._widths = {"key": config.key_width, "value": config.value_width}
        self.past = {
            f"{side}.{use}": graph.input(
                f"past_key_values.{layer}.{side}.{use}",
                "FLOAT",
                *("batch_size", config.num_heads, f"past_{side}_sequence_length", width),
            )
            for side in ("decoder", "encoder")
            for use, width in self._widths.items()
        }
        self._present: dict[str, str] = {}

    def append(self, side: str, *key_and_value: str) -> list[str]:
        """Append keys (B, H, T, K) and values (B, H, T, d_v), and return all there are."""
        for use, new in zip(self._widths, key_and_value, strict=True):
            name = f"{side}.{use}"
            self._present[name] = self._graph.node("Concat", self.past[name], new, axis=2)
        return list(self._present.values())[-2:]

    def declare_outputs(self) -> None:
        """Make outputs of what is appended."""
        for name, value in self._present.items():
            side, use = name.split(".")
            shape = "batch_size", self._heads, f"{side}_sequence_length", self._widths[use]
            self._graph.output(f"present.{self._layer}.{name}", value, *shape)
