"""The Transformer: encoder, decoder and the matrix that they share (Figure 1)."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from seq2seq.model.attention import MultiHeadAttention, causal_mask
from seq2seq.model.cache import DecoderCache
from seq2seq.model.config import TransformerConfig
from seq2seq.model.embedding import Embedding, LearnedPositions
from seq2seq.model.layers import DecoderLayer, EncoderLayer


@dataclass(frozen=True)
class Memory:
    """What the encoder hands to the decoder."""

    states: Tensor
    """(B, S, D)."""
    padding_mask: Tensor
    """(B, S), True where there is padding."""

    @property
    def attention_mask(self) -> Tensor | None:
        """(B, 1, 1, S), True where one may look; None where there is no padding."""
        return ~self.padding_mask[:, None, None, :] if self.padding_mask.any() else None


class Transformer(nn.Module):
    """The Post-LN encoder-decoder of Vaswani et al. (2017).

    Args:
        config: what a person chooses.
        vocab_size: rows of the shared matrix.
        padding_id: the token id of padding.
        start_id: the token id that stands before the first target token.
    """

    def __init__(
        self, config: TransformerConfig, *, vocab_size: int, padding_id: int, start_id: int
    ) -> None:
        super().__init__()
        self.config = config
        self.vocab_size = vocab_size
        self.padding_id = padding_id
        self.start_id = start_id
        self.embedding = Embedding(config, vocab_size=vocab_size, start_id=start_id)
        # No norm after the last layer: each layer already ends with one (Figure 1).
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.num_layers))
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.num_layers))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw fresh weights: the paper is silent, so this is the authors' code of 2017.

        Matrices are Glorot uniform, each of W^Q, W^K, W^V of all heads as a matrix of its own;
        embeddings normal with standard deviation d_model^-1/2; biases 0; norms 1 and 0.
        """
        for module in self.modules():
            if isinstance(module, MultiHeadAttention):
                sizes = [module.query_size, module.query_size, module.value_size]
                for matrix in torch.split(module.projection.weight, sizes):
                    nn.init.xavier_uniform_(matrix)
                nn.init.xavier_uniform_(module.output.weight)
            elif isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)
        for layer in (*self.encoder, *self.decoder):
            nn.init.xavier_uniform_(layer.feed_forward.inner.weight)
            nn.init.xavier_uniform_(layer.feed_forward.outer.weight)
        deviation = 1.0 / math.sqrt(self.config.d_model)
        nn.init.normal_(self.embedding.weight, std=deviation)
        if isinstance(self.embedding.positions, LearnedPositions):
            nn.init.normal_(self.embedding.positions.weight, std=deviation)

    def encode(self, source: Tensor) -> Memory:
        """Run the encoder over source token ids (B, S)."""
        padding_mask = source == self.padding_id
        memory = Memory(self._embed(source), padding_mask)
        x, attention_mask = memory.states, memory.attention_mask
        for layer in self.encoder:
            x = layer(x, attention_mask)
        return Memory(x, padding_mask)

    def decode(self, target_input: Tensor, memory: Memory) -> Tensor:
        """Run the decoder over target_input (B, T), all positions at once.

        No mask for target padding: it stands after the tokens, which look only to the left.

        Returns:
            The last layer's states, (B, T, D); `project` turns them into logits.
        """
        attention_mask = causal_mask(target_input.size(1), target_input.device)
        source_mask = memory.attention_mask
        x = self._embed(target_input)
        for layer in self.decoder:
            x = layer(x, memory.states, attention_mask, source_mask)
        return x

    def project(self, states: Tensor) -> Tensor:
        """States (..., D) -> logits (..., V), with the shared matrix (3.4)."""
        return self.embedding.project(states)

    def forward(self, source: Tensor, target_input: Tensor) -> Tensor:
        """Source (B, S) and target_input (B, T) -> logits (B, T, V)."""
        return self.project(self.decode(target_input, self.encode(source)))

    def start(self, memory: Memory) -> DecoderCache:
        """A cache for a search, before its first step: one row a sentence."""
        return DecoderCache(
            layers=[layer.start(memory.states) for layer in self._decoder_layers()],
            source_mask=memory.attention_mask,
        )

    def step(self, token_ids: Tensor, cache: DecoderCache) -> Tensor:
        """Read each hypothesis' newest token and predict the next.

        Args:
            token_ids: (N,), the newest tokens; the start symbol at first.
            cache: what `start` returned; it grows by one position.

        Returns:
            Logits, (N, V).
        """
        position = cache.length
        x = self._embed(token_ids.unsqueeze(1), position)  # (N, 1, D)
        for layer, layer_cache in zip(self._decoder_layers(), cache.layers, strict=True):
            x = layer.step(x, layer_cache, position, cache.source_mask)
        cache.length += 1
        return self.project(x.squeeze(1))

    def _decoder_layers(self) -> list[DecoderLayer]:
        return [layer for layer in self.decoder if isinstance(layer, DecoderLayer)]

    def _embed(self, token_ids: Tensor, first_position: int = 0) -> Tensor:
        x: Tensor = self.embedding(token_ids, first_position)
        # Under autocast the sums between the layers are kept in the low precision as well: half
        # the memory traffic, and every sum is normalised at once. The norms compute in float32.
        if torch.is_autocast_enabled(x.device.type):
            x = x.to(torch.get_autocast_dtype(x.device.type))
        return x
