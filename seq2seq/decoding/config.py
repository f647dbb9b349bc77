"""The options of beam search."""

from dataclasses import dataclass

from seq2seq.errors import UsageError, check_number
from seq2seq.settings import changeable, free
from seq2seq.storage.trained_model import MAX_ALPHA


@dataclass(kw_only=True)
class DecodingConfig:
    """The options of any search."""

    nbest: int = free(1)
    """Translations returned for each sentence."""
    alpha: float = changeable(0.6)
    """Exponent of the length penalty; 0 means no penalty."""
    max_extra_tokens: int = changeable(50)
    """How many tokens longer than its source an output may be, `</s>` not counted."""

    def __post_init__(self) -> None:
        for name in ("nbest", "max_extra_tokens"):
            check_number(name, getattr(self, name), at_least=1, at_most=10_000)
        check_number("alpha", self.alpha, at_least=0, at_most=MAX_ALPHA)


@dataclass(kw_only=True)
class SearchConfig(DecodingConfig):
    """The options of beam search; the defaults are the paper's."""

    beam_size: int = changeable(4)
    """Hypotheses kept at each step; 1 is greedy search."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("beam_size", self.beam_size, at_least=1, at_most=1000)
        if self.nbest > self.beam_size:
            raise UsageError(f"nbest={self.nbest}: must be at most beam_size={self.beam_size}")
