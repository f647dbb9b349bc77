"""Pairs of token ids, and batches of pairs of similar length, of a number of tokens each (5.1).

An encoded corpus is two files that are mapped into memory. Every sequence ends with the end symbol.
One file has the ids of source 0, target 0, source 1 and so on, as uint16 where the vocabulary
allows it and int32 otherwise. The other, FILE.ends, has 0 and where each sequence ends, as int64.

Which pairs an epoch takes (`Mixture`), in which batches and in which order (`Batching`), is a
function of (seed, epoch) alone: a resumed run needs no state of it, and each process takes its
share of one list.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import KW_ONLY, dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import chain
from math import ceil, floor
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seq2seq.device import copy_to_device
from seq2seq.errors import UserError
from seq2seq.tokenizer import END_ID, PADDING_ID, START_ID

TokenIds: TypeAlias = NDArray[np.uint16] | NDArray[np.int32]
Lengths: TypeAlias = NDArray[np.int32]
"""In tokens, the end symbol counted."""
Rows: TypeAlias = NDArray[np.integer[Any]]
"""Numbers of pairs in a corpus."""
EncodedPairs: TypeAlias = tuple[TokenIds, NDArray[np.int64]]
"""The ids of source 0, target 0, source 1 and so on, and the length of each."""
Tokens: TypeAlias = tuple[TokenIds, Lengths]
"""The ids of some sequences, one after the other, and the length of each."""

_ENDS = ".ends"
_DTYPES: dict[int, np.dtype[Any]] = {2: np.dtype(np.uint16), 4: np.dtype(np.int32)}


class EncodedCorpus:
    """Token ids of aligned pairs, read in place: it takes no memory but the mapped files'."""

    def __init__(self, path: str | Path) -> None:
        """Open the files that ``new_corpus`` wrote."""
        self._path = path
        try:
            # Plain arrays: those of class `memmap` take longer to index.
            self._ends = np.asarray(np.memmap(f"{path}{_ENDS}", np.int64, "r"))  # (2 N + 1,)
            itemsize, rest = divmod(os.stat(path).st_size, int(self._ends[-1]))
            self._ids: TokenIds = np.asarray(np.memmap(path, _DTYPES[itemsize], "r"))
            if rest or len(self._ends) % 2 == 0:
                raise ValueError("a file is cut short")
        except (OSError, ValueError, KeyError, ZeroDivisionError) as error:
            raise UserError(
                f"{path}: not a readable encoded corpus; delete its folder to rebuild it"
            ) from error

    def __len__(self) -> int:
        return len(self._ends) // 2

    def __reduce__(self) -> tuple[Any, ...]:
        return EncodedCorpus, (self._path,)  # which another process maps, too

    def first_row(self, epoch: int) -> int:
        """Return the row of the first pair of an epoch; here 0, as all have the same rows."""
        return 0

    def release(self, before: int) -> None:
        """Free the pairs of the epochs before this one."""

    def close(self) -> None:
        """Encode no more epochs, and stop one that another thread encodes."""

    def lengths(self, rows: Rows | None = None) -> tuple[Lengths, Lengths]:
        """Return the lengths of sources and targets, (len,) each, or those of some rows."""
        if rows is not None:
            sources = _sources(rows)
            return self.lengths_of(sources), self.lengths_of(sources + 1)
        lengths = np.empty(2 * len(self), np.int32)
        np.subtract(self._ends[1:], self._ends[:-1], out=lengths)
        return lengths[0::2], lengths[1::2]

    def padded_tokens(self, rows: Rows) -> int:
        """Return the number of source and target tokens of some pairs, padding counted."""
        return len(rows) * sum(int(side.max()) for side in self.lengths(rows))

    @cached_property
    def longest(self) -> tuple[int, int]:
        """The lengths of the longest source and of the longest target."""
        source, target = self.lengths()
        return int(source.max()), int(target.max())

    @cached_property
    def total(self) -> tuple[int, int]:
        """The numbers of source tokens and of target tokens."""
        source, target = self.lengths()
        return int(source.sum(dtype=np.int64)), int(target.sum(dtype=np.int64))

    def source(self, index: int) -> TokenIds:
        """Return the ids of a source, (S,), with the end symbol; a read-only view of the file."""
        return self._ids[self._ends[2 * index] : self._ends[2 * index + 1]]

    def target(self, index: int) -> TokenIds:
        """Return the ids of a target, (T,), with the end symbol; a read-only view of the file."""
        return self._ids[self._ends[2 * index + 1] : self._ends[2 * index + 2]]

    def padded(self, rows: Rows) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the ids of some pairs, padded on the right: sources (B, S), targets (B, T)."""
        sources = _sources(rows)
        return self._padded(sources), self._padded(sources + 1)

    def tokens(self, rows: Rows) -> tuple[Tokens, Tokens]:
        """Return the ids of some pairs, one after the other: of the sources and of the targets."""
        sources = _sources(rows)
        return self.tokens_of(sources), self.tokens_of(sources + 1)

    def tokens_of(self, sequences: Rows) -> Tokens:
        """Return the ids of some sequences: 2 i is the source of pair i, 2 i + 1 its target."""
        lengths = self.lengths_of(sequences)  # (B,)
        # The place of each token in the file: its place among these, moved as its sequence is.
        moved = self._ends[sequences] - (np.cumsum(lengths) - lengths)  # (B,)
        places = np.arange(lengths.sum()) + np.repeat(moved, lengths)  # (N,)
        return self._ids[places], lengths

    def _padded(self, sequences: Rows) -> NDArray[np.int64]:
        ids, lengths = self.tokens_of(sequences)  # (N,), (B,)
        within = np.arange(lengths.max(initial=0)) < lengths[:, None]  # (B, T)
        padded = np.full(within.shape, PADDING_ID, dtype=np.int64)
        padded[within] = ids
        return padded

    def lengths_of(self, sequences: Rows) -> Lengths:
        """Return the lengths of some sequences, (B,), numbered as in `tokens_of`."""
        return (self._ends[sequences + 1] - self._ends[sequences]).astype(np.int32)


def _sources(rows: Rows) -> Rows:
    """Return the sequences that are the sources of pairs; their numbers need 64 bits."""
    return 2 * rows.astype(np.int64)


@contextmanager
def new_corpus(path: str | Path) -> Iterator[Callable[[EncodedPairs], None]]:
    """Write the files of a corpus by a function that appends what `encode_ids` has returned."""
    with open(path, "wb") as ids, open(f"{path}{_ENDS}", "wb") as ends:
        end = 0
        ends.write(np.int64(end).tobytes())

        def append(pairs: EncodedPairs) -> None:
            nonlocal end
            ids.write(pairs[0].tobytes())
            ends.write((end + np.cumsum(pairs[1])).tobytes())
            end += len(pairs[0])

        yield append


def encode_ids(
    sources: Iterable[list[int]], targets: Iterable[list[int]], vocab_size: int
) -> EncodedPairs:
    """Join pairs of ids without the end symbol, which is added here."""
    sequences = list(chain.from_iterable(zip(sources, targets, strict=True)))
    lengths = np.fromiter(map(len, sequences), dtype=np.int64) + 1
    ended = chain.from_iterable(chain(ids, (END_ID,)) for ids in sequences)
    dtype = _DTYPES[2 if vocab_size <= 1 << 16 else 4]
    return np.fromiter(ended, dtype=dtype, count=int(lengths.sum())), lengths


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
            self._newest = epoch, self._order(epoch, first)
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
            sums = [_sums(shares, total), _sums(source), _sums(target)]
            start = 0
            while start < len(block):
                end = _end(sums, start, limits)
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
        return int(fits.sum())  # the first ones: what is padded grows with their number


def cut(pairs: Rows, lengths: tuple[Lengths, Lengths], most_tokens: tuple[int, int]) -> list[Rows]:
    """Cut pairs, in their order, into parts of at most as many source and target tokens.

    Nor has a part more pairs than half as many, or one, if that is longer.
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
