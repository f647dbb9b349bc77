"""A model at work on random tokens, and what its modules read and returned."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from seq2seq.model import Transformer
from seq2seq.model.transformer import DecoderLayer, EncoderLayer, FeedForward, MultiHeadAttention
from seq2seq.reproduction.synthetic import FIRST_WORD

LENGTH = 24
"""Tokens of a sentence."""
_SENTENCES = 2
_MODULES = (MultiHeadAttention, FeedForward, nn.LayerNorm, EncoderLayer, DecoderLayer)


@dataclass(frozen=True)
class Event:
    """A module that ran."""

    module: nn.Module
    inputs: tuple[Any, ...]
    output: Tensor


@dataclass(frozen=True)
class Trace:
    """The encoder or the decoder at work."""

    token_ids: Tensor
    """(B, T)."""
    events: list[Event]
    """Sublayers, norms and layers, in the order in which they ended."""
    result: Tensor
    """What the model makes of it, (B, T, D)."""

    @property
    def embedded(self) -> Tensor:
        """The first layer's input, (B, T, D)."""
        embedded: Tensor = self.events[0].inputs[0]
        return embedded

    @property
    def layers_end(self) -> int:
        """The place in `events` of the last layer's end."""
        layers = (EncoderLayer, DecoderLayer)
        return max(i for i, event in enumerate(self.events) if isinstance(event.module, layers))


@contextmanager
def mode(model: nn.Module, *, training: bool) -> Iterator[None]:
    """Training or evaluation mode, without gradients and with random numbers of its own."""
    before = model.training
    model.train(training)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(1)
        yield
    model.train(before)


def trace(model: Transformer, *, training: bool) -> tuple[Trace, Trace]:
    """Run the encoder and the decoder on the same tokens at every call."""
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
    """Random words, (B, T)."""
    return torch.randint(FIRST_WORD, model.vocab_size, (_SENTENCES, LENGTH))
