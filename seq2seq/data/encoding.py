"""Text to token ids: tokenized, checked and filtered, some pairs at a time in any process.

With noise or BPE-dropout, `SampledCorpus` encodes the text again for each epoch.
"""

import json
import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, closing
from dataclasses import KW_ONLY, dataclass, field
from itertools import chain, compress, count, islice, pairwise, takewhile
from pathlib import Path
from threading import Thread
from typing import Any, BinaryIO, TypeAlias, TypeVar

import numpy as np

from seq2seq import pieces, system
from seq2seq.controls import target_languages
from seq2seq.data.checks import Findings
from seq2seq.data.corpus import FilterConfig
from seq2seq.data.noise import NoiseConfig, add_noise
from seq2seq.encoded_corpus import (
    EncodedCorpus,
    EncodedPairs,
    Lengths,
    PairIndices,
    TokenIds,
    Tokens,
    encode_ids,
    new_corpus,
)
from seq2seq.errors import UserError
from seq2seq.files import temporary_file
from seq2seq.text import SentencePair, open_raw
from seq2seq.tokenizer import UNKNOWN_ID, Tokenizer

Log: TypeAlias = Callable[[str], None]
"""Called with a line of progress."""
PairChunk: TypeAlias = tuple[int, Sequence[Sequence[str]]]
"""How many pairs come before, and the two sides of some pairs."""

_ENCODED_PAIRS = 10_000  # at a time
_PAIRS_PER_MESSAGE = 1_000_000


@dataclass(frozen=True)
class PairEncoder:
    """Tokenizes, checks and filters the pairs of a split, some at a time and in any process."""

    tokenizer: Tokenizer
    controls: list[int]
    """The control tokens before each source."""
    limits: FilterConfig
    keeps_text: bool = False

    def __call__(self, numbered: PairChunk) -> tuple[EncodedPairs, bytes, Findings]:
        """Encode some pairs: see `encode_ids`; with the text of those that are kept, and findings.

        The text is a JSON list for each pair, in lines, or empty if not `keeps_text`.
        """
        before, chunk = numbered
        findings = Findings()
        # Tokenize both sides, unless there is only white space: (chunk,) lists of ids each.
        texts = [[text if text.strip() else "" for text in side] for side in chunk]
        sources, targets = self.tokenizer.encode(texts[0]), self.tokenizer.encode_target(texts[1])
        findings.count_unknown(0, texts[0], sources)
        findings.count_unknown(1, texts[1], targets)
        # Check and filter by length, (2, chunk): the end symbol counts, control symbols don't.
        lengths = np.array([list(map(len, side)) for side in (sources, targets)]) + 1
        findings.check(before, chunk, lengths, self.limits.max_length_ratio)
        passes = findings.select(lengths, self.limits)
        if self.controls:
            sources = [self.controls + source for source in sources]
        vocab_size = max(self.tokenizer.source_vocab_size, self.tokenizer.vocab_size)
        ids = encode_ids(compress(sources, passes), compress(targets, passes), vocab_size)
        text = ""
        if self.keeps_text:
            pairs = compress(zip(*chunk, strict=True), passes)
            text = "\n".join([*map(json.dumps, pairs), ""])
        return ids, text.encode(), findings


def encode(
    pairs: Iterable[SentencePair],
    encoder: PairEncoder,
    write: Callable[[EncodedPairs], None],
    log: Log,
    text: BinaryIO | None = None,
) -> Findings:
    """Encode and write pairs; `text` gets the text of those that are kept."""
    findings, remaining = Findings(), iter(pairs)
    chunks = iter(lambda: tuple(zip(*islice(remaining, _ENCODED_PAIRS), strict=True)), ())
    with closing(map_in_processes(encoder, zip(count(0, _ENCODED_PAIRS), chunks))) as encoded:
        for ids, lines, later in encoded:
            write(ids)
            if text is not None:
                text.write(lines)
            findings += later
            if findings.counts.read % _PAIRS_PER_MESSAGE == 0:
                log(f"data: {findings.counts.read:,} pairs encoded")
    return findings


T = TypeVar("T")
R = TypeVar("R")

_MOST = 12  # one process reads the text for the others
_FEW_ITEMS = 10  # take less time than processes to start


def map_in_processes(function: Callable[[T], R], items: Iterable[T]) -> Generator[R]:
    """Map a function in this process, and if there are many items, by one for each core."""
    iterator = iter(items)
    count = min(system.cores(), _MOST)
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
    pieces.threads = 1
    # A terminal sends some of them to all its processes, and Slurm others: the parent answers.
    for number in system.signals("SIGINT", "SIGHUP", "SIGBREAK", "SIGUSR1", "SIGUSR2"):
        signal.signal(number, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()


def _call(item: Any) -> Any:
    return _function(item)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


_CHUNK_PAIRS = 10_000

ShareFile: TypeAlias = Callable[[Callable[[Path], object]], AbstractContextManager[Path]]
"""A context in which processes of a machine open a file, which one of them writes by the function.
All processes call it in the same order."""


@dataclass(eq=False)
class SampledCorpus(EncodedCorpus):
    """The pairs of a corpus, encoded again for each epoch as a function of (seed, epoch).

    The text gets noise first, then it is encoded with BPE-dropout if `rate` is above 0.

    A step may take pairs of several epochs, while the one after them is being encoded. The ids of
    an epoch are kept until `release`; pair i of the epoch in slot s is row s * len(self) + i. They
    are memory-mapped, from files in the folder for temporary files, which a machine's processes
    share.

    `corpus` has the pairs as they are encoded without either, and the file `text` has them as JSON
    lists, one per line. A pair keeps that encoding where a side would become longer than the
    longest of all pairs, or have more unknown pieces: batches of any epoch fit into memory as those
    of the first do.
    """

    corpus: EncodedCorpus
    text: Path
    tokenizer: Tokenizer
    _: KW_ONLY
    rate: float
    noise: NoiseConfig = field(default_factory=NoiseConfig)
    languages: tuple[str, str] = ("", "")
    """The codes of source and target; that of a pair's control symbols comes first."""
    seed: int
    share: ShareFile = temporary_file
    closed: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.longest, self.total = self.corpus.longest, self.corpus.total
        self.slots: list[tuple[int, EncodedCorpus] | None] = []
        """Number and pairs of each epoch that is kept; None is free for the next one."""

    def __len__(self) -> int:
        return len(self.corpus)

    def first_row(self, epoch: int) -> int:
        """Encode an epoch, unless it is kept, and return the row of its first pair."""
        for slot, kept in enumerate(self.slots):
            if kept is not None and kept[0] == epoch:
                return slot * len(self)
        with self.share(lambda path: self._encode(path, epoch)) as path:
            encoded = epoch, EncodedCorpus(path)
        if None not in self.slots:
            self.slots.append(None)
        slot = self.slots.index(None)
        self.slots[slot] = encoded
        return slot * len(self)

    def release(self, before: int) -> None:
        """See `EncodedCorpus.release`."""
        for slot, kept in enumerate(self.slots):
            if kept is not None and kept[0] < before:
                self.slots[slot] = None

    def close(self) -> None:
        """See `EncodedCorpus.close`."""
        self.closed = True

    def lengths(self, rows: PairIndices | None = None) -> tuple[Lengths, Lengths]:
        """See `EncodedCorpus.lengths`."""
        return self.corpus.lengths() if rows is None else super().lengths(rows)

    def lengths_of(self, sequences: PairIndices) -> Lengths:
        """See `EncodedCorpus.lengths_of`."""
        return np.concatenate([corpus.lengths_of(own) for corpus, own in self._by_epoch(sequences)])

    def tokens_of(self, sequences: PairIndices) -> Tokens:
        """See `EncodedCorpus.tokens_of`."""
        tokens = [corpus.tokens_of(own) for corpus, own in self._by_epoch(sequences)]
        ids, lengths = map(np.concatenate, zip(*tokens, strict=True))
        return ids, lengths

    def _by_epoch(self, sequences: PairIndices) -> Iterator[tuple[EncodedCorpus, PairIndices]]:
        """Divide sequences where the next epoch begins: its pairs, and their numbers in them."""
        slots, own = np.divmod(sequences, 2 * len(self))
        ends = [*(np.flatnonzero(np.diff(slots)) + 1), len(slots)]
        for start, end in pairwise([0, *ends]):
            kept = self.slots[slots[start]]
            assert kept is not None, "the epoch has been released"
            yield kept[1], own[start:end]

    def _encode(self, path: Path, epoch: int) -> None:
        sampler = _Sampler(
            self.corpus, self.tokenizer, self.rate, self.noise, self.languages, self.seed, epoch
        )
        with open_raw(self.text) as text, new_corpus(path) as append:
            chunks = iter(lambda: list(islice(text, _CHUNK_PAIRS)), [])
            with closing(map_in_processes(sampler, zip(count(0, _CHUNK_PAIRS), chunks))) as encoded:
                for pairs in encoded:
                    if self.closed:
                        raise CancelledError
                    append(pairs)


@dataclass(frozen=True)
class _Sampler:
    """Encodes some pairs for an epoch, in any process."""

    corpus: EncodedCorpus
    tokenizer: Tokenizer
    rate: float
    noise: NoiseConfig
    languages: tuple[str, str]
    seed: int
    epoch: int

    def __call__(self, chunk: tuple[int, list[bytes]]) -> EncodedPairs:
        """Encode the pairs in some lines, the first of which has this number."""
        first, lines = chunk
        controls = [self._controls(row) for row in range(first, first + len(lines))]
        pairs = [SentencePair(*json.loads(line)) for line in lines]
        if self.noise:
            numbered = enumerate(zip(pairs, controls, strict=True), start=first)
            pairs = [self._add_noise(row, *each) for row, each in numbered]
        sources, targets = self._encode(first, pairs)
        for i, (source, target) in enumerate(zip(sources, targets, strict=True)):
            # Put the control symbols before the source, which the encoding doesn't know.
            source[:0] = controls[i]
            usual = self.corpus.source(first + i)[:-1], self.corpus.target(first + i)[:-1]
            if not self._is_suitable((source, target), usual):
                source[:], target[:] = map(np.ndarray.tolist, usual)
        vocab_size = max(self.tokenizer.source_vocab_size, self.tokenizer.vocab_size)
        return encode_ids(sources, targets, vocab_size)

    def _controls(self, row: int) -> list[int]:
        if not self.tokenizer.controls:
            return []
        known = set(self.tokenizer.controls.values())
        return list(takewhile(known.__contains__, self.corpus.source(row).tolist()))

    def _is_suitable(self, pair: Sequence[list[int]], usual: Sequence[TokenIds]) -> bool:
        """Return whether a pair is short enough, and has no more unknown pieces than usual."""
        for ids, usual_ids, longest in zip(pair, usual, self.corpus.longest, strict=True):
            if len(ids) >= longest:
                return False
            if ids.count(UNKNOWN_ID) > np.count_nonzero(usual_ids == UNKNOWN_ID):
                return False
        return True

    def _add_noise(self, row: int, pair: SentencePair, controls: list[int]) -> SentencePair:
        language, target_language = self.languages
        before = self.tokenizer.source_pieces(controls)
        (target_language,) = target_languages(before) or (target_language,)
        numbers = self.seed, self.epoch, row
        return add_noise(pair, self.noise, (language, target_language), numbers)

    def _encode(
        self, first: int, pairs: Sequence[SentencePair]
    ) -> tuple[list[list[int]], list[list[int]]]:
        """Encode both sides, each (chunk,) lists of ids, by seeds of their own if by dropout."""
        texts = [pair.source for pair in pairs], [pair.target for pair in pairs]
        if not self.rate:
            return self.tokenizer.encode(texts[0]), self.tokenizer.encode_target(texts[1])
        seeds = np.random.SeedSequence([self.seed, self.epoch, first]).generate_state(2)
        source_seed, target_seed = map(int, seeds)
        return (
            self.tokenizer.encode_sampled(texts[0], self.rate, source_seed),
            self.tokenizer.encode_sampled(texts[1], self.rate, target_seed),
        )
