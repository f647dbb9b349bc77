"""The parts that beam search and sampling share.

Shapes: B sentences; beam, the hypotheses (or samples) of a sentence; N = B x beam rows, grouped
by sentence; V vocabulary; T tokens.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NotRequired, Protocol, TypedDict, TypeVar

import numpy as np
import torch
from torch import Tensor

from seq2seq.data.tokenizer import PADDING_ID
from seq2seq.device import copy_to_device
from seq2seq.errors import UserError

NO_TOKEN = -1
"""Pads prefixes and outputs of unequal length."""


@dataclass(frozen=True)
class Hypothesis:
    """One finished output."""

    token_ids: list[int]  # without the start symbol and `</s>`; with the forced prefix
    score: float  # log-probability, `</s>` included, divided by the length penalty
    truncated: bool  # whether it was cut off at the maximum length, where only `</s>` may follow


@dataclass(frozen=True)
class SearchInput:
    """One input of the model."""

    source_ids: list[int]  # token ids, beginning with the control symbols and ending with `</s>`
    max_length: int  # the maximum length of its translation in tokens, `</s>` not counted
    prefix_ids: Sequence[int] = ()  # token ids that its translation begins with


class SearchState(Protocol):
    """The state of the step function, with one row per hypothesis."""

    def reorder(self, parents: Tensor) -> None:
        """Replace row n by row parents[n]."""

    def keep(self, sentences: Tensor, rows: Tensor) -> None:
        """Keep only these sentences and these rows."""


State = TypeVar("State", bound=SearchState)


class Rules(TypedDict):
    """What outputs contain, and what they don't."""

    start_id: int  # the token before the first
    end_id: int  # the token that ends an output
    suppressed_ids: NotRequired[Sequence[int]]  # tokens that no output contains
    prefixes: NotRequired[Sequence[Sequence[int]]]  # the forced beginning of each output


class SearchBatch:
    """The sentences of a batch that are still searched.

    Every attribute that is a tensor, in subclasses too, has one row per sentence. What the host
    needs to know of them is in lists, because reading a tensor waits for a GPU.
    """

    def __init__(self, max_lengths: Tensor, rules: Rules) -> None:
        self.length = 0  # tokens of each live hypothesis, the start symbol not counted
        self.end_id, self.suppressed_ids = rules["end_id"], rules.get("suppressed_ids", ())
        self.max_lengths = max_lengths  # (B,)
        prefixes = pad(rules.get("prefixes") or [()] * len(max_lengths), NO_TOKEN)
        self.prefixes = copy_to_device(prefixes, max_lengths.device)  # (B, longest)
        self.limits: list[int] = max_lengths.tolist()
        self.sentence_ids = list(range(len(max_lengths)))

    def keep(self, sentences: Sequence[int], beam: int) -> tuple[Tensor, Tensor]:
        """Keep only these sentences (b,), each with `beam` rows; return both as indices."""
        self.limits = [self.limits[i] for i in sentences]
        self.sentence_ids = [self.sentence_ids[i] for i in sentences]
        kept = self.indices(sentences)
        for name, value in list(vars(self).items()):
            if isinstance(value, Tensor):
                setattr(self, name, value[kept])
        return kept, rows_of(kept, torch.arange(beam, device=kept.device).unsqueeze(0), beam)

    def indices(self, sentences: Sequence[int]) -> Tensor:
        """Copy indices of sentences to the device of the search."""
        return copy_to_device(torch.tensor(sentences), self.max_lengths.device)

    def forced_tokens(self) -> Tensor | None:
        """Return the only token (B,) that may follow: the next of a prefix, or the end.

        It is NO_TOKEN where any token may follow; None if that is so everywhere.
        """
        in_prefix = self.length < self.prefixes.size(1)
        if not in_prefix and self.length < min(self.limits):
            return None
        free = torch.full_like(self.max_lengths, NO_TOKEN)
        forced = self.prefixes[:, self.length] if in_prefix else free
        return forced.masked_fill(self.length >= self.max_lengths, self.end_id)


def pad(sequences: Sequence[Sequence[int]], value: int = PADDING_ID) -> Tensor:
    """Pad token ids of different lengths on the right: (B, longest)."""
    longest = max(map(len, sequences))
    rows = [[*ids, *[value] * (longest - len(ids))] for ids in sequences]
    return torch.from_numpy(np.array(rows, dtype=np.int64))  # faster than torch.tensor


def length_penalty(length: float, alpha: float) -> float:
    """Compute ((5 + length) / 6)^alpha, `</s>` counted (equation 14 of Wu et al. 2016)."""
    return float(((5.0 + length) / 6.0) ** alpha)


def output_log_probabilities(logits: Tensor, suppressed_ids: Sequence[int] = ()) -> Tensor:
    """Compute log-probabilities (..., V), at least float32, with -inf for suppressed ids."""
    dtype = torch.promote_types(logits.dtype, torch.float32)
    log_probabilities = logits.log_softmax(dim=-1, dtype=dtype)
    for token_id in suppressed_ids:
        log_probabilities[..., token_id] = -math.inf
    return log_probabilities


def force_tokens(log_probabilities: Tensor, forced: Tensor | None) -> None:
    """Set those (B, beam, V) of tokens that may not follow to -inf; see `forced_tokens`."""
    if forced is None:
        return
    tokens = torch.arange(log_probabilities.size(2), device=forced.device)
    forbidden = (tokens != forced.unsqueeze(1)) & (forced != NO_TOKEN).unsqueeze(1)  # (B, V)
    log_probabilities.masked_fill_(forbidden.unsqueeze(1), -math.inf)


def gather_beams(beams: Tensor, chosen: Tensor) -> Tensor:
    """Select hypotheses of each sentence: (B, n, T) and indices (B, m) -> (B, m, T)."""
    return beams.gather(1, chosen.unsqueeze(2).expand(-1, -1, beams.size(2)))


def rows_of(sentences: Tensor, chosen: Tensor, beam: int) -> Tensor:
    """Return the rows (b x n,) among N of the hypotheses (b or 1, n) of sentences (b,)."""
    return (sentences.unsqueeze(1) * beam + chosen).flatten()


def impossible_error(score: float) -> UserError:
    """Make the error for a score that is NaN or minus infinity."""
    if math.isnan(score):
        return nan_error()
    return UserError(
        "no continuation has a probability above zero: the model's weights are corrupt, or it can't"
        " end an output here"
    )


def nan_error() -> UserError:
    """Make the error for a model that predicts NaN."""
    return UserError(
        "the model predicts NaN: its training has diverged, or its weights are corrupt;"
        " use an earlier checkpoint"
    )
