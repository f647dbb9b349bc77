"""A batch as its tokens alone, one after the other: the rows of each matmul, norm and sum.

There is no padding, and every batch may have the same shape: then rows that belong to no pair fill
it up, so that a GPU repeats one graph, and oneDNN compiles its matmuls once. Only attention knows
sentences. Rows that fill up form sentences of their own, whose targets are padding.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import Function, FunctionCtx
from torch.nn import functional as F

from seq2seq.encoded_corpus import Tokens
from seq2seq.tokenizer import PADDING_ID, START_ID
from seq2seq.transformer import MultiHeadAttention, Transformer, attention, causal_mask
from seq2seq.zoo.modern import ModernAttention, ModernTransformer

# Up to this many elements of queries, float32 takes less time than compiling for bf16.
_SMALL = 2**19


class Side(NamedTuple):
    """The rows of one side of a batch: P sentences, of which the last ones may be empty."""

    positions: Tensor
    """(N,), of each row in its sentence."""
    starts: Tensor
    """(P + 1,), the row at which each sentence starts, then N."""
    longest: int
    """No sentence is longer."""


class RowBatch(NamedTuple):
    """Token ids of sentence pairs in M source and N target rows."""

    source: Tensor
    """(M,)"""
    source_side: Side
    target_input: Tensor
    """(N,)"""
    target_output: Tensor
    """(N,), padding where no target token is."""
    target_side: Side


class Shape(NamedTuple):
    """The shape of all batches of a run."""

    rows: tuple[int, ...]
    """M and N."""
    sentences: int | None
    """P; None if it may differ."""
    longest: tuple[int, ...] | None
    """The lengths of the longest source and target; None if they may differ."""


@dataclass(frozen=True)
class Packed:
    """A batch on the host, in one tensor, so that it is copied at once."""

    ids: Tensor
    sizes: tuple[int, ...]
    """M, N and P."""
    longest: tuple[int, ...]

    def pin(self) -> "Packed":
        """Move it to memory from which a GPU copies without waiting."""
        return replace(self, ids=self.ids.pin_memory())

    def to(self, device: torch.device) -> RowBatch:
        """Copy the batch to a device."""
        return self.divide(self.ids.to(device, non_blocking=True))

    def divide(self, ids: Tensor) -> RowBatch:
        """Divide its tensor, or another one of this shape, into those of a batch."""
        m, n, p = self.sizes
        tensors = torch.split(ids, [m, m, n, n, n, p + 1, p + 1])
        source, source_positions, target_input, target_output, target_positions, *starts = tensors
        return RowBatch(
            source,
            Side(source_positions, starts[0], self.longest[0]),
            target_input,
            target_output,
            Side(target_positions, starts[1], self.longest[1]),
        )


def pack(sides: tuple[Tokens, Tokens], shape: Shape | None = None) -> Packed:
    """Pack the source and the target tokens of sentence pairs, and fill up the shape, if any."""
    rows, sentences, longest = shape or Shape(tuple(len(ids) for ids, _ in sides), None, None)
    if longest is None:
        longest = tuple(int(lengths.max()) for _, lengths in sides)
    lengths = []  # of all sentences, (P,), those that fill up after the others
    for (ids, lengths_of_side), count, most in zip(sides, rows, longest, strict=True):
        whole, rest = divmod(count - len(ids), most)
        filling = np.array([most] * whole + [rest] * (rest > 0), dtype=np.int64)
        lengths.append(np.concatenate((lengths_of_side, filling)))
    sentences = sentences or max(map(len, lengths))
    starts, positions, outputs = [], [], []
    for (ids, _), count, filled in zip(sides, rows, lengths, strict=True):
        ends = np.pad(np.cumsum(filled), (0, sentences - len(filled)), constant_values=count)
        starts.append(np.concatenate(([0], ends)))  # (P + 1,)
        positions.append(np.arange(count) - np.repeat(starts[-1][:-1], np.diff(starts[-1])))
        outputs.append(np.pad(ids, (0, count - len(ids)), constant_values=PADDING_ID))
    # Shift right: <s> y1 y2 for the output y1 y2 </s>.
    source, target_output = outputs
    target_input = np.roll(target_output, 1)
    target_input[starts[1][: len(sides[1][1])]] = START_ID
    arrays = (source, positions[0], target_input, target_output, positions[1], *starts)
    return Packed(
        torch.from_numpy(np.concatenate(arrays, dtype=np.int64, casting="unsafe")),
        (*rows, sentences),
        longest,
    )


def fused_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, dropout: nn.Module
) -> Tensor:
    """Compute `model.transformer.attention`; dropout must be an `nn.Dropout`."""
    assert isinstance(dropout, nn.Dropout)
    if dropout._forward_pre_hooks:  # a hook reads the weights, which the fused kernel never stores
        return attention(query, key, value, mask, dropout)
    rate = dropout.p if dropout.training else 0.0
    return F.scaled_dot_product_attention(query, key, value, mask, rate)


class Layout(Protocol):
    """Which rows attend to which: what `RowAttention` has in place of a mask."""

    def __init__(self, queries: Side, keys: Side, *, causal: bool = False) -> None: ...

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, heads: int, dropout: nn.Module
    ) -> Tensor:
        """Compute equation 1 of query (1, N, H * K), key and value (1, M, ...): (1, N, H * d_v)."""


class RowAttention(MultiHeadAttention):
    """Multi-head attention between rows, sharing the parameters of a plain one."""

    def __init__(self, plain: MultiHeadAttention) -> None:
        self.__dict__.update(plain.__dict__)

    def forward(self, x: Tensor, memory: Tensor, layout: Layout) -> Tensor:  # type: ignore[override]
        """Attend from x (1, N, D) to memory (1, M, D): (1, N, D)."""
        # (1, N, H * K), (1, M, H * K) and (1, M, H * d_v)
        if memory is x:
            query, key, value = _project(x, self.w_q, self.w_k, self.w_v)
        else:
            query, (key, value) = self.w_q(x), _project(memory, self.w_k, self.w_v)
        return self.w_o(layout.attend(query, key, value, self.num_heads, self.dropout))


def _project(x: Tensor, *linears: nn.Linear) -> Sequence[Tensor]:
    """Apply linear layers to x, on a GPU in one matmul."""
    if not x.is_cuda:
        return [linear(x) for linear in linears]
    weights: list[Tensor] = [linear.weight for linear in linears]
    biases: list[Tensor] = [linear.bias for linear in linears if linear.bias is not None]
    projected = F.linear(x, torch.cat(weights), torch.cat(biases) if biases else None)
    return torch.split(projected, [linear.out_features for linear in linears], dim=-1)


def row_states(model: Transformer, batch: RowBatch, layout: type[Layout]) -> Tensor:
    """Compute `Transformer.decoder_states` of rows: (N, D).

    The model's attentions must be for rows.
    """
    source, target = batch.source_side, batch.target_side
    # The layers hand these to their attentions in place of masks.
    encoder: Any = layout(source, source)
    decoder: Any = layout(target, target, causal=True)
    cross: Any = layout(target, source)
    x = _embed(model, model.embedding, batch.source, source)
    memory = model.encoder(x, encoder)  # (1, M, D)
    if isinstance(model, ModernTransformer):
        memory = model.encoder_norm(memory)
    x = _embed(model, model.target_embedding, batch.target_input, target)
    states: Tensor = model.decoder(x, memory, decoder, cross)  # (1, N, D)
    if isinstance(model, ModernTransformer):
        states = model.decoder_norm(states)
    return states.squeeze(0)


def _embed(model: Transformer, embedding: nn.Embedding, ids: Tensor, side: Side) -> Tensor:
    """Compute `Transformer.embed` of ids (N,): (1, N, D)."""
    x = embedding(ids).unsqueeze(0)
    vectors = model.positions(x.new_empty(1, side.longest, x.size(2)))  # (longest, D)
    return model.dropout(x + vectors.index_select(0, side.positions))


# Attention within padded sentences: on a CPU, and for what fused kernels can't do.


class Grid:
    """The places of N rows when their P sentences are padded to T tokens."""

    def __init__(self, side: Side) -> None:
        starts, longest = side.starts, side.longest
        lengths = starts.diff()  # (P,)
        columns = torch.arange(longest, device=starts.device)  # (T,)
        self.shape = len(lengths), longest
        self.is_token = columns < lengths.unsqueeze(1)  # (P, T)
        # Padding gets any row: nothing attends to it, and nothing comes back from it.
        slots = torch.where(self.is_token, starts[:-1].unsqueeze(1) + columns, 0)
        self.slots = slots.flatten()  # (P * T,)
        sentences = torch.arange(len(lengths), device=starts.device)
        rows = len(side.positions)
        sentences = sentences.repeat_interleave(lengths, output_size=rows)
        self.places = sentences * longest + side.positions  # (N,), in P * T

    def spread(self, rows: Tensor) -> Tensor:
        """Put rows (N, D) in their places: (P, T, D)."""
        spread: Tensor = _Spread.apply(rows, self)  # type: ignore[no-untyped-call]
        return spread.view(*self.shape, -1)

    def collect(self, x: Tensor) -> Tensor:
        """Take the rows out of x (P, T, D): (N, D)."""
        return x.flatten(0, 1).index_select(0, self.places)


class _Spread(Function):
    """Takes the gradient of the rows alone: that of padding is zero."""

    @staticmethod
    def forward(ctx: FunctionCtx, rows: Tensor, grid: Grid) -> Tensor:
        ctx.grid = grid  # type: ignore[attr-defined]
        return rows.index_select(0, grid.slots)

    @staticmethod
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return gradient.index_select(0, ctx.grid.places), None  # type: ignore[attr-defined]


def is_compiled_by_onednn(x: Tensor) -> bool:
    """Return whether oneDNN compiles matmuls of x for AMX, which takes time for each new shape."""
    return not x.is_cuda and x.dtype is torch.bfloat16 and torch.cpu._is_amx_tile_supported()


class GridLayout:
    """Attention within padded sentences: on a CPU, and for what fused kernels can't do."""

    def __init__(self, queries: Side, keys: Side, *, causal: bool = False) -> None:
        self.queries = Grid(queries)
        self.keys = self.queries if queries is keys else Grid(keys)
        if causal:
            self.mask = causal_mask(queries.longest, queries.starts.device)  # (T, T)
        else:
            # Rows that fill up may have no keys: any number does for them.
            self.mask = self.keys.is_token.clone()
            self.mask[:, 0] = True
            self.mask = self.mask[:, None, None, :]  # (P, 1, 1, S)

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, heads: int, dropout: nn.Module
    ) -> Tensor:
        """See `Layout.attend`."""
        dtype = query.dtype
        if is_compiled_by_onednn(query) and query.numel() <= _SMALL:
            dtype = torch.promote_types(dtype, torch.float32)
        form = fused_attention if query.is_cuda else attention
        with torch.autocast(query.device.type, enabled=False):
            attended = form(
                _heads(query, self.queries, heads, dtype),  # (P, H, T, K)
                _heads(key, self.keys, heads, dtype),  # (P, H, S, K)
                _heads(value, self.keys, heads, dtype),  # (P, H, S, d_v)
                self.mask,
                dropout,
            )
        joined = attended.transpose(1, 2).flatten(2)  # (P, T, H * d_v)
        return self.queries.collect(joined).to(query.dtype).unsqueeze(0)


def _heads(x: Tensor, grid: Grid, heads: int, dtype: torch.dtype) -> Tensor:
    """Put rows (1, N, H * K) in their places and heads: (P, H, T, K)."""
    split = grid.spread(x.squeeze(0)).view(*grid.shape, heads, -1).transpose(1, 2)
    return split.to(dtype, memory_format=torch.contiguous_format)


class PaddedAttention(ModernAttention):
    """A modern model's attention within padded sentences, sharing the parameters of a plain one."""

    def __init__(self, plain: ModernAttention) -> None:
        self.__dict__.update(plain.__dict__)

    def forward(self, x: Tensor, memory: Tensor, layout: GridLayout) -> Tensor:  # type: ignore[override]
        """Attend from x (1, N, D) to memory (1, M, D): (1, N, D)."""
        queries = layout.queries.spread(x.squeeze(0))  # (P, T, D)
        keys = queries if memory is x else layout.keys.spread(memory.squeeze(0))  # (P, S, D)
        attended = super().forward(queries, keys, layout.mask)  # (P, T, D)
        return layout.queries.collect(attended).unsqueeze(0)
