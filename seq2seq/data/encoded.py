"""The encoded corpus: token ids of every pair, memory-mapped from one Arrow file.

Every sequence ends with the end symbol. The file has the columns ``source`` and ``target``, lists
of uint16 ids where the vocabulary allows it and int32 otherwise, in record batches of equal size.
With BPE-dropout, `SampledCorpus` writes one for each epoch.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from functools import cached_property, partial
from itertools import chain, count, islice, takewhile
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from seq2seq.data.processes import map_in_processes
from seq2seq.data.tokenizer import END_ID, PADDING_ID, Tokenizer
from seq2seq.errors import UserError
from seq2seq.files.atomic import errors_as_user_errors, new_file

TokenIds: TypeAlias = NDArray[np.uint16] | NDArray[np.int32]
Lengths: TypeAlias = NDArray[np.int32]
"""In tokens, the end symbol counted."""
Rows: TypeAlias = NDArray[np.integer[Any]]
"""Numbers of pairs in a corpus."""
Share: TypeAlias = Callable[[Callable[[Path], object]], AbstractContextManager[Path]]
"""A context in which processes of a machine open a file, which one of them writes by the function.
All processes call it in the same order."""

_ROWS_PER_BATCH = 1 << 15
_CHUNK_PAIRS = 10_000
_EPOCHS = 3  # that a sampled corpus keeps


class EncodedCorpus:
    """Token ids of aligned pairs, read in place: it takes no memory but the mapped file's."""

    def __init__(self, path: str | Path) -> None:
        """Open a file that ``new_corpus`` wrote."""
        self._path = path
        try:
            file = pa.memory_map(str(path)).read_buffer()
            reader = pa.ipc.open_file(file)
            batches = [reader.get_batch(index) for index in range(reader.num_record_batches)]
            self._source = _Column(file, [batch.column("source") for batch in batches])
            self._target = _Column(file, [batch.column("target") for batch in batches])
        except (OSError, KeyError, pa.ArrowException) as error:
            raise UserError(
                f"{path}: not a readable encoded corpus; delete its folder to rebuild it"
            ) from error

    def __len__(self) -> int:
        return len(self._source)

    def __reduce__(self) -> tuple[Any, ...]:
        return EncodedCorpus, (self._path,)  # which another process maps, too

    def first_row(self, epoch: int) -> int:
        """Return the row of the first pair of an epoch; here 0, as all have the same rows."""
        return 0

    def lengths(self, rows: Rows | None = None) -> tuple[Lengths, Lengths]:
        """Return the lengths of sources and targets, (len,) each, or those of some rows."""
        return self._source.lengths(rows), self._target.lengths(rows)

    @cached_property
    def longest(self) -> tuple[int, int]:
        """The lengths of the longest source and of the longest target."""
        return self._source.longest(), self._target.longest()

    def source(self, index: int) -> TokenIds:
        """Return the ids of a source, (S,), with the end symbol; a read-only view of the file."""
        return self._source[index]

    def target(self, index: int) -> TokenIds:
        """Return the ids of a target, (T,), with the end symbol; a read-only view of the file."""
        return self._target[index]

    def padded(self, rows: Rows) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the ids of some pairs, padded on the right: sources (B, S), targets (B, T)."""
        return self._source.padded(rows), self._target.padded(rows)


class _Column:
    """One side of the corpus: the ids of each sequence, and where it starts, in the mapped file."""

    def __init__(self, file: Any, batches: list[Any]) -> None:
        ids = [batch.values.to_numpy(zero_copy_only=True) for batch in batches]
        self._offsets = [batch.offsets.to_numpy() for batch in batches]
        """Of each record batch, (rows + 1,): where its sequences start in its ids."""
        self._rows = sum(map(len, batches))
        self._rows_per_batch = max(map(len, batches), default=1)
        self._first_ids, self._first_offsets = _places(ids, file), _places(self._offsets, file)
        # Arrow aligns what it writes, so that the whole file can be read as ids, or as offsets.
        dtype = ids[0].dtype if ids else np.dtype(np.uint16)
        self._file_ids: TokenIds = np.frombuffer(file, dtype, file.size // dtype.itemsize)
        self._file_offsets = np.frombuffer(file, np.int32, file.size // 4)

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, index: int) -> TokenIds:
        if not 0 <= index < len(self):
            raise IndexError(index)
        (start,), (length,) = self._spans(np.array([index]))
        return self._file_ids[start : start + length]

    def lengths(self, rows: Rows | None) -> Lengths:
        if rows is not None:
            return self._spans(rows)[1]
        return np.concatenate([np.zeros(0, np.int32), *map(np.diff, self._offsets)])

    def longest(self) -> int:
        return max(int(np.diff(offsets).max(initial=0)) for offsets in self._offsets)

    def padded(self, rows: Rows) -> NDArray[np.int64]:
        starts, lengths = self._spans(rows)  # (B,)
        columns = np.arange(lengths.max(initial=0))  # (T,)
        within = columns < lengths[:, None]  # (B, T)
        padded = np.full(within.shape, PADDING_ID, dtype=np.int64)
        padded[within] = self._file_ids[(starts[:, None] + columns)[within]]
        return padded

    def _spans(self, rows: Rows) -> tuple[NDArray[np.int64], Lengths]:
        """Return where the sequences of some rows start in the file, and their lengths."""
        batches = rows // self._rows_per_batch
        # The place of each row's offset in the file; after it comes where the sequence ends.
        places = self._first_offsets[batches] + (rows - batches * self._rows_per_batch)
        starts = self._file_offsets[places]
        return self._first_ids[batches] + starts, self._file_offsets[places + 1] - starts


def _places(arrays: list[NDArray[Any]], file: Any) -> NDArray[np.int64]:
    """Return where arrays start in a file, in elements."""
    places = [(array.ctypes.data - file.address) // array.itemsize for array in arrays]
    return np.array(places, dtype=np.int64)


@contextmanager
def new_corpus(path: str | Path, vocab_size: int) -> Iterator[Callable[[Any], None]]:
    """Write a new file by a function that appends what `encode_ids` has returned.

    The file gets its name if the block succeeds.
    """
    schema = encode_ids([], [], vocab_size).schema
    with new_file(Path(path)) as file, pa.ipc.new_file(file, schema) as writer:
        waiting: list[Any] = []

        def append(pairs: Any) -> None:
            waiting.append(pairs)
            if sum(map(len, waiting)) > _ROWS_PER_BATCH:
                whole = pa.Table.from_batches(waiting).combine_chunks()
                *full, rest = whole.to_batches(_ROWS_PER_BATCH)
                for batch in full:
                    writer.write_batch(batch)
                waiting[:] = [rest]

        yield append
        writer.write_table(pa.Table.from_batches(waiting, schema).combine_chunks())


def encode_ids(sources: list[list[int]], targets: list[list[int]], vocab_size: int) -> Any:
    """Return a record batch of pairs of ids without the end symbol, which is added here."""
    dtype = np.dtype(np.uint16 if vocab_size <= 1 << 16 else np.int32)
    columns = []
    for sequences in (sources, targets):
        offsets = np.zeros(len(sequences) + 1, dtype=np.int32)
        np.cumsum([len(ids) + 1 for ids in sequences], out=offsets[1:])
        ended = chain.from_iterable(chain(ids, (END_ID,)) for ids in sequences)
        values = np.fromiter(ended, dtype=dtype, count=int(offsets[-1]))
        columns.append(pa.ListArray.from_arrays(offsets, values))
    return pa.record_batch(columns, names=["source", "target"])


@contextmanager
def share_with_none(write: Callable[[Path], object]) -> Iterator[Path]:
    """Write a file for this process alone, which opens it in the block; its name ends with it."""
    with temporary_folder() as folder:
        write(folder / "shared")
        yield folder / "shared"


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Make a folder for a corpus that needs no name once it is open, and remove it afterwards."""
    with errors_as_user_errors(Path(gettempdir())), TemporaryDirectory() as folder:
        yield Path(folder)


class SampledCorpus(EncodedCorpus):
    """The pairs of a corpus, encoded again for each epoch as a function of (seed, epoch).

    A step may end one epoch and begin the next, while the one after that is being encoded, so the
    ids of three epochs are kept: pair i of an epoch is row (epoch % 3) * len(self) + i. They are
    memory-mapped, from files in the folder for temporary files, which a machine's processes share.

    `corpus` has the pairs as they are encoded without sampling, and the file `text` has them as
    JSON lists, one per line. A pair keeps that encoding where a side would become longer than the
    longest of all pairs: batches of any epoch fit into memory as those of the first do.
    """

    def __init__(
        self,
        corpus: EncodedCorpus,
        text: Path,
        tokenizer: Tokenizer,
        *,
        rate: float,
        seed: int,
        share: Share = share_with_none,
    ) -> None:
        self.corpus = corpus
        self.text = text
        self.tokenizer = tokenizer
        self.rate = rate
        self.seed = seed
        self.share = share
        self.longest = corpus.longest
        self.newest = [(-1, corpus)] * _EPOCHS
        """The newest epochs, by their numbers modulo `_EPOCHS`: number and pairs."""

    def __len__(self) -> int:
        return len(self.corpus)

    def first_row(self, epoch: int) -> int:
        """Encode an epoch, unless it is one of the newest, and return the row of its first pair."""
        slot = epoch % _EPOCHS
        if self.newest[slot][0] != epoch:
            with self.share(lambda path: self._encode(path, epoch)) as path:
                self.newest[slot] = epoch, EncodedCorpus(path)
        return slot * len(self)

    def lengths(self, rows: Rows | None = None) -> tuple[Lengths, Lengths]:
        """See `EncodedCorpus.lengths`; all rows are of one epoch."""
        if rows is None:
            return self.corpus.lengths()
        return self._epoch_of(rows).lengths(rows % len(self))

    def padded(self, rows: Rows) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """See `EncodedCorpus.padded`; all rows are of one epoch."""
        return self._epoch_of(rows).padded(rows % len(self))

    def _epoch_of(self, rows: Rows) -> EncodedCorpus:
        return self.newest[int(rows[0]) // len(self)][1]

    def _encode(self, path: Path, epoch: int) -> None:
        sample = partial(_sample, self.corpus, self.tokenizer, self.rate, self.seed, epoch)
        with (
            open(self.text, "rb") as text,
            new_corpus(path, self.tokenizer.vocab_size) as append,
        ):
            chunks = iter(lambda: list(islice(text, _CHUNK_PAIRS)), [])
            with closing(map_in_processes(sample, zip(count(0, _CHUNK_PAIRS), chunks))) as encoded:
                for pairs in encoded:
                    append(pairs)


def _sample(
    corpus: EncodedCorpus,
    tokenizer: Tokenizer,
    rate: float,
    seed: int,
    epoch: int,
    chunk: tuple[int, list[bytes]],
) -> Any:
    """Return a record batch of the pairs in some lines, the first of which has this number."""
    first, lines = chunk
    # Encode both sides, each (chunk,) lists of ids, by seeds of their own.
    texts = zip(*map(json.loads, lines), strict=True)
    seeds = np.random.SeedSequence([seed, epoch, first]).generate_state(2)
    sources, targets = (
        tokenizer.encode_sampled(list(side), rate, int(side_seed))
        for side, side_seed in zip(texts, seeds, strict=True)
    )
    controls = set(tokenizer.controls.values())
    longest_source, longest_target = corpus.longest
    for row, (source, target) in enumerate(zip(sources, targets, strict=True), start=first):
        # Put the control symbols before the source, which sampling doesn't know.
        if controls:
            source[:0] = takewhile(controls.__contains__, corpus.source(row).tolist())
        # Keep the usual pieces of what became too long.
        if len(source) >= longest_source or len(target) >= longest_target:
            source[:] = corpus.source(row)[:-1].tolist()
            target[:] = corpus.target(row)[:-1].tolist()
    return encode_ids(sources, targets, tokenizer.vocab_size)
