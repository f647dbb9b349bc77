"""Sampling: outputs drawn by their probability, as it is or sharpened and cut.

Each sample follows a row of uniform numbers that belongs to its sentence, through the inverse of
the cumulative distribution in the order of the vocabulary. So a sample is a function of the seed,
the sentence and its own number; which sentences share a batch changes at most the rounding.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from seq2seq.decoding.beam_search import (
    Hypothesis,
    State,
    apply_constraints,
    check_alpha,
    length_penalty,
    no_numbers,
    output_log_probabilities,
    pad_prefixes,
)
from seq2seq.errors import UserError


@dataclass(kw_only=True)
class SamplingConfig:
    """What a person chooses of sampling; the defaults draw from the model's own distribution."""

    temperature: float = 1.0
    """Divides the logits: below 1 probable tokens become more probable."""
    top_k: int | None = None
    """Draw from so many of the most probable tokens only."""
    top_p: float = 1.0
    """Then draw from the fewest most probable tokens that together have this share of what is left
    (the nucleus of Holtzman et al. 2020)."""
    seed: int = 1
    """Another seed gives other samples."""
    nbest: int = 1
    """Samples of each sentence, which may be alike."""
    alpha: float = 0.6
    """Exponent of the length penalty in the score; no matter to what is drawn."""
    max_extra_tokens: int = 50
    """The longest output is the source's length plus this, `</s>` not counted."""

    def __post_init__(self) -> None:
        """Refuse what can't be drawn.

        Raises:
            UserError: temperature not above 0, top_k, nbest or max_extra_tokens below 1, top_p not
                in (0, 1], seed not in 32 bits, or alpha out of its range.
        """
        if not (math.isfinite(self.temperature) and self.temperature > 0):
            raise UserError(f"temperature={self.temperature}: must be above 0; --beam 1 is greedy")
        for name in ("top_k", "nbest", "max_extra_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UserError(f"{name}={value}: must be at least 1")
        if not 0 < self.top_p <= 1:
            raise UserError(f"top_p={self.top_p}: must be above 0 and at most 1")
        if not 0 <= self.seed < 2**32:
            raise UserError(f"seed={self.seed}: must be from 0 to {2**32 - 1}")
        check_alpha(self.alpha)


@torch.inference_mode()
def sample(
    step: Callable[[Tensor, State], Tensor],
    state: State,
    max_lengths: Tensor,
    config: SamplingConfig,
    *,
    keys: Sequence[Sequence[int]],
    start_id: int,
    end_id: int,
    never: tuple[int, ...] = (),
    prefixes: Sequence[Sequence[int]] = (),
) -> list[list[Hypothesis]]:
    """Draw config.nbest outputs of each sentence.

    Args:
        step: (newest tokens (N,), state) -> logits (N, V), one row per sample.
        state: of B rows, one a sentence, before the first step; it is reordered into N = B x nbest.
        max_lengths: (B,), most tokens of an output, `</s>` not counted.
        config: what a person chooses.
        keys: what tells each sentence from others, such as its token ids: equal keys, equal draws.
        start_id: the token before the first.
        end_id: the token that ends an output.
        never: tokens that are no output.
        prefixes: what each sentence's output begins with, no longer than its max_length; empty
            for none at all.

    Returns:
        For each sentence its samples, in the order of their numbers. Their scores are those of
        beam search: of the model's own log-probabilities, at temperature 1 and uncut.

    Raises:
        UserError: an output has no probability, for want of numbers to go by.
    """
    sentences = torch.arange(len(max_lengths), device=max_lengths.device)
    state.reorder(sentences.repeat_interleave(config.nbest))
    samples = _Samples(max_lengths, pad_prefixes(prefixes, max_lengths), config, keys, start_id)
    while True:
        log_probabilities = output_log_probabilities(step(samples.newest_tokens, state), never)
        samples.extend(log_probabilities, end_id)
        done = samples.ended.view(-1, config.nbest).all(dim=1)
        if done.any():
            samples.collect(done)
            sentences = (~done).nonzero().squeeze(1)
            if not len(sentences):
                return samples.results
            state.keep(sentences, samples.keep(sentences))


def weigh(log_probabilities: Tensor, config: SamplingConfig) -> tuple[Tensor, Tensor]:
    """The tokens that may be drawn, and how often each is, up to a common factor.

    Args:
        log_probabilities: (N, V).
        config: temperature, top_k and top_p.

    Returns:
        Weights and tokens, both (N, k), tokens ascending; what top_p cuts off weighs 0.
    """
    # Above the best one, so that no temperature makes all of them vanish.
    best = log_probabilities.max(dim=1, keepdim=True).values.double()
    if config.top_k is None and config.top_p == 1:
        tokens = torch.arange(log_probabilities.size(1), device=log_probabilities.device)
        weights = ((log_probabilities.double() - best) / config.temperature).exp()
        return weights, tokens.expand_as(log_probabilities)
    vocab_size = log_probabilities.size(1)
    likeliest, tokens = log_probabilities.topk(min(config.top_k or vocab_size, vocab_size))
    weights = ((likeliest.double() - best) / config.temperature).exp()
    if config.top_p < 1:
        before = weights.cumsum(dim=1) - weights
        nucleus = before < config.top_p * weights.sum(dim=1, keepdim=True)
        weights = weights.where(nucleus, 0.0)
    tokens, order = tokens.sort(dim=1)
    return weights.gather(1, order), tokens


def uniform_numbers(seed: int, key: Sequence[int], samples: int, count: int) -> Tensor:
    """The (samples, count) numbers in [0, 1) that the samples of one sentence follow."""
    rows = [np.random.default_rng([seed, number, *key]).random(count) for number in range(samples)]
    return torch.from_numpy(np.stack(rows))


class _Samples:
    """The samples of the sentences that are not done, N = B x nbest rows."""

    def __init__(
        self,
        max_lengths: Tensor,
        prefixes: Tensor,
        config: SamplingConfig,
        keys: Sequence[Sequence[int]],
        start_id: int,
    ) -> None:
        device, rows = max_lengths.device, len(max_lengths) * config.nbest
        longest = int(max_lengths.max()) + 1
        self.config = config
        self.length = 0  # of the samples that go on, start symbol not counted
        self.max_lengths = max_lengths
        self.prefixes = prefixes
        self.numbers = torch.arange(len(max_lengths), device=device)  # where each stood at first
        self.results: list[list[Hypothesis]] = [[] for _ in range(len(max_lengths))]
        self.uniform = torch.cat(
            [uniform_numbers(config.seed, key, config.nbest, longest) for key in keys]
        ).to(device)  # (N, longest)
        self.tokens = torch.full((rows, 1), start_id, device=device)
        self.scores = torch.zeros(rows, dtype=torch.float64, device=device)
        self.lengths = torch.zeros(rows, dtype=torch.long, device=device)
        self.ended = torch.zeros(rows, dtype=torch.bool, device=device)

    @property
    def newest_tokens(self) -> Tensor:
        """The last token of each sample, (N,); those that have ended go on idly."""
        return self.tokens[:, -1]

    def extend(self, log_probabilities: Tensor, end_id: int) -> None:
        """Draw the next token of each sample from (N, V) log-probabilities."""
        apply_constraints(log_probabilities, self.length, self.max_lengths, self.prefixes, end_id)
        weights, tokens = weigh(log_probabilities, self.config)
        cumulative = weights.cumsum(dim=1)
        goal = self.uniform[:, self.length, None] * cumulative[:, -1:]
        # The first token whose sum exceeds the goal: it never is one of weight 0. The bound is for
        # NaN, which exceeds nothing.
        place = torch.searchsorted(cumulative, goal, right=True).clamp(max=tokens.size(1) - 1)
        drawn = tokens.gather(1, place)
        gained = log_probabilities.gather(1, drawn).squeeze(1)
        self.scores += gained.double().masked_fill(self.ended, 0.0)
        self.lengths += ~self.ended
        self.length += 1
        self.tokens = torch.cat((self.tokens, drawn), dim=1)
        self.ended = self.ended | (drawn.squeeze(1) == end_id)
        # At the greatest length NaN, too, has to end.
        self.ended |= (self.length > self.max_lengths).repeat_interleave(self.config.nbest)

    def collect(self, done: Tensor) -> None:
        """Write the samples of these sentences into the results.

        Raises:
            UserError: one has no probability, for want of numbers to go by.
        """
        nbest = self.config.nbest
        for sentence in done.nonzero().squeeze(1).tolist():
            rows = slice(sentence * nbest, (sentence + 1) * nbest)
            longest = int(self.max_lengths[sentence])
            samples = self.results[int(self.numbers[sentence])]
            for tokens, score, length in zip(
                self.tokens[rows].tolist(),
                self.scores[rows].tolist(),
                self.lengths[rows].tolist(),
                strict=True,
            ):
                if not score > -math.inf:
                    raise no_numbers()
                score /= length_penalty(length, self.config.alpha)
                samples.append(Hypothesis(tokens[1:length], score, cut=length > longest))

    def keep(self, sentences: Tensor) -> Tensor:
        """Drop all other sentences.

        Returns:
            The rows of the samples that stay, among those before.
        """
        nbest = self.config.nbest
        kept = sentences.unsqueeze(1) * nbest + torch.arange(nbest, device=sentences.device)
        rows = kept.flatten()
        for name in ("max_lengths", "prefixes", "numbers"):
            setattr(self, name, getattr(self, name)[sentences])
        for name in ("uniform", "tokens", "scores", "lengths", "ended"):
            setattr(self, name, getattr(self, name)[rows])
        return rows
