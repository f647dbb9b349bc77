"""The tokens of a batch as the rows of each matmul, for training in bf16 on a CPU.

oneDNN compiles a matmul for its shapes, and every batch has others. Here the tokens alone, without
padding, are the rows of matmuls, norms and sums, filled up with zeros to one of few numbers. Only
attention runs within padded sentences; that of a small batch in float32, whose matmuls are not
compiled.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import Function, FunctionCtx
from torch.nn import functional as F

from seq2seq.data.batching import Batch
from seq2seq.fast.joined import embed_rows
from seq2seq.model.transformer import Transformer, attention, causal_mask

# Up to this many elements of queries, float32 takes less time than the compilations for bf16.
_SMALL = 2**19


def fill_up(rows: int) -> int:
    """Round a number of rows up to a multiple of 64, from 4,096 on by at most a 32nd."""
    multiple = 1 << max(6, rows.bit_length() - 6)
    return -(-rows // multiple) * multiple


class TokenRows:
    """The rows (N, ...) of the tokens in padded sentences (B, S), in order; then zeros."""

    def __init__(self, is_token: Tensor) -> None:
        self.shape = is_token.shape
        flat = is_token.flatten()
        self.tokens = flat.nonzero().squeeze(1)  # the index into B * S of each token
        # At least one row of zeros: padding gets it. So no gradient comes from there.
        self.count = fill_up(len(self.tokens) + 1)
        self.slots = torch.where(flat, flat.cumsum(0) - 1, len(self.tokens))  # (B * S,)
        missing = self.count - len(self.tokens)
        self.positions = F.pad(self.tokens % self.shape[1], (0, missing))  # (N,), in the sentence

    def collect(self, x: Tensor) -> Tensor:
        """Take the tokens out of x (B * S, ...): (N, ...)."""
        rows = x.new_empty(self.count, *x.shape[1:])
        torch.index_select(x, 0, self.tokens, out=rows[: len(self.tokens)])
        rows[len(self.tokens) :] = 0
        return rows

    def spread(self, rows: Tensor) -> Tensor:
        """Put rows (N, ...) in their positions: (B * S, ...)."""
        return rows.index_select(0, self.slots)


class _Moved(Function):
    """Moves rows one way, and their gradient the other way."""

    @staticmethod
    def forward(
        ctx: FunctionCtx,
        x: Tensor,
        move: Callable[[Tensor], Tensor],
        move_back: Callable[[Tensor], Tensor],
    ) -> Tensor:
        ctx.move_back = move_back  # type: ignore[attr-defined]
        return move(x)

    @staticmethod
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.move_back(gradient), None, None  # type: ignore[attr-defined]


class RowLayout:
    """Which rows attend to which, for `FastAttention` in place of a mask."""

    def __init__(self, queries: TokenRows, keys: TokenRows, mask: Tensor) -> None:
        self.queries = queries
        self.keys = keys
        self.mask = mask  # broadcastable to (B, H, T, S)

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, heads: int, dropout: nn.Module
    ) -> Tensor:
        """Compute equation 1 of query (1, N, H * K), key and value (1, M, ...): (1, N, H * d_v)."""
        dtype = query.dtype
        if query.numel() <= _SMALL:
            dtype = torch.promote_types(dtype, torch.float32)
        with torch.autocast("cpu", enabled=False):
            attended = attention(
                _heads(query, self.queries, heads, dtype),  # (B, H, T, K)
                _heads(key, self.keys, heads, dtype),  # (B, H, S, K)
                _heads(value, self.keys, heads, dtype),  # (B, H, S, d_v)
                self.mask,
                dropout,
            )
        joined = attended.transpose(1, 2).flatten(2).flatten(0, 1).to(query.dtype)
        rows: Tensor = _Moved.apply(joined, self.queries.collect, self.queries.spread)  # type: ignore[no-untyped-call]
        return rows.unsqueeze(0)


def _heads(x: Tensor, rows: TokenRows, heads: int, dtype: torch.dtype) -> Tensor:
    """Put rows (1, N, H * K) in their positions and heads: (B, H, S, K)."""
    spread: Tensor = _Moved.apply(x.squeeze(0), rows.spread, rows.collect)  # type: ignore[no-untyped-call]
    split = spread.view(*rows.shape, heads, -1).transpose(1, 2)
    return split.to(dtype, memory_format=torch.contiguous_format)


def token_states(model: Transformer, batch: Batch) -> tuple[Tensor, Tensor]:
    """Compute `Transformer.decoder_states` of the tokens alone.

    Returns states (N, D), of which the first are the tokens', and the target of each of these. The
    model's attentions must be `FastAttention`.
    """
    source = TokenRows(batch.source != model.padding_id)
    target = TokenRows(batch.target_output != model.padding_id)
    # The layers hand these to their attentions in place of masks.
    causal = causal_mask(batch.target_output.size(1), batch.target_output.device)
    source_mask = model.source_mask(batch.source)
    encoder: Any = RowLayout(source, source, source_mask)
    decoder: Any = RowLayout(target, target, causal)
    cross: Any = RowLayout(target, source, source_mask)

    ids = source.collect(batch.source.flatten())
    x = embed_rows(model, model.embedding, ids, source.positions, source.shape[1])
    memory = model.encoder(x, encoder)  # (1, M, D)
    ids = target.collect(batch.target_input.flatten())
    x = embed_rows(model, model.target_embedding, ids, target.positions, target.shape[1])
    states = model.decoder(x, memory, decoder, cross)  # (1, N, D)
    return states.squeeze(0), batch.target_output.flatten().index_select(0, target.tokens)
