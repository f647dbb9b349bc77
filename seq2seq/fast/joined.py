"""The micro-batches of a step in one forward pass, in place of one after the other, for a GPU.

A GPU computes one long product in less time than several short ones, and the host starts fewer
kernels. All positions of all batches, one after the other, are the rows of every product, norm and
sum; attention alone runs within each batch. So the batches, their padding and the loss stay those
of the micro-batches. On a CPU this gains nothing.

Packed batches have no padding: each sentence is then a batch by itself, and PyTorch's attention for
sequences of any length (`torch.nn.attention.varlen`) takes all of them at once.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seq2seq.data.batching import Batch
from seq2seq.data.tokenizer import PADDING_ID
from seq2seq.device import copy_to_device
from seq2seq.model import Transformer


class Parts(Protocol):
    """Which rows of joined batches attend to which, in place of a mask."""

    def attend(self, query: Tensor, key: Tensor, value: Tensor, heads: int, rate: float) -> Tensor:
        """Compute equation 1 within each part.

        Args:
            query: (1, N, H * K).
            key: (1, M, H * K).
            value: (1, M, H * d_v).
            heads: H.
            rate: of dropout.

        Returns:
            (1, N, H * d_v).
        """


@dataclass(frozen=True)
class PaddedParts:
    """Batches with padding, one kernel for each."""

    queries: list[torch.Size]
    """(B, T) of each batch."""
    keys: list[torch.Size]
    """(B, S) of each batch."""
    masks: Sequence[Tensor | None]
    """(B, 1, 1, S) of each batch; None if all keys may be attended to."""
    causal: bool = False
    """Whether each position attends only to itself and those before it."""

    def attend(self, query: Tensor, key: Tensor, value: Tensor, heads: int, rate: float) -> Tensor:
        """See `Parts.attend`."""
        attended = []
        for q, k, v, mask in zip(
            _divide(query, self.queries, heads),
            _divide(key, self.keys, heads),
            _divide(value, self.keys, heads),
            self.masks,
            strict=True,
        ):
            out = F.scaled_dot_product_attention(q, k, v, mask, rate, is_causal=self.causal)
            attended.append(out.transpose(1, 2).reshape(-1, heads * v.size(3)))
        return torch.cat(attended).unsqueeze(0)


def _divide(x: Tensor, shapes: list[torch.Size], heads: int) -> list[Tensor]:
    """Divide rows (1, N, H * K) into batches (B, H, T, K)."""
    parts = torch.split(x.squeeze(0), [math.prod(shape) for shape in shapes])
    return [
        part.view(*shape, heads, -1).transpose(1, 2)
        for part, shape in zip(parts, shapes, strict=True)
    ]


@dataclass(frozen=True)
class Sentences:
    """Sentences that follow each other without padding."""

    starts: Tensor
    """(B + 1,), int32: the first row of each sentence, then the number of rows."""
    longest: int
    """The length of the longest sentence."""


@dataclass(frozen=True)
class PackedParts:
    """Sentences without padding, one kernel for all of them: on a GPU, in bf16."""

    queries: Sentences
    keys: Sentences
    causal: bool = False
    """Whether each position attends only to itself and those before it."""

    def attend(self, query: Tensor, key: Tensor, value: Tensor, heads: int, rate: float) -> Tensor:
        """See `Parts.attend`; the kernel has no dropout, so the rate must be 0."""
        from torch.nn.attention.varlen import varlen_attn  # takes long to import

        assert rate == 0.0
        attended = varlen_attn(
            query.view(-1, heads, query.size(2) // heads),
            key.view(-1, heads, key.size(2) // heads),
            value.view(-1, heads, value.size(2) // heads),
            self.queries.starts,
            self.keys.starts,
            self.queries.longest,
            self.keys.longest,
            window_size=(-1, 0) if self.causal else (-1, -1),  # all to the left, or all
        )
        assert isinstance(attended, Tensor)
        return attended.flatten(1).unsqueeze(0)


_TENSORS = (
    *("source", "source_positions"),
    *("target_input", "target_positions", "target_output", "target_rows"),
    *("source_starts", "target_starts"),
)


@dataclass(frozen=True)
class JoinedBatch:
    """Token ids of several batches: M source and N target positions, padding counted."""

    source: Tensor
    """(M,)."""
    source_positions: Tensor
    """(M,), the position of each token in its sentence."""
    target_input: Tensor
    """(N,)."""
    target_positions: Tensor
    """(N,)."""
    target_output: Tensor
    """(N,)."""
    target_rows: Tensor
    """The indices into N that are not padding."""
    source_starts: Tensor
    """Packed: (B + 1,), the first source position of each sentence, then M; otherwise empty."""
    target_starts: Tensor
    """The same for the target."""
    sources: list[torch.Size]
    """(B, S) of each batch."""
    targets: list[torch.Size]
    """(B, T) of each batch."""
    padded: list[bool]
    """Whether any source of the batch is padded."""

    def to(self, device: torch.device) -> "JoinedBatch":
        """Copy the batch to a device, in one copy."""
        tensors = [getattr(self, name) for name in _TENSORS]
        copied = torch.split(
            copy_to_device(torch.cat(tensors), device), [len(tensor) for tensor in tensors]
        )
        on_device: dict[str, Any] = dict(zip(_TENSORS, copied, strict=True))
        return replace(self, **on_device)


def join(batches: Sequence[Batch], *, packed: bool = False) -> JoinedBatch:
    """Join batches on the host.

    Args:
        batches: the batches.
        packed: leave out their padding.
    """
    if packed:
        return _pack(batches)
    empty = torch.empty(0, dtype=torch.long)
    sources, inputs = [b.source for b in batches], [b.target_input for b in batches]
    target_output = torch.cat([batch.target_output.flatten() for batch in batches])
    return JoinedBatch(
        source=torch.cat([source.flatten() for source in sources]),
        source_positions=torch.cat([_positions(source.shape) for source in sources]),
        target_input=torch.cat([ids.flatten() for ids in inputs]),
        target_positions=torch.cat([_positions(ids.shape) for ids in inputs]),
        target_output=target_output,
        target_rows=(target_output != PADDING_ID).nonzero().squeeze(1),
        source_starts=empty,
        target_starts=empty,
        sources=[source.shape for source in sources],
        targets=[ids.shape for ids in inputs],
        padded=[bool((source == PADDING_ID).any()) for source in sources],
    )


def _pack(batches: Sequence[Batch]) -> JoinedBatch:
    source, source_positions, source_lengths = _without_padding([b.source for b in batches])
    outputs = [batch.target_output for batch in batches]
    target_output, target_positions, target_lengths = _without_padding(outputs)
    inputs = [batch.target_input[batch.target_output != PADDING_ID] for batch in batches]
    return JoinedBatch(
        source=source,
        source_positions=source_positions,
        target_input=torch.cat(inputs),
        target_positions=target_positions,
        target_output=target_output,
        target_rows=torch.arange(len(target_output)),
        source_starts=F.pad(source_lengths.cumsum(0), (1, 0)),
        target_starts=F.pad(target_lengths.cumsum(0), (1, 0)),
        sources=[torch.Size((1, length)) for length in source_lengths.tolist()],
        targets=[torch.Size((1, length)) for length in target_lengths.tolist()],
        padded=[False] * len(source_lengths),
    )


def _without_padding(padded: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Return the tokens of all sentences, their positions, and the lengths of the sentences."""
    tokens = [ids != PADDING_ID for ids in padded]
    positions = [torch.arange(ids.size(1)).expand_as(ids) for ids in padded]
    return (
        torch.cat([ids[mask] for ids, mask in zip(padded, tokens, strict=True)]),
        torch.cat([places[mask] for places, mask in zip(positions, tokens, strict=True)]),
        torch.cat([mask.sum(dim=1) for mask in tokens]),
    )


def _positions(shape: torch.Size) -> Tensor:
    return torch.arange(shape[1]).repeat(shape[0])


def joined_states(model: Transformer, batch: JoinedBatch) -> Tensor:
    """Compute `Transformer.decoder_states` of all batches: (1, N, D).

    Args:
        model: its attentions are `FusedAttention`.
        batch: on the device of the model.
    """
    parts = _packed_parts(batch) if len(batch.source_starts) else _padded_parts(model, batch)
    # The layers hand these to their attentions in place of masks.
    encoder: Any
    causal: Any
    cross: Any
    encoder, causal, cross = parts
    x = _embed(model, model.embedding, batch.source, batch.source_positions, batch.sources)
    memory = model.encoder(x, encoder)
    embedding, positions = model.target_embedding, batch.target_positions
    x = _embed(model, embedding, batch.target_input, positions, batch.targets)
    states: Tensor = model.decoder(x, memory, causal, cross)
    return states


def _padded_parts(model: Transformer, batch: JoinedBatch) -> tuple[Parts, Parts, Parts]:
    """Return what the encoder, the decoder and the decoder's cross-attention attend to."""
    sources = torch.split(batch.source, [math.prod(shape) for shape in batch.sources])
    masks = [
        model.source_mask(ids.view(shape)) if padded else None
        for ids, shape, padded in zip(sources, batch.sources, batch.padded, strict=True)
    ]
    return (
        PaddedParts(batch.sources, batch.sources, masks),
        PaddedParts(batch.targets, batch.targets, [None] * len(masks), causal=True),
        PaddedParts(batch.targets, batch.sources, masks),
    )


def _packed_parts(batch: JoinedBatch) -> tuple[Parts, Parts, Parts]:
    source = Sentences(batch.source_starts.int(), max(shape[1] for shape in batch.sources))
    target = Sentences(batch.target_starts.int(), max(shape[1] for shape in batch.targets))
    return (
        PackedParts(source, source),
        PackedParts(target, target, causal=True),
        PackedParts(target, source),
    )


def _embed(
    model: Transformer,
    embedding: nn.Embedding,
    token_ids: Tensor,
    positions: Tensor,
    shapes: list[torch.Size],
) -> Tensor:
    """Compute `Transformer.embed` of tokens (N,) at any positions (N,): (1, N, D)."""
    x = embedding(token_ids).unsqueeze(0)
    vectors = model.positions(x[:, : max(length for _, length in shapes)])
    embedded: Tensor = model.dropout(x + vectors.index_select(0, positions))
    return embedded
