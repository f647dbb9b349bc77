"""A model with its tokenizer and languages, and new models for such a tokenizer's ids."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from seq2seq.data.config import target_languages
from seq2seq.data.tokenizer import PADDING_ID, START_ID, Tokenizer
from seq2seq.errors import check_number
from seq2seq.model import Transformer, TransformerConfig, make_transformer
from seq2seq.model.size import check_memory

MAX_ALPHA = 10
"""Far above any useful value; beyond it the penalties of long outputs would overflow."""
_MAX_BEAM_SIZE = 100  # a folder must not make a search take gigabytes


@dataclass(frozen=True)
class TunedSearch:
    """The beam size and the length penalty that scored best on the validation set."""

    beam_size: int
    alpha: float

    def __post_init__(self) -> None:
        check_number("beam_size", self.beam_size, at_least=1, at_most=_MAX_BEAM_SIZE)
        check_number("alpha", self.alpha, at_least=0, at_most=MAX_ALPHA)


@dataclass(frozen=True)
class TrainedModel:
    """A model with its tokenizer and languages."""

    model: Transformer
    tokenizer: Tokenizer
    source_language: str
    target_language: str
    search: TunedSearch | None = None  # the search that was tuned for it, if any

    @property
    def target_languages(self) -> list[str]:
        """The languages that it translates into; one of several is chosen by its code."""
        return target_languages(self.tokenizer.controls) or [self.target_language]


def translate_command(model: str, target_languages: Sequence[str]) -> str:
    """Write the command that translates with a model into its first target language."""
    words = ["seq2seq", "translate", "--model", model]
    if len(target_languages) > 1:
        words += ["--to", target_languages[0]]
    return f"{shlex.join(words)} < input > output"


def new_transformer(
    config: TransformerConfig,
    vocab_size: int,
    source_vocab_size: int | None = None,
    init_std: float | None = None,
) -> Transformer:
    """Make a model for this project's token ids; refuse one that is larger than the memory."""
    check_memory(config, vocab_size, source_vocab_size)
    return make_transformer(
        config,
        vocab_size=vocab_size,
        padding_id=PADDING_ID,
        start_id=START_ID,
        source_vocab_size=source_vocab_size,
        init_std=init_std,
    )
