"""Attention within each of several batches that are joined in one, by PyTorch's fused kernels."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F


class Parts(Protocol):
    """Which rows of joined batches attend to which, in place of a mask."""

    def attend(self, query: Tensor, key: Tensor, value: Tensor, heads: int, rate: float) -> Tensor:
        """Compute equation 1 within each part.

        Args:
            query: (1, N, H * K).
            key: (1, M, H * K).
            value: (1, M, H * d_v).
            heads: H.
            rate: of dropout.

        Returns:
            (1, N, H * d_v).
        """


@dataclass(frozen=True)
class PaddedParts:
    """Batches with padding, one kernel for each."""

    queries: list[torch.Size]
    """(B, T) of each batch."""
    keys: list[torch.Size]
    """(B, S) of each batch."""
    masks: Sequence[Tensor | None]
    """(B, 1, 1, S) of each batch; None if all keys may be attended to."""
    causal: bool = False
    """Whether each position attends only to itself and those before it."""

    def attend(self, query: Tensor, key: Tensor, value: Tensor, heads: int, rate: float) -> Tensor:
        """See `Parts.attend`."""
        attended = []
        for q, k, v, mask in zip(
            _divide(query, self.queries, heads),
            _divide(key, self.keys, heads),
            _divide(value, self.keys, heads),
            self.masks,
            strict=True,
        ):
            out = F.scaled_dot_product_attention(q, k, v, mask, rate, is_causal=self.causal)
            attended.append(out.transpose(1, 2).reshape(-1, heads * v.size(3)))
        return torch.cat(attended).unsqueeze(0)


def _divide(x: Tensor, shapes: list[torch.Size], heads: int) -> list[Tensor]:
    """Divide rows (1, N, H * K) into batches (B, H, T, K)."""
    parts = torch.split(x.squeeze(0), [math.prod(shape) for shape in shapes])
    return [
        part.view(*shape, heads, -1).transpose(1, 2)
        for part, shape in zip(parts, shapes, strict=True)
    ]


@dataclass(frozen=True)
class Sentences:
    """Sentences that follow each other without padding."""

    starts: Tensor
    """(B + 1,), int32: the first row of each sentence, then the number of rows."""
    longest: int
    """The length of the longest sentence."""


@dataclass(frozen=True)
class PackedParts:
    """Sentences without padding, one kernel for all of them: on a GPU, in bf16."""

    queries: Sentences
    keys: Sentences
    causal: bool = False
    """Whether each position attends only to itself and those before it."""

    def attend(self, query: Tensor, key: Tensor, value: Tensor, heads: int, rate: float) -> Tensor:
        """See `Parts.attend`; the kernel has no dropout, so the rate must be 0."""
        from torch.nn.attention.varlen import varlen_attn  # takes long to import

        assert rate == 0.0
        attended = varlen_attn(
            query.view(-1, heads, query.size(2) // heads),
            key.view(-1, heads, key.size(2) // heads),
            value.view(-1, heads, value.size(2) // heads),
            self.queries.starts,
            self.keys.starts,
            self.queries.longest,
            self.keys.longest,
            window_size=(-1, 0) if self.causal else (-1, -1),  # all to the left, or all
        )
        assert isinstance(attended, Tensor)
        return attended.flatten(1).unsqueeze(0)
