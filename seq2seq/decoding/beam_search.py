"""Beam search with the length penalty of Wu et al. (2016), as section 6.1 uses it.

The search knows nothing of the model: it takes a step function and a state that can be reordered.
Shapes: B sentences; beam, the live hypotheses of each (1 before the first step); N = B x beam rows;
V vocabulary; C candidates of a sentence; T tokens so far, the start symbol included.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from seq2seq.decoding.config import SearchConfig, SweepConfig
from seq2seq.decoding.search import (
    NO_TOKEN,
    Hypothesis,
    SearchBatch,
    State,
    best_continuations,
    choose,
    impossible_error,
    length_penalty,
)
from seq2seq.device import copy_to_device
from seq2seq.fast.packed import round_batch_size
from seq2seq.fast.topk import TopK, topk_in_chunks


@torch.inference_mode()
def beam_search(
    step: Callable[[Tensor, State], Tensor],
    state: State,
    max_lengths: Tensor,
    config: SearchConfig,
    *,
    start_id: int,
    end_id: int,
    suppressed_ids: Sequence[int] = (),
    prefixes: Sequence[Sequence[int]] = (),
    topk: TopK = topk_in_chunks,
) -> list[list[Hypothesis]]:
    """Find the best-scoring outputs of each sentence.

    Each step takes the 2 x beam_size best continuations: even if half of them end, beam_size
    hypotheses stay live. Those that end are kept apart, by penalized score. A sentence is done when
    no live hypothesis can still beat its finished ones, so stopping early never changes the result.

    Args:
        step: (newest tokens (N,), state) -> logits (N, V), one row per hypothesis.
        state: the search state, with one row per sentence.
        max_lengths: (B,), the maximum length of each output in tokens, `</s>` not counted.
        config: the options.
        start_id: the token before the first.
        end_id: the token that ends an output.
        suppressed_ids: tokens that no output contains.
        prefixes: the forced beginning of each output, no longer than its maximum length; empty if
            there are none.
        topk: `plain_topk`, or a fast form of it.

    Returns:
        At most config.nbest hypotheses for each sentence, the best first.

    Raises:
        UserError: if the logits are NaN, or no output has a probability above zero.
    """
    beams = Beams(max_lengths, prefixes, config, start_id, end_id)
    extend_until_done(beams, step, state, suppressed_ids, topk)
    return beams.results()


def extend_until_done(
    beams: "Beams",
    step: Callable[[Tensor, State], Tensor],
    state: State,
    suppressed_ids: Sequence[int],
    topk: TopK,
) -> None:
    """Extend the hypotheses of all sentences, token by token, until each sentence is done."""
    while True:
        logits = step(beams.live_tokens[:, :, -1].flatten(), state)  # (N,) -> (N, V)
        parents = beams.extend(logits, suppressed_ids, topk)  # (N,)
        if newly_done := beams.newly_done():
            beams.finish(newly_done)
            remaining = beams.remaining()
            if not remaining:
                return
            if len(remaining) < len(beams.sentence_ids):  # b x beam rows of N
                sentences, rows = beams.keep(remaining, beams.live_scores.size(1))
                state.keep(sentences, parents[rows])
                continue
        if beams.config.beam_size > 1:
            state.reorder(parents)


class Beams(SearchBatch):
    """The live and the finished hypotheses of B sentences."""

    def __init__(
        self,
        max_lengths: Tensor,
        prefixes: Sequence[Sequence[int]],
        config: SearchConfig,
        start_id: int,
        end_id: int,
    ) -> None:
        super().__init__(max_lengths, prefixes)
        self.config, self.end_id = config, end_id
        sentences, beam, longest = len(max_lengths), config.beam_size, max(self.limits)
        penalties = [length_penalty(length + 1, config.alpha) for length in self.limits]
        self.max_penalties = copy_to_device(torch.tensor(penalties), max_lengths.device)  # (B,)
        self.done: set[int] = set()  # ids of sentences
        self.live_scores = self.max_penalties.new_zeros(sentences, 1)  # (B, beam)
        self.live_tokens = max_lengths.new_full((sentences, 1, 1), start_id)  # (B, beam, T)
        # The best beam_size so far by penalized score, without start symbol and </s>.
        self.finished_scores = self.max_penalties.new_full((sentences, beam), -math.inf)
        self.finished_tokens = max_lengths.new_full((sentences, beam, longest), NO_TOKEN)

    def extend(self, logits: Tensor, suppressed_ids: Sequence[int], topk: TopK) -> Tensor:
        """Extend the live hypotheses by a token: logits (N, V) -> their parent rows (N,)."""
        (sentences, width), beam = self.live_scores.shape, self.config.beam_size
        forced = self.forced_tokens(self.end_id)
        scores, parents, tokens = best_continuations(  # (B, C)
            logits, self.live_scores, beam, suppressed_ids, forced, topk
        )
        self.length += 1
        ended = tokens == self.end_id  # (B, C)
        # Merging nothing takes a GPU less time than the host would lose by waiting for it.
        if ended.is_cuda or ended.any():
            self.add_ended(scores.masked_fill(~ended, -math.inf), parents)
        # (B, C) -> (B, beam), the best of those that have not ended
        most = min(beam, scores.size(1))
        self.live_scores, chosen = scores.masked_fill(ended, -math.inf).topk(most)
        parents, tokens = parents.gather(1, chosen), tokens.gather(1, chosen)
        # (B, beam, T) -> (B, beam, T + 1)
        history = choose(self.live_tokens, parents)
        self.live_tokens = torch.cat((history, tokens.unsqueeze(2)), dim=2)
        first_rows = torch.arange(sentences, device=parents.device).unsqueeze(1) * width  # (B, 1)
        return (first_rows + parents).flatten()  # (B, beam) -> (N,)

    def add_ended(self, scores: Tensor, parents: Tensor) -> None:
        """Merge the candidates that have just ended, (B, C), into the finished hypotheses."""
        scores = scores / length_penalty(self.length, self.config.alpha)
        scores = torch.cat((self.finished_scores, scores), dim=1)  # (B, beam + C)
        self.finished_scores, chosen = scores.topk(self.config.beam_size)  # (B, beam)
        # Their tokens are those of their parents: (B, beam, T) -> (B, C, longest).
        tokens = parents.new_full((*parents.shape, self.finished_tokens.size(2)), NO_TOKEN)
        tokens[:, :, : self.length - 1] = choose(self.live_tokens, parents)[:, :, 1:]
        self.finished_tokens = choose(torch.cat((self.finished_tokens, tokens), dim=1), chosen)

    def newly_done(self) -> list[int]:
        """Return the sentences that are done since this step; only this waits for a GPU."""
        return [i for i, over in enumerate(self.over().tolist()) if over and not self.is_done(i)]

    def over(self) -> Tensor:
        """Return whether no live hypothesis of a sentence can win any more, (B,)."""
        # A log-probability only falls, and a longer output's is divided by a larger penalty. So at
        # best a live hypothesis reaches the maximum length with the log-probability it has now.
        attainable = self.live_scores[:, 0] / self.max_penalties
        # Written as a negation, so that NaN, which is above nothing, ends a search too.
        return ~(attainable > self.finished_scores[:, self.config.nbest - 1])

    def finish(self, newly_done: list[int]) -> None:
        """Keep the best outputs of sentences that are done, and the score that is left live."""
        self.done.update(self.sentence_ids[i] for i in newly_done)
        self.set_aside(newly_done, *self.found(), self.live_scores[:, 0])

    def found(self) -> tuple[Tensor, Tensor]:
        """Return the scores (B, n) and the tokens (B, n, longest) of outputs, the best first."""
        nbest = self.config.nbest
        return self.finished_scores[:, :nbest], self.finished_tokens[:, :nbest]

    def remaining(self, rounded: Callable[[int], int] = round_batch_size) -> list[int]:
        """Return the sentences to keep: those not done, filled up to a rounded batch size."""
        count = len(self.sentence_ids)
        live_first = sorted(range(count), key=self.is_done)
        live = sum(not self.is_done(i) for i in range(count))
        return sorted(live_first[: rounded(live)])

    def results(self) -> list[list[Hypothesis]]:
        """Return the outputs of all sentences.

        Raises:
            UserError: if the logits were NaN, or no output has a probability above zero.
        """
        results: list[list[Hypothesis]] = [[] for _ in self.done]
        for sentence, limit, (scores, outputs, live_score) in self.all_set_aside():
            if not scores[0] > -math.inf:
                # Where nothing has ended, NaN is in the scores of what is live.
                raise impossible_error(scores[0] + live_score)
            for score, padded in zip(scores, outputs, strict=True):
                if score > -math.inf:
                    ids = [token for token in padded if token != NO_TOKEN]
                    results[sentence].append(Hypothesis(ids, score, truncated=len(ids) >= limit))
        return results

    def is_done(self, i: int) -> bool:
        """Return whether the outputs of sentence i are kept."""
        return self.sentence_ids[i] in self.done


@torch.inference_mode()
def sweep_alphas(
    step: Callable[[Tensor, State], Tensor],
    state: State,
    max_lengths: Tensor,
    config: SweepConfig,
    *,
    start_id: int,
    end_id: int,
    suppressed_ids: Sequence[int] = (),
    prefixes: Sequence[Sequence[int]] = (),
    topk: TopK = topk_in_chunks,
) -> list[list[Hypothesis]]:
    """Find the output of each sentence that `beam_search` finds with each of `config.alphas`.

    Its arguments and errors are those of `beam_search`.

    Returns:
        For each sentence, the outputs in the order of `config.alphas`.
    """
    beams = _BeamsByLength(max_lengths, prefixes, config, start_id, end_id)
    extend_until_done(beams, step, state, suppressed_ids, topk)
    return [[_best(ended, alpha) for alpha in config.alphas] for ended in beams.results()]


def _best(ended: list[Hypothesis], alpha: float) -> Hypothesis:
    """Choose among hypotheses that are scored by their log-probabilities."""
    penalized = [
        replace(one, score=one.score / length_penalty(len(one.token_ids) + 1, alpha))
        for one in ended
    ]
    return max(penalized, key=lambda one: one.score)


class _BeamsByLength(Beams):
    """Finds, for each sentence, the most probable of the hypotheses that end at each length."""

    def __init__(
        self,
        max_lengths: Tensor,
        prefixes: Sequence[Sequence[int]],
        config: SweepConfig,
        start_id: int,
        end_id: int,
    ) -> None:
        super().__init__(max_lengths, prefixes, config, start_id, end_id)
        sentences, longest = len(max_lengths), max(self.limits)
        self.ended_scores = self.live_scores.new_full((sentences, longest + 1), -math.inf)
        shape = (sentences, longest + 1, longest)
        self.ended_tokens = max_lengths.new_full(shape, NO_TOKEN)

    def add_ended(self, scores: Tensor, parents: Tensor) -> None:
        """Also keep the most probable of the candidates that have just ended, (B, C)."""
        super().add_ended(scores, parents)
        size = self.length - 1  # without `</s>`
        best, place = scores.max(dim=1)  # (B,)
        rows = torch.arange(len(parents), device=parents.device)
        self.ended_scores[:, size] = best
        self.ended_tokens[:, size, :size] = self.live_tokens[rows, parents[rows, place], 1:]

    def found(self) -> tuple[Tensor, Tensor]:
        """Return the log-probabilities and the tokens of all lengths, the most probable first."""
        scores, order = self.ended_scores.sort(dim=1, descending=True)
        rows = torch.arange(len(order), device=order.device).unsqueeze(1)
        return scores, self.ended_tokens[rows, order]
