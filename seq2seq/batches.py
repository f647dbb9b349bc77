"""Batches of pairs of similar length, of a number of tokens each (5.1).

Which pairs an epoch takes, in which batches and in which order, is a function of (seed, epoch)
alone: a resumed run needs no state of it, and each process takes its share of one list.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from math import ceil
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seq2seq.config import TrainingConfig
from seq2seq.device import copy_to_device
from seq2seq.encoded_corpus import EncodedCorpus, Lengths, PairIndices
from seq2seq.errors import UserError
from seq2seq.tokenizer import PADDING_ID, START_ID

# Before sorting, each length is stretched by a random share of up to this. So different pairs share
# a batch in each epoch, of still about one length.
_LENGTH_JITTER = 0.05
# A batch may have this share more of one side than a batch of the whole corpus' proportion.
_SLACK = 0.01
_BLOCK_PAIRS = 1 << 18  # pairs whose lengths are in memory at once


@dataclass(frozen=True)
class Batch:
    """Token ids of B sentence pairs, padded on the right."""

    source: Tensor
    """(B, S), ends with `</s>`."""
    target_input: Tensor
    """(B, T), begins with `<s>`."""
    target_output: Tensor
    """(B, T), target_input shifted left by one, ends with `</s>`."""

    def to(self, device: torch.device) -> "Batch":
        """Copy the batch to a device."""
        tensors = (self.source, self.target_input, self.target_output)
        return Batch(*(copy_to_device(tensor, device) for tensor in tensors))


@dataclass(eq=False)
class Batching:
    """Splits a corpus into batches; each epoch's batches are a pure function of (seed, epoch)."""

    corpus: EncodedCorpus
    _: KW_ONLY
    source_tokens: int
    """About how many source tokens a batch has, padding not counted."""
    target_tokens: int
    """About how many target tokens a batch has. If the corpus has more source than target tokens, a
    batch has more of them, too; the sum of its shares of the two budgets is at most two."""
    seed: int
    count_longer_side: bool = False
    """Count each pair by its longer side instead, padding included, and exceed neither budget, as
    tensor2tensor did."""
    pairs_of_epoch: Callable[[int, int], NDArray[np.int32]] | None = None
    """Chooses the pairs of an epoch, from (seed, epoch); all of them, once, if not given."""
    _newest: tuple[int, list[PairIndices]] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        longest_source, longest_target = self.corpus.longest
        if longest_source > self.source_tokens or longest_target > self.target_tokens:
            raise UserError(
                f"a pair of {longest_source} source and {longest_target} target tokens does not fit"
                f" into a batch of {self.source_tokens} and {self.target_tokens}: raise"
                " training.micro_batch_tokens, or, if a step has one micro-batch for each device,"
                " training.source_tokens and target_tokens; or lower data.filter.max_tokens"
            )

    @cached_property
    def most_tokens(self) -> tuple[int, int]:
        """The most source and the most target tokens that any batch of any epoch has."""
        if self.count_longer_side:
            return self.source_tokens, self.target_tokens
        source, target = self.corpus.total
        # A batch of s source and t target tokens is full if s / source_tokens + t / target_tokens
        # = 2; of the whole corpus' proportion, it has these.
        full = 2.0 / (source / self.source_tokens + target / self.target_tokens)
        longest_source, longest_target = self.corpus.longest
        return (
            max(longest_source, ceil((1.0 + _SLACK) * full * source)),
            max(longest_target, ceil((1.0 + _SLACK) * full * target)),
        )

    def epoch(self, epoch: int) -> list[PairIndices]:
        """Make the batches of an epoch, in order, each as indices of pairs; keep the last epoch."""
        if self._newest is None or self._newest[0] != epoch:
            first = self.corpus.first_row(epoch)
            self._newest = epoch, self._order(epoch, first)
        return self._newest[1]

    def _order(self, epoch: int, first: int) -> list[PairIndices]:
        """Order the pairs of an epoch, of which the corpus has number 0 as number `first`."""
        random = np.random.default_rng([self.seed, epoch])
        if self.pairs_of_epoch is None:
            pairs = np.arange(len(self.corpus), dtype=np.int32)  # (N,)
        else:
            pairs = self.pairs_of_epoch(self.seed, epoch)
        pairs += first
        # Sort by the length of both sides together, with jitter. By one side alone, the other
        # would be longer than usual in some batches, and shorter in others.
        source, target = self.corpus.lengths(pairs)
        stretch = 1.0 + _LENGTH_JITTER * random.random(len(pairs))
        lengths = np.rint((source + target) * stretch)
        # Shuffle first, so that pairs of equal lengths meet in a random order.
        order = random.permutation(len(pairs))
        order = order[np.argsort(lengths[order], kind="stable")]
        # Cut the sorted pairs into batches, and shuffle these.
        batches = list(self._split(pairs[order]))
        return [batches[i] for i in random.permutation(len(batches))]

    def in_order(self) -> list[PairIndices]:
        """Make batches of all pairs, shortest first, without randomness, for validation."""
        source, target = self.corpus.lengths()
        return list(self._split(np.argsort(source + target, kind="stable")))

    def statistics(self, batches: Sequence[PairIndices]) -> "BatchStatistics":
        """Compute the statistics of batches."""
        source_tokens = target_tokens = 0
        for batch in batches:
            source, target = self.corpus.lengths(batch)
            source_tokens += int(source.sum())
            target_tokens += int(target.sum())
        return BatchStatistics(
            batches=len(batches),
            sentences=sum(map(len, batches)) / len(batches),
            source_tokens=source_tokens / len(batches),
            target_tokens=target_tokens / len(batches),
        )

    def collate(self, indices: PairIndices) -> Batch:
        """Read and pad the pairs of a batch."""
        # Shift right: <s> y1 y2 for the output y1 y2 </s>, both (B, T).
        source, target_output = self.corpus.padded(indices)
        target_input = np.roll(target_output, 1, axis=1)
        target_input[:, 0] = START_ID
        # In a shorter sentence the roll leaves </s> as the input where the output is padding.
        target_input[target_output == PADDING_ID] = PADDING_ID
        return Batch(*map(torch.from_numpy, (source, target_input, target_output)))

    def _split(self, pairs: PairIndices) -> Iterator[PairIndices]:
        """Cut sorted pairs (N,) into batches."""
        # A batch has fewer pairs than its budgets have tokens: a block holds at least one.
        size = max(_BLOCK_PAIRS, self.source_tokens + self.target_tokens)
        limits = (2.0, *self.most_tokens)
        first, total = 0, 0.0
        while first < len(pairs):
            block = pairs[first : first + size]
            source, target = self.corpus.lengths(block)
            # Each pair's shares of the two budgets: a batch is full when they add up to two. (N,)
            source_share, target_share = source / self.source_tokens, target / self.target_tokens
            shares = source_share + target_share
            if self.count_longer_side:
                shares = 2.0 * np.maximum(source_share, target_share)
            # Sums over all pairs before: the shares are added up as if there were no blocks.
            sums = [_sums(shares, total), _sums(source), _sums(target)]
            start = 0
            while start < len(block):
                end = _end(sums, start, limits)
                if end == len(block) and first + end < len(pairs):
                    break  # the batch may go on in the next block
                if self.count_longer_side:
                    end = start + self._fitting(source[start:end], target[start:end])
                yield block[start:end]
                start = end
            first, total = first + start, float(sums[0][start])

    def _fitting(self, source: Lengths, target: Lengths) -> int:
        """Return how many of some pairs fit into both budgets, padding counted."""
        count = np.arange(1, len(source) + 1)
        fits = np.maximum.accumulate(source) * count <= self.source_tokens
        fits &= np.maximum.accumulate(target) * count <= self.target_tokens
        return int(fits.sum())  # the first ones: what is padded grows with their number


def cut(
    pairs: PairIndices, lengths: tuple[Lengths, Lengths], most_tokens: tuple[int, int]
) -> list[PairIndices]:
    """Cut pairs, in their order, into parts of at most as many source and target tokens.

    A part has at most min(most_tokens) // 2 pairs; a pair that is too long is a part by itself.
    """
    limits = (*most_tokens, min(most_tokens) // 2)
    sums = [*map(_sums, lengths), np.arange(len(pairs) + 1)]
    pieces, start = [], 0
    while start < len(pairs):
        end = _end(sums, start, limits)
        pieces.append(pairs[start:end])
        start = end
    return pieces


def _sums(values: NDArray[Any], before: float = 0) -> NDArray[Any]:
    """Return the sums before each value, and after the last, (N + 1,)."""
    return np.cumsum(np.concatenate(([before], values)))


def _end(sums: Sequence[NDArray[Any]], start: int, limits: Sequence[float]) -> int:
    """Return where a batch from `start` on ends: the most pairs that fit, but at least one."""
    fits = (np.searchsorted(s, s[start] + n, "right") for s, n in zip(sums, limits, strict=True))
    return max(start + 1, int(min(fits)) - 1)


@dataclass(frozen=True)
class BatchStatistics:
    """The number of batches of a corpus, and what one holds on average."""

    batches: int
    sentences: float
    source_tokens: float
    """With `</s>`, without padding."""
    target_tokens: float


def make_batching(
    config: TrainingConfig,
    corpus: EncodedCorpus,
    *,
    seed: int,
    micro_batches: int | None = None,
    pairs_of_epoch: Callable[[int, int], NDArray[np.int32]] | None = None,
) -> Batching:
    """Divide a corpus into micro-batches, by default as many a step as one device needs."""
    micro_batches = micro_batches or config.micro_batches()
    return Batching(
        corpus,
        source_tokens=ceil(config.source_tokens / micro_batches),
        target_tokens=ceil(config.target_tokens / micro_batches),
        seed=seed,
        count_longer_side=config.count_longer_side,
        pairs_of_epoch=pairs_of_epoch,
    )
