"""Where tensor2tensor, the authors' code of June 2017, differs from the paper's text.

`variant=tensor2tensor` selects both forms below, and biases on the attention projections.
"""

import torch
from torch import Tensor, nn


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
