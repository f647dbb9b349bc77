"""The inputs and outputs of a model's modules, and synthetic text."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from seq2seq.encoded import EncodedCorpus, Lengths, Rows, encode_ids, new_corpus
from seq2seq.transformer import (
    DecoderLayer,
    EncoderLayer,
    FeedForward,
    MultiHeadAttention,
    Transformer,
)

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
        self.sides = np.array(
            [np.clip(np.rint(side * mean_length / side.mean()), 2, max_length) for side in sides]
        ).astype(np.int32)
        self.longest = tuple(self.sides.max(axis=1).tolist())

    def __len__(self) -> int:
        return self.sides.shape[1]

    def lengths(self, rows: Rows | None = None) -> tuple[Lengths, Lengths]:
        """See `EncodedCorpus.lengths`."""
        source, target = self.sides if rows is None else self.sides[:, rows]
        return source, target


def synthetic_corpus(pairs: int, *, mean_length: float, vocab_size: int) -> EncodedCorpus:
    """Make a corpus of pairs of random tokens."""
    random = np.random.default_rng(1)
    lengths = SyntheticLengths(pairs, mean_length=mean_length, max_length=int(4 * mean_length))
    sources, targets = (
        [random.integers(FIRST_WORD, vocab_size, n - 1).tolist() for n in side.tolist()]
        for side in lengths.lengths()
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pairs.ids"
        with new_corpus(path) as write:
            write(encode_ids(sources, targets, vocab_size))
        # The file stays mapped after it is deleted.
        return EncodedCorpus(path)


LENGTH = 24  # tokens of a sentence
_MODULES = (MultiHeadAttention, FeedForward, nn.LayerNorm, EncoderLayer, DecoderLayer)


class Event(NamedTuple):
    """One call of a module."""

    module: nn.Module
    inputs: tuple[Any, ...]
    output: Tensor


@dataclass(frozen=True)
class Trace:
    """The calls in a run of the encoder or the decoder."""

    token_ids: Tensor
    """(B, T)."""
    events: list[Event]
    """Calls of sublayers, norms and layers, in the order in which they returned."""
    result: Tensor
    """The output of the stack, (B, T, D)."""

    @property
    def embedded(self) -> Tensor:
        """The first layer's input, (B, T, D)."""
        return self.events[0].inputs[0]

    @property
    def layers_end(self) -> int:
        """The index in `events` of the last layer."""
        layers = (EncoderLayer, DecoderLayer)
        return max(i for i, event in enumerate(self.events) if isinstance(event.module, layers))


@contextmanager
def mode(model: nn.Module, *, training: bool) -> Iterator[None]:
    """Set training or evaluation mode, without gradients and with a random state of its own."""
    before = model.training
    model.train(training)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(1)
        yield
    model.train(before)


def trace(model: Transformer, *, training: bool) -> tuple[Trace, Trace]:
    """Run encoder and decoder on random tokens, the same at every call."""
    events: list[Event] = []

    def record(module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        events.append(Event(module, inputs, output))

    hooks = [m.register_forward_hook(record) for m in model.modules() if isinstance(m, _MODULES)]
    with mode(model, training=training):
        source, target_input = random_tokens(model), random_tokens(model)
        target_input[:, 0] = model.start_id
        source_mask = model.source_mask(source)
        memory = model.encode(source, source_mask)
        encoder = Trace(source, events.copy(), memory)
        events.clear()
        states = model.decode(target_input, memory, source_mask)
        decoder = Trace(target_input, events, states)
    for hook in hooks:
        hook.remove()
    return encoder, decoder


def random_tokens(model: Transformer) -> Tensor:
    """Draw random words, (B, T)."""
    rows = min(model.vocab_size, model.embedding.num_embeddings)
    return torch.randint(FIRST_WORD, rows, (2, LENGTH))
