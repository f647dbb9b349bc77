"""Training text encoded anew for each epoch, with BPE-dropout (Provilkov et al. 2020)."""

import json
from collections.abc import Iterator
from itertools import islice, takewhile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from seq2seq.data.encoded import EncodedCorpus, EncodedCorpusWriter, temporary_folder
from seq2seq.data.tokenizer import Tokenizer

_CHUNK_PAIRS = 10_000
_EPOCHS = 3


class SampledCorpus(EncodedCorpus):
    """The pairs of a corpus, encoded anew for each epoch as a function of (seed, epoch).

    A step may end one epoch and begin the next, while the one after that is encoded beside it, so
    the ids of three epochs are kept: pair i of an epoch is row (epoch % 3) * len(self) + i. They
    are memory-mapped, from files in the folder for temporary files.

    Args:
        corpus: the pairs as they are encoded without sampling. A pair keeps that encoding where a
            side would become longer than the longest of all pairs, so that batches of any epoch
            fit into memory as those of the first do.
        text: a file with the same pairs as text, one JSON list per line.
        tokenizer: the tokenizer of the corpus.
        rate: see `TokenizerConfig.sampling`.
        seed: determines, with the number of the epoch, what is left out.
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
        self.source_lengths, self.target_lengths = self._lengths()

    def __len__(self) -> int:
        return len(self.corpus)

    def rows(self, epoch: int) -> NDArray[np.int64]:
        """Encode an epoch, unless it is one of the newest, and return the rows of its pairs."""
        place = epoch % _EPOCHS
        if self.epochs[place] != epoch:
            self.encoded[place] = self._encode(epoch)
            self.epochs[place] = epoch
            self.source_lengths, self.target_lengths = self._lengths()
        return self.corpus.rows(epoch) + place * len(self)

    def padded_sources(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """See `EncodedCorpus.padded_sources`; all rows are of one epoch."""
        return self._of(indices).padded_sources(indices % len(self))

    def padded_targets(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """See `EncodedCorpus.padded_targets`; all rows are of one epoch."""
        return self._of(indices).padded_targets(indices % len(self))

    def _of(self, indices: NDArray[np.int64]) -> EncodedCorpus:
        return self.encoded[int(indices[0]) // len(self)]

    def _lengths(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        return (
            np.concatenate([corpus.source_lengths for corpus in self.encoded]),
            np.concatenate([corpus.target_lengths for corpus in self.encoded]),
        )

    def _encode(self, epoch: int) -> EncodedCorpus:
        with temporary_folder() as folder:
            path = folder / "train.arrow"
            with EncodedCorpusWriter(path, self.tokenizer.vocab_size) as writer:
                for sources, targets in self._sampled(epoch):
                    writer.write(sources, targets)
            # The file stays mapped after it is deleted.
            return EncodedCorpus(path)

    def _sampled(self, epoch: int) -> Iterator[tuple[list[list[int]], list[list[int]]]]:
        """Yield the ids of both sides, without end symbols, in chunks."""
        first = 0
        with open(self.text, "rb") as text:
            while chunk := [json.loads(line) for line in islice(text, _CHUNK_PAIRS)]:
                seeds = np.random.SeedSequence([self.seed, epoch, first]).generate_state(2)
                sides = [
                    self.tokenizer.encode_sampled(list(side), self.rate, int(seed) % (2**32 - 1))
                    for side, seed in zip(zip(*chunk, strict=True), seeds, strict=True)
                ]
                for i in range(len(chunk)):
                    sides[0][i] = self._controls(first + i) + sides[0][i]
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
