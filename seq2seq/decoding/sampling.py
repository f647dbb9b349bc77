"""Sampling: outputs drawn by their probability, with temperature, top-k and top-p.

Tokens are drawn by inverse transform sampling: each sentence and sample has its own uniform random
numbers, which the inverse of the cumulative distribution maps to tokens, in the order of the
vocabulary. So a sample is a function of the seed, the sentence and the sample's number; its batch
mates change at most the rounding.
"""

import math
from collections.abc import Callable, Sequence
from typing import Unpack

import numpy as np
import torch
from torch import Tensor

from seq2seq import search
from seq2seq.decoding.options import SamplingConfig
from seq2seq.device import copy_to_device, exact_dtype


@torch.inference_mode()
def sample(
    step: Callable[[Tensor, search.State], Tensor],
    state: search.State,
    max_lengths: Tensor,
    config: SamplingConfig,
    *,
    keys: Sequence[Sequence[int]],
    **rules: Unpack[search.Rules],
) -> list[list[search.Hypothesis]]:
    """Draw config.nbest outputs for each sentence; N = B x nbest rows.

    `keys` are integers that identify each sentence, such as its token ids; equal keys give equal
    samples. The other arguments are those of `beam_search`. Scores, too, are computed as there,
    from the model's log-probabilities before temperature, top_k and top_p.
    """
    sentences = torch.arange(len(max_lengths), device=max_lengths.device)
    state.reorder(sentences.repeat_interleave(config.nbest))  # (B, ...) -> (N, ...)
    samples = _Samples(max_lengths, config, keys, rules)
    results: list[list[search.Hypothesis]] = [[]] * len(max_lengths)
    while True:
        logits = step(samples.tokens[:, :, -1].flatten(), state)  # (N,) -> (N, V)
        samples.extend(logits)
        finished: list[bool] = samples.finished.all(dim=1).tolist()  # only this waits for a GPU
        if any(finished):
            remaining = []
            for i, is_done in enumerate(finished):
                if is_done:
                    results[samples.sentence_ids[i]] = samples.results(i)
                else:
                    remaining.append(i)
            if not remaining:
                return results
            state.keep(*samples.keep(remaining, config.nbest))


def sampling_weights(log_probabilities: Tensor, config: SamplingConfig) -> tuple[Tensor, Tensor]:
    """Map log-probabilities (..., V) to unnormalized weights and ascending tokens, both (..., k).

    Tokens outside top_p have weight 0.
    """
    # Relative to the best token, so that no temperature makes all weights underflow.
    exact = exact_dtype(log_probabilities.device)
    best = log_probabilities.max(dim=-1, keepdim=True).values.to(exact)
    vocab_size = log_probabilities.size(-1)
    if config.top_k is None and config.top_p == 1:
        tokens = torch.arange(vocab_size, device=log_probabilities.device)
        weights = ((log_probabilities.to(exact) - best) / config.temperature).exp()
        return weights, tokens.expand_as(log_probabilities)
    top, tokens = log_probabilities.topk(min(config.top_k or vocab_size, vocab_size))
    weights = ((top.to(exact) - best) / config.temperature).exp()  # (..., k)
    if config.top_p < 1:
        before = weights.cumsum(dim=-1) - weights  # of all more probable tokens
        nucleus = before < config.top_p * weights.sum(dim=-1, keepdim=True)
        weights = weights.where(nucleus, 0.0)
    tokens, order = tokens.sort(dim=-1)
    return weights.gather(-1, order), tokens


def uniform_numbers(seed: int, key: Sequence[int], samples: int, count: int) -> Tensor:
    """Draw the (samples, count) numbers in [0, 1) that determine the samples of a sentence."""
    rows = [np.random.default_rng([seed, i, *key]).random(count) for i in range(samples)]
    return torch.from_numpy(np.stack(rows))


class _Samples(search.SearchBatch):
    """The samples of B sentences."""

    def __init__(
        self,
        max_lengths: Tensor,
        config: SamplingConfig,
        keys: Sequence[Sequence[int]],
        rules: search.Rules,
    ) -> None:
        super().__init__(max_lengths, rules)
        self.config = config
        shape, longest = (len(max_lengths), config.nbest), max(self.limits) + 1
        uniform = [uniform_numbers(config.seed, key, config.nbest, longest) for key in keys]
        numbers = torch.stack(uniform)  # (B, nbest, longest)
        exact = exact_dtype(max_lengths.device)
        if exact is torch.float32:  # in which a number below 1 may be rounded to 1
            numbers = (numbers * 2**24).floor() / 2**24
        self.uniform = copy_to_device(numbers.to(exact), max_lengths.device)
        self.tokens = max_lengths.new_full((*shape, 1), rules["start_id"])  # (B, nbest, T)
        self.scores = self.uniform.new_zeros(shape)  # (B, nbest), if possible float64
        self.lengths = max_lengths.new_zeros(shape)  # (B, nbest), `</s>` counted
        self.finished = torch.zeros_like(self.lengths, dtype=torch.bool)  # (B, nbest)

    def extend(self, logits: Tensor) -> None:
        """Draw a token for each sample from logits (N, V); those of finished samples are unused."""
        logits = logits.view(*self.finished.shape, -1)  # (B, nbest, V)
        log_probabilities = self.log_probabilities(logits)
        weights, tokens = sampling_weights(log_probabilities, self.config)  # (B, nbest, k)
        cumulative = weights.cumsum(dim=-1)
        goal = self.uniform[:, :, self.length, None] * cumulative[:, :, -1:]  # (B, nbest, 1)
        # The first token whose cumulative weight exceeds the goal: never one of weight 0. The clamp
        # is for NaN, which exceeds nothing.
        index = torch.searchsorted(cumulative, goal, right=True).clamp(max=tokens.size(-1) - 1)
        drawn = tokens.gather(2, index)  # (B, nbest, 1)
        gained = log_probabilities.gather(2, drawn).squeeze(2)  # (B, nbest)
        self.scores += gained.to(self.scores.dtype).masked_fill(self.finished, 0.0)
        self.lengths += ~self.finished
        self.length += 1
        self.tokens = torch.cat((self.tokens, drawn), dim=2)
        self.finished = self.finished | (drawn.squeeze(2) == self.end_id)
        # With NaN no `</s>` is drawn, but the maximum length still ends an output.
        self.finished |= (self.length > self.max_lengths).unsqueeze(1)

    def results(self, i: int) -> list[search.Hypothesis]:
        """Return the samples of sentence i."""
        hypotheses = []
        samples = (values[i].tolist() for values in (self.tokens, self.scores, self.lengths))
        for tokens, score, length in zip(*samples, strict=True):
            if not score > -math.inf:
                raise search.nan_error()
            penalized = score / search.length_penalty(length, self.config.alpha)
            truncated = length > self.limits[i]
            hypotheses.append(search.Hypothesis(tokens[1:length], penalized, truncated))
        return hypotheses
