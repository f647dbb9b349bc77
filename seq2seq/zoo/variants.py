"""Variants of the paper's model: tensor2tensor's forms, learned positions, imported models.

tensor2tensor, the authors' code of June 2017, concatenates the sinusoids and starts the decoder
with zeros (`variant=tensor2tensor`). Table 3, row (E), learns the positions. Marian's models may
have another activation, a matrix of their own for target and output, and a bias of the logits.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seq2seq.config import Activation, Positions, Start, TransformerConfig
from seq2seq.errors import UserError
from seq2seq.transformer import Embedding, FeedForward, PositionalEncoding, Transformer


class VariantTransformer(Transformer):
    """The paper's model with other embeddings, positions, activations or logits."""

    def __init__(
        self,
        config: TransformerConfig,
        *,
        vocab_size: int,
        source_vocab_size: int,
        start_id: int,
        init_std: float | None = None,
        **paper: int,
    ) -> None:
        rows = vocab_size if config.shared_embedding else source_vocab_size
        super().__init__(config, vocab_size=rows, start_id=start_id, init_std=init_std, **paper)
        self.vocab_size = vocab_size
        deviation = config.d_model**-0.5 if init_std is None else init_std
        for module in self.modules():
            if isinstance(module, FeedForward):
                module.activation = ACTIVATIONS[config.activation]
        self.own_target_embedding: Embedding | None = None
        if not config.shared_embedding:
            self.own_target_embedding = Embedding(vocab_size, config.d_model)
            nn.init.normal_(self.own_target_embedding.weight, std=deviation)
        if config.start is Start.zero:
            self.embedding = ZeroStartEmbedding(self.embedding, start_id)
            if self.own_target_embedding is not None:
                self.own_target_embedding = ZeroStartEmbedding(self.own_target_embedding, start_id)
        self.own_output_matrix: nn.Parameter | None = None
        if not config.tied_output:
            self.own_output_matrix = nn.Parameter(torch.empty(vocab_size, config.d_model))
            nn.init.normal_(self.own_output_matrix, std=deviation)
        if config.output_bias:
            self.output_bias = nn.Parameter(torch.zeros(vocab_size))
        if config.positions is Positions.concatenated:
            self.positions = ConcatenatedPositions()
        elif config.positions is Positions.learned:
            self.positions = LearnedPositions(config.max_learned_positions, config.d_model)
            nn.init.normal_(self.positions.weight, std=deviation)

    @property
    def target_embedding(self) -> Embedding:
        """The embedding of the target: its own, or the one of the source."""
        return self.embedding if self.own_target_embedding is None else self.own_target_embedding

    @property
    def output_matrix(self) -> Tensor:
        """The matrix (V, D) before the softmax: its own, or the one that embeds the target."""
        matrix = self.own_output_matrix
        return self.target_embedding.weight if matrix is None else matrix


class ZeroStartEmbedding(Embedding):
    """An embedding, sharing the matrix of a plain one, that maps the start symbol to zeros."""

    def __init__(self, plain: Embedding, start_id: int) -> None:
        super().__init__(plain.num_embeddings, plain.embedding_dim, _weight=plain.weight)
        self.start_id = start_id

    def forward(self, token_ids: Tensor) -> Tensor:
        """Map token ids (B, T) to (B, T, D)."""
        return super().forward(token_ids) * (token_ids != self.start_id).unsqueeze(-1)


def concatenated_sinusoids(length: int, d_model: int) -> Tensor:
    """All sines, then all cosines (length, D); the longest wavelength is exactly 10000 * 2 pi."""
    half = d_model // 2
    position = torch.arange(length, dtype=torch.float64).unsqueeze(1)  # (length, 1)
    exponent = torch.arange(half, dtype=torch.float64) / max(half - 1, 1)  # (D / 2,)
    angle = position * 10000.0**-exponent  # (length, D / 2)
    return torch.cat((angle.sin(), angle.cos()), dim=-1)


class ConcatenatedPositions(PositionalEncoding):
    """The sinusoids of tensor2tensor."""

    compute = staticmethod(concatenated_sinusoids)


class LearnedPositions(nn.Module):
    """A trained vector for each position: Table 3, row (E)."""

    def __init__(self, length: int, d_model: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(length, d_model))

    def forward(self, x: Tensor) -> Tensor:
        """Return the vectors (T, D) of the positions of x (B, T, D), from 0 on."""
        length = x.size(1)
        if length > len(self.weight):
            raise UserError(
                f"a sequence has {length} tokens, but only {len(self.weight)} positions are"
                " learned: shorten it, or train with a larger model.max_learned_positions"
            )
        return self.weight[:length]


def quick_gelu(x: Tensor) -> Tensor:
    """Compute x sigmoid(1.702 x), which Marian calls gelu."""
    return x * torch.sigmoid(1.702 * x)


ACTIVATIONS = {
    Activation.relu: torch.relu,
    Activation.swish: F.silu,
    Activation.gelu: F.gelu,
    Activation.quick_gelu: quick_gelu,
    Activation.swiglu: F.silu,  # of its gate
}
"""The function of equation 2 for each choice: in the paper, max(0, x)."""
