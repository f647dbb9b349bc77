"""Encoder and decoder layers (section 3.1) and the feed-forward sublayer (section 3.3)."""

from typing import cast

import torch
from torch import Tensor, nn

from seq2seq.model.attention import MultiHeadAttention
from seq2seq.model.cache import LayerCache
from seq2seq.model.config import TransformerConfig
from seq2seq.model.dropout import Dropout


class FeedForward(nn.Module):
    """max(0, x W_1 + b_1) W_2 + b_2 (equation 2)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.inner = nn.Linear(config.d_model, config.d_ff)
        self.outer = nn.Linear(config.d_ff, config.d_model)
        self.dropout = Dropout(config.relu_dropout)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) -> (B, T, D), each position by itself."""
        return cast(Tensor, self.outer(self.dropout(torch.relu(self.inner(x)))))


class AddAndNorm(nn.Module):
    """LayerNorm(x + Dropout(Sublayer(x))): the norm after the sum, "Post-LN" (3.1, 5.4)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_epsilon)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, sublayer_output: Tensor) -> Tensor:
        """X and sublayer_output (B, T, D) -> (B, T, D)."""
        return cast(Tensor, self.norm(x + self.dropout(sublayer_output)))


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward: the left half of Figure 1."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(config)
        self.after_self_attention = AddAndNorm(config)
        self.feed_forward = FeedForward(config)
        self.after_feed_forward = AddAndNorm(config)

    def forward(self, x: Tensor, attention_mask: Tensor | None) -> Tensor:
        """X (B, S, D), attention_mask (B, 1, 1, S) -> (B, S, D)."""
        x = self.after_self_attention(x, self.self_attention(x, None, attention_mask))
        return cast(Tensor, self.after_feed_forward(x, self.feed_forward(x)))


class DecoderLayer(nn.Module):
    """Self-attention, attention to the encoder, feed-forward: the right half of Figure 1."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(config)
        self.after_self_attention = AddAndNorm(config)
        self.cross_attention = MultiHeadAttention(config)
        self.after_cross_attention = AddAndNorm(config)
        self.feed_forward = FeedForward(config)
        self.after_feed_forward = AddAndNorm(config)

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        attention_mask: Tensor,
        source_mask: Tensor | None,
    ) -> Tensor:
        """All target positions at once.

        Args:
            x: (B, T, D).
            memory: (B, S, D), the encoder's states.
            attention_mask: (T, T), causal.
            source_mask: (B, 1, 1, S), or None where no sentence is padded.

        Returns:
            (B, T, D).
        """
        x = self.after_self_attention(x, self.self_attention(x, None, attention_mask))
        attended = self.cross_attention(x, memory, source_mask)
        x = self.after_cross_attention(x, attended)
        return cast(Tensor, self.after_feed_forward(x, self.feed_forward(x)))

    def start(self, memory: Tensor) -> LayerCache:
        """Project memory (B, S, D) once for a whole search; no target position is stored yet."""
        keys, values = self.cross_attention.project_memory(memory)
        return LayerCache(
            keys=keys.new_empty(0, *keys.shape[:2], keys.size(3)),
            values=values.new_empty(0, *values.shape[:2], values.size(3)),
            # Each step multiplies by them: laid out for that once.
            memory_keys=keys.contiguous(),
            memory_values=values.contiguous(),
        )

    def step(
        self, x: Tensor, cache: LayerCache, position: int, source_mask: Tensor | None
    ) -> Tensor:
        """The newest target position alone: x (N, 1, D) -> (N, 1, D)."""
        x = self.after_self_attention(x, self.self_attention.step_self(x, cache, position))
        attended = self.cross_attention.step_memory(x, cache, source_mask)
        x = self.after_cross_attention(x, attended)
        return cast(Tensor, self.after_feed_forward(x, self.feed_forward(x)))
