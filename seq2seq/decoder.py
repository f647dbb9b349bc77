"""The decoder one token at a time, with a cache, so that no position is computed twice.

N = B x beams is the number of hypotheses; those of one sentence are adjacent rows.
"""

from dataclasses import dataclass
from functools import singledispatch
from typing import Self

import torch
from torch import Tensor

from seq2seq.transformer import DecoderLayer, MultiHeadAttention, Transformer, attention


@dataclass
class LayerCache:
    """The keys and values of one decoder layer."""

    keys: Tensor
    """(N, H, T, K), for self-attention to the T positions so far."""
    values: Tensor
    """(N, H, T, d_v)."""
    memory_keys: Tensor
    """(B, H, S, K), for cross-attention: one row per sentence, not per hypothesis."""
    memory_values: Tensor
    """(B, H, S, d_v)."""

    @classmethod
    def start(cls, memory_keys: Tensor, memory_values: Tensor) -> Self:
        """Create a cache with one hypothesis per sentence and no target positions."""
        b, h = memory_keys.shape[:2]
        keys = memory_keys.new_empty(b, h, 0, memory_keys.size(3))
        values = memory_values.new_empty(b, h, 0, memory_values.size(3))
        return cls(keys, values, memory_keys.contiguous(), memory_values.contiguous())

    def append(self, key: Tensor, value: Tensor) -> None:
        """Add the newest position: key (N, H, 1, K), value (N, H, 1, d_v)."""
        self.keys = torch.cat((self.keys, key), dim=2)
        self.values = torch.cat((self.values, value), dim=2)

    def reorder(self, parents: Tensor) -> None:
        """Replace row n by row parents[n]."""
        self.keys = self.keys.index_select(0, parents)
        self.values = self.values.index_select(0, parents)

    def keep_sentences(self, sentences: Tensor) -> None:
        """Drop the cross-attention keys and values of all other sentences."""
        self.memory_keys = self.memory_keys.index_select(0, sentences)
        self.memory_values = self.memory_values.index_select(0, sentences)


@dataclass
class DecoderCache:
    """The state of a search between two steps."""

    layers: list[LayerCache]
    source_mask: Tensor
    """(B, 1, 1, S)."""
    length: int = 0
    """Number of target positions stored."""

    def reorder(self, parents: Tensor) -> None:
        """Replace row n by row parents[n] (N,), a row of the same sentence; N may change."""
        for layer in self.layers:
            layer.reorder(parents)

    def keep(self, sentences: Tensor, rows: Tensor) -> None:
        """Keep only `sentences` (indices into B) and their hypotheses `rows` (indices into N)."""
        self.source_mask = self.source_mask.index_select(0, sentences)
        self.reorder(rows)
        for layer in self.layers:
            layer.keep_sentences(sentences)


class IncrementalDecoder:
    """Predicts the next token as `Transformer.decode` does, with the model in evaluation mode.

    Made by `incremental_decoder`, since modern models have a decoder of their own.
    """

    layer_cache: type[LayerCache] = LayerCache
    attend = staticmethod(attention)

    def __init__(self, model: Transformer) -> None:
        self.model = model
        self.layers = [layer for layer in model.decoder.layers if isinstance(layer, DecoderLayer)]

    def begin(self, source: Tensor) -> DecoderCache:
        """Encode padded sources (B, S), and start a search for their translations."""
        source_mask = self.model.source_mask(source)  # (B, 1, 1, S)
        return self.start(self.model.encode(source, source_mask), source_mask)

    def start(self, memory: Tensor, source_mask: Tensor) -> DecoderCache:
        """Project memory (B, S, D) to each layer's keys and values, once for a whole search."""
        layers = [
            self.layer_cache.start(*self.project_memory(layer.cross_attention, memory))
            for layer in self.layers
        ]
        return DecoderCache(layers, source_mask)

    def step(self, token_ids: Tensor, cache: DecoderCache) -> Tensor:
        """Map the newest token (N,) of each hypothesis to the next one's logits (N, V)."""
        x = self.model.embed(token_ids.unsqueeze(1), cache.length, is_target=True)  # (N, 1, D)
        x = self.decode(x, cache)
        cache.length += 1
        return self.project(x.squeeze(1))

    def decode(self, x: Tensor, cache: DecoderCache) -> Tensor:
        """Map the newest position's x (N, 1, D) to the last layer's state (N, 1, D)."""
        for layer, layer_cache in zip(self.layers, cache.layers, strict=True):
            attended = self.self_attention(layer.self_attention, x, layer_cache)
            x = layer.self_attention_norm(x + attended)
            attended = self.cross_attention(
                layer.cross_attention, x, layer_cache, cache.source_mask
            )
            x = layer.cross_attention_norm(x + attended)
            x = layer.feed_forward_norm(x + layer.feed_forward(x))
        return x

    def project(self, states: Tensor) -> Tensor:
        """Map states (..., D) to logits (..., V)."""
        return self.model.project(states)

    def project_memory(self, module: MultiHeadAttention, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Map memory (B, S, D) to keys (B, H, S, K) and values (B, H, S, d_v)."""
        return module.split_heads(module.w_k(memory)), module.split_heads(module.w_v(memory))

    def self_attention(self, module: MultiHeadAttention, x: Tensor, cache: LayerCache) -> Tensor:
        """Attend from the newest position x (N, 1, D) to all positions so far: (N, 1, D)."""
        query, key, value = (module.split_heads(w(x)) for w in (module.w_q, module.w_k, module.w_v))
        cache.append(key, value)
        no_mask = torch.ones((), dtype=torch.bool, device=x.device)
        heads = self.attend(query, cache.keys, cache.values, no_mask, module.dropout)
        return module.w_o(module.concatenate_heads(heads))  # (N, 1, D)

    def cross_attention(
        self, module: MultiHeadAttention, x: Tensor, cache: LayerCache, source_mask: Tensor
    ) -> Tensor:
        """Attend from x (N, 1, D) to the encoder's states: (N, 1, D).

        The hypotheses of a sentence are the queries of one attention over its memory.
        """
        b = cache.memory_keys.size(0)
        query = module.split_heads(module.w_q(x.view(b, -1, x.size(2))))  # (B, H, beams, K)
        keys, values = cache.memory_keys, cache.memory_values
        heads = self.attend(query, keys, values, source_mask, module.dropout)  # (B, H, beams, d_v)
        return module.w_o(module.concatenate_heads(heads)).view_as(x)  # (B, beams, D), (N, 1, D)


@singledispatch
def incremental_decoder(model: Transformer) -> IncrementalDecoder:
    """Make the plain incremental decoder of any model."""
    return IncrementalDecoder(model)
