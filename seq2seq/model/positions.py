"""Positions (section 3.5): sinusoids, and those learned in their place (Table 3, row (E)).

Shapes are named as in `transformer.py`.
"""

import torch
from torch import Tensor, nn

from seq2seq.errors import UserError
from seq2seq.model.config import Positions, TransformerConfig
from seq2seq.model.tensor2tensor import concatenated_sinusoids


def sinusoids(length: int, d_model: int) -> Tensor:
    """PE(pos, 2i) = sin(pos / 10000^(2i/d_model)), PE(pos, 2i+1) = cos(pos / 10000^(2i/d_model)).

    Returns:
        (length, D), float64.
    """
    position = torch.arange(length, dtype=torch.float64).unsqueeze(1)
    two_i = torch.arange(0, d_model, 2, dtype=torch.float64)
    angle = position / 10000.0 ** (two_i / d_model)  # (length, D / 2)
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1)


class PositionalEncoding(nn.Module):
    """Sinusoids (section 3.5), neither trained nor saved."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        concatenated = config.positions is Positions.concatenated
        self.compute = concatenated_sinusoids if concatenated else sinusoids
        self.table = torch.empty(0, config.d_model)  # extended when a longer sequence comes

    def forward(self, x: Tensor, first_position: int = 0) -> Tensor:
        """Return the encodings (T, D) of the consecutive positions of x (B, T, D)."""
        end = first_position + x.size(1)
        table = self.table  # another thread may replace it meanwhile by a shorter one
        if len(table) < end or table.device != x.device or table.dtype != x.dtype:
            with torch.inference_mode(False):  # the table of a validation serves training as well
                self.table = table = self.compute(max(256, 2 * end), x.size(2)).to(x)
        return table[first_position:end]


class LearnedPositions(nn.Module):
    """A trained vector for each position: Table 3, row (E)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(config.max_learned_positions, config.d_model))

    def forward(self, x: Tensor, first_position: int = 0) -> Tensor:
        """Return the vectors (T, D) of the consecutive positions of x (B, T, D).

        Raises:
            UserError: if a position is beyond the last learned one.
        """
        end = first_position + x.size(1)
        if end > len(self.weight):
            raise UserError(
                f"a sequence has {end} tokens, but only {len(self.weight)} positions are learned:"
                " shorten it, or train with a larger model.max_learned_positions"
            )
        return self.weight[first_position:end]
