"""Scaled dot-product and multi-head attention (section 3.2)."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seq2seq.model.cache import LayerCache
from seq2seq.model.config import TransformerConfig
from seq2seq.model.dropout import Dropout

_recorded: ContextVar[list[Tensor] | None] = ContextVar("_recorded", default=None)


@contextmanager
def record_attention() -> Iterator[list[Tensor]]:
    """Keep the weights of every attention that this thread computes in the meantime (Figures 3-5).

    They are those before dropout, of whole sequences: step-by-step decoding is not recorded.

    Yields:
        A list that grows by a tensor (B, H, T, S) an attention, in the order of computation: of the
        encoder's layers, then of each decoder layer to itself and to the encoder.
    """
    recorded: list[Tensor] = []
    token = _recorded.set(recorded)
    try:
        yield recorded
    finally:
        _recorded.reset(token)


def attention_weights(query: Tensor, key: Tensor, attention_mask: Tensor | None) -> Tensor:
    """softmax(Q K^T / sqrt(d_k)), the left factor of equation 1.

    Args:
        query: (B, H, T, K).
        key: (B, H, S, K).
        attention_mask: True where a query may look, broadcastable to (B, H, T, S), or None.

    Returns:
        (B, H, T, S), each row a distribution over S.
    """
    # Scaling the queries rather than the scores touches T x K numbers instead of T x S.
    scores = (query * (1.0 / math.sqrt(query.size(-1)))) @ key.transpose(-2, -1)  # (B, H, T, S)
    if attention_mask is not None:
        scores = scores.masked_fill(~attention_mask, -math.inf)
    return scores.softmax(dim=-1)


def attend(
    query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, dropout: Dropout
) -> Tensor:
    """softmax(Q K^T / sqrt(d_k)) V (equation 1), with dropout on the weights where that is chosen.

    Returns:
        (B, H, T, d_v).
    """
    recorded = _recorded.get()
    if query.is_cuda and recorded is None:
        # One kernel that keeps the T x S weights out of memory. On a CPU its bf16 backward takes
        # three times as long as these products: 27 ms against 8 for 4,096 x 512.
        rate = dropout.rate if dropout.training else 0.0
        return F.scaled_dot_product_attention(query, key, value, attention_mask, rate)
    weights = attention_weights(query, key, attention_mask)
    if recorded is not None:
        recorded.append(weights)
    return cast(Tensor, dropout(weights)) @ value


class JointProjection(nn.Linear):
    """W^Q, W^K and W^V of all heads as the rows of one matrix: self-attention is one product."""

    def part(self, x: Tensor, first: int, last: int) -> Tensor:
        """The product with the rows from `first` to before `last`: (..., D) -> (..., rows)."""
        bias = self.bias
        return F.linear(x, self.weight[first:last], None if bias is None else bias[first:last])


class MultiHeadAttention(nn.Module):
    """Concat(head_1, ..., head_h) W^O, head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V) (3.2.2)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.num_heads = config.num_heads
        self.query_size = config.num_heads * config.key_width
        self.value_size = config.num_heads * config.value_width
        self.rows = 2 * self.query_size + self.value_size
        self.projection = JointProjection(config.d_model, self.rows, bias=config.attention_bias)
        self.output = nn.Linear(self.value_size, config.d_model, bias=config.attention_bias)
        self.dropout = Dropout(config.attention_dropout)

    def forward(self, x: Tensor, memory: Tensor | None, attention_mask: Tensor | None) -> Tensor:
        """Attend from each position of x to the positions of x, or of memory where it is given.

        Args:
            x: (B, T, D).
            memory: (B, S, D), or None for self-attention.
            attention_mask: broadcastable to (B, H, T, S), True where a position may be attended to.

        Returns:
            (B, T, D).
        """
        if memory is None:
            query, key, value = self._project_all(x)
        else:
            query = self.project_query(x)
            key, value = self.project_memory(memory)
        return self._merge_heads(attend(query, key, value, attention_mask, self.dropout))

    def project_query(self, x: Tensor) -> Tensor:
        """Queries alone: (B, T, D) -> (B, H, T, K)."""
        return self._split_heads(self.projection.part(x, 0, self.query_size))

    def project_memory(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of the encoder's states: (B, S, D) -> (B, H, S, K), (B, H, S, d_v)."""
        projected = self.projection.part(memory, self.query_size, self.rows)
        key, value = torch.split(projected, [self.query_size, self.value_size], dim=-1)
        return self._split_heads(key), self._split_heads(value)

    def step_self(self, x: Tensor, cache: LayerCache, position: int) -> Tensor:
        """Self-attention of the newest target position: x (N, 1, D) -> (N, 1, D)."""
        query, key, value = (part.squeeze(2) for part in self._project_all(x))  # (N, H, K)
        cache.append(key, value, position)
        keys, values = cache.past(position + 1)  # (T, N, H, K)
        # One query a head makes products of a row and a small matrix: to multiply and to sum the
        # whole lot took half their time. The newest position may look at all before it: no mask.
        scores = (keys * (query * (1.0 / math.sqrt(query.size(-1))))).sum(dim=-1)  # (T, N, H)
        attended = (scores.softmax(dim=0).unsqueeze(-1) * values).sum(dim=0)  # (N, H, d_v)
        return self._merge_heads(attended.unsqueeze(2))

    def step_memory(self, x: Tensor, cache: LayerCache, attention_mask: Tensor | None) -> Tensor:
        """Attention to the encoder's states: x (N, 1, D) -> (N, 1, D).

        The beams of a sentence are the queries of one attention over that sentence's memory, so
        that neither keys nor values are copied per hypothesis.
        """
        sentences = cache.memory_keys.size(0)
        beam_size = x.size(0) // sentences
        query = self.project_query(x.view(sentences, beam_size, -1))  # (B, H, beam, K)
        weights = attention_weights(query, cache.memory_keys, attention_mask)
        return self._merge_heads(weights @ cache.memory_values).view(x.size(0), 1, -1)

    def _project_all(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        sizes = [self.query_size, self.query_size, self.value_size]
        query, key, value = torch.split(self.projection(x), sizes, dim=-1)
        return self._split_heads(query), self._split_heads(key), self._split_heads(value)

    def _split_heads(self, x: Tensor) -> Tensor:
        # (B, T, HK) -> (B, H, T, K)
        return x.view(x.size(0), x.size(1), self.num_heads, -1).transpose(1, 2)

    def _merge_heads(self, x: Tensor) -> Tensor:
        # (B, H, T, K) -> (B, T, HK) -> (B, T, D)
        return cast(Tensor, self.output(x.transpose(1, 2).flatten(2)))


def causal_mask(length: int, device: torch.device) -> Tensor:
    """True at (t, s) for s <= t: a target position sees itself and what is before it (3.2.3).

    Returns:
        (length, length).
    """
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()
