"""Made-up text: what has to be run needs sentences, and not whose."""

import tempfile
from functools import lru_cache
from pathlib import Path

import numpy as np

from seq2seq.data.encoded import EncodedCorpus, EncodedCorpusWriter
from seq2seq.data.tokenizer import Tokenizer, TokenizerConfig

FIRST_WORD = 4
"""The first token id after the control symbols."""


def made_up_corpus(pairs: int, *, mean_length: float, vocab_size: int) -> EncodedCorpus:
    """Pairs of random tokens; lengths like those of news text, log-normal and correlated."""
    random = np.random.default_rng(1)
    common = random.normal(0.0, 0.5, pairs)
    sides = []
    for _ in range(2):
        spread = random.normal(0.0, 0.2, pairs)
        lengths = np.exp(common + spread)
        lengths = np.clip(np.rint(lengths * mean_length / lengths.mean()), 1, 8 * mean_length)
        sides.append([random.integers(FIRST_WORD, vocab_size, int(n)).tolist() for n in lengths])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pairs.arrow"
        with EncodedCorpusWriter(path, vocab_size) as writer:
            writer.write(*sides)
        # It stays mapped after its name is gone.
        return EncodedCorpus(path)


@lru_cache(maxsize=1)
def made_up_tokenizer() -> Tokenizer:
    """A tokenizer of letters."""
    letters = "abcdefghij"
    sentences = [" ".join(letters[i:] + letters[:i]) for i in range(len(letters))]
    return Tokenizer.train(sentences, TokenizerConfig(vocab_size=FIRST_WORD + len(letters) + 1))
