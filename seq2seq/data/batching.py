"""Batches of sentence pairs of like length, about so many tokens each (section 5.1)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seq2seq.data.encoded import EncodedCorpus
from seq2seq.data.tokenizer import PADDING_ID, START_ID
from seq2seq.errors import UserError

Indices = NDArray[np.int64]

# Lengths are stretched by up to this share before sorting, anew in each epoch: neighbours change
# from epoch to epoch, and padding stays low.
_LENGTH_JITTER = 0.05
# A batch's padding adds at most this share to its budget, so that one long sentence among many
# short ones can't make a batch that does not fit into memory.
_MAX_PADDING = 0.25


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
        """The same batch on a device."""
        tensors = [self.source, self.target_input, self.target_output]
        if device.type == "cuda":  # only from pinned memory does the copy run beside the products
            tensors = [tensor.pin_memory() for tensor in tensors]
        return Batch(*(tensor.to(device, non_blocking=True) for tensor in tensors))


@dataclass(frozen=True)
class BatchStatistics:
    """What a token budget comes to on a corpus."""

    batches: int
    sentences: float
    """Mean sentence pairs a batch."""
    source_tokens: float
    """Mean source tokens a batch, `</s>` counted, padding not."""
    target_tokens: float
    """Mean target tokens a batch, `</s>` counted, padding not."""
    padding: float
    """Share of all positions, source and target, that is padding."""


class Batching:
    """Cuts a corpus into batches; each epoch's batches are a pure function of (seed, epoch).

    Args:
        corpus: the pairs.
        source_tokens: source tokens of a batch, about, padding not counted.
        target_tokens: target tokens of a batch, about, padding not counted; the two budgets
            together are never exceeded.
        seed: of the order.
        count_longer_side: count each pair by its longer side instead, padding included, and let neither
            budget be exceeded: the rule of the authors' code.

    Raises:
        UserError: a pair is longer than the budget.
    """

    def __init__(
        self,
        corpus: EncodedCorpus,
        *,
        source_tokens: int,
        target_tokens: int,
        seed: int,
        count_longer_side: bool = False,
    ) -> None:
        longest_source = int(corpus.source_lengths.max())
        longest_target = int(corpus.target_lengths.max())
        if longest_source > source_tokens or longest_target > target_tokens:
            raise UserError(
                f"a pair of {longest_source} source and {longest_target} target tokens does not fit"
                f" into a batch of {source_tokens} and {target_tokens}: raise"
                " training.micro_batch_tokens (on several devices: training.source_tokens and"
                " target_tokens), or lower data.filter.max_tokens"
            )
        self.corpus = corpus
        self.source_tokens = source_tokens
        self.target_tokens = target_tokens
        self.seed = seed
        self.count_longer_side = count_longer_side

    def epoch(self, epoch: int) -> list[Indices]:
        """The batches of an epoch, in order, each the indices of its pairs."""
        random = np.random.default_rng([self.seed, epoch])
        source, target = self.corpus.source_lengths, self.corpus.target_lengths
        stretch = 1.0 + _LENGTH_JITTER * random.random(len(target))
        target_key = np.rint(target * stretch).astype(np.int32)
        # Source lengths rise and fall in turn, so that no batch holds both ends of their range.
        source_key = np.where(target_key % 2 == 0, source, -source)
        shuffled = random.permutation(len(target))
        order = shuffled[np.lexsort((source_key[shuffled], target_key[shuffled]))]
        batches = list(self._cut(order, source[order], target[order]))
        return [batches[i] for i in random.permutation(len(batches))]

    def in_order(self) -> list[Indices]:
        """All pairs once, shortest first, without chance: for validation."""
        source, target = self.corpus.source_lengths, self.corpus.target_lengths
        order = np.lexsort((source, target))
        return list(self._cut(order, source[order], target[order]))

    def statistics(self, batches: list[Indices]) -> BatchStatistics:
        """Means over some batches."""
        source, target = self.corpus.source_lengths, self.corpus.target_lengths
        positions = sum(len(b) * int(source[b].max() + target[b].max()) for b in batches)
        source_tokens = sum(int(source[b].sum()) for b in batches)
        target_tokens = sum(int(target[b].sum()) for b in batches)
        return BatchStatistics(
            batches=len(batches),
            sentences=sum(map(len, batches)) / len(batches),
            source_tokens=source_tokens / len(batches),
            target_tokens=target_tokens / len(batches),
            padding=1.0 - (source_tokens + target_tokens) / positions,
        )

    def collate(self, indices: Indices) -> Batch:
        """Read and pad the pairs of a batch."""
        target_output = self.corpus.padded_targets(indices)
        target_input = np.roll(target_output, 1, axis=1)
        target_input[:, 0] = START_ID
        # The roll has left each </s> of a shorter sentence as an input where the output is padding.
        target_input[target_output == PADDING_ID] = PADDING_ID
        source = self.corpus.padded_sources(indices)
        return Batch(*map(torch.from_numpy, (source, target_input, target_output)))

    def _cut(
        self, order: Indices, source: NDArray[np.int32], target: NDArray[np.int32]
    ) -> Iterator[Indices]:
        # Shares of the budgets: a batch is full when the two sides together come to two.
        source_share, target_share = source / self.source_tokens, target / self.target_tokens
        shares = source_share + target_share
        most_padding = _MAX_PADDING
        if self.count_longer_side:
            shares = 2.0 * np.maximum(source_share, target_share)
            most_padding = 0.0
        sums = np.concatenate(([0.0], np.cumsum(shares)))
        start = 0
        while start < len(order):
            end = max(start + 1, int(np.searchsorted(sums, sums[start] + 2.0, "right")) - 1)
            rows = np.arange(1, end - start + 1)
            padded = np.maximum.accumulate(source[start:end]) * rows
            fits = padded <= (1.0 + most_padding) * self.source_tokens
            padded = np.maximum.accumulate(target[start:end]) * rows
            fits &= padded <= (1.0 + most_padding) * self.target_tokens
            count = len(rows) if fits.all() else int(fits.argmin())
            yield order[start : start + count]
            start += count


def pad(sequences: Sequence[NDArray[np.integer]]) -> Tensor:
    """Token ids of unequal length, padded on the right: (B, longest)."""
    longest = max(map(len, sequences))
    padded = np.full((len(sequences), longest), PADDING_ID, dtype=np.int64)
    for row, sequence in zip(padded, sequences, strict=True):
        row[: len(sequence)] = sequence
    return torch.from_numpy(padded)
