"""The parts that beam search and sampling share.

Shapes: B sentences; beam, the hypotheses (or samples) of a sentence; N = B x beam rows, grouped
by sentence; V vocabulary; T tokens.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from seq2seq.device import copy_to_device
from seq2seq.errors import UserError
from seq2seq.fast.topk import topk_by_blocks

NO_TOKEN = -1
"""Pads prefixes and outputs of unequal length."""


@dataclass(frozen=True)
class Hypothesis:
    """One finished output."""

    token_ids: list[int]
    """Without the start symbol and `</s>`; with the forced prefix."""
    score: float
    """Log-probability, `</s>` included, divided by the length penalty."""
    truncated: bool
    """Whether it was cut off at the maximum length, where only `</s>` may follow."""


class SearchState(Protocol):
    """The state of the step function, with one row per hypothesis."""

    def reorder(self, parents: Tensor) -> None:
        """Replace row n by row parents[n]."""

    def keep(self, sentences: Tensor, rows: Tensor) -> None:
        """Keep only these sentences and these rows."""


State = TypeVar("State", bound=SearchState)


class SearchBatch:
    """The sentences of a batch that are still searched.

    Every attribute that is a tensor, in subclasses too, has one row per sentence. What the host
    needs to know of them is in lists, because reading a tensor waits for a GPU.
    """

    def __init__(self, max_lengths: Tensor, prefixes: Sequence[Sequence[int]]) -> None:
        self.length = 0  # tokens of each live hypothesis, the start symbol not counted
        self.max_lengths = max_lengths  # (B,)
        self.prefixes = pad_prefixes(prefixes, max_lengths)  # (B, longest)
        self.limits: list[int] = max_lengths.tolist()
        self.sentence_ids = list(range(len(max_lengths)))
        self.stored: list[tuple[list[int], list[int], list[Tensor]]] = []

    def keep(self, sentences: Sequence[int], beam: int) -> tuple[Tensor, Tensor]:
        """Keep only these sentences, each with `beam` rows.

        Returns:
            The sentences (b,), and the indices of their rows among the previous N.
        """
        self.limits = [self.limits[i] for i in sentences]
        self.sentence_ids = [self.sentence_ids[i] for i in sentences]
        kept = self.indices(sentences)
        for name, value in list(vars(self).items()):
            if isinstance(value, Tensor):
                setattr(self, name, value[kept])
        first_rows = kept.unsqueeze(1) * beam  # (b, 1)
        return kept, (first_rows + torch.arange(beam, device=kept.device)).flatten()

    def store_results(self, sentences: Sequence[int], *results: Tensor) -> None:
        """Store these sentences' rows of some results, each (B, ...), on their device."""
        rows = self.indices(sentences)
        ids, limits = (
            [values[i] for i in sentences] for values in (self.sentence_ids, self.limits)
        )
        self.stored.append((ids, limits, [tensor[rows] for tensor in results]))

    def fetch_results(self) -> Iterator[tuple[int, int, Any]]:
        """Copy all stored results to the host at once.

        Yields:
            The id of each sentence, its maximum length, and its rows as lists.
        """
        ids, limits, results = zip(*self.stored, strict=True)
        columns = [torch.cat(parts).tolist() for parts in zip(*results, strict=True)]
        yield from zip(chain(*ids), chain(*limits), zip(*columns, strict=True), strict=True)

    def indices(self, sentences: Sequence[int]) -> Tensor:
        """Copy indices of sentences to the device of the search."""
        return copy_to_device(torch.tensor(sentences), self.max_lengths.device)

    def forced_tokens(self, end_id: int) -> Tensor | None:
        """Return the only token that may follow in each sentence.

        Within its prefix an output continues with the next token of the prefix; at its maximum
        length it ends.

        Returns:
            (B,), NO_TOKEN where any token may follow; None if that is so everywhere.
        """
        in_prefix = self.length < self.prefixes.size(1)
        if not in_prefix and self.length < min(self.limits):
            return None
        free = torch.full_like(self.max_lengths, NO_TOKEN)
        forced = self.prefixes[:, self.length] if in_prefix else free
        return forced.masked_fill(self.length >= self.max_lengths, end_id)


def length_penalty(length: float, alpha: float) -> float:
    """Compute ((5 + length) / 6)^alpha, `</s>` counted (equation 14 of Wu et al. 2016)."""
    return float(((5.0 + length) / 6.0) ** alpha)


def pad_prefixes(prefixes: Sequence[Sequence[int]], max_lengths: Tensor) -> Tensor:
    """Pad the prefixes of B sentences, or an empty list, with NO_TOKEN to (B, longest)."""
    longest = max(map(len, prefixes), default=0)
    padded = torch.full((len(max_lengths), longest), NO_TOKEN)
    for row, prefix in zip(padded, prefixes, strict=False):
        row[: len(prefix)] = torch.tensor(prefix)
    return copy_to_device(padded, max_lengths.device)


def output_log_probabilities(logits: Tensor, suppressed_ids: Sequence[int] = ()) -> Tensor:
    """Compute log-probabilities (..., V), at least float32, with -inf for suppressed ids."""
    dtype = torch.promote_types(logits.dtype, torch.float32)
    log_probabilities = logits.log_softmax(dim=-1, dtype=dtype)
    for token_id in suppressed_ids:
        log_probabilities[..., token_id] = -math.inf
    return log_probabilities


def force_tokens(log_probabilities: Tensor, forced: Tensor) -> None:
    """Set the log-probability of each token that may not follow to -inf, in place.

    Args:
        log_probabilities: (B, beam, V).
        forced: (B,), the only token that may follow, or NO_TOKEN.
    """
    tokens = torch.arange(log_probabilities.size(2), device=forced.device)
    forbidden = (tokens != forced.unsqueeze(1)) & (forced != NO_TOKEN).unsqueeze(1)  # (B, V)
    log_probabilities.masked_fill_(forbidden.unsqueeze(1), -math.inf)


def best_continuations(
    logits: Tensor,
    live_scores: Tensor,
    beam_size: int,
    suppressed_ids: Sequence[int],
    forced: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Find the best continuations of live hypotheses: 2 x beam_size, or one in greedy search.

    Args:
        logits: (B x beam, V).
        live_scores: (B, beam).
        beam_size: how many live hypotheses a sentence may have.
        suppressed_ids: see `output_log_probabilities`.
        forced: (B,), see `force_tokens`; None if any token may follow everywhere.

    Returns:
        Scores, parents (indices into beam) and tokens, each (B, 2 x beam_size).
    """
    (sentences, beam), vocab_size = live_scores.shape, logits.size(1)
    logits = logits.view(sentences, beam, vocab_size)
    scores = output_log_probabilities(logits, suppressed_ids)  # (B, beam, V)
    if forced is not None:
        force_tokens(scores, forced)
    scores += live_scores.unsqueeze(2)
    # Greedy search ends as soon as </s> is the best continuation.
    count = min(2 * beam_size if beam_size > 1 else 1, beam * vocab_size)
    best, indices = topk_by_blocks(scores.flatten(1), count)  # (B, beam * V) -> (B, count)
    return best, indices // vocab_size, indices % vocab_size


def gather_beams(beams: Tensor, chosen: Tensor) -> Tensor:
    """Select hypotheses of each sentence: (B, n, T) and indices (B, m) -> (B, m, T)."""
    return beams.gather(1, chosen.unsqueeze(2).expand(-1, -1, beams.size(2)))


def impossible_error(score: float) -> UserError:
    """Make the error for a model that gives an output the score NaN, or minus infinity."""
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
