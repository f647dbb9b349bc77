"""Pairs of token ids in files, which are mapped into memory.

Every sequence ends with the end symbol. One file has the ids of source 0, target 0, source 1 and so
on, as uint16 where the vocabulary allows it and int32 otherwise. The other, FILE.ends, has 0 and
where each sequence ends, as int64.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from seq2seq.errors import UserError
from seq2seq.tokenizer import END_ID, PADDING_ID

TokenIds: TypeAlias = NDArray[np.uint16] | NDArray[np.int32]
Lengths: TypeAlias = NDArray[np.int32]
"""Lengths in tokens, the end symbol counted."""
PairIndices: TypeAlias = NDArray[np.integer[Any]]
"""Indices of pairs in a corpus."""
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
        except OSError as error:
            raise UserError(f"{path}: can't be read: {error.strerror or error}") from error
        except (ValueError, KeyError, ZeroDivisionError) as error:
            raise UserError(
                f"{path}: not a readable encoded corpus; delete its folder to rebuild it"
            ) from error

    def __len__(self) -> int:
        return len(self._ends) // 2

    def __reduce__(self) -> tuple[Any, ...]:
        return EncodedCorpus, (self._path,)  # another process maps it, too

    def first_row(self, epoch: int) -> int:
        """Return the index of the first pair of an epoch; here 0, as all have the same pairs."""
        return 0

    def release(self, before: int) -> None:
        """Free the pairs of earlier epochs, if each has its own; here, all have the same."""

    def close(self) -> None:
        """Stop encoding, if epochs are encoded one by one; here, everything is encoded already."""

    def lengths(self, pairs: PairIndices | None = None) -> tuple[Lengths, Lengths]:
        """Return the lengths of sources and targets, (len,) each, or those of some pairs."""
        if pairs is not None:
            sources = _sources(pairs)
            return self.lengths_of(sources), self.lengths_of(sources + 1)
        lengths = np.empty(2 * len(self), np.int32)
        np.subtract(self._ends[1:], self._ends[:-1], out=lengths)
        return lengths[0::2], lengths[1::2]

    def padded_tokens(self, pairs: PairIndices) -> int:
        """Return the number of source and target tokens of some pairs, padding counted."""
        return len(pairs) * sum(int(side.max()) for side in self.lengths(pairs))

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

    def padded(self, pairs: PairIndices) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the ids of some pairs, padded on the right: sources (B, S), targets (B, T)."""
        sources = _sources(pairs)
        return self._padded(sources), self._padded(sources + 1)

    def tokens(self, pairs: PairIndices) -> tuple[Tokens, Tokens]:
        """Return the ids of some pairs, one after the other: of the sources and of the targets."""
        sources = _sources(pairs)
        return self.tokens_of(sources), self.tokens_of(sources + 1)

    def tokens_of(self, sequences: PairIndices) -> Tokens:
        """Return the ids of some sequences: 2 i is the source of pair i, 2 i + 1 its target."""
        lengths = self.lengths_of(sequences)  # (B,)
        # A token's index in the file is its index among these and the shift of its sequence.
        shifts = self._ends[sequences] - (np.cumsum(lengths) - lengths)  # (B,)
        indices = np.arange(lengths.sum()) + np.repeat(shifts, lengths)  # (N,)
        return self._ids[indices], lengths

    def _padded(self, sequences: PairIndices) -> NDArray[np.int64]:
        ids, lengths = self.tokens_of(sequences)  # (N,), (B,)
        within = np.arange(lengths.max(initial=0)) < lengths[:, None]  # (B, T)
        padded = np.full(within.shape, PADDING_ID, dtype=np.int64)
        padded[within] = ids
        return padded

    def lengths_of(self, sequences: PairIndices) -> Lengths:
        """Return the lengths of some sequences, (B,), numbered as in `tokens_of`."""
        return (self._ends[sequences + 1] - self._ends[sequences]).astype(np.int32)


def _sources(pairs: PairIndices) -> PairIndices:
    """Return the sequences that are the sources of pairs; their numbers need 64 bits."""
    return 2 * pairs.astype(np.int64)


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
