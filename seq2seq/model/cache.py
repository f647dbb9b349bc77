"""What step-by-step decoding keeps, so that no position is computed twice."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class LayerCache:
    """One decoder layer's keys and values."""

    keys: Tensor
    """(longest, N, H, K): self-attention, filled up to the current position."""
    values: Tensor
    """(longest, N, H, d_v)."""
    memory_keys: Tensor
    """(B, H, S, K): attention to the encoder, once per sentence, not per hypothesis."""
    memory_values: Tensor
    """(B, H, S, d_v)."""

    def append(self, key: Tensor, value: Tensor, position: int) -> None:
        """Store key (N, H, K) and value (N, H, d_v) of one position, growing if needed."""
        if position >= len(self.keys):
            self.keys = _with_room(self.keys, position)
            self.values = _with_room(self.values, position)
        self.keys[position] = key
        self.values[position] = value

    def past(self, length: int) -> tuple[Tensor, Tensor]:
        """Keys and values of the first `length` positions: (length, N, H, K)."""
        return self.keys[:length], self.values[:length]


def _with_room(x: Tensor, used: int) -> Tensor:
    # Twice the room each time: the copies add up to less than one more pass over the cache.
    grown = x.new_empty(max(16, 2 * used), *x.shape[1:])
    grown[:used] = x[:used]
    return grown


def _reordered(x: Tensor, used: int, parents: Tensor) -> Tensor:
    # Of the same room step after step: memory that was freed fits again.
    rows = x.new_empty(len(x), len(parents), *x.shape[2:])
    torch.index_select(x[:used], 1, parents, out=rows[:used])
    return rows


@dataclass
class DecoderCache:
    """The decoder's state between two steps of a search: rows are hypotheses."""

    layers: list[LayerCache]
    source_mask: Tensor | None
    """(B, 1, 1, S), True where the source has a token; None where no sentence is padded."""
    length: int = 0
    """Target positions that are stored."""

    def reorder(self, parents: Tensor) -> None:
        """Let row n go on from what was row parents[n].

        Parents (N,) are rows of the same sentence, of which there may be more or fewer than before.
        """
        for layer in self.layers:
            layer.keys = _reordered(layer.keys, self.length, parents)
            layer.values = _reordered(layer.values, self.length, parents)

    def keep(self, sentences: Tensor, rows: Tensor) -> None:
        """Drop all but `sentences` (indices into B) and their hypotheses `rows` (of N)."""
        if self.source_mask is not None:
            self.source_mask = self.source_mask[sentences]
        self.reorder(rows)
        for layer in self.layers:
            layer.memory_keys = layer.memory_keys.index_select(0, sentences)
            layer.memory_values = layer.memory_values.index_select(0, sentences)
