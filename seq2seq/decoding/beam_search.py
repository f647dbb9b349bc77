"""Beam search with the length penalty of Wu et al. (2016), as section 6.1 uses it.

A hypothesis is *live* while it grows, and *finished* once it has `</s>`. A sentence is *done* when
none of its live hypotheses can still beat its finished ones.

The search knows nothing of the model: it takes a step function and a state that can be reordered.
Shapes: B sentences; beam, the live hypotheses of each (1 before the first step); N = B x beam rows;
V vocabulary; T tokens so far, the start symbol included.
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
    gather_beams,
    impossible_error,
    length_penalty,
)
from seq2seq.device import copy_to_device
from seq2seq.fast.packed import round_batch_size


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
) -> list[list[Hypothesis]]:
    """Find the best-scoring outputs of each sentence.

    Stopping once a sentence is done never changes its outputs.

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

    Returns:
        At most config.nbest hypotheses for each sentence, the best first.
    """
    beams = Beams(max_lengths, prefixes, config, start_id, end_id)
    search_until_done(beams, step, state, suppressed_ids)
    return beams.results()


def search_until_done(
    beams: "Beams",
    step: Callable[[Tensor, State], Tensor],
    state: State,
    suppressed_ids: Sequence[int],
) -> None:
    """Extend the live hypotheses, token by token, until all sentences are done."""
    while True:
        logits = step(beams.live_tokens[:, :, -1].flatten(), state)  # (N,) -> (N, V)
        parents = beams.extend(logits, suppressed_ids)  # (N,)
        if newly_done := beams.newly_done():
            beams.store_done(newly_done)
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
        # Log-probabilities, (B, beam), and tokens, (B, beam, T).
        self.live_scores = self.max_penalties.new_zeros(sentences, 1)
        self.live_tokens = max_lengths.new_full((sentences, 1, 1), start_id)
        # The best so far: log-probabilities divided by the length penalty, (B, beam), and tokens
        # without start symbol and </s>, (B, beam, longest).
        self.finished_scores = self.max_penalties.new_full((sentences, beam), -math.inf)
        self.finished_tokens = max_lengths.new_full((sentences, beam, longest), NO_TOKEN)

    def extend(self, logits: Tensor, suppressed_ids: Sequence[int]) -> Tensor:
        """Extend the live hypotheses by a token, given logits (N, V); return their parents (N,)."""
        (sentences, width), beam = self.live_scores.shape, self.config.beam_size
        # Twice as many candidates as the beam is wide: if half of them end, the beam stays full.
        forced = self.forced_tokens(self.end_id)
        scores, parents, tokens = best_continuations(  # each (B, 2 * beam)
            logits, self.live_scores, beam, suppressed_ids, forced
        )
        self.length += 1
        # The candidates that end compete with the finished hypotheses.
        ends = tokens == self.end_id  # (B, 2 * beam)
        # Merging nothing takes a GPU less time than the host would lose by waiting for it.
        if ends.is_cuda or ends.any():
            self.add_finished(scores.masked_fill(~ends, -math.inf), parents)
        # The best of the others are live.
        most = min(beam, scores.size(1))
        self.live_scores, chosen = scores.masked_fill(ends, -math.inf).topk(most)  # (B, beam)
        parents, tokens = parents.gather(1, chosen), tokens.gather(1, chosen)  # (B, beam)
        history = gather_beams(self.live_tokens, parents)  # (B, beam, T)
        self.live_tokens = torch.cat((history, tokens.unsqueeze(2)), dim=2)  # (B, beam, T + 1)
        first_rows = torch.arange(sentences, device=parents.device).unsqueeze(1) * width  # (B, 1)
        return (first_rows + parents).flatten()  # (N,)

    def add_finished(self, scores: Tensor, parents: Tensor) -> None:
        """Merge the candidates that end into the finished hypotheses.

        Args:
            scores: (B, C), -inf for candidates that don't end.
            parents: (B, C), their live hypotheses before this step.
        """
        scores = scores / length_penalty(self.length, self.config.alpha)
        scores = torch.cat((self.finished_scores, scores), dim=1)  # (B, beam + C)
        self.finished_scores, chosen = scores.topk(self.config.beam_size)  # (B, beam)
        # They take their parents' tokens: (B, beam, T) -> (B, C, longest).
        tokens = parents.new_full((*parents.shape, self.finished_tokens.size(2)), NO_TOKEN)
        tokens[:, :, : self.length - 1] = gather_beams(self.live_tokens, parents)[:, :, 1:]
        tokens = torch.cat((self.finished_tokens, tokens), dim=1)  # (B, beam + C, longest)
        self.finished_tokens = gather_beams(tokens, chosen)  # (B, beam, longest)

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
        return [i for i, done in cannot_improve if done and not self.is_done(i)]

    def is_done(self, i: int) -> bool:
        """Return whether the outputs of sentence i are stored."""
        return self.sentence_ids[i] in self.done

    def store_done(self, newly_done: list[int]) -> None:
        """Store the best outputs of sentences that are done, and the best score still live."""
        self.done.update(self.sentence_ids[i] for i in newly_done)
        self.store_results(newly_done, *self.best_outputs(), self.live_scores[:, 0])

    def best_outputs(self) -> tuple[Tensor, Tensor]:
        """Return the scores (B, n) and the tokens (B, n, longest) of outputs, the best first."""
        nbest = self.config.nbest
        return self.finished_scores[:, :nbest], self.finished_tokens[:, :nbest]

    def remaining(self, rounded: Callable[[int], int] = round_batch_size) -> list[int]:
        """Return the sentences to keep: those not done, filled up to a rounded batch size."""
        count = len(self.sentence_ids)
        not_done_first = sorted(range(count), key=self.is_done)
        not_done = sum(not self.is_done(i) for i in range(count))
        return sorted(not_done_first[: rounded(not_done)])

    def results(self) -> list[list[Hypothesis]]:
        """Return the outputs of all sentences."""
        results: list[list[Hypothesis]] = [[] for _ in self.done]
        for sentence, limit, (scores, outputs, live_score) in self.fetch_results():
            if not scores[0] > -math.inf:
                # If nothing has finished, NaN is in the scores of the live hypotheses.
                raise impossible_error(scores[0] + live_score)
            for score, padded in zip(scores, outputs, strict=True):
                if score > -math.inf:
                    ids = [token for token in padded if token != NO_TOKEN]
                    results[sentence].append(Hypothesis(ids, score, truncated=len(ids) >= limit))
        return results


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
) -> list[list[Hypothesis]]:
    """Find the output of each sentence that `beam_search` finds with each of `config.alphas`.

    Which hypotheses are live does not depend on alpha, and of those that finish with the same
    length every alpha prefers the most probable.

    Returns:
        For each sentence, the outputs in the order of `config.alphas`.
    """
    beams = _BeamsByLength(max_lengths, prefixes, config, start_id, end_id)
    search_until_done(beams, step, state, suppressed_ids)
    return [[_best(outputs, alpha) for alpha in config.alphas] for outputs in beams.results()]


def _best(outputs: list[Hypothesis], alpha: float) -> Hypothesis:
    """Choose among hypotheses that are scored by their log-probabilities."""
    penalized = [
        replace(one, score=one.score / length_penalty(len(one.token_ids) + 1, alpha))
        for one in outputs
    ]
    return max(penalized, key=lambda one: one.score)


class _BeamsByLength(Beams):
    """Keeps, for each sentence, the most probable of the finished hypotheses of each length."""

    def __init__(
        self,
        max_lengths: Tensor,
        prefixes: Sequence[Sequence[int]],
        config: SearchConfig,
        start_id: int,
        end_id: int,
    ) -> None:
        super().__init__(max_lengths, prefixes, config, start_id, end_id)
        sentences, longest = len(max_lengths), max(self.limits)
        # Log-probabilities (B, length) and tokens (B, length, longest), `</s>` not counted.
        self.scores_by_length = self.live_scores.new_full((sentences, longest + 1), -math.inf)
        shape = (sentences, longest + 1, longest)
        self.tokens_by_length = max_lengths.new_full(shape, NO_TOKEN)

    def add_finished(self, scores: Tensor, parents: Tensor) -> None:
        """Also keep the most probable of the candidates that end."""
        super().add_finished(scores, parents)
        size = self.length - 1  # without `</s>`
        best, index = scores.max(dim=1)  # (B,)
        rows = torch.arange(len(parents), device=parents.device)
        self.scores_by_length[:, size] = best
        self.tokens_by_length[:, size, :size] = self.live_tokens[rows, parents[rows, index], 1:]

    def best_outputs(self) -> tuple[Tensor, Tensor]:
        """Return the log-probabilities and the tokens of all lengths, the most probable first."""
        scores, order = self.scores_by_length.sort(dim=1, descending=True)
        rows = torch.arange(len(order), device=order.device).unsqueeze(1)
        return scores, self.tokens_by_length[rows, order]
