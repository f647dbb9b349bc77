"""The model at work on made-up sentences, and what happened inside."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from seq2seq.model import Transformer
from seq2seq.model.attention import MultiHeadAttention
from seq2seq.model.embedding import Embedding
from seq2seq.model.layers import DecoderLayer, EncoderLayer, FeedForward
from seq2seq.reproduction.synthetic import FIRST_WORD

LENGTH = 24
"""Tokens of a made-up sentence."""
_SENTENCES = 2


@dataclass(frozen=True)
class Event:
    """A module that ran."""

    module: nn.Module
    inputs: tuple[Any, ...]
    output: Tensor


@dataclass(frozen=True)
class Trace:
    """One stack at work on made-up sentences."""

    token_ids: Tensor
    """(B, T)."""
    events: list[Event]
    """Embedding, sublayers, norms and layers in the order in which they ended."""
    result: Tensor
    """What the stack returned, (B, T, D)."""

    @property
    def embedded(self) -> Tensor:
        """The first layer's input, (B, T, D)."""
        return next(event.output for event in self.events if isinstance(event.module, Embedding))


@contextmanager
def mode(model: nn.Module, *, training: bool) -> Iterator[None]:
    """Where a model trains or evaluates, without gradients and with random numbers of its own."""
    before = model.training
    model.train(training)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(1)
        yield
    model.train(before)


def trace(model: Transformer, *, training: bool) -> tuple[Trace, Trace]:
    """Run encoder and decoder and note what happens inside."""
    events: list[Event] = []

    def note(module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
        events.append(Event(module, inputs, output))

    kinds = (Embedding, MultiHeadAttention, FeedForward, nn.LayerNorm, EncoderLayer, DecoderLayer)
    hooks = [
        module.register_forward_hook(note)
        for module in model.modules()
        if isinstance(module, kinds)
    ]
    with mode(model, training=training):
        source, target_input = random_tokens(model), random_tokens(model)
        target_input[:, 0] = model.start_id
        memory = model.encode(source)
        encoder = Trace(source, list(events), memory.states)
        events.clear()
        decoder = Trace(target_input, events, model.decode(target_input, memory))
    for hook in hooks:
        hook.remove()
    return encoder, decoder


def random_tokens(model: Transformer) -> Tensor:
    """Random words, (B, T)."""
    return torch.randint(FIRST_WORD, model.vocab_size, (_SENTENCES, LENGTH))
