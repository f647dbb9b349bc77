"""The Transformer of Vaswani et al. (2017): section 3, in the order of the paper.

`paper/README.md` explains the equations and computes them in NumPy, one sentence at a time. `zoo`
has what the paper doesn't have, and `fast` has faster forms, which must agree with this file.

Shapes, here and in the decoder and the search (other files say what their letters mean):

    B  sentences in a batch         D  d_model
    S  source tokens                H  num_heads
    T  target tokens                K  d_k (d_v for the values)
    V  vocabulary                   N  hypotheses of a search

Masks are True where a position may be attended to.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seq2seq.config import TransformerConfig


class Transformer(nn.Module):
    """The encoder-decoder of Figure 1; its target inputs are shifted right by `start_id`."""

    def __init__(
        self,
        config: TransformerConfig,
        *,
        vocab_size: int,
        padding_id: int,
        start_id: int,
        init_std: float | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        self.vocab_size = vocab_size
        self.padding_id = padding_id
        self.start_id = start_id
        self.embedding = Embedding(vocab_size, config.d_model)
        self.positions: nn.Module = PositionalEncoding()
        self.dropout = nn.Dropout(config.dropout)
        self.encoder = Encoder(config)
        self.decoder = Decoder(config)
        self.output_bias: nn.Parameter | None = None  # only some variants have one
        self.reset_parameters(init_std)

    def forward(self, source: Tensor, target_input: Tensor) -> Tensor:
        """Map source (B, S) and target_input (B, T) to logits (B, T, V)."""
        return self.project(self.decoder_states(source, target_input))

    def decoder_states(self, source: Tensor, target_input: Tensor) -> Tensor:
        """Map source (B, S) and target_input (B, T) to the decoder's last states (B, T, D)."""
        source_mask = self.source_mask(source)  # (B, 1, 1, S)
        memory = self.encode(source, source_mask)  # (B, S, D)
        return self.decode(target_input, memory, source_mask)

    def encode(self, source: Tensor, source_mask: Tensor) -> Tensor:
        """Map source token ids (B, S) and source_mask (B, 1, 1, S) to memory (B, S, D)."""
        return self.encoder(self.embed(source), source_mask)

    def decode(self, target_input: Tensor, memory: Tensor, source_mask: Tensor) -> Tensor:
        """Compute the decoder's last states (B, T, D) at all target positions at once.

        Takes target_input (B, T), memory (B, S, D) and source_mask (B, 1, 1, S). Target padding
        needs no mask: it follows the tokens, which attend to the left only.
        """
        x = self.embed(target_input, is_target=True)  # (B, T, D)
        return self.decoder(x, memory, self.target_mask(target_input), source_mask)

    def embed(self, token_ids: Tensor, *, is_target: bool = False) -> Tensor:
        """Map token ids (B, T) to dropout(embedding + position) (B, T, D) (3.4, 3.5 and 5.4)."""
        x = (self.target_embedding if is_target else self.embedding)(token_ids)  # (B, T, D)
        return self.dropout(x + self.positions(x))

    def project(self, states: Tensor) -> Tensor:
        """Map the decoder's states (..., D) to logits (..., V) (section 3.4)."""
        return F.linear(states, self.output_matrix, self.output_bias)

    @property
    def target_embedding(self) -> "Embedding":
        """The embedding of the target, which is also that of the source (section 3.4)."""
        return self.embedding

    @property
    def output_matrix(self) -> Tensor:
        """The matrix (V, D) before the softmax, which is the embedding matrix (section 3.4)."""
        return self.embedding.weight

    def source_mask(self, source: Tensor) -> Tensor:
        """Mask the padding of source token ids (B, S): (B, 1, 1, S)."""
        return (source != self.padding_id)[:, None, None, :]

    def target_mask(self, target_input: Tensor) -> Tensor:
        """Mask the tokens to the right of each token of target_input (B, T): (T, T)."""
        return causal_mask(target_input.size(1), target_input.device)

    def reset_parameters(self, init_std: float | None = None) -> None:
        """Initialize the weights as tensor2tensor did, since the paper doesn't say how.

        Matrices are Glorot uniform; embeddings are normal with standard deviation d_model^-1/2;
        biases are 0; the gain of a norm is 1, its bias 0. With init_std, matrices and embeddings
        are both normal with that standard deviation.
        """
        for module in self.modules():
            if isinstance(module, nn.Linear):
                if init_std is None:
                    nn.init.xavier_uniform_(module.weight)
                else:
                    nn.init.normal_(module.weight, std=init_std)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        deviation = self.config.d_model**-0.5 if init_std is None else init_std
        nn.init.normal_(self.embedding.weight, std=deviation)


# 3.1 Encoder and decoder stacks: every sublayer is followed by LayerNorm(x + Dropout(Sublayer(x))),
# with the norm after the sum ("Post-LN") and the dropout of section 5.4.


class Encoder(nn.Module):
    """The stack of layers, with no norm after the last one: each ends with one (Figure 1)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.num_layers))

    def forward(self, x: Tensor, source_mask: Tensor) -> Tensor:
        """Map the embedded source (B, S, D) and source_mask (B, 1, 1, S) to memory (B, S, D)."""
        for layer in self.layers:
            x = layer(x, source_mask)
        return x


class EncoderLayer(nn.Module):
    """A layer of the encoder (Figure 1, left): self-attention and feed-forward."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(config)
        self.self_attention_norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_epsilon)
        self.feed_forward = FeedForward(config)
        self.feed_forward_norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_epsilon)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, source_mask: Tensor) -> Tensor:
        """Map x (B, S, D) and source_mask (B, 1, 1, S) to (B, S, D)."""
        x = self.self_attention_norm(x + self.dropout(self.self_attention(x, x, source_mask)))
        x = self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))
        return x


class Decoder(nn.Module):
    """The stack of layers, with no norm after the last one."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_depth))

    def forward(
        self, x: Tensor, memory: Tensor, target_mask: Tensor, source_mask: Tensor
    ) -> Tensor:
        """Map the embedded target (B, T, D), memory (B, S, D) and their masks to (B, T, D)."""
        for layer in self.layers:
            x = layer(x, memory, target_mask, source_mask)
        return x


class DecoderLayer(nn.Module):
    """A layer of the decoder (Figure 1, right): self-attention, cross-attention, feed-forward."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(config)
        self.self_attention_norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_epsilon)
        self.cross_attention = MultiHeadAttention(config)
        self.cross_attention_norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_epsilon)
        self.feed_forward = FeedForward(config)
        self.feed_forward_norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_epsilon)
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self, x: Tensor, memory: Tensor, target_mask: Tensor, source_mask: Tensor
    ) -> Tensor:
        """Map x (B, T, D), memory (B, S, D), masks (T, T) and (B, 1, 1, S) to (B, T, D)."""
        x = self.self_attention_norm(x + self.dropout(self.self_attention(x, x, target_mask)))
        x = self.cross_attention_norm(
            x + self.dropout(self.cross_attention(x, memory, source_mask))
        )
        x = self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))
        return x


# 3.2 Attention


def attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, dropout: nn.Module
) -> Tensor:
    """Scaled dot-product attention, softmax(Q K^T / sqrt(d_k)) V (section 3.2.1, equation 1).

    Maps query (B, H, T, K), key (B, H, S, K) and value (B, H, S, d_v) to (B, H, T, d_v). The mask
    is broadcastable to (B, H, T, S). Dropout of the weights is not in the paper.
    """
    d_k = query.size(-1)
    scores = query @ key.transpose(-2, -1) / math.sqrt(d_k)  # (B, H, T, S)
    weights = scores.masked_fill(~mask, -math.inf).softmax(dim=-1)  # (B, H, T, S)
    return dropout(weights) @ value


class MultiHeadAttention(nn.Module):
    """Concat(head_1, ..., head_h) W^O, head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V) (3.2.2).

    `w_q`, `w_k` and `w_v` have the matrices of all heads side by side; `weight` is transposed.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        d_model, bias = config.d_model, config.attention_bias
        self.num_heads = config.num_heads
        self.w_q = nn.Linear(d_model, config.num_heads * config.key_width, bias=bias)
        self.w_k = nn.Linear(d_model, config.num_heads * config.key_width, bias=bias)
        self.w_v = nn.Linear(d_model, config.num_heads * config.value_width, bias=bias)
        self.w_o = nn.Linear(config.num_heads * config.value_width, d_model, bias=bias)
        self.dropout = nn.Dropout(config.attention_dropout)

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        """Attend from each position of x (B, T, D) to those of memory (B, S, D): (B, T, D).

        In self-attention, memory is x itself (3.2.3). The mask is broadcastable to (B, H, T, S).
        """
        query = self.split_heads(self.w_q(x))  # (B, H, T, K)
        key, value = self.keys_and_values(memory)  # (B, H, S, K), (B, H, S, d_v)
        heads = self.equation_1(query, key, value, mask)  # (B, H, T, d_v)
        return self.w_o(self.concatenate_heads(heads))

    def keys_and_values(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Map memory (B, S, D) to the heads' keys (B, H, S, K) and values (B, H, S, d_v)."""
        return self.split_heads(self.w_k(memory)), self.split_heads(self.w_v(memory))

    def equation_1(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        """Compute `attention` with this module's dropout."""
        return attention(query, key, value, mask, self.dropout)

    def split_heads(self, x: Tensor) -> Tensor:
        """Give each head its columns: (B, T, H * K) becomes (B, H, T, K)."""
        return x.view(x.size(0), x.size(1), self.num_heads, -1).transpose(1, 2)

    def concatenate_heads(self, heads: Tensor) -> Tensor:
        """Concatenate the heads: (B, H, T, d_v) becomes (B, T, H * d_v)."""
        return heads.transpose(1, 2).flatten(2)


def causal_mask(length: int, device: torch.device) -> Tensor:
    """Let each position attend to itself and those before it (3.2.3): (T, T), True for s <= t."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


# 3.3 Position-wise feed-forward networks


class FeedForward(nn.Module):
    """FFN(x) = max(0, x W_1 + b_1) W_2 + b_2 (equation 2)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.inner = nn.Linear(config.d_model, config.d_ff)
        self.outer = nn.Linear(config.d_ff, config.d_model)
        self.activation: Callable[[Tensor], Tensor] = torch.relu
        self.dropout = nn.Dropout(config.relu_dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Map x (B, T, D) to (B, T, D), each position by itself."""
        hidden = self.activation(self.inner(x))  # (B, T, d_ff)
        return self.outer(self.dropout(hidden))


# 3.4 Embeddings and softmax: one matrix embeds source and target, and `Transformer.project` takes
# the same matrix to the logits.


class Embedding(nn.Embedding):
    """The rows of a matrix (V, D), multiplied by sqrt(d_model)."""

    def forward(self, token_ids: Tensor) -> Tensor:
        """Map token ids (B, T) to (B, T, D)."""
        return super().forward(token_ids) * math.sqrt(self.embedding_dim)


# 3.5 Positional encoding


def sinusoids(length: int, d_model: int) -> Tensor:
    """PE(pos, 2i) = sin(pos / 10000^(2i/d_model)), PE(pos, 2i+1) its cosine: (length, D)."""
    position = torch.arange(length, dtype=torch.float64).unsqueeze(1)  # (length, 1)
    two_i = torch.arange(0, d_model, 2, dtype=torch.float64)  # (D / 2,)
    angle = position / 10000.0 ** (two_i / d_model)  # (length, D / 2)
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1)


class PositionalEncoding(nn.Module):
    """A table of sinusoids, neither trained nor saved, which grows with the longest sequence."""

    compute = staticmethod(sinusoids)

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.empty(0)

    def forward(self, x: Tensor) -> Tensor:
        """Return the encodings (T, D) of the positions of x (B, T, D), from 0 on."""
        length, table = x.size(1), self.table  # another thread may replace it by a shorter one
        if len(table) < length or table.device != x.device or table.dtype != x.dtype:
            with torch.inference_mode(False):  # the table of a validation serves training as well
                self.table = table = self.compute(max(256, 2 * length), x.size(2)).to(x)
        return table[:length]
