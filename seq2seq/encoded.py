"""The encoded corpus: token ids of every pair, memory-mapped from two files.

Every sequence ends with the end symbol. One file has the ids of source 0, target 0, source 1 and so
on, as uint16 where the vocabulary allows it and int32 otherwise. The other, FILE.ends, has 0 and
where each sequence ends, as int64. With BPE-dropout, `SampledCorpus` writes them for each epoch.
"""

import json
import multiprocessing
import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import CancelledError, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, closing, contextmanager
from functools import cached_property, partial
from itertools import chain, count, islice, takewhile
from pathlib import Path
from signal import SIG_IGN, SIGHUP, SIGINT, SIGUSR1, SIGUSR2, signal
from tempfile import TemporaryDirectory, gettempdir
from threading import Thread
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from seq2seq import tokenizer
from seq2seq.errors import UserError
from seq2seq.files import errors_as_user_errors
from seq2seq.tokenizer import END_ID, PADDING_ID, Tokenizer

T = TypeVar("T")
R = TypeVar("R")

_MOST = 12  # one process reads the text for the others
_FEW_ITEMS = 10  # take less time than processes to start


def map_in_processes(function: Callable[[T], R], items: Iterable[T]) -> Generator[R]:
    """Map a function in this process, and if there are many items, by one for each core."""
    iterator = iter(items)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    count = min(cores or 1, _MOST)
    yield from map(function, islice(iterator, _FEW_ITEMS) if count > 1 else iterator)
    many = list(islice(iterator, 1))
    if not many:
        return
    if multiprocessing.get_start_method() not in multiprocessing.get_all_start_methods():
        # In a process of joblib it is its own, which a process that is started would not know.
        multiprocessing.set_start_method("spawn", force=True)
    # Not forked: other threads may hold locks, and a lock of a file would outlive this process.
    pool = ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), _start, (function,))
    waiting: deque[Future[Any]] = deque()
    try:
        for item in chain(many, iterator):
            waiting.append(pool.submit(_call, item))
            if len(waiting) > 2 * count:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool:
        raise UserError(
            "a process that encodes text has ended, perhaps because memory ran out: close other"
            " programs and start again; a script that starts a run needs"
            " `if __name__ == '__main__':`"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


_function: Callable[[Any], Any]


def _start(function: Callable[[Any], Any]) -> None:
    """Begin a process, which has one thread and ends with its parent."""
    global _function
    _function = function
    tokenizer.threads = 1
    # A terminal sends some of them to all its processes, and Slurm others: the parent answers.
    for number in (SIGINT, SIGHUP, SIGUSR1, SIGUSR2):
        signal(number, SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()


def _call(item: Any) -> Any:
    return _function(item)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


TokenIds: TypeAlias = NDArray[np.uint16] | NDArray[np.int32]
Lengths: TypeAlias = NDArray[np.int32]
"""In tokens, the end symbol counted."""
Rows: TypeAlias = NDArray[np.integer[Any]]
"""Numbers of pairs in a corpus."""
EncodedPairs: TypeAlias = tuple[TokenIds, NDArray[np.int64]]
"""The ids of source 0, target 0, source 1 and so on, and the length of each."""
Tokens: TypeAlias = tuple[TokenIds, Lengths]
"""The ids of some sequences, one after the other, and the length of each."""
Share: TypeAlias = Callable[[Callable[[Path], object]], AbstractContextManager[Path]]
"""A context in which processes of a machine open a file, which one of them writes by the function.
All processes call it in the same order."""


# Token ids on disk.


_ENDS = ".ends"
_DTYPES: dict[int, np.dtype[Any]] = {2: np.dtype(np.uint16), 4: np.dtype(np.int32)}
_CHUNK_PAIRS = 10_000
_EPOCHS = 3  # that a sampled corpus keeps


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

    def close(self) -> None:
        """Encode no more epochs, and stop one that another thread encodes."""

    def lengths(self, rows: Rows | None = None) -> tuple[Lengths, Lengths]:
        """Return the lengths of sources and targets, (len,) each, or those of some rows."""
        if rows is not None:
            return self._spans(2 * rows)[1], self._spans(2 * rows + 1)[1]
        lengths = np.empty(2 * len(self), np.int32)
        np.subtract(self._ends[1:], self._ends[:-1], out=lengths)
        return lengths[0::2], lengths[1::2]

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
        return self._padded(2 * rows), self._padded(2 * rows + 1)

    def tokens(self, rows: Rows) -> tuple[Tokens, Tokens]:
        """Return the ids of some pairs, one after the other: of the sources and of the targets."""
        return self._tokens(2 * rows), self._tokens(2 * rows + 1)

    def _tokens(self, sequences: Rows) -> Tokens:
        starts, lengths = self._spans(sequences)  # (B,)
        # The place of each token in the file: its place among these, moved as its sequence is.
        moved = starts - (np.cumsum(lengths) - lengths)  # (B,)
        places = np.arange(lengths.sum()) + np.repeat(moved, lengths)  # (N,)
        return self._ids[places], lengths

    def _padded(self, sequences: Rows) -> NDArray[np.int64]:
        starts, lengths = self._spans(sequences)  # (B,)
        columns = np.arange(lengths.max(initial=0))  # (T,)
        within = columns < lengths[:, None]  # (B, T)
        padded = np.full(within.shape, PADDING_ID, dtype=np.int64)
        padded[within] = self._ids[(starts[:, None] + columns)[within]]
        return padded

    def _spans(self, sequences: Rows) -> tuple[NDArray[np.int64], Lengths]:
        """Return where some sequences start in the file, and their lengths."""
        starts = self._ends[sequences]
        return starts, (self._ends[sequences + 1] - starts).astype(np.int32)


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


def encode_ids(sources: list[list[int]], targets: list[list[int]], vocab_size: int) -> EncodedPairs:
    """Join pairs of ids without the end symbol, which is added here."""
    sequences = [ids for pair in zip(sources, targets, strict=True) for ids in pair]
    lengths = np.array([len(ids) + 1 for ids in sequences], dtype=np.int64)
    ended = chain.from_iterable(chain(ids, (END_ID,)) for ids in sequences)
    dtype = _DTYPES[2 if vocab_size <= 1 << 16 else 4]
    return np.fromiter(ended, dtype=dtype, count=int(lengths.sum())), lengths


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
        self.longest, self.total = corpus.longest, corpus.total
        self.closed = False
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

    def close(self) -> None:
        """See `EncodedCorpus.close`."""
        self.closed = True

    def lengths(self, rows: Rows | None = None) -> tuple[Lengths, Lengths]:
        """See `EncodedCorpus.lengths`."""
        if rows is None:
            return self.corpus.lengths()
        source, target = zip(
            *(c.lengths(rows_of_epoch) for c, rows_of_epoch in self._by_epoch(rows)), strict=True
        )
        return np.concatenate(source), np.concatenate(target)

    def padded(self, rows: Rows) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """See `EncodedCorpus.padded`; all rows are of one epoch."""
        ((corpus, rows_of_epoch),) = self._by_epoch(rows)
        return corpus.padded(rows_of_epoch)

    def tokens(self, rows: Rows) -> tuple[Tokens, Tokens]:
        """See `EncodedCorpus.tokens`."""
        tokens = [corpus.tokens(rows_of_epoch) for corpus, rows_of_epoch in self._by_epoch(rows)]
        return _joined([source for source, _ in tokens]), _joined([target for _, target in tokens])

    def _by_epoch(self, rows: Rows) -> list[tuple[EncodedCorpus, Rows]]:
        """Divide rows where the next epoch begins: the pairs of each, and their rows in them."""
        epochs = rows // len(self)
        groups = np.split(rows, np.flatnonzero(np.diff(epochs)) + 1)
        return [(self.newest[int(group[0]) // len(self)][1], group % len(self)) for group in groups]

    def _encode(self, path: Path, epoch: int) -> None:
        sample = partial(_sample, self.corpus, self.tokenizer, self.rate, self.seed, epoch)
        with (
            open(self.text, "rb") as text,
            new_corpus(path) as append,
        ):
            chunks = iter(lambda: list(islice(text, _CHUNK_PAIRS)), [])
            with closing(map_in_processes(sample, zip(count(0, _CHUNK_PAIRS), chunks))) as encoded:
                for pairs in encoded:
                    if self.closed:
                        raise CancelledError
                    append(pairs)


def _joined(tokens: list[Tokens]) -> Tokens:
    ids, lengths = zip(*tokens, strict=True)
    return np.concatenate(ids), np.concatenate(lengths)


def _sample(
    corpus: EncodedCorpus,
    tokenizer: Tokenizer,
    rate: float,
    seed: int,
    epoch: int,
    chunk: tuple[int, list[bytes]],
) -> EncodedPairs:
    """Encode the pairs in some lines, the first of which has this number."""
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
