"""The best continuations of a beam search, selected fast on a CPU."""

from collections.abc import Callable
from functools import cache
from typing import TypeAlias

import torch
from torch import Tensor

Score: TypeAlias = Callable[..., Tensor]
"""Tensors of B sentences -> scores (B, M), each row from its own sentence alone."""

TopK: TypeAlias = Callable[..., tuple[Tensor, Tensor]]
"""`plain_topk`, or a fast form of it."""


def plain_topk(score: Score, count: int, *tensors: Tensor) -> tuple[Tensor, Tensor]:
    """Find the `count` largest scores of each sentence and their places in M: both (B, count)."""
    best, places = score(*tensors).topk(count)
    return best, places


def topk_in_chunks(
    score: Score, count: int, *tensors: Tensor, chunk_elements: int = 2**19
) -> tuple[Tensor, Tensor]:
    """Compute `plain_topk`, on a CPU for a few sentences at a time.

    `chunk_elements` scores (2 MB of float32) and their copies stay in a CPU's cache. Ties may be
    resolved differently.
    """
    first = tensors[0]
    sentences = max(1, chunk_elements // first[0].numel()) if first.is_cpu else len(first)
    chunks = zip(*(torch.split(tensor, sentences) for tensor in tensors), strict=True)
    found = [topk_by_blocks(score(*chunk), count) for chunk in chunks]
    best, places = (torch.cat(results) for results in zip(*found, strict=True))
    return best, places


def topk_by_blocks(scores: Tensor, count: int, block: int = 128) -> tuple[Tensor, Tensor]:
    """Compute `scores.topk(count)` of (B, M) by way of the maxima of blocks.

    The `count` largest scores are in the `count` blocks with the largest maxima. On a CPU, finding
    those takes a tenth of the time of a selection among all scores.
    """
    blocks = scores.size(1) // block
    if blocks <= count:
        best, places = scores.topk(count)
        return best, places
    whole = blocks * block
    maxima = scores[:, :whole].view(-1, blocks, block).amax(dim=2)  # (B, blocks)
    starts = maxima.topk(count).indices.unsqueeze(2) * block  # (B, count, 1)
    within = torch.arange(block, device=scores.device)
    rest = torch.arange(whole, scores.size(1), device=scores.device)
    candidates = torch.cat(((starts + within).flatten(1), rest.expand(len(scores), -1)), dim=1)
    best, chosen = scores.gather(1, candidates).topk(count)
    return best, candidates.gather(1, chosen)


@cache
def compiled_topk() -> TopK:
    """Return `plain_topk` by way of the maxima of blocks, compiled together with the scores.

    Compiled, the scores are never stored: a GPU reads the logits for their sums, their maxima and a
    few blocks.
    """

    def best_of_scores(score: Score, count: int, *tensors: Tensor) -> tuple[Tensor, Tensor]:
        return topk_by_blocks(score(*tensors), count)

    compiled: TopK = torch.compile(best_of_scores)
    return compiled
