"""Token embeddings (section 3.4) and positions (section 3.5)."""

import math
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seq2seq.errors import UserError
from seq2seq.model.config import Positions, Start, TransformerConfig
from seq2seq.model.dropout import Dropout


def sinusoids(length: int, d_model: int) -> Tensor:
    """PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos(pos / 10000^(2i/d)) (3.5).

    Returns:
        (length, d_model), float64.
    """
    position = torch.arange(length, dtype=torch.float64).unsqueeze(1)
    even = torch.arange(0, d_model, 2, dtype=torch.float64)
    angle = position / 10000.0 ** (even / d_model)  # (length, d_model / 2)
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1)


def concatenated_sinusoids(length: int, d_model: int) -> Tensor:
    """The authors' layout of 2017: all sines, then all cosines.

    The wavelengths, too, differ from the paper's: the longest is exactly 10000 * 2 pi.

    Returns:
        (length, d_model), float64.
    """
    half = d_model // 2
    position = torch.arange(length, dtype=torch.float64).unsqueeze(1)
    exponent = torch.arange(half, dtype=torch.float64) / max(half - 1, 1)
    angle = position * 10000.0**-exponent  # (length, d_model / 2)
    return torch.cat((angle.sin(), angle.cos()), dim=-1)


class SinusoidalPositions(nn.Module):
    """Sinusoids, computed once as far as the longest sequence seen; nothing to train or save."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        concatenated = config.positions is Positions.concatenated
        self.compute = concatenated_sinusoids if concatenated else sinusoids
        self.table = torch.empty(0, config.d_model)

    def forward(self, embedded: Tensor, first_position: int) -> Tensor:
        """The vectors (T, D) to add to embedded (B, T, D), whose first token is at a position."""
        end = first_position + embedded.size(1)
        table = self.table
        if len(table) < end or table.device != embedded.device or table.dtype != embedded.dtype:
            table = self.compute(max(256, 2 * end), embedded.size(2)).to(embedded)
            self.table = table
        return table[first_position:end]


class LearnedPositions(nn.Module):
    """A trained vector for each position: row (E) of Table 3."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(config.max_learned_positions, config.d_model))

    def forward(self, embedded: Tensor, first_position: int) -> Tensor:
        """The vectors (T, D) to add to embedded (B, T, D), whose first token is at a position.

        Raises:
            UserError: the sequence is longer than the positions that were learned.
        """
        end = first_position + embedded.size(1)
        if end > len(self.weight):
            raise UserError(
                f"a sequence of {end} tokens, but positions are learned up to {len(self.weight)}:"
                " shorten it, or train with a larger model.max_learned_positions"
            )
        return self.weight[first_position:end]


class Embedding(nn.Module):
    """One matrix for source tokens, target tokens and the output projection (3.4).

    Tying the three is the paper's; so there is one instance of this class in the model.
    """

    def __init__(self, config: TransformerConfig, *, vocab_size: int, start_id: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab_size, config.d_model))
        self.scale = math.sqrt(config.d_model)
        self.zero_start_id = start_id if config.start is Start.zero else None
        learned = config.positions is Positions.learned
        self.positions = LearnedPositions(config) if learned else SinusoidalPositions(config)
        self.dropout = Dropout(config.dropout)

    def forward(self, token_ids: Tensor, first_position: int = 0) -> Tensor:
        """dropout(embedding * sqrt(d_model) + position) for consecutive positions.

        Args:
            token_ids: (B, T).
            first_position: the position of token_ids[:, 0]; above 0 when decoding step by step.

        Returns:
            (B, T, D).
        """
        embedded = F.embedding(token_ids, self.weight) * self.scale
        if self.zero_start_id is not None:
            embedded = embedded * (token_ids != self.zero_start_id).unsqueeze(-1)
        summed = embedded + self.positions(embedded, first_position)
        return cast(Tensor, self.dropout(summed))

    def project(self, states: Tensor) -> Tensor:
        """The pre-softmax transformation, without a bias: (..., D) -> logits (..., V)."""
        return F.linear(states, self.weight)
