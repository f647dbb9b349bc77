"""Beam search with the length penalty of Wu et al. (2016), as section 6.1 uses it.

A hypothesis is *live* while it grows, and *finished* once it has `</s>`. A sentence is *done* when
none of its live hypotheses can still beat its finished ones.

The search knows nothing of the model: it takes a step function and a state that can be reordered.
Shapes: B sentences; beam, the live hypotheses of each (1 before the first step); N = B x beam rows;
V vocabulary; T tokens so far, the start symbol included.
"""

import math
from collections.abc import Callable
from typing import Unpack

import torch
from torch import Tensor

from seq2seq.decoding.config import SearchConfig
from seq2seq.decoding.search import (
    NO_TOKEN,
    Hypothesis,
    Rules,
    SearchBatch,
    State,
    force_tokens,
    gather_beams,
    impossible_error,
    length_penalty,
    output_log_probabilities,
    rows_of,
)
from seq2seq.device import copy_to_device


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
    a sentence is done never changes its outputs. `kind` may compute them otherwise.
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
                state.keep(sentences, parents[rows])
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
        self.stored: list[list[Tensor]] = []  # of these sentences
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
        scores, parents, tokens = self.candidates(logits, self.forced_tokens())  # (B, 2 * beam)
        self.length += 1
        # The candidates that end compete with the finished hypotheses.
        ends = tokens == self.end_id  # (B, 2 * beam)
        # Merging nothing takes a GPU less time than the host would lose by waiting for it.
        if ends.is_cuda or ends.any():
            self.add_finished(scores.masked_fill(~ends, -math.inf), parents)
        # The best of the others are live.
        most = min(self.config.beam_size, scores.size(1))
        self.live_scores, chosen = scores.masked_fill(ends, -math.inf).topk(most)  # (B, beam)
        parents, tokens = parents.gather(1, chosen), tokens.gather(1, chosen)  # (B, beam)
        history = gather_beams(self.live_tokens, parents)  # (B, beam, T)
        self.live_tokens = torch.cat((history, tokens.unsqueeze(2)), dim=2)  # (B, beam, T + 1)
        return rows_of(torch.arange(sentences, device=parents.device), parents, width)

    def candidates(self, logits: Tensor, forced: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Return scores, parents (indices into beam) and tokens of continuations, (B, 2 * beam).

        At most half of them end, so the beam stays full. Greedy search takes the best alone.
        """
        (sentences, beam), vocab_size = self.live_scores.shape, logits.size(1)
        scores = output_log_probabilities(
            logits.view(sentences, beam, vocab_size), self.suppressed_ids
        )  # (B, beam, V)
        force_tokens(scores, forced)
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
        # They stay on the device: copying them would wait for a GPU.
        rows = self.indices(newly_done)
        found = (*self.best_outputs(), self.live_scores[:, 0])
        self.stored.append([tensor[rows] for tensor in found])
        self.done |= {self.sentence_ids[i]: self.limits[i] for i in newly_done}

    def best_outputs(self) -> tuple[Tensor, Tensor]:
        """Return the scores (B, n) and the tokens (B, n, longest) of outputs, the best first."""
        nbest = self.config.nbest
        return self.finished_scores[:, :nbest], self.finished_tokens[:, :nbest]

    def remaining(self) -> list[int]:
        """Return the sentences to keep: those not done."""
        return [i for i in range(len(self.sentence_ids)) if not self.is_done(i)]

    def results(self) -> list[list[Hypothesis]]:
        """Return the outputs of all sentences."""
        results: list[list[Hypothesis]] = [[] for _ in self.done]
        columns = (torch.cat(parts).tolist() for parts in zip(*self.stored, strict=True))
        found = zip(self.done.items(), *columns, strict=True)
        for (sentence, limit), scores, outputs, live_score in found:
            if not scores[0] > -math.inf:
                # If nothing has finished, NaN is in the scores of the live hypotheses.
                raise impossible_error(scores[0] + live_score)
            for score, padded in zip(scores, outputs, strict=True):
                if score > -math.inf:
                    ids = [token for token in padded if token != NO_TOKEN]
                    results[sentence].append(Hypothesis(ids, score, truncated=len(ids) >= limit))
        return results
