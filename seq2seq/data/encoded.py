"""The encoded corpus: token ids of every pair, memory-mapped from one Arrow file.

Every sequence ends with the end symbol. The file has the columns ``source`` and ``target``, lists
of uint16 ids where the vocabulary allows it and int32 otherwise, in record batches of equal size.
With BPE-dropout, `SampledCorpus` writes one for each epoch.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain, islice, takewhile
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any, BinaryIO, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from seq2seq.data.tokenizer import END_ID, PADDING_ID, Tokenizer
from seq2seq.errors import UserError
from seq2seq.files.atomic import errors_as_user_errors, new_file

TokenIds: TypeAlias = NDArray[np.uint16] | NDArray[np.int32]

ROWS_PER_BATCH = 1 << 15
_CHUNK_PAIRS = 10_000
_EPOCHS = 3  # that a sampled corpus keeps


class EncodedCorpus:
    """Token ids of aligned pairs, read in place; the lengths, (len,), count the end symbol."""

    def __init__(self, path: str | Path) -> None:
        """Open a file that ``EncodedCorpusWriter`` wrote."""
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
        self.source_lengths = self._source.lengths
        self.target_lengths = self._target.lengths

    def __len__(self) -> int:
        return len(self.source_lengths)

    def rows(self, epoch: int) -> NDArray[np.int64]:
        """Return the rows of the pairs of an epoch; here all pairs, in any epoch."""
        return np.arange(len(self.source_lengths))

    def source(self, index: int) -> TokenIds:
        """Return the ids of a source, (S,), with the end symbol; a read-only view of the file."""
        return self._source[index]

    def target(self, index: int) -> TokenIds:
        """Return the ids of a target, (T,), with the end symbol; a read-only view of the file."""
        return self._target[index]

    def padded_sources(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the ids of some sources, padded on the right: (B, S)."""
        return self._source.padded(indices)

    def padded_targets(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the ids of some targets, padded on the right: (B, T)."""
        return self._target.padded(indices)


class _Column:
    """One side of the corpus: where each sequence starts among all ids of the mapped file."""

    def __init__(self, file: Any, batches: list[Any]) -> None:
        self._ids: TokenIds = np.zeros(0, dtype=np.uint16)
        lengths, starts = [np.zeros(0, dtype=np.int32)], [np.zeros(0, dtype=np.int64)]
        for batch in batches:
            values, offsets = batch.values.to_numpy(zero_copy_only=True), batch.offsets.to_numpy()
            # Arrow aligns what it writes, so that the whole file can be read as ids.
            self._ids = np.frombuffer(file, values.dtype, file.size // values.itemsize)
            first = (values.ctypes.data - file.address) // values.itemsize
            lengths.append(np.diff(offsets).astype(np.int32, copy=False))
            starts.append(first + offsets[:-1].astype(np.int64))
        self.lengths, self._starts = np.concatenate(lengths), np.concatenate(starts)

    def __getitem__(self, index: int) -> TokenIds:
        if not 0 <= index < len(self.lengths):
            raise IndexError(index)
        start = self._starts[index]
        return self._ids[start : start + self.lengths[index]]

    def padded(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        lengths = self.lengths[indices]  # (B,)
        columns = np.arange(lengths.max(initial=0))  # (T,)
        within = columns < lengths[:, None]  # (B, T)
        padded = np.full(within.shape, PADDING_ID, dtype=np.int64)
        padded[within] = self._ids[(self._starts[indices][:, None] + columns)[within]]
        return padded


class EncodedCorpusWriter:
    """A context that writes a corpus in bounded memory, and names it if the block succeeds."""

    def __init__(
        self, path: str | Path, vocab_size: int, rows_per_batch: int = ROWS_PER_BATCH
    ) -> None:
        self._path = Path(path)
        self._rows_per_batch = rows_per_batch
        self._ids = np.dtype(np.uint16 if vocab_size <= 1 << 16 else np.int32)
        column = pa.list_(pa.from_numpy_dtype(self._ids))
        self._schema = pa.schema([("source", column), ("target", column)])
        self._sources: list[list[int]] = []
        self._targets: list[list[int]] = []

    def __enter__(self) -> "EncodedCorpusWriter":
        with ExitStack() as whole:
            file = whole.enter_context(new_file(self._path))
            self._writer = pa.ipc.new_file(file, self._schema)
            self._whole = whole.pop_all()
        return self

    def write(self, sources: list[list[int]], targets: list[list[int]]) -> None:
        """Append pairs of ids without the end symbol, which is added here."""
        self._sources += sources
        self._targets += targets
        while len(self._sources) >= self._rows_per_batch:
            self._write_batch()

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        with self._whole:
            if error is not None:
                raise error
            if self._sources:
                self._write_batch()
            self._writer.close()

    def _write_batch(self) -> None:
        rows = self._rows_per_batch
        columns = [self._column(self._sources[:rows]), self._column(self._targets[:rows])]
        del self._sources[:rows], self._targets[:rows]
        self._writer.write_batch(pa.record_batch(columns, schema=self._schema))

    def _column(self, sequences: list[list[int]]) -> Any:
        offsets = np.zeros(len(sequences) + 1, dtype=np.int32)
        np.cumsum([len(ids) + 1 for ids in sequences], out=offsets[1:])
        ended = chain.from_iterable(chain(ids, (END_ID,)) for ids in sequences)
        values = np.fromiter(ended, dtype=self._ids, count=int(offsets[-1]))
        return pa.ListArray.from_arrays(offsets, values)


class SampledCorpus(EncodedCorpus):
    """The pairs of a corpus, encoded again for each epoch as a function of (seed, epoch).

    A step may end one epoch and begin the next, while the one after that is being encoded, so the
    ids of three epochs are kept: pair i of an epoch is row (epoch % 3) * len(self) + i. They are
    memory-mapped, from files in the folder for temporary files.

    `corpus` has the pairs as they are encoded without sampling, and the file `text` has them as
    JSON lists, one per line. A pair keeps that encoding where a side would become longer than the
    longest of all pairs: batches of any epoch fit into memory as those of the first do.
    """

    def __init__(
        self, corpus: EncodedCorpus, text: Path, tokenizer: Tokenizer, *, rate: float, seed: int
    ) -> None:
        self.corpus = corpus
        self.text = text
        self.tokenizer = tokenizer
        self.rate = rate
        self.seed = seed
        self.longest_source = int(corpus.source_lengths.max())
        self.longest_target = int(corpus.target_lengths.max())
        self.encoded = [corpus] * _EPOCHS
        """The newest epochs, by their numbers modulo `_EPOCHS`."""
        self.epochs: list[int | None] = [None] * _EPOCHS
        """Their numbers."""
        self._join_lengths()

    def __len__(self) -> int:
        return len(self.corpus)

    def rows(self, epoch: int) -> NDArray[np.int64]:
        """Encode an epoch, unless it is one of the newest, and return the rows of its pairs."""
        slot = epoch % _EPOCHS
        if self.epochs[slot] != epoch:
            self.encoded[slot] = self._encode(epoch)
            self.epochs[slot] = epoch
            self._join_lengths()
        return self.corpus.rows(epoch) + slot * len(self)

    def padded_sources(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """See `EncodedCorpus.padded_sources`; all rows are of one epoch."""
        return self.encoded[int(indices[0]) // len(self)].padded_sources(indices % len(self))

    def padded_targets(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """See `EncodedCorpus.padded_targets`; all rows are of one epoch."""
        return self.encoded[int(indices[0]) // len(self)].padded_targets(indices % len(self))

    def _join_lengths(self) -> None:
        self.source_lengths = np.concatenate([corpus.source_lengths for corpus in self.encoded])
        self.target_lengths = np.concatenate([corpus.target_lengths for corpus in self.encoded])

    def _encode(self, epoch: int) -> EncodedCorpus:
        with open(self.text, "rb") as text, temporary_folder() as folder:
            path = folder / "train.arrow"
            with EncodedCorpusWriter(path, self.tokenizer.vocab_size) as writer:
                for sources, targets in self._sampled(text, epoch):
                    writer.write(sources, targets)
            # The file stays mapped after it is deleted.
            return EncodedCorpus(path)

    def _sampled(
        self, text: BinaryIO, epoch: int
    ) -> Iterator[tuple[list[list[int]], list[list[int]]]]:
        """Yield the ids of both sides, without end symbols, in chunks."""
        first = 0
        while chunk := [json.loads(line) for line in islice(text, _CHUNK_PAIRS)]:
            # Encode both sides, each (chunk,) lists of ids, by seeds of their own.
            seeds = np.random.SeedSequence([self.seed, epoch, first]).generate_state(2)
            sides = [
                self.tokenizer.encode_sampled(list(side), self.rate, int(seed))
                for side, seed in zip(zip(*chunk, strict=True), seeds, strict=True)
            ]
            # Put the control symbols before the sources, which sampling doesn't know.
            for i in range(len(chunk)):
                sides[0][i] = self._controls(first + i) + sides[0][i]
            # Keep the usual pieces of what became too long.
            for i, (source, target) in enumerate(zip(*sides, strict=True)):
                if len(source) >= self.longest_source or len(target) >= self.longest_target:
                    sides[0][i] = self.corpus.source(first + i)[:-1].tolist()
                    sides[1][i] = self.corpus.target(first + i)[:-1].tolist()
            yield sides[0], sides[1]
            first += len(chunk)

    def _controls(self, pair: int) -> list[int]:
        """Return the control symbols before a source."""
        ids = self.tokenizer.controls.values()
        return list(takewhile(ids.__contains__, self.corpus.source(pair).tolist())) if ids else []


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Make a folder for a corpus that needs no name once it is open, and remove it afterwards."""
    with errors_as_user_errors(Path(gettempdir())), TemporaryDirectory() as folder:
        yield Path(folder)
