"""Batches of sentence pairs of similar length, each of about a given number of tokens (5.1).

Which pairs an epoch takes (`Mixture`), in which batches and in which order (`Batching`), is a
function of (seed, epoch) alone: a resumed run needs no state of it, and each process takes its
share of one list.
"""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import KW_ONLY, dataclass, field
from fractions import Fraction
from functools import cached_property
from math import ceil, floor
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seq2seq.device import copy_to_device
from seq2seq.encoded import EncodedCorpus, Lengths, Rows, Share, share_with_none
from seq2seq.errors import UserError
from seq2seq.tokenizer import PADDING_ID, START_ID

# Before sorting, each length is stretched by a random share of up to this. So different pairs share
# a batch in each epoch, of still about one length.
_LENGTH_JITTER = 0.05
# A batch may have this share more of one side than a batch of the whole corpus' proportion.
_SLACK = 0.01
_BLOCK_PAIRS = 1 << 18  # of which lengths are in memory at once


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
    """As many target tokens. If the corpus has more source than target tokens, so has a batch; the
    sum of its shares of the two budgets is at most two."""
    seed: int
    count_longer_side: bool = False
    """Count each pair by its longer side instead, padding included, and exceed neither budget, as
    tensor2tensor did."""
    mixture: "Mixture | None" = None
    """Which pairs each epoch takes; all of them, once, if not given."""
    share: Share = share_with_none
    """By which one process of a machine orders an epoch for all of them."""
    _newest: tuple[int, list[Rows]] | None = field(default=None, init=False)

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

    def epoch(self, epoch: int) -> list[Rows]:
        """Make the batches of an epoch, in order, each as the rows of its pairs; keep the last."""
        if self._newest is None or self._newest[0] != epoch:
            first = self.corpus.first_row(epoch)
            with self.share(lambda path: _save(self._order(epoch, first), path)) as path:
                self._newest = epoch, _load(path)
        return self._newest[1]

    def _order(self, epoch: int, first: int) -> list[Rows]:
        """Order the pairs of an epoch, in 16 bytes for each; `first` is the row of pair 0."""
        random = np.random.default_rng([self.seed, epoch])
        if self.mixture is None:
            rows = np.arange(first, first + len(self.corpus), dtype=np.int32)  # (N,)
        else:
            rows = self.mixture.epoch(self.seed, epoch)
            rows += first
        # Sort by the length of both sides together, with jitter. By one side alone, the other
        # would be longer than usual in some batches, and shorter in others.
        keys = np.empty(len(rows), dtype=np.int64)
        for start in range(0, len(rows), _BLOCK_PAIRS):
            block = slice(start, start + _BLOCK_PAIRS)
            source, target = self.corpus.lengths(rows[block])
            stretch = 1.0 + _LENGTH_JITTER * random.random(len(target))
            keys[block] = np.rint((source + target) * stretch)
        # Shuffle both alike first, so that pairs of equal keys meet in a random order.
        deepcopy(random).shuffle(rows)
        random.shuffle(keys)
        # A key and its position make one number, so that they are sorted in place.
        bits = len(rows).bit_length()
        keys <<= bits
        keys |= np.arange(len(rows), dtype=np.int32)
        keys.sort()
        keys &= (1 << bits) - 1
        rows = rows[keys]
        del keys
        # Cut the sorted pairs into batches, and shuffle these.
        batches = list(self._split(rows))
        return [batches[i] for i in random.permutation(len(batches))]

    def in_order(self) -> list[Rows]:
        """Make batches of all pairs, shortest first, without randomness, for validation."""
        source, target = self.corpus.lengths()
        return list(self._split(np.argsort(source + target, kind="stable")))

    def statistics(self, batches: Sequence[Rows]) -> "BatchStatistics":
        """Compute the statistics of batches."""
        positions = source_tokens = target_tokens = 0
        for batch in batches:
            source, target = self.corpus.lengths(batch)
            positions += len(batch) * int(source.max() + target.max())
            source_tokens += int(source.sum())
            target_tokens += int(target.sum())
        return BatchStatistics(
            batches=len(batches),
            sentences=sum(map(len, batches)) / len(batches),
            source_tokens=source_tokens / len(batches),
            target_tokens=target_tokens / len(batches),
            padding=1.0 - (source_tokens + target_tokens) / positions,
        )

    def collate(self, indices: Rows) -> Batch:
        """Read and pad the pairs of a batch."""
        # Shift right: <s> y1 y2 for the output y1 y2 </s>, both (B, T).
        source, target_output = self.corpus.padded(indices)
        target_input = np.roll(target_output, 1, axis=1)
        target_input[:, 0] = START_ID
        # In a shorter sentence the roll leaves </s> as the input where the output is padding.
        target_input[target_output == PADDING_ID] = PADDING_ID
        return Batch(*map(torch.from_numpy, (source, target_input, target_output)))

    def _split(self, rows: Rows) -> Iterator[Rows]:
        """Cut sorted rows (N,) into batches."""
        # A batch has fewer pairs than its budgets have tokens: a block holds at least one.
        size = max(_BLOCK_PAIRS, self.source_tokens + self.target_tokens)
        limits = (2.0, *self.most_tokens)
        first, total = 0, 0.0
        while first < len(rows):
            block = rows[first : first + size]
            source, target = self.corpus.lengths(block)
            # Each pair's shares of the two budgets: a batch is full when they add up to two. (N,)
            source_share, target_share = source / self.source_tokens, target / self.target_tokens
            shares = source_share + target_share
            if self.count_longer_side:
                shares = 2.0 * np.maximum(source_share, target_share)
            # Of all pairs before: the shares are summed as if there were no blocks.
            sums = [
                np.cumsum(np.concatenate(([before], values)))
                for before, values in ((total, shares), (0, source), (0, target))
            ]
            start = 0
            while start < len(block):
                # The most pairs whose tokens fit, but at least one.
                ends = (
                    int(np.searchsorted(s, s[start] + limit, "right")) - 1
                    for s, limit in zip(sums, limits, strict=True)
                )
                end = max(start + 1, min(ends))
                if end == len(block) and first + end < len(rows):
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
        return len(count) if fits.all() else int(fits.argmin())


def cut(pairs: Rows, lengths: tuple[Lengths, Lengths], most_tokens: tuple[int, int]) -> list[Rows]:
    """Cut pairs, in their order, into parts of at most as many source and target tokens.

    Nor has a part more pairs than half as many, or one, if that is longer.
    """
    sums = [np.concatenate(([0], np.cumsum(side, dtype=np.int64))) for side in lengths]
    most_pairs = max(1, min(most_tokens) // 2)
    pieces, start = [], 0
    while start < len(pairs):
        ends = (
            int(np.searchsorted(s, s[start] + most, "right")) - 1
            for s, most in zip(sums, most_tokens, strict=True)
        )
        end = max(start + 1, min(start + most_pairs, *ends))
        pieces.append(pairs[start:end])
        start = end
    return pieces


def _save(batches: list[Rows], path: Path) -> None:
    """Write the rows of all batches, where each batch ends among them, and how many there are."""
    ends = np.cumsum([len(batch) for batch in batches])
    saved = np.concatenate([*batches, ends, [len(ends)]], dtype=np.int32, casting="unsafe")
    saved.tofile(path)


def _load(path: Path) -> list[Rows]:
    """Map what `_save` wrote into memory."""
    saved = np.asarray(np.memmap(path, np.int32, "r"))
    rows, ends = np.split(saved[:-1], [-saved[-1]])
    return np.split(rows, ends[:-1])


@dataclass(frozen=True)
class BatchStatistics:
    """The number of batches of a corpus, and what one holds on average."""

    batches: int
    sentences: float
    source_tokens: float
    """With `</s>`, without padding."""
    target_tokens: float
    padding: float
    """The share of padding in all positions, source and target."""


@dataclass(frozen=True)
class Mixture:
    """Which pairs of an encoded corpus each epoch takes, as a function of (seed, epoch) alone."""

    sizes: Mapping[str, int]
    """The pairs of each corpus, by name; the corpora follow one another in this order."""
    weights: Mapping[str, float]
    """How often an epoch takes each pair of a corpus, by name."""

    def __post_init__(self) -> None:
        if not sum(self.counts(0).values()):
            raise UserError("data.corpora: with these weights an epoch has no pair: raise a weight")

    def __str__(self) -> str:
        counts = self.counts(0)
        shares = [f"{n:,} of {name} ({n / sum(counts.values()):.1%})" for name, n in counts.items()]
        return f"an epoch takes {', '.join(shares)}"

    def counts(self, epoch: int) -> dict[str, int]:
        """Return how many pairs of each corpus an epoch takes: weight x N, rounded up or down."""
        return {n: self._start(n, epoch + 1) - self._start(n, epoch) for n in self.sizes}

    def epoch(self, seed: int, epoch: int) -> NDArray[np.int32]:
        """Return the pairs of an epoch, as indices into the encoded corpus, corpus by corpus."""
        taken, first = [], 0
        for name, size in self.sizes.items():
            # Passes over the corpus, each in its own order, form an endless sequence. Each epoch
            # continues where the one before ended: this one takes positions start to end.
            start, end = self._start(name, epoch), self._start(name, epoch + 1)
            for number in range(start // size, -(-end // size)):
                random = np.random.default_rng([seed, number, *name.encode()])
                one_pass = random.permutation(np.arange(first, first + size, dtype=np.int32))
                taken.append(one_pass[max(start - number * size, 0) : end - number * size])
            first += size
        return np.concatenate(taken)

    def _start(self, name: str, epoch: int) -> int:
        # Exact: 0.1 x 1,000 is 100 in every epoch.
        return floor(epoch * self.sizes[name] * Fraction(str(self.weights[name])))
