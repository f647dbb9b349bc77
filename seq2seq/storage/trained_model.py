"""A model with its tokenizer and languages, and new models for such a tokenizer's ids."""

import os
from dataclasses import dataclass

import torch

from seq2seq.data.config import target_languages
from seq2seq.data.tokenizer import PADDING_ID, START_ID, Tokenizer
from seq2seq.errors import UsageError, UserError
from seq2seq.model import Transformer, TransformerConfig
from seq2seq.model.size import count_parameters, empty_transformer

MAX_ALPHA = 10.0
"""Far above any useful value; beyond it the penalties of long outputs would overflow."""
_MAX_BEAM_SIZE = 100  # a folder must not make a search take gigabytes


@dataclass(frozen=True)
class TunedSearch:
    """The beam size and the length penalty that scored best on the validation set.

    Raises:
        UsageError: if a value is out of range.
    """

    beam_size: int
    alpha: float

    def __post_init__(self) -> None:
        if not 1 <= self.beam_size <= _MAX_BEAM_SIZE:
            raise UsageError(f"beam_size={self.beam_size}: must be from 1 to {_MAX_BEAM_SIZE}")
        if not 0 <= self.alpha <= MAX_ALPHA:
            raise UsageError(f"alpha={self.alpha}: must be from 0 to {MAX_ALPHA:g}")


@dataclass(frozen=True)
class TrainedModel:
    """A model with its tokenizer and languages."""

    model: Transformer
    tokenizer: Tokenizer
    source_language: str
    target_language: str
    search: TunedSearch | None = None
    """The search that was tuned for it, if any."""

    @property
    def target_languages(self) -> list[str]:
        """The languages that it translates into; one of several is asked for by its code."""
        return target_languages(self.tokenizer.controls) or [self.target_language]


def new_transformer(
    config: TransformerConfig,
    vocab_size: int,
    source_vocab_size: int | None = None,
    init_std: float | None = None,
) -> Transformer:
    """Make a model for this project's token ids, as `Transformer` does.

    Raises:
        UserError: if its weights are larger than this machine's memory.
    """
    _check_memory(config, vocab_size, source_vocab_size)
    return Transformer(
        config,
        vocab_size=vocab_size,
        padding_id=PADDING_ID,
        start_id=START_ID,
        source_vocab_size=source_vocab_size,
        init_std=init_std,
    )


def unloaded_transformer(config: TransformerConfig, tokenizer: Tokenizer) -> Transformer:
    """Make a model on the meta device, for weights that take the place of its parameters.

    Raises:
        UserError: if its weights are larger than this machine's memory, or both sides share an
            embedding but not a vocabulary.
    """
    sizes = (tokenizer.vocab_size, tokenizer.source_vocab_size)
    if config.shared_embedding and sizes[0] != sizes[1]:
        raise UserError("shared_embedding is true, but each side has a vocabulary of its own")
    _check_memory(config, *sizes)
    return empty_transformer(
        config,
        vocab_size=sizes[0],
        padding_id=PADDING_ID,
        start_id=START_ID,
        source_vocab_size=sizes[1],
    )


def _check_memory(
    config: TransformerConfig, vocab_size: int, source_vocab_size: int | None = None
) -> None:
    parameters = count_parameters(config, vocab_size, source_vocab_size)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if parameters * torch.float32.itemsize > memory:
        raise UserError(
            f"a model of {parameters:,} parameters is too large for this machine's memory"
        )
