"""The micro-batches of a step in one forward pass, rather than one pass each, on a GPU.

A GPU computes one long matmul in less time than several short ones, and the host starts fewer
kernels. All positions of all micro-batches, one after the other, are the rows of each matmul, norm
and sum; only attention runs within each micro-batch. So the batches, their padding and the loss are
the same as without joining. On a CPU this gains nothing.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seq2seq.data.batching import Batch
from seq2seq.data.tokenizer import PADDING_ID
from seq2seq.device import copy_to_device
from seq2seq.model import Transformer


@dataclass(frozen=True)
class JoinedLayout:
    """Which rows of joined batches attend to which, for `FastAttention` in place of a mask."""

    queries: list[torch.Size]  # (B, T) of each batch
    keys: list[torch.Size]  # (B, S) of each batch
    masks: Sequence[Tensor | None]  # (B, 1, 1, S) of each batch; None if no key is hidden
    causal: bool = False  # whether each position attends only to itself and those before it

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, heads: int, dropout: nn.Module
    ) -> Tensor:
        """Compute equation 1 within each batch: (1, N, H * d_v).

        The rows of all batches: query (1, N, H * K), key (1, M, H * K), value (1, M, H * d_v).
        """
        assert isinstance(dropout, nn.Dropout)
        rate, attended = dropout.p if dropout.training else 0.0, []
        for q, k, v, mask in zip(
            _divide(query, self.queries, heads),  # (B, H, T, K)
            _divide(key, self.keys, heads),  # (B, H, S, K)
            _divide(value, self.keys, heads),  # (B, H, S, d_v)
            self.masks,
            strict=True,
        ):
            out = F.scaled_dot_product_attention(q, k, v, mask, rate, is_causal=self.causal)
            attended.append(out.transpose(1, 2).reshape(-1, heads * v.size(3)))  # (B * T, H * d_v)
        return torch.cat(attended).unsqueeze(0)


def _divide(x: Tensor, shapes: list[torch.Size], heads: int) -> list[Tensor]:
    """Divide rows (1, N, H * K) into batches (B, H, T, K)."""
    rows = torch.split(x.squeeze(0), [math.prod(shape) for shape in shapes])
    return [
        batch.view(*shape, heads, -1).transpose(1, 2)
        for batch, shape in zip(rows, shapes, strict=True)
    ]


@dataclass(frozen=True)
class JoinedBatch:
    """Token ids of several batches: M source and N target positions, padding counted."""

    source: Tensor  # (M,)
    source_positions: Tensor  # (M,), the position of each token in its sentence
    target_input: Tensor  # (N,)
    target_positions: Tensor  # (N,)
    target_output: Tensor  # (N,)
    target_rows: Tensor  # the indices into N that are not padding
    sources: list[torch.Size]  # (B, S) of each batch
    targets: list[torch.Size]  # (B, T) of each batch
    padded: list[bool]  # whether any source of the batch is padded

    def to(self, device: torch.device) -> "JoinedBatch":
        """Copy the batch to a device, in one copy."""
        tensors = {name: x for name, x in vars(self).items() if isinstance(x, Tensor)}
        joined = copy_to_device(torch.cat(tuple(tensors.values())), device)
        copied = torch.split(joined, [len(x) for x in tensors.values()])
        on_device: dict[str, Any] = dict(zip(tensors, copied, strict=True))
        return replace(self, **on_device)


def join(batches: Sequence[Batch]) -> JoinedBatch:
    """Join batches on the host."""
    sources, inputs = [b.source for b in batches], [b.target_input for b in batches]
    target_output = torch.cat([batch.target_output.flatten() for batch in batches])
    return JoinedBatch(
        source=torch.cat([source.flatten() for source in sources]),
        source_positions=torch.cat([_positions(source.shape) for source in sources]),
        target_input=torch.cat([ids.flatten() for ids in inputs]),
        target_positions=torch.cat([_positions(ids.shape) for ids in inputs]),
        target_output=target_output,
        target_rows=(target_output != PADDING_ID).nonzero().squeeze(1),
        sources=[source.shape for source in sources],
        targets=[ids.shape for ids in inputs],
        padded=[bool((source == PADDING_ID).any()) for source in sources],
    )


def _positions(shape: torch.Size) -> Tensor:
    return torch.arange(shape[1]).repeat(shape[0])


def joined_states(model: Transformer, batch: JoinedBatch) -> Tensor:
    """Compute `Transformer.decoder_states` of all batches: (1, N, D).

    The model's attentions must be `FastAttention`, and the batch on its device.
    """
    # A GPU is not asked which sources are padded: the host knew when it joined them.
    sources = torch.split(batch.source, [math.prod(shape) for shape in batch.sources])
    masks = [
        model.source_mask(ids.view(shape)) if padded else None  # (B, 1, 1, S)
        for ids, shape, padded in zip(sources, batch.sources, batch.padded, strict=True)
    ]
    # The layers hand these to their attentions in place of masks.
    encoder: Any = JoinedLayout(batch.sources, batch.sources, masks)
    causal: Any = JoinedLayout(batch.targets, batch.targets, [None] * len(masks), causal=True)
    cross: Any = JoinedLayout(batch.targets, batch.sources, masks)

    longest = max(length for _, length in batch.sources)
    x = embed_rows(model, model.embedding, batch.source, batch.source_positions, longest)
    memory = model.encoder(x, encoder)  # (1, M, D)
    embedding, positions = model.target_embedding, batch.target_positions
    longest = max(length for _, length in batch.targets)
    x = embed_rows(model, embedding, batch.target_input, positions, longest)
    return model.decoder(x, memory, causal, cross)  # (1, N, D)


def embed_rows(
    model: Transformer, embedding: nn.Embedding, token_ids: Tensor, positions: Tensor, longest: int
) -> Tensor:
    """Compute `Transformer.embed` of tokens (N,) at any positions (N,): (1, N, D)."""
    x = embedding(token_ids).unsqueeze(0)
    vectors = model.positions(x[:, :longest])  # (longest, D)
    return model.dropout(x + vectors.index_select(0, positions))
