"""A batch as its tokens alone, one after the other: the rows of each matmul, norm and sum.

There is no padding, and every batch may have the same shape: then rows that belong to no pair fill
it up, so that a GPU repeats one graph, and oneDNN compiles its matmuls once. Only attention knows
sentences. Rows that fill up form sentences of their own, whose targets are padding.

A batch has P sentences, in M rows of the source and N rows of the target; R is either number. The
other letters are those of `transformer.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import Function, FunctionCtx

from seq2seq.config import Positions
from seq2seq.decoder import disturbed, override
from seq2seq.encoded_corpus import Tokens
from seq2seq.fast.fused import FusedAttention, has_equation_1
from seq2seq.tokenizer import PADDING_ID, START_ID
from seq2seq.transformer import MultiHeadAttention, PositionalEncoding, Transformer

# Up to this many elements of queries, float32 takes less time than compiling for bf16.
_SMALL = 2**19


class Side(NamedTuple):
    """The rows of one side of a batch, of which the last sentences may be empty."""

    positions: Tensor
    """(R,), of each row in its sentence."""
    sentences: Tensor
    """(R,), the number of each row's sentence."""
    starts: Tensor
    """(P + 1,), the row at which each sentence starts, then R."""
    longest: int
    """No sentence is longer."""


class RowBatch(NamedTuple):
    """Token ids of sentence pairs."""

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
class HostBatch:
    """A batch on the host, in one tensor, so that it is copied at once."""

    ids: Tensor
    sizes: tuple[int, ...]
    """M, N and P."""
    longest: tuple[int, ...]

    def pin(self) -> "HostBatch":
        """Move it to memory from which a GPU copies without waiting."""
        return replace(self, ids=self.ids.pin_memory())

    def to(self, device: torch.device) -> RowBatch:
        """Copy the batch to a device."""
        return self.divide(self.ids.to(device, non_blocking=True))

    def divide(self, ids: Tensor) -> RowBatch:
        """Divide its tensor, or another one of this shape, into those of a batch."""
        m, n, p = self.sizes
        source, target, starts = torch.split(ids, [3 * m, 4 * n, 2 * (p + 1)])
        source_ids, source_positions, source_sentences = source.view(3, m).unbind()
        target_input, target_output, target_positions, target_sentences = target.view(4, n).unbind()
        source_starts, target_starts = starts.view(2, p + 1).unbind()
        longest_source, longest_target = self.longest
        return RowBatch(
            source_ids,
            Side(source_positions, source_sentences, source_starts, longest_source),
            target_input,
            target_output,
            Side(target_positions, target_sentences, target_starts, longest_target),
        )


def make_host_batch(sides: tuple[Tokens, Tokens], shape: Shape | None = None) -> HostBatch:
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
    starts, places, outputs = [], [], []
    for (ids, _), count, filled in zip(sides, rows, lengths, strict=True):
        ends = np.pad(np.cumsum(filled), (0, sentences - len(filled)), constant_values=count)
        starts.append(np.concatenate(([0], ends)))  # (P + 1,)
        numbers = np.repeat(np.arange(sentences), np.diff(starts[-1]))  # (N,)
        places.append((np.arange(count) - starts[-1][numbers], numbers))
        outputs.append(np.pad(ids, (0, count - len(ids)), constant_values=PADDING_ID))
    # Shift right: <s> y1 y2 for the output y1 y2 </s>.
    source, target_output = outputs
    target_input = np.roll(target_output, 1)
    target_input[starts[1][: len(sides[1][1])]] = START_ID
    arrays = (source, *places[0], target_input, target_output, *places[1], *starts)
    return HostBatch(
        torch.from_numpy(np.concatenate(arrays, dtype=np.int64, casting="unsafe")),
        (*rows, sentences),
        longest,
    )


# A model reads rows with its own code. Only positions and attentions need to know where sentences
# begin: attentions get a layout in place of a mask.


class Layout(Protocol):
    """A rule that says which rows attend to which."""

    def __init__(
        self, queries: Side, keys: Side, mask: "PaddedMask", *, causal: bool = False
    ) -> None:
        """Let the rows of each sentence attend to those of the same sentence among the keys.

        `mask` makes the model's own mask of padded sentences; `causal` says that the paper's hides
        what is to the right.
        """

    def attend(self, query: Tensor, key: Tensor, value: Tensor, module: "RowAttention") -> Tensor:
        """Compute equation 1 of query (1, H, R, K), key and value (1, H, M or N, ...)."""


class SourceLayouts(NamedTuple):
    """In place of the source's mask: how the rows of either side attend to those of the source."""

    encoder: Layout
    decoder: Layout


class RowAttention(MultiHeadAttention):
    """Equation 1 between rows, given a layout in place of a mask."""

    in_autocast: bool
    """Whether equation 1 is a user's own, which may need autocast for parameters of its own."""

    def equation_1(self, query: Tensor, key: Tensor, value: Tensor, mask: Any) -> Tensor:
        """See `Layout.attend`."""
        attended: Tensor = mask.attend(query, key, value, self)
        return attended

    def attend_padded(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        """Compute equation 1 as the module does that reads padded sentences."""
        return super().equation_1(query, key, value, mask)


class Reading:
    """The batch that a model reads."""

    batch: RowBatch
    layout: type[Layout]
    side: Side | None = None
    """The side that was embedded last; None outside of a batch."""


class RowPositions(nn.Module):
    """The encodings of rows."""

    reading: Reading

    def forward(self, x: Tensor) -> Tensor:
        """Return the encoding (R, D) of the place of each row of x (1, R, D) in its sentence."""
        side = self.reading.side
        if side is None:
            return super().forward(x)
        vectors: Tensor = super().forward(x.new_zeros(1, side.longest, x.size(2)))
        return vectors.index_select(-2, side.positions)


class RowTransformer(Transformer):
    """A model that reads rows."""

    reading: Reading

    def source_mask(self, source: Tensor) -> Any:
        """Return the layouts of source (1, M)."""
        batch, mask = self.reading.batch, partial(self._padded, super().source_mask, source)
        return SourceLayouts(
            self.reading.layout(batch.source_side, batch.source_side, mask),
            self.reading.layout(batch.target_side, batch.source_side, mask),
        )

    def target_mask(self, target_input: Tensor) -> Any:
        """Return the layout of target_input (1, N)."""
        side, mask = self.reading.batch.target_side, super().target_mask
        mask_of_grid = partial(self._padded, mask, target_input)
        return self.reading.layout(side, side, mask_of_grid, causal=True)

    def _padded(self, mask: Callable[[Tensor], Tensor], ids: Tensor, grid: "Grid") -> Tensor:
        """Make the model's own mask of ids (1, R), padded."""
        return mask(grid.pad(ids, self.padding_id))

    def encode(self, source: Tensor, source_mask: Any) -> Tensor:
        """Map source (1, M) to memory (1, M, D)."""
        return super().encode(source, source_mask.encoder)

    def decode(self, target_input: Tensor, memory: Tensor, source_mask: Any) -> Tensor:
        """Compute the decoder's last states (1, N, D)."""
        return super().decode(target_input, memory, source_mask.decoder)

    def embed(self, token_ids: Tensor, *, is_target: bool = False) -> Tensor:
        """Map the ids (1, R) of a side to (1, R, D)."""
        batch = self.reading.batch
        self.reading.side = batch.target_side if is_target else batch.source_side
        return super().embed(token_ids, is_target=is_target)


def read_rows(model: Transformer) -> None:
    """Let a model read rows, in place."""
    reading = Reading()
    for module in list(model.modules()):
        if isinstance(module, MultiHeadAttention):
            is_known = has_equation_1(module) or isinstance(module, FusedAttention)
            override(module, RowAttention, in_autocast=not is_known)
        elif isinstance(module, PositionalEncoding) or module is model.positions:
            override(module, RowPositions, reading=reading)
    override(model, RowTransformer, reading=reading)


def row_states(model: Transformer, batch: RowBatch, layout: type[Layout]) -> Tensor:
    """Compute `Transformer.decoder_states` of rows, with a model that reads them: (N, D)."""
    return _read(model, batch, layout, model.decoder_states)


def row_logits(model: Transformer, batch: RowBatch, layout: type[Layout]) -> Tensor:
    """Compute the logits of rows, with a model that reads them: (N, V)."""
    return _read(model, batch, layout, model.forward)


def _read(
    model: Transformer,
    batch: RowBatch,
    layout: type[Layout],
    function: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:
    assert isinstance(model, RowTransformer)
    reading = model.reading
    reading.batch, reading.layout = batch, layout
    try:
        return function(batch.source.unsqueeze(0), batch.target_input.unsqueeze(0)).squeeze(0)
    finally:
        reading.side = None


@torch.no_grad()
def computes_the_same_for_rows(model: Transformer) -> bool:
    """Return whether a model finds for rows what it finds for padded sentences, but for dropout.

    It is tried on a copy of the model in float32, in training mode with dropout rates of 0. A model
    that counts or averages in a buffer which is saved does not: a trial of what fits into memory
    would count, too, and a buffer that is replaced is no longer the one of the model itself.
    """
    model = disturbed(model).train()
    for module in model.modules():
        if type(module) is nn.Dropout:
            module.p = 0.0
    vocab_size, device = model.embedding.num_embeddings, model.embedding.weight.device
    sides = []
    learned = model.config.positions is Positions.learned
    longest = model.config.max_learned_positions if learned else 39
    for numbers in ((4, 1, 39, 7), (2, 36, 3, 6)):
        lengths = [min(number, longest) for number in numbers]
        ids = (np.arange(sum(lengths), dtype=np.int32) * 5 + 1) % vocab_size
        ids[ids == PADDING_ID] = (PADDING_ID + 1) % vocab_size
        sides.append((ids, np.array(lengths, dtype=np.int32)))
    batch = make_host_batch((sides[0], sides[1])).to(device)
    grids = Grid(batch.source_side), Grid(batch.target_side)
    source = grids[0].pad(batch.source.unsqueeze(0), PADDING_ID)
    target_input = grids[1].pad(batch.target_input.unsqueeze(0), PADDING_ID)
    names = model.state_dict().keys() & dict(model.named_buffers()).keys()
    before = {name: model.state_dict()[name].clone() for name in names}
    with torch.random.fork_rng([]):
        torch.manual_seed(1)
        expected = grids[1].collect(model(source, target_input))
        if any(not model.state_dict()[name].equal(value) for name, value in before.items()):
            return False
        read_rows(model)
        torch.manual_seed(1)
        try:
            found = row_logits(model, batch, GridLayout)
        except Exception:  # a changed model may be unable to read rows
            return False
    return bool(((found - expected).abs() <= 1e-4 * expected.abs().max()).all())


# Attention within padded sentences: on a CPU, and for what fused kernels can't do.


class Grid:
    """The places of the rows of a side when its sentences are padded to T tokens."""

    def __init__(self, side: Side) -> None:
        starts, longest = side.starts, side.longest
        lengths = starts.diff()  # (P,)
        columns = torch.arange(longest, device=starts.device)  # (T,)
        self.shape = len(lengths), longest
        self.is_token = columns < lengths.unsqueeze(1)  # (P, T)
        # Padding gets any row: nothing attends to it, and nothing comes back from it.
        slots = torch.where(self.is_token, starts[:-1].unsqueeze(1) + columns, 0)
        self.slots = slots.flatten()  # (P * T,)
        self.places = side.sentences * longest + side.positions  # (R,), in P * T

    def pad(self, ids: Tensor, padding_id: int) -> Tensor:
        """Put the ids (1, R) of rows in their places, padding around them: (P, T)."""
        slots = ids.squeeze(0).index_select(0, self.slots).view(self.shape)
        return slots.masked_fill(~self.is_token, padding_id)

    def spread(self, rows: Tensor) -> Tensor:
        """Put rows (R, D) in their places: (P, T, D)."""
        spread: Tensor = _Spread.apply(rows, self)  # type: ignore[no-untyped-call]
        return spread.view(*self.shape, -1)

    def collect(self, x: Tensor) -> Tensor:
        """Take the rows out of x (P, T, D): (R, D)."""
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


PaddedMask: TypeAlias = Callable[[Grid], Tensor]
"""Makes the mask that a model has for padded sentences."""


class GridLayout:
    """Attention within padded sentences: on a CPU, and for what fused kernels can't do."""

    def __init__(
        self, queries: Side, keys: Side, mask: PaddedMask, *, causal: bool = False
    ) -> None:
        self.queries = Grid(queries)
        self.keys = self.queries if queries is keys else Grid(keys)
        shown = mask(self.keys)
        # Rows that fill up may have no keys: any number does for them.
        self.mask = shown | ~shown.any(dim=-1, keepdim=True)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, module: RowAttention) -> Tensor:
        """See `Layout.attend`."""
        dtype, heads = query.dtype, query.size(1)
        if is_compiled_by_onednn(query) and query.numel() <= _SMALL:
            dtype = torch.promote_types(dtype, torch.float32)
        autocast = torch.is_autocast_enabled(query.device.type) and module.in_autocast
        with torch.autocast(query.device.type, enabled=autocast):
            attended = module.attend_padded(
                _spread_heads(query, self.queries, dtype),  # (P, H, T, K)
                _spread_heads(key, self.keys, dtype),  # (P, H, S, K)
                _spread_heads(value, self.keys, dtype),  # (P, H, S, d_v)
                self.mask,
            )
        joined = attended.transpose(1, 2).flatten(2)  # (P, T, H * d_v)
        rows = self.queries.collect(joined).to(query.dtype)  # (R, H * d_v)
        return rows.view(1, len(rows), heads, -1).transpose(1, 2)


def _spread_heads(x: Tensor, grid: Grid, dtype: torch.dtype) -> Tensor:
    """Put the heads of rows (1, H, R, K) in their places: (P, H, T, K)."""
    rows = x.transpose(1, 2).flatten(2).squeeze(0)  # (R, H * K)
    spread = grid.spread(rows).view(*grid.shape, x.size(1), -1).transpose(1, 2)
    return spread.to(dtype, memory_format=torch.contiguous_format)
