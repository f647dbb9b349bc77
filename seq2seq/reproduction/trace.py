"""The inputs and outputs of a model's modules on random tokens."""

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
        embedded: Tensor = self.events[0].inputs[0]
        return embedded

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
    return torch.randint(FIRST_WORD, rows, (_SENTENCES, LENGTH))
