"""The encoded corpus: token ids of every pair, memory-mapped from one Arrow file.

Every sequence ends with the end symbol. The file has the columns ``source`` and ``target``, lists
of uint16 ids where the vocabulary allows it and int32 otherwise, in record batches of equal size.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from types import TracebackType
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from seq2seq.data.tokenizer import END_ID, PADDING_ID
from seq2seq.errors import UserError
from seq2seq.storage.atomic import new_file

TokenIds: TypeAlias = NDArray[np.uint16] | NDArray[np.int32]

ROWS_PER_BATCH = 1 << 15


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Make a folder for a corpus that needs no name once it is open, and remove it afterwards.

    Raises:
        UserError: if it can't be made or written.
    """
    try:
        with TemporaryDirectory() as folder:
            yield Path(folder)
    except OSError as error:
        if error.filename is not None and not Path(error.filename).is_relative_to(gettempdir()):
            raise
        raise UserError(
            f"{gettempdir()}: {error.strerror or error}; set TMPDIR to a folder with more space"
        ) from error


class EncodedCorpus:
    """Token ids of aligned pairs, read in place: opening copies nothing.

    Attributes:
        source_lengths: (len,) int32, tokens of each source, its end symbol counted.
        target_lengths: (len,) int32, tokens of each target, its end symbol counted.
    """

    def __init__(self, path: str | Path) -> None:
        """Open a file that ``EncodedCorpusWriter`` wrote.

        Raises:
            UserError: if the file is missing, cut short or of another kind.
        """
        self.path = Path(path)
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
        """Return the rows of the pairs of an epoch; here those of all pairs, in any epoch."""
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

    def __reduce__(self) -> tuple[type["EncodedCorpus"], tuple[Path]]:
        """Pickle as the path, so that a worker process maps the same file."""
        return EncodedCorpus, (self.path,)


class EncodedCorpusWriter:
    """Write an encoded corpus in bounded memory.

    Use as a context manager: the file gets its name when the block ends without an error.
    """

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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
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


class _Column:
    """One side of the corpus: the place of each sequence among all ids of the mapped file."""

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
        lengths = self.lengths[indices]
        columns = np.arange(lengths.max(initial=0))
        within = columns < lengths[:, None]
        padded = np.full(within.shape, PADDING_ID, dtype=np.int64)
        padded[within] = self._ids[(self._starts[indices][:, None] + columns)[within]]
        return padded
