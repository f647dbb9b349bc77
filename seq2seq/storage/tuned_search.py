"""The search that was tuned for a model, as its folder keeps it."""

from dataclasses import dataclass

from seq2seq.errors import UsageError

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
