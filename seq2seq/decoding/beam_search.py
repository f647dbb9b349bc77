"""Beam search with the length penalty of Wu et al. (2016), as section 6.1 uses it.

The search knows nothing of the model: it takes a step function and a state that can be reordered.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from seq2seq.errors import UserError

MAX_ALPHA = 10.0
"""Far above any of use; the penalties of long outputs would leave the range of numbers."""

ANY_TOKEN = -1

_BLOCK = 128

_LOGITS_AT_ONCE = 2**19
"""What a CPU turns into candidates at once: they and their copies stay in its cache."""


@dataclass(kw_only=True)
class SearchConfig:
    """What a person chooses of the search; the defaults are the paper's."""

    beam_size: int = 4
    """Hypotheses kept at each step; 1 is greedy search."""
    alpha: float = 0.6
    """Exponent of the length penalty; 0 compares log-probabilities as they are."""
    max_extra_tokens: int = 50
    """The longest output is the source's length plus this, `</s>` not counted."""
    nbest: int = 1
    """Translations returned for a sentence, at most beam_size."""

    def __post_init__(self) -> None:
        """Refuse a search that can't be done.

        Raises:
            UserError: beam_size or max_extra_tokens below 1, nbest not in 1 to beam_size, or
                alpha not in 0 to MAX_ALPHA.
        """
        for name in ("beam_size", "max_extra_tokens", "nbest"):
            if getattr(self, name) < 1:
                raise UserError(f"{name}={getattr(self, name)}: must be at least 1")
        if self.nbest > self.beam_size:
            raise UserError(
                f"nbest={self.nbest}: a beam of {self.beam_size} holds no more than that"
            )
        check_alpha(self.alpha)


def check_alpha(alpha: float) -> None:
    """Refuse an exponent of the length penalty that no search can use.

    Raises:
        UserError: it is not in 0 to MAX_ALPHA.
    """
    if not 0 <= alpha <= MAX_ALPHA:
        raise UserError(f"alpha={alpha}: must be from 0 to {MAX_ALPHA:g}")


@dataclass(frozen=True)
class Hypothesis:
    """One finished output."""

    token_ids: list[int]
    """Without the start symbol and `</s>`; with the forced prefix."""
    score: float
    """Log-probability, that of `</s>` included, divided by the length penalty."""
    cut: bool
    """It had reached the greatest length, where `</s>` is the only choice."""


class SearchState(Protocol):
    """What the step function remembers: one row per hypothesis."""

    def reorder(self, parents: Tensor) -> None:
        """Let row n go on from row parents[n]."""

    def keep(self, sentences: Tensor, rows: Tensor) -> None:
        """Drop all sentences but these, with all their rows but these."""


State = TypeVar("State", bound=SearchState)


def length_penalty(length: float, alpha: float) -> float:
    """((5 + length) / 6)^alpha, the length counting `</s>` (equation 14 of Wu et al. 2016)."""
    return float(((5.0 + length) / 6.0) ** alpha)


def output_log_probabilities(logits: Tensor, never: tuple[int, ...]) -> Tensor:
    """Logits (N, V) -> log-probabilities (N, V), in float32 at least; -inf for `never`."""
    exact = torch.promote_types(logits.dtype, torch.float32)
    log_probabilities = logits.log_softmax(dim=-1, dtype=exact)
    for token in never:
        log_probabilities[:, token] = -math.inf
    return log_probabilities


def topk_by_blocks(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """`scores.topk(count)` of (B, M), by way of the maxima of blocks.

    The `count` greatest numbers are in the `count` blocks with the greatest maxima. To find those
    takes a tenth of the time that a selection among all numbers takes on a CPU.
    """
    blocks = scores.size(1) // _BLOCK
    if blocks <= count:
        return scores.topk(count)
    whole = blocks * _BLOCK
    maxima = scores[:, :whole].view(-1, blocks, _BLOCK).amax(dim=2)  # (B, blocks)
    first = maxima.topk(count).indices.unsqueeze(2) * _BLOCK
    within = torch.arange(_BLOCK, device=scores.device)
    rest = torch.arange(whole, scores.size(1), device=scores.device)
    places = torch.cat(((first + within).flatten(1), rest.expand(len(scores), -1)), dim=1)
    best, chosen = scores.gather(1, places).topk(count)
    return best, places.gather(1, chosen)


def pad_prefixes(prefixes: Sequence[Sequence[int]], like: Tensor) -> Tensor:
    """Prefixes of B sentences, or none -> (B, longest), ANY_TOKEN after each one's end."""
    longest = max(map(len, prefixes), default=0)
    padded = like.new_full((len(like), longest), ANY_TOKEN)
    for row, prefix in zip(padded, prefixes, strict=False):
        row[: len(prefix)] = row.new_tensor(prefix)
    return padded


def apply_constraints(
    log_probabilities: Tensor, length: int, max_lengths: Tensor, prefixes: Tensor, end_id: int
) -> None:
    """Set to -inf all that outputs of `length` tokens must not go on with.

    That is all but the prefix's next token, and all but `</s>` at the greatest length.

    Args:
        log_probabilities: (N, V), the rows of a sentence one after another.
        length: tokens so far, the start symbol not counted.
        max_lengths: (B,).
        prefixes: (B, longest), ANY_TOKEN after each one's end.
        end_id: the token that ends an output.
    """
    full = length >= max_lengths
    in_prefix = length < prefixes.size(1)
    if not in_prefix and not full.any():
        return
    only = prefixes[:, length] if in_prefix else torch.full_like(max_lengths, ANY_TOKEN)
    only = only.masked_fill(full, end_id)
    only = only.repeat_interleave(len(log_probabilities) // len(only))
    rows = (only != ANY_TOKEN).nonzero().squeeze(1)
    token = only[rows].unsqueeze(1)
    kept = log_probabilities[rows].gather(1, token)
    nothing = log_probabilities.new_full((len(rows), log_probabilities.size(1)), -math.inf)
    log_probabilities[rows] = nothing.scatter_(1, token, kept)


def no_numbers() -> UserError:
    """What to say of a model whose outputs all have no probability."""
    return UserError(
        "the model predicts no numbers (NaN): its training has diverged, or its weights"
        " are damaged; use an earlier checkpoint"
    )


@torch.inference_mode()
def beam_search(
    step: Callable[[Tensor, State], Tensor],
    state: State,
    max_lengths: Tensor,
    config: SearchConfig,
    *,
    start_id: int,
    end_id: int,
    never: tuple[int, ...] = (),
    prefixes: Sequence[Sequence[int]] = (),
) -> list[list[Hypothesis]]:
    """Find the best-scoring outputs of each sentence.

    Each step looks at the 2 x beam_size best continuations: even if half of them end, a full beam
    stays alive. Those that end are kept apart, by penalised score. A sentence is done when no live
    hypothesis can still beat its finished ones, so stopping never changes the result; sentences
    that are done leave the batch, several at a time.

    Args:
        step: (newest tokens (N,), state) -> logits (N, V), one row per hypothesis.
        state: of B rows, before the first step: one hypothesis a sentence, which is reordered into
            N = B x beam_size after it.
        max_lengths: (B,), most tokens of an output, `</s>` not counted.
        config: what a person chooses.
        start_id: the token before the first.
        end_id: the token that ends an output.
        never: tokens that are no output.
        prefixes: what each sentence's output begins with, no longer than its max_length; empty
            for none at all.

    Returns:
        For each sentence at most config.nbest hypotheses, the best first.

    Raises:
        UserError: an output has no probability, for want of numbers to go by.
    """
    search = _Search(max_lengths, pad_prefixes(prefixes, max_lengths), config, start_id, end_id)
    while True:
        logits = step(search.newest_tokens, state)
        parents = search.extend(logits, never)
        newly_done = search.newly_done()
        if newly_done.any():
            search.collect(newly_done)
            staying = search.staying()
            if not len(staying):
                return search.results
            if len(staying) < len(newly_done):
                rows = search.keep(staying)
                state.keep(staying, parents[rows])
                continue
        if config.beam_size > 1:
            state.reorder(parents)


def batch_size(sentences: int) -> int:
    """The size at which a batch goes on, of which so many sentences are not done: as many or more.

    Sizes are few, eight from a power of two to the next: oneDNN compiles a product for each number
    of rows that it meets, which takes longer than to compute some rows more.
    """
    step = 1 << max(0, sentences.bit_length() - 4)
    return -(-sentences // step) * step


class _Search:
    """The live and the finished hypotheses of the sentences of a batch."""

    def __init__(
        self,
        max_lengths: Tensor,
        prefixes: Tensor,
        config: SearchConfig,
        start_id: int,
        end_id: int,
    ) -> None:
        sentences, beam, device = len(max_lengths), config.beam_size, max_lengths.device
        longest = int(max_lengths.max()) + 1
        self.config = config
        self.end_id = end_id
        self.length = 0  # of the live hypotheses, start symbol not counted
        self.max_lengths = max_lengths
        penalties = [length_penalty(length + 1, config.alpha) for length in max_lengths.tolist()]
        self.greatest_penalties = torch.tensor(penalties, device=device)
        self.prefixes = prefixes
        self.numbers = torch.arange(sentences, device=device)  # where each sentence stood at first
        self.collected = torch.zeros(sentences, dtype=torch.bool, device=device)  # into results
        self.results: list[list[Hypothesis]] = [[] for _ in range(sentences)]
        # (B, 1) at first, then (B, beam).
        self.live_scores = torch.zeros((sentences, 1), device=device)
        self.live_tokens = torch.full((sentences, 1, 1), start_id, device=device)
        self.finished_scores = torch.full((sentences, beam), -math.inf, device=device)
        self.finished_tokens = torch.zeros(
            (sentences, beam, longest), dtype=torch.long, device=device
        )
        self.finished_lengths = torch.zeros((sentences, beam), dtype=torch.long, device=device)

    @property
    def newest_tokens(self) -> Tensor:
        """The last token of each live hypothesis, (N,)."""
        return self.live_tokens[:, :, -1].flatten()

    def extend(self, logits: Tensor, never: tuple[int, ...]) -> Tensor:
        """Take one step with (N, V) logits.

        Returns:
            The row that each new live hypothesis came from, (N,).
        """
        sentences, width = self.live_scores.shape
        beam, vocab_size = self.config.beam_size, logits.size(1)
        # A beam of one is greedy search: it ends where </s> is the best continuation.
        count = min(2 * beam if beam > 1 else 1, width * vocab_size)
        at_once = max(1, _LOGITS_AT_ONCE // (width * vocab_size)) if logits.is_cpu else sentences
        found = [
            self._best_continuations(logits, never, slice(first, first + at_once), count)
            for first in range(0, sentences, at_once)
        ]
        best, flat = (torch.cat(parts) for parts in zip(*found, strict=True))  # (B, count)
        parents, tokens = flat // vocab_size, flat % vocab_size
        self.length += 1
        ended = tokens == self.end_id
        if ended.any():
            self._add_finished(best.masked_fill(~ended, -math.inf), parents)
        self.live_scores, chosen = best.masked_fill(ended, -math.inf).topk(min(beam, count))
        parents, tokens = parents.gather(1, chosen), tokens.gather(1, chosen)
        history = self.live_tokens.gather(1, parents.unsqueeze(2).expand(-1, -1, self.length))
        self.live_tokens = torch.cat((history, tokens.unsqueeze(2)), dim=2)
        first_rows = torch.arange(sentences, device=parents.device).unsqueeze(1) * width
        return (parents + first_rows).flatten()

    def _best_continuations(
        self, logits: Tensor, never: tuple[int, ...], some: slice, count: int
    ) -> tuple[Tensor, Tensor]:
        """The best scores of some sentences, and their places in (width x V): (b, count)."""
        live_scores = self.live_scores[some]
        width = live_scores.size(1)
        rows = logits[some.start * width : some.stop * width]
        scores = output_log_probabilities(rows, never)
        apply_constraints(
            scores, self.length, self.max_lengths[some], self.prefixes[some], self.end_id
        )
        scores += live_scores.reshape(-1, 1)
        return topk_by_blocks(scores.view(len(live_scores), -1), count)

    def _add_finished(self, scores: Tensor, parents: Tensor) -> None:
        """Merge candidates that have just ended, (B, count), into the best beam_size finished."""
        beam = self.config.beam_size
        penalised = scores / length_penalty(self.length, self.config.alpha)
        self.finished_scores, chosen = torch.cat((self.finished_scores, penalised), dim=1).topk(
            beam
        )
        # Their tokens are those of their parents, without the start symbol.
        tokens = self.live_tokens.gather(1, parents.unsqueeze(2).expand(-1, -1, self.length))
        fresh = tokens.new_zeros(*scores.shape, self.finished_tokens.size(2))
        fresh[:, :, : self.length - 1] = tokens[:, :, 1:]
        lengths = torch.full_like(parents, self.length - 1)
        self.finished_lengths = torch.cat((self.finished_lengths, lengths), dim=1).gather(1, chosen)
        index = chosen.unsqueeze(2).expand(-1, -1, fresh.size(2))
        self.finished_tokens = torch.cat((self.finished_tokens, fresh), dim=1).gather(1, index)

    def newly_done(self) -> Tensor:
        """(B,), True where for the first time no live hypothesis can get among the nbest."""
        # Scores only fall, and the penalty divides them by more the longer the output is: at best
        # a live hypothesis reaches the greatest length without losing anything on the way.
        attainable = self.live_scores[:, 0] / self.greatest_penalties
        # Put so that NaN, which nothing is below, ends a search too.
        going = attainable > self.finished_scores[:, self.config.nbest - 1]
        return ~(going | self.collected)

    def collect(self, done: Tensor) -> None:
        """Write the finished hypotheses of these sentences into the results.

        Raises:
            UserError: there is none, for want of numbers to go by.
        """
        self.collected |= done
        nbest = self.config.nbest
        for sentence in done.nonzero().squeeze(1).tolist():
            lengths = self.finished_lengths[sentence].tolist()
            scores = self.finished_scores[sentence].tolist()
            tokens = self.finished_tokens[sentence].tolist()
            if not scores[0] > -math.inf:
                raise no_numbers()
            self.results[int(self.numbers[sentence])] = [
                Hypothesis(
                    tokens[i][: lengths[i]],
                    scores[i],
                    cut=lengths[i] >= int(self.max_lengths[sentence]),
                )
                for i in range(nbest)
                if scores[i] > -math.inf
            ]

    def staying(self) -> Tensor:
        """The sentences that stay in the batch: those not done, and some done to make up its size.

        Returns:
            Their places, ascending; none when all are done.
        """
        going = len(self.collected) - int(self.collected.sum())
        going_first = self.collected.to(torch.uint8).argsort(stable=True)
        return going_first[: batch_size(going)].sort().values

    def keep(self, sentences: Tensor) -> Tensor:
        """Drop all other sentences.

        Returns:
            The rows of the hypotheses that stay, among those before.
        """
        width = self.live_scores.size(1)
        for name in (
            "max_lengths",
            "greatest_penalties",
            "prefixes",
            "numbers",
            "collected",
            "live_scores",
            "live_tokens",
            "finished_scores",
            "finished_tokens",
            "finished_lengths",
        ):
            setattr(self, name, getattr(self, name)[sentences])
        return (
            sentences.unsqueeze(1) * width + torch.arange(width, device=sentences.device)
        ).flatten()
