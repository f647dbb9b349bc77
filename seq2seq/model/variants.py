"""Where tensor2tensor, the authors' code of June 2017, differs from the paper's text.

`variant=tensor2tensor` selects both forms below, and biases on the attention projections.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seq2seq.errors import UserError
from seq2seq.model.config import Activation, TransformerConfig


def concatenated_sinusoids(length: int, d_model: int) -> Tensor:
    """All sines, then all cosines; the longest wavelength is exactly 10000 * 2 pi.

    Returns:
        (length, D), float64.
    """
    half = d_model // 2
    position = torch.arange(length, dtype=torch.float64).unsqueeze(1)
    exponent = torch.arange(half, dtype=torch.float64) / max(half - 1, 1)
    angle = position * 10000.0**-exponent  # (length, D / 2)
    return torch.cat((angle.sin(), angle.cos()), dim=-1)


class ZeroStartEmbedding(nn.Embedding):
    """An embedding that maps the start symbol to a vector of zeros."""

    def __init__(self, start_id: int, vocab_size: int, d_model: int) -> None:
        super().__init__(vocab_size, d_model)
        self.start_id = start_id

    def forward(self, token_ids: Tensor) -> Tensor:
        """Token ids (B, T) -> (B, T, D)."""
        return super().forward(token_ids) * (token_ids != self.start_id).unsqueeze(-1)


def quick_gelu(x: Tensor) -> Tensor:
    """Compute x sigmoid(1.702 x), which Marian calls gelu."""
    return x * torch.sigmoid(1.702 * x)


ACTIVATIONS = {
    Activation.relu: torch.relu,
    Activation.swish: F.silu,
    Activation.gelu: F.gelu,
    Activation.quick_gelu: quick_gelu,
}
"""The function of equation 2 for each choice: in the paper, max(0, x)."""


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
