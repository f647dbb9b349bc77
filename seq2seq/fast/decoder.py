"""Fast forms of `IncrementalDecoder`, for the steps of a search, and what puts them into a model.

`FastIncrementalDecoder` saves small matmuls and copies on a CPU. `StaticDecoder`, for a GPU, has
its cache in memory that doesn't move, in shapes that repeat: keys and values stay where they were
written, a `BeamTable` says which slot holds each position of each hypothesis, and reordering beams
changes the table alone. How many positions are filled is a number on the device. So a step can be
recorded as a CUDA graph, one for each shape.
"""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seq2seq.changes import changed_code, report_unused
from seq2seq.config import Positions
from seq2seq.decoder import (
    CachedCrossAttention,
    DecoderCache,
    IncrementalDecoder,
    LayerCache,
    PrefixDecoder,
    StepDecoder,
    cache_of_step,
    computes_the_same,
)
from seq2seq.fast import packed, replace_modules
from seq2seq.fast.fused import FusedAttention, use_fused_attention
from seq2seq.transformer import (
    DecoderLayer,
    MultiHeadAttention,
    PositionalEncoding,
    Transformer,
)

if TYPE_CHECKING:  # imported for a GPU
    from seq2seq.fast.graphs import Buffers, Graphs


@dataclass
class PositionsFirstCache(LayerCache):
    """Keys (capacity, N, H, K) and values (capacity, N, H, d_v), filled up to `length`."""

    length: int = 0

    def write(self, key: Tensor, value: Tensor) -> None:
        """Add the newest position: key (N, H, K), value (N, H, d_v)."""
        self.keys, self.values = self._grown(self.keys, key), self._grown(self.values, value)
        self.keys[self.length] = key
        self.values[self.length] = value
        self.length += 1

    def attend(self, query: Tensor) -> Tensor:
        """Attend from the newest position, query (N, H, K), to all: (N, H, d_v)."""
        assert self.keys is not None
        assert self.values is not None
        keys, values = self.keys[: self.length], self.values[: self.length]  # (T, N, H, K)
        # With one query per head each matmul would be a row times a small matrix; multiplying and
        # summing over all rows at once takes half the time. The newest position needs no mask.
        scores = (keys * (query * (1.0 / math.sqrt(query.size(-1))))).sum(dim=-1)  # (T, N, H)
        return (scores.softmax(dim=0).unsqueeze(-1) * values).sum(dim=0)

    def reorder(self, parents: Tensor) -> None:
        """See `LayerCache.reorder`."""
        self.keys, self.values = (self._reordered(x, parents) for x in (self.keys, self.values))

    def _grown(self, x: Tensor | None, newest: Tensor) -> Tensor:
        if x is not None and self.length < len(x):
            return x
        # Capacity doubles, so all copies together cost less than one more pass over the cache.
        grown = newest.new_empty(max(16, 2 * self.length), *newest.shape)
        if x is not None:
            grown[: self.length] = x[: self.length]
        return grown

    def _reordered(self, x: Tensor | None, parents: Tensor) -> Tensor | None:
        if x is None:
            return None
        # Equal capacities step after step let the allocator reuse freed memory.
        rows = x.new_empty(len(x), len(parents), *x.shape[2:])
        torch.index_select(x[: self.length], 1, parents, out=rows[: self.length])
        return rows


class _NewestToken(Transformer):
    """In a step, a mask that hides nothing: the newest token may attend to all positions so far."""

    def target_mask(self, target_input: Tensor) -> Tensor:
        """Return a mask (1, 1) that is True."""
        if cache_of_step() is None:
            return super().target_mask(target_input)
        return torch.ones(1, 1, dtype=torch.bool, device=target_input.device)


class _SelfAttention(packed.PackedAttention):
    """In a step, self-attention without small matmuls."""

    layer: int

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        """Attend from the newest position x (N, 1, D) to all positions so far: (N, 1, D)."""
        cache = cache_of_step()
        layer = None if cache is None else cache.layers[self.layer]
        if not isinstance(layer, PositionsFirstCache):  # no step, or one of the plain decoder
            return super().forward(x, memory, mask)
        projected = self.project_self(x)  # (N, 1, H * K)
        # (N, H, K)
        query, key, value = (each.view(x.size(0), self.num_heads, -1) for each in projected)
        layer.write(key, value)
        return self.w_o(layer.attend(query).reshape(x.size(0), 1, -1))


class _NoDropout(nn.Dropout):
    """Dropout in evaluation mode, without the time of PyTorch's operation."""

    def forward(self, x: Tensor) -> Tensor:
        """Return x itself."""
        return x


class _ScaledQueries(MultiHeadAttention):
    """In a step, the queries are scaled, which are fewer numbers than the scores."""

    def equation_1(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        """Compute `transformer.attention` without dropout."""
        if cache_of_step() is None:
            return super().equation_1(query, key, value, mask)
        scores = (query * (1.0 / math.sqrt(query.size(-1)))) @ key.transpose(-2, -1)
        return scores.masked_fill(~mask, -math.inf).softmax(dim=-1) @ value


class _CrossAttention(CachedCrossAttention, _ScaledQueries):
    """In a step, one attention for all hypotheses of a sentence."""


class FastIncrementalDecoder(IncrementalDecoder):
    """`IncrementalDecoder` with packed projections, and self-attention without small matmuls.

    It changes the model in place, whose attentions must be `PackedAttention`.
    """

    layer_cache: type[LayerCache] = PositionsFirstCache
    self_attention_methods: type[MultiHeadAttention] = _SelfAttention
    cross_attention_methods: type[MultiHeadAttention] = _CrossAttention
    model_methods: type[Transformer] = _NewestToken

    def __init__(self, model: Transformer, pack: packed.Pack, *, own_project: bool = False) -> None:
        super().__init__(model)
        self.projection: packed.Matmul = model.project
        if not own_project:
            self.projection = packed.PackedMatmul(pack, (model.output_matrix, model.output_bias))

    def project(self, states: Tensor) -> Tensor:
        """See `IncrementalDecoder.project`."""
        return self.projection(states)


MULTIPLE = 16
"""Source lengths and numbers of positions are multiples of it."""


def round_up(count: int) -> int:
    """Round a number of sentences up to one of 1, 2, 3, 4, 6, 8, 12, 16, 24 and so on."""
    multiple = 1 << max(0, (count - 1).bit_length() - 2)
    return -(-count // multiple) * multiple


def round_down(count: int) -> int:
    """Round a number of sentences down to one of 1, 2, 3, 4, 6, 8, 12, 16, 24 and so on."""
    multiple = 1 << max(0, count.bit_length() - 2)
    return count // multiple * multiple


class BeamTable:
    """Where all layers keep the positions of the N hypotheses; there are slots for T of them."""

    def __init__(self, buffers: "Buffers", model: Transformer, memory: Tensor) -> None:
        self.buffers, self.model, device = buffers, model, memory.device
        self.newest = buffers.store("position", torch.zeros(1, dtype=torch.long, device=device))
        """(1,), the position that the next step reads."""
        self.slots = torch.empty(0, len(memory), dtype=torch.long, device=device)
        """(T, N), the index among the T x N keys of a layer of each position of each hypothesis."""
        self.reorders = False
        """Whether hypotheses are reordered: not if each sentence has only one."""

    def reserve(self, positions: int) -> None:
        """Give each hypothesis its own slot at the positions that are new."""
        first, rows = self.slots.shape
        new = torch.arange(first * rows, positions * rows, device=self.slots.device)
        self.slots = self.buffers.reserve("slots", (positions, rows), new.dtype, new.device)
        self.slots[first:] = new.view(-1, rows)
        config, like = self.model.config, self.model.embedding.weight
        learned = config.positions is Positions.learned
        learned_positions = min(positions, config.max_learned_positions) if learned else positions
        encodings = self.model.positions(like.new_empty(1, learned_positions, config.d_model))
        self.encodings = self.buffers.store(  # (T, D), added to the embeddings
            "encodings", F.pad(encodings, (0, 0, 0, positions - learned_positions))
        )

    def keep(self, rows: int) -> None:
        """Give each of the remaining hypotheses its own slot at all positions."""
        slots = torch.arange(len(self.slots) * rows, device=self.slots.device)
        self.slots = self.buffers.store("slots", slots.view(-1, rows))

    def begin_step(self) -> None:
        """Give each hypothesis its own slot at the newest position, and hide those after it."""
        positions, rows = self.slots.shape
        every = torch.arange(max(positions, rows), device=self.slots.device)
        slots = self.newest * rows + every[:rows]  # (N,)
        self.slots.index_copy_(0, self.newest, slots.unsqueeze(0))
        self.visible = every[:positions] <= self.newest  # (T,)

    def of_hypotheses(self, x: Tensor) -> Tensor:
        """Collect the keys or values of each hypothesis: (T, N, H, K) -> (N, H, T, K)."""
        if self.reorders:
            x = collect(x, self.slots)
        return x.permute(1, 2, 0, 3)


def collect(x: Tensor, slots: Tensor) -> Tensor:
    """Collect keys or values: (T, N, H, K) and slots (T, n) -> (T, n, H, K)."""
    return x.flatten(0, 1).index_select(0, slots.flatten()).view(*slots.shape, *x.shape[2:])


class StaticLayerCache(PositionsFirstCache):
    """Keys (T, N, H, K) and values (T, N, H, d_v), filled up to the newest position."""

    table: BeamTable
    keys: Tensor
    values: Tensor
    memory: tuple[Tensor, Tensor]

    def write(self, key: Tensor, value: Tensor) -> None:
        """See `PositionsFirstCache.write`."""
        self.keys.index_copy_(0, self.table.newest, key.unsqueeze(0))
        self.values.index_copy_(0, self.table.newest, value.unsqueeze(0))

    def attend(self, query: Tensor) -> Tensor:
        """See `PositionsFirstCache.attend`."""
        keys, values = map(self.table.of_hypotheses, (self.keys, self.values))
        mask = self.table.visible.view(1, 1, 1, -1)
        return F.scaled_dot_product_attention(query.unsqueeze(2), keys, values, mask).squeeze(2)


class StaticCache(DecoderCache):
    """The state of a search between two steps, in buffers; it begins without any slots."""

    layers: list[StaticLayerCache]  # type: ignore[assignment]

    def __init__(
        self,
        layers: list[StaticLayerCache],
        memory: Tensor,
        source_mask: Tensor,
        table: BeamTable,
    ) -> None:
        super().__init__(list(layers), memory, source_mask)
        self.table, self.buffers = table, table.buffers
        for layer in layers:
            layer.table = table

    @property
    def shape(self) -> tuple[int, ...]:
        """T, N and the shape of the sources' mask: equal shapes lie at equal addresses."""
        return (*self.table.slots.shape, *self.source_mask.shape)

    def reorder(self, parents: Tensor) -> None:
        """See `DecoderCache.reorder`; here N stays."""
        slots = self.table.slots
        slots.copy_(slots.index_select(1, parents))

    def keep(self, sentences: Tensor, rows: Tensor) -> None:
        """See `DecoderCache.keep`; a sentence and its rows may be kept several times."""
        table = self.table
        slots = table.slots.index_select(1, rows)  # (T, n)
        for number, layer in enumerate(self.layers):
            for name in ("keys", "values"):
                values = collect(getattr(layer, name), slots)  # (T, N, H, K) -> (T, n, H, K)
                setattr(layer, name, self.buffers.store(f"{name} {number}", values))
            kept = (x.index_select(0, sentences) for x in layer.memory)  # (b, H, S, K)
            keys, values = (
                self.buffers.store(f"memory {name} {number}", x)
                for name, x in zip(("keys", "values"), kept, strict=True)
            )
            layer.memory = keys, values
        self.source_mask = self.buffers.store("mask", self.source_mask.index_select(0, sentences))
        table.keep(len(rows))
        table.reorders = len(rows) > len(sentences)

    def reserve(self, positions: int) -> None:
        """Reserve slots for that many positions; those that there are stay where they are."""
        for number, layer in enumerate(self.layers):
            for name in ("keys", "values"):
                x = getattr(layer, name)
                shape = (positions, *x.shape[1:])
                more = self.buffers.reserve(f"{name} {number}", shape, x.dtype, x.device)
                more[len(x) :] = 0  # a number that isn't finite would pass through the mask
                setattr(layer, name, more)
        self.table.reserve(positions)


class LastingPositions(nn.Module):
    """Positional encodings whose tables keep their memory, as graphs go on to read it.

    `PositionalEncoding` replaces its table when a longer sequence comes, and frees the memory of
    the old one.
    """

    def __init__(self, encoding: PositionalEncoding) -> None:
        super().__init__()
        self.encoding = encoding
        self.tables: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        """See `PositionalEncoding.forward`."""
        vectors: Tensor = self.encoding(x)
        if not any(table is self.encoding.table for table in self.tables):
            self.tables.append(self.encoding.table)
        return vectors


class _NewestPosition(nn.Module):
    """In a step, the encoding of the position that a number on the device says."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the encoding (1, D) of the newest position."""
        cache = cache_of_step()
        if not isinstance(cache, StaticCache):
            return super().forward(x)
        return cache.table.encodings.index_select(0, cache.table.newest)


class _FusedCrossAttention(CachedCrossAttention, FusedAttention):
    """In a step, one attention for all hypotheses of a sentence, by one kernel."""


class StaticDecoder(FastIncrementalDecoder):
    """`FastIncrementalDecoder` whose steps of equal shapes read and write the same memory."""

    layer_cache = StaticLayerCache
    cross_attention_methods = _FusedCrossAttention
    positions_methods = _NewestPosition

    def __init__(
        self,
        model: Transformer,
        pack: packed.Pack,
        buffers: "Buffers",
        graphs: "Graphs | None" = None,
    ) -> None:
        self.buffers, self.graphs = buffers, graphs
        if isinstance(model.positions, PositionalEncoding):
            model.positions = LastingPositions(model.positions)
        super().__init__(model, pack)

    def begin(self, source: Tensor) -> StaticCache:
        """See `IncrementalDecoder.begin`; sources have few lengths, and their encoder graphs."""
        padding = (0, -source.size(1) % MULTIPLE)
        source = self.buffers.store("source", F.pad(source, padding, value=self.model.padding_id))
        source_mask = self.model.source_mask(source)  # (B, 1, 1, S)

        def encode() -> None:
            mask = self.model.source_mask(source)
            self.buffers.store("memory", self.model.encode(source, mask))

        if self.graphs is None:
            encode()
        else:
            self.graphs.run(("encode", self.buffers.version, source.shape), encode)
        shape = (*source.shape, self.model.config.d_model)
        return self.start(self.buffers.view("memory", shape), source_mask)

    def start(self, memory: Tensor, source_mask: Tensor) -> StaticCache:
        """See `IncrementalDecoder.start`; the length of memory (B, S, D) is a multiple."""
        layers = []
        for layer in self.model.decoder.layers:
            assert isinstance(layer, DecoderLayer)
            key, value = layer.cross_attention.keys_and_values(memory)
            cache = StaticLayerCache(
                key.new_empty(0, len(key), key.size(1), key.size(3)),
                value.new_empty(0, len(value), value.size(1), value.size(3)),
                (key.contiguous(), value.contiguous()),
            )
            layers.append(cache)
        table = BeamTable(self.buffers, self.model, memory)
        return StaticCache(layers, memory, source_mask, table)

    def step(self, token_ids: Tensor, cache: DecoderCache) -> Tensor:
        """See `IncrementalDecoder.step`."""
        assert isinstance(cache, StaticCache)
        cache.table.begin_step()
        logits = super().step(token_ids, cache)
        cache.table.newest += 1
        return logits


@dataclass(frozen=True, kw_only=True)
class TranslationKernels:
    """The fast forms to use in translation; without any, the plain model is searched."""

    packed: bool = True  # matrices in oneDNN's layout, on a CPU
    step: bool = True  # packed projections and cheap self-attention in a search step
    static: bool | None = None  # beam search in few shapes at fixed addresses; by default on a GPU


_REPEATED = (
    "transformer.attention()",
    "transformer.causal_mask()",
    "transformer.MultiHeadAttention",
    "transformer.Transformer.target_mask()",
)
"""Functions that `PackedAttention` and `FastIncrementalDecoder` compute in their own way."""


def use_translation_kernels(
    model: Transformer,
    dtype: torch.dtype,
    kernels: TranslationKernels,
    buffers: "Buffers | None" = None,
    graphs: "Graphs | None" = None,
) -> StepDecoder:
    """Put the fast forms into a model, in place; it can no longer be trained or saved.

    With `buffers`, the decoder is a `StaticDecoder`, which keeps its tensors in them: no code of
    the model may be changed. The decoder of a modern or changed model is the fastest one that does
    what the model does.
    """
    on_gpu = model.embedding.weight.is_cuda
    changed = changed_code(model)
    repeated = [name for name in changed if name.startswith(_REPEATED)]
    pack: packed.Pack = packed.plain_matmul
    if kernels.packed and not on_gpu and packed.can_pack(dtype):
        pack = packed.packed_matmul
    plain = copy.deepcopy(model) if changed else model
    if kernels.step or buffers is not None or pack is not packed.plain_matmul:
        packed.pack_linears(model, pack, attentions=not repeated)
        if on_gpu and not repeated:
            use_fused_attention(model)
    if buffers is not None:
        return StaticDecoder(model, pack, buffers, graphs)
    if kernels.step:
        replace_modules(model, nn.Dropout, lambda dropout: _NoDropout(dropout.p))
    decoders: list[Callable[[Transformer], StepDecoder]] = [IncrementalDecoder]
    if kernels.step and _is_packed(model):
        own_project = "transformer.Transformer.project()" in changed
        fast = partial(FastIncrementalDecoder, pack=pack, own_project=own_project)
        decoders.insert(0, fast)
    if not changed:
        return decoders[0](model)
    from seq2seq.zoo.modern import modern_choices

    for decoder in decoders:
        if computes_the_same(decoder, model, plain):
            if decoder is IncrementalDecoder and kernels.step and not modern_choices(model.config):
                report_unused("the fast forms of attention", repeated or changed)
            return decoder(model)
    report_unused("a search that keeps keys and values", changed)
    return PrefixDecoder(model)


def _is_packed(model: Transformer) -> bool:
    """Return whether all attentions of the decoder are the paper's."""
    layers = (layer for layer in model.decoder.layers if isinstance(layer, DecoderLayer))
    attentions = (m for layer in layers for m in (layer.self_attention, layer.cross_attention))
    return all(isinstance(module, packed.PackedAttention) for module in attentions)
