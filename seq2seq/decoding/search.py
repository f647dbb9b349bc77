"""What beam search and sampling share.

Shapes: B sentences; beam, the hypotheses (or samples) of a sentence; N = B x beam rows, those of a
sentence next to each other; V vocabulary.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from seq2seq.errors import UserError

MAX_ALPHA = 10.0
"""Far above any useful value: above it the penalties of long outputs would overflow."""

NO_TOKEN = -1
"""Pads prefixes and outputs of unequal length."""


@dataclass(kw_only=True)
class DecodingConfig:
    """What a user chooses of any search.

    Raises:
        UserError: if nbest or max_extra_tokens is below 1, or alpha is not in 0 to MAX_ALPHA.
    """

    nbest: int = 1
    """Translations returned for each sentence."""
    alpha: float = 0.6
    """Exponent of the length penalty; 0 leaves log-probabilities as they are."""
    max_extra_tokens: int = 50
    """The longest output is the source's length plus this, `</s>` not counted."""

    def __post_init__(self) -> None:
        for name in ("nbest", "max_extra_tokens"):
            if getattr(self, name) < 1:
                raise UserError(f"{name}={getattr(self, name)}: must be at least 1")
        if not 0 <= self.alpha <= MAX_ALPHA:
            raise UserError(f"alpha={self.alpha}: must be from 0 to {MAX_ALPHA:g}")


@dataclass(frozen=True)
class Hypothesis:
    """One finished output."""

    token_ids: list[int]
    """Without the start symbol and `</s>`; with the forced prefix."""
    score: float
    """Log-probability, that of `</s>` included, divided by the length penalty."""
    truncated: bool
    """It reached the greatest length, where `</s>` is the only choice."""


class SearchState(Protocol):
    """What the step function remembers: one row per hypothesis."""

    def reorder(self, parents: Tensor) -> None:
        """Let row n continue what was row parents[n]."""

    def keep(self, sentences: Tensor, rows: Tensor) -> None:
        """Keep only these sentences, and of all rows only these."""


State = TypeVar("State", bound=SearchState)


class SearchBatch:
    """The sentences of a batch that are still searched.

    Every tensor among the attributes, a subclass's too, has one row per sentence.
    """

    def __init__(self, max_lengths: Tensor, prefixes: Sequence[Sequence[int]]) -> None:
        self.length = 0  # tokens of each live hypothesis, the start symbol not counted
        self.max_lengths = max_lengths  # (B,)
        self.prefixes = pad_prefixes(prefixes, max_lengths)  # (B, longest)
        self.sentence_ids = torch.arange(len(max_lengths), device=max_lengths.device)  # (B,)
        self.results: list[list[Hypothesis]] = [[] for _ in max_lengths]  # by sentence id

    def keep(self, sentences: Tensor, beam: int) -> Tensor:
        """Keep only these sentences.

        Returns:
            Their rows among the N from before.
        """
        for name, value in list(vars(self).items()):
            if isinstance(value, Tensor):
                setattr(self, name, value[sentences])
        first_rows = sentences.unsqueeze(1) * beam  # (b, 1)
        return (first_rows + torch.arange(beam, device=sentences.device)).flatten()


def length_penalty(length: float, alpha: float) -> float:
    """((5 + length) / 6)^alpha, `</s>` counted in the length (equation 14 of Wu et al. 2016)."""
    return float(((5.0 + length) / 6.0) ** alpha)


def pad_prefixes(prefixes: Sequence[Sequence[int]], max_lengths: Tensor) -> Tensor:
    """Prefixes of B sentences, or none at all -> (B, longest), NO_TOKEN after each one's end."""
    longest = max(map(len, prefixes), default=0)
    padded = max_lengths.new_full((len(max_lengths), longest), NO_TOKEN)
    for row, prefix in zip(padded, prefixes, strict=False):
        row[: len(prefix)] = row.new_tensor(prefix)
    return padded


def output_log_probabilities(logits: Tensor, suppressed_ids: Sequence[int] = ()) -> Tensor:
    """Logits (..., V) -> log-probabilities (..., V), at least float32; -inf for suppressed ids."""
    dtype = torch.promote_types(logits.dtype, torch.float32)
    log_probabilities = logits.log_softmax(dim=-1, dtype=dtype)
    for token_id in suppressed_ids:
        log_probabilities[..., token_id] = -math.inf
    return log_probabilities


def apply_constraints(
    log_probabilities: Tensor, max_lengths: Tensor, prefixes: Tensor, *, length: int, end_id: int
) -> None:
    """Set to -inf, in place, every token that an output of `length` tokens may not continue with.

    Within its prefix an output continues with the prefix's next token; at its greatest length it
    ends.

    Args:
        log_probabilities: (B, beam, V).
        max_lengths: (B,).
        prefixes: (B, longest), NO_TOKEN after each one's end.
        length: tokens so far, the start symbol not counted.
        end_id: the token that ends an output.
    """
    full = length >= max_lengths  # (B,)
    in_prefix = length < prefixes.size(1)
    if not in_prefix and not full.any():
        return
    forced = prefixes[:, length] if in_prefix else torch.full_like(max_lengths, NO_TOKEN)
    forced = forced.masked_fill(full, end_id)  # (B,)
    sentences = (forced != NO_TOKEN).nonzero().squeeze(1)  # (b,)
    tokens = forced[sentences]  # (b,)
    kept = log_probabilities[sentences, :, tokens]  # (b, beam)
    log_probabilities[sentences] = -math.inf
    log_probabilities[sentences, :, tokens] = kept


def impossible_error(score: float) -> UserError:
    """The error of a model that gives an output the score NaN, or minus infinity."""
    if math.isnan(score):
        return nan_error()
    return UserError(
        "no continuation has a probability above zero: the model's weights are damaged, or it can't"
        " end an output here"
    )


def nan_error() -> UserError:
    """The error of a model whose outputs have no probability."""
    return UserError(
        "the model predicts NaN: its training has diverged, or its weights are damaged;"
        " use an earlier checkpoint"
    )
