"""One beam search for several length penalties."""

import math
from dataclasses import replace

import torch
from torch import Tensor

from seq2seq.decoding.options import SweepConfig
from seq2seq.fast.beams import FastBeams
from seq2seq.search import NO_TOKEN, Hypothesis, Rules, SearchConfig, length_penalty


class BeamsByLength(FastBeams):
    """Keeps, for each sentence, the most probable of the finished hypotheses of each length.

    So one search gives the best output by each alpha of a `SweepConfig`, in their order.

    Which hypotheses are live does not depend on alpha, and of those that finish with the same
    length every alpha prefers the most probable.
    """

    config: SweepConfig

    def __init__(self, max_lengths: Tensor, config: SearchConfig, rules: Rules) -> None:
        super().__init__(max_lengths, config, rules)
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

    def results(self) -> list[list[Hypothesis]]:
        """Return the best output of each sentence by each alpha."""
        alphas = self.config.alphas
        return [[_best(outputs, alpha) for alpha in alphas] for outputs in super().results()]


def _best(outputs: list[Hypothesis], alpha: float) -> Hypothesis:
    """Choose among hypotheses that are scored by their log-probabilities."""
    penalized = [
        replace(one, score=one.score / length_penalty(len(one.token_ids) + 1, alpha))
        for one in outputs
    ]
    return max(penalized, key=lambda one: one.score)
