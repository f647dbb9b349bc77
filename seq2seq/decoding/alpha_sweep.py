"""One beam search for several length penalties.

Which hypotheses live does not depend on the penalty: it only chooses among those that have ended,
and decides when to stop. Of those that end at one length, every penalty prefers the most probable,
so one of each length is enough. The largest alpha stops last, because a live hypothesis gains most
by its length then.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from seq2seq.decoding.beam_search import Beams, extend_until_done
from seq2seq.decoding.config import SweepConfig
from seq2seq.decoding.search import NO_TOKEN, Hypothesis, State, length_penalty
from seq2seq.kernels.topk import TopK, topk_in_chunks


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
