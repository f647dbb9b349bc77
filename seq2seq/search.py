"""Beam search with the length penalty of Wu et al. (2016), as section 6.1 uses it.

A hypothesis is *live* while it grows, and *finished* once it has `</s>`. A sentence is *done* when
none of its live hypotheses can still beat its finished ones.

The search knows nothing of the model: it takes a step function and a state that can be reordered.
Sampling, in `seq2seq.decoding`, has the same batches, rules and outputs.
Shapes: B sentences; beam, the live hypotheses of each (1 before the first step); N = B x beam rows;
V vocabulary; T tokens so far, the start symbol included.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NotRequired, Protocol, TypedDict, TypeVar, Unpack

import numpy as np
import torch
from torch import Tensor

from seq2seq.device import copy_to_device
from seq2seq.errors import EngineError, UsageError, check_number
from seq2seq.settings import changeable, free
from seq2seq.tokenizer import PADDING_ID

MAX_ALPHA = 10
"""Far above any useful value; beyond it the penalties of long outputs would overflow."""


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


# A batch of sentences, and what their outputs may contain.


NO_TOKEN = -1
"""Pads outputs of unequal length."""


@dataclass(frozen=True)
class Hypothesis:
    """One finished output."""

    token_ids: list[int]  # without the start symbol and `</s>`
    score: float  # log-probability, `</s>` included, divided by the length penalty
    truncated: bool  # whether it was cut off at the maximum length, where only `</s>` may follow


class SearchState(Protocol):
    """The state of the step function, with one row per hypothesis."""

    def reorder(self, parents: Tensor) -> None:
        """Replace row n by row parents[n]."""

    def keep(self, sentences: Tensor, rows: Tensor) -> None:
        """Keep only these sentences and these rows."""


State = TypeVar("State", bound=SearchState)


class Rules(TypedDict):
    """Tokens with a role in all outputs."""

    start_id: int  # the token before the first
    end_id: int  # the token that ends an output
    suppressed_ids: NotRequired[Sequence[int]]  # tokens that no output contains


class SearchBatch:
    """The sentences of a batch that are still searched.

    Every attribute that is a tensor, in subclasses too, has one row per sentence. What the host
    needs to know of them is in lists, because reading a tensor waits for a GPU.
    """

    def __init__(self, max_lengths: Tensor, rules: Rules) -> None:
        self.length = 0  # tokens of each live hypothesis, the start symbol not counted
        self.end_id, self.suppressed_ids = rules["end_id"], rules.get("suppressed_ids", ())
        self.max_lengths = max_lengths  # (B,)
        self.limits: list[int] = max_lengths.tolist()
        self.sentence_ids = list(range(len(max_lengths)))

    def keep(self, sentences: Sequence[int], beam: int) -> tuple[Tensor, Tensor]:
        """Keep only these sentences (b,), each with `beam` rows; return both as indices."""
        self.limits = [self.limits[i] for i in sentences]
        self.sentence_ids = [self.sentence_ids[i] for i in sentences]
        indices = self.indices(sentences)
        for name, value in list(vars(self).items()):
            if isinstance(value, Tensor):
                setattr(self, name, value[indices])
        return indices, rows_of(
            indices, torch.arange(beam, device=indices.device).unsqueeze(0), beam
        )

    def indices(self, sentences: Sequence[int]) -> Tensor:
        """Copy indices of sentences to the device of the search."""
        return copy_to_device(torch.tensor(sentences), self.max_lengths.device)

    @property
    def any_full(self) -> bool:
        """Whether any hypotheses have the maximum length, after which only `</s>` may follow."""
        return self.length >= min(self.limits)

    def full(self) -> Tensor:
        """Return whose hypotheses have the maximum length (B,)."""
        return self.max_lengths <= self.length

    def log_probabilities(self, logits: Tensor, sentences: slice = slice(None)) -> Tensor:
        """Compute those of the next tokens (b, beam, V), given logits of some or all sentences.

        They are -inf for tokens that may not follow.
        """
        log_probabilities = output_log_probabilities(logits, self.suppressed_ids)
        if self.any_full:
            others = torch.arange(logits.size(2), device=logits.device) != self.end_id  # (V,)
            forbidden = self.full()[sentences].unsqueeze(1) & others  # (b, V)
            log_probabilities.masked_fill_(forbidden.unsqueeze(1), -math.inf)
        return log_probabilities


def pad(sequences: Sequence[Sequence[int]]) -> Tensor:
    """Pad token ids of different lengths on the right: (B, longest)."""
    longest = max(map(len, sequences))
    rows = [[*ids, *[PADDING_ID] * (longest - len(ids))] for ids in sequences]
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


def gather_beams(beams: Tensor, index: Tensor) -> Tensor:
    """Select hypotheses of each sentence: (B, n, T) and indices (B, m) -> (B, m, T)."""
    return beams.gather(1, index.unsqueeze(2).expand(-1, -1, beams.size(2)))


def rows_of(sentences: Tensor, index: Tensor, beam: int) -> Tensor:
    """Return the rows (b x n,) among N of the hypotheses (b or 1, n) of sentences (b,)."""
    return (sentences.unsqueeze(1) * beam + index).flatten()


def nan_error() -> EngineError:
    """Make the error for a model whose scores are NaN or minus infinity."""
    return EngineError(
        "the model predicts NaN, or no token at all: its training has diverged, or its weights are"
        " corrupt; use an earlier checkpoint"
    )


# Beam search.


@torch.inference_mode()
def beam_search(
    step: Callable[[Tensor, State], Tensor],
    state: State,
    max_lengths: Tensor,
    config: SearchConfig,
    kind: "type[Beams] | None" = None,
    **rules: Unpack[Rules],
) -> list[list[Hypothesis]]:
    """Find at most config.nbest outputs of each sentence, the best first.

    `step` maps the newest tokens (N,) and the state to logits (N, V). The state begins with one row
    per sentence; an output has at most `max_lengths` (B,) tokens, `</s>` not counted. Stopping once
    a sentence is done never changes its outputs. `kind` is the class of beams, `Beams` by default.
    """
    beams = (kind or Beams)(max_lengths, config, rules)
    while True:
        logits = step(beams.live_tokens[:, :, -1].flatten(), state)  # (N,) -> (N, V)
        parents = beams.extend(logits)  # (N,)
        if newly_done := beams.newly_done():
            beams.store_done(newly_done)
            remaining = beams.remaining()
            if not remaining:
                return beams.results()
            if len(remaining) < len(beams.sentence_ids):  # b x beam rows of N
                sentences, rows = beams.keep(remaining, beams.live_scores.size(1))
                state.keep(sentences, parents[rows])  # reordered, too
                continue
        if config.beam_size > 1:
            state.reorder(parents)


class Beams(SearchBatch):
    """The live and the finished hypotheses of B sentences."""

    def __init__(self, max_lengths: Tensor, config: SearchConfig, rules: Rules) -> None:
        super().__init__(max_lengths, rules)
        self.config = config
        sentences, beam, longest = len(max_lengths), config.beam_size, max(self.limits)
        penalties = [length_penalty(length + 1, config.alpha) for length in self.limits]
        self.max_penalties = copy_to_device(torch.tensor(penalties), max_lengths.device)  # (B,)
        self.done: dict[int, int] = {}  # the maximum length of each sentence, by its id
        self.stored: list[tuple[Tensor, Tensor]] = []  # scores and tokens, in the same order
        # Log-probabilities, (B, beam), and tokens, (B, beam, T).
        self.live_scores = self.max_penalties.new_zeros(sentences, 1)
        self.live_tokens = max_lengths.new_full((sentences, 1, 1), rules["start_id"])
        # The best so far: log-probabilities divided by the length penalty, (B, beam), and tokens
        # without start symbol and </s>, (B, beam, longest).
        self.finished_scores = self.max_penalties.new_full((sentences, beam), -math.inf)
        self.finished_tokens = max_lengths.new_full((sentences, beam, longest), NO_TOKEN)

    def extend(self, logits: Tensor) -> Tensor:
        """Extend the live hypotheses by a token, given logits (N, V); return their parents (N,)."""
        sentences, width = self.live_scores.shape
        scores, parents, tokens = self.candidates(logits)  # (B, 2 * beam)
        self.length += 1
        # The candidates that end compete with the finished hypotheses.
        ends = tokens == self.end_id  # (B, 2 * beam)
        # Merging nothing takes a GPU less time than the host would lose by waiting for it.
        if ends.is_cuda or ends.any():
            self.add_finished(scores.masked_fill(~ends, -math.inf), parents)
        # The best of the others are live.
        most = min(self.config.beam_size, scores.size(1))
        self.live_scores, index = scores.masked_fill(ends, -math.inf).topk(most)  # (B, beam)
        parents, tokens = parents.gather(1, index), tokens.gather(1, index)  # (B, beam)
        history = gather_beams(self.live_tokens, parents)  # (B, beam, T)
        self.live_tokens = torch.cat((history, tokens.unsqueeze(2)), dim=2)  # (B, beam, T + 1)
        return rows_of(torch.arange(sentences, device=parents.device), parents, width)

    def candidates(self, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return scores, parents (indices into beam) and tokens of continuations, (B, 2 * beam).

        At most half of them end, so the beam stays full. Greedy search takes the best alone.
        """
        (sentences, beam), vocab_size = self.live_scores.shape, logits.size(1)
        scores = self.log_probabilities(logits.view(sentences, beam, vocab_size))  # (B, beam, V)
        scores += self.live_scores.unsqueeze(2)
        best, indices = scores.flatten(1).topk(self.most_candidates(beam * vocab_size))
        return best, indices // vocab_size, indices % vocab_size

    def most_candidates(self, continuations: int) -> int:
        """Return how many candidates each sentence has."""
        return min(continuations, 2 * self.config.beam_size if self.config.beam_size > 1 else 1)

    def add_finished(self, scores: Tensor, parents: Tensor) -> None:
        """Merge candidates: scores (B, C), -inf for those that don't end, and parents (B, C)."""
        scores = scores / length_penalty(self.length, self.config.alpha)
        scores = torch.cat((self.finished_scores, scores), dim=1)  # (B, beam + C)
        self.finished_scores, index = scores.topk(self.config.beam_size)  # (B, beam)
        # They take their parents' tokens: (B, beam, T) -> (B, C, longest).
        tokens = parents.new_full((*parents.shape, self.finished_tokens.size(2)), NO_TOKEN)
        tokens[:, :, : self.length - 1] = gather_beams(self.live_tokens, parents)[:, :, 1:]
        tokens = torch.cat((self.finished_tokens, tokens), dim=1)  # (B, beam + C, longest)
        self.finished_tokens = gather_beams(tokens, index)  # (B, beam, longest)

    def cannot_improve(self) -> Tensor:
        """Return whether no live hypothesis of a sentence can enter its best outputs, (B,)."""
        # A log-probability only falls, and a longer output's is divided by a larger penalty. So at
        # best a live hypothesis reaches the maximum length with the log-probability it has now.
        attainable = self.live_scores[:, 0] / self.max_penalties  # (B,)
        # Written as a negation, so that NaN, which is above nothing, ends a search too.
        return ~(attainable > self.finished_scores[:, self.config.nbest - 1])

    def newly_done(self) -> list[int]:
        """Return the sentences that are done since this step; only this waits for a GPU."""
        cannot_improve = enumerate(self.cannot_improve().tolist())
        return [i for i, is_done in cannot_improve if is_done and not self.is_done(i)]

    def is_done(self, i: int) -> bool:
        """Return whether the outputs of sentence i are stored."""
        return self.sentence_ids[i] in self.done

    def store_done(self, newly_done: list[int]) -> None:
        """Store the best outputs of sentences that are done."""
        # They stay on the device: copying them would wait for a GPU.
        rows, nbest = self.indices(newly_done), self.config.nbest
        best = self.finished_scores[rows, :nbest], self.finished_tokens[rows, :nbest]
        self.stored.append(best)  # the best first: (b, nbest) and (b, nbest, longest)
        self.done |= {self.sentence_ids[i]: self.limits[i] for i in newly_done}

    def remaining(self) -> list[int]:
        """Return the sentences to keep: those not done."""
        return [i for i in range(len(self.sentence_ids)) if not self.is_done(i)]

    def results(self) -> list[list[Hypothesis]]:
        """Return the outputs of all sentences."""
        results: list[list[Hypothesis]] = [[] for _ in self.done]
        columns = (torch.cat(tensors).tolist() for tensors in zip(*self.stored, strict=True))
        rows = zip(self.done.items(), *columns, strict=True)
        for (sentence, limit), scores, outputs in rows:
            if not scores[0] > -math.inf:
                raise nan_error()
            for score, padded in zip(scores, outputs, strict=True):
                if score > -math.inf:
                    ids = [token for token in padded if token != NO_TOKEN]
                    results[sentence].append(Hypothesis(ids, score, truncated=len(ids) >= limit))
        return results
