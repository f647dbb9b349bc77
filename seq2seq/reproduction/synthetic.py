"""Synthetic text, for measures that need sentences but no particular ones."""

import tempfile
from functools import lru_cache
from pathlib import Path

import numpy as np

from seq2seq.data.encoded import EncodedCorpus, EncodedCorpusWriter
from seq2seq.data.tokenizer import Tokenizer, TokenizerConfig

FIRST_WORD = 4
"""The first token id after the control symbols."""


class SyntheticLengths(EncodedCorpus):
    """Lengths distributed as in news text, without tokens, for batches that are only counted.

    They are log-normal, with the standard deviations of newstest2013: 0.6 for the log-length of a
    sentence, 0.17 for the log-ratio of the lengths of a pair.
    """

    def __init__(self, pairs: int, *, mean_length: float, max_length: int) -> None:
        random = np.random.default_rng(1)
        common = random.normal(0.0, 0.6, pairs)
        sides = [np.exp(common + random.normal(0.0, 0.12, pairs)) for _ in range(2)]
        self.source_lengths, self.target_lengths = (
            np.clip(np.rint(side * mean_length / side.mean()), 2, max_length).astype(np.int32)
            for side in sides
        )


def synthetic_corpus(pairs: int, *, mean_length: float, vocab_size: int) -> EncodedCorpus:
    """Make a corpus of pairs of random tokens."""
    random = np.random.default_rng(1)
    lengths = SyntheticLengths(pairs, mean_length=mean_length, max_length=int(4 * mean_length))
    sides = [
        [random.integers(FIRST_WORD, vocab_size, n - 1).tolist() for n in side.tolist()]
        for side in (lengths.source_lengths, lengths.target_lengths)
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pairs.arrow"
        with EncodedCorpusWriter(path, vocab_size) as writer:
            writer.write(*sides)
        # The file stays mapped after it is deleted.
        return EncodedCorpus(path)


@lru_cache(maxsize=1)
def synthetic_tokenizer() -> Tokenizer:
    """Train a tokenizer whose words are letters."""
    letters = "abcdefghij"
    sentences = [" ".join(letters[i:] + letters[:i]) for i in range(len(letters))]
    return Tokenizer.train(sentences, TokenizerConfig(vocab_size=FIRST_WORD + len(letters) + 1))
