"""Beam search for outputs that contain given terms (Post and Vilar 2018).

The hypotheses of a sentence are divided into banks by how many tokens of the terms they have, so
that those with more are not displaced by more probable ones with fewer, and each is also extended
by the next tokens of its terms. A term counts as written when a token follows that doesn't continue
its last word.

Unlike `beam_search`, this one keeps its hypotheses on the host.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Unpack

import torch
from torch import Tensor

from seq2seq.decoding.glossary import Sequences, Term
from seq2seq.device import copy_to_device
from seq2seq.search import (
    Hypothesis,
    Rules,
    SearchBatch,
    SearchConfig,
    State,
    force_tokens,
    impossible_error,
    length_penalty,
    output_log_probabilities,
)


@dataclass(frozen=True)
class _Need:
    """A term that is still to be written."""

    sequences: Sequences  # its ways to be written
    left: int  # how often
    begin: int = 0  # where the tokens after its last copy begin

    def begun(self, sequence: tuple[int, ...], tokens: tuple[int, ...]) -> int:
        """Return how many first tokens of a sequence are at the end of the tokens."""
        sizes = range(min(len(sequence), len(tokens) - self.begin), 0, -1)
        return next((size for size in sizes if tokens[-size:] == sequence[:size]), 0)

    def is_complete(self, tokens: tuple[int, ...]) -> bool:
        """Return whether one of the sequences is at the end of the tokens."""
        return any(self.begun(one, tokens) == len(one) for one in self.sequences)


@dataclass(frozen=True)
class _Live:
    """A hypothesis that grows."""

    score: float  # its log-probability
    tokens: tuple[int, ...]  # the start symbol first
    needs: tuple[_Need, ...]
    parent: int = 0  # the index, among those of its sentence, of what it was before the last token

    def missing(self) -> int:
        """Return how many terms are still to be written."""
        return sum(need.left for need in self.needs)

    def progress(self) -> int:
        """Return a number that grows with each token of the terms."""
        return sum(
            max(need.begun(one, self.tokens) for one in need.sequences)
            - need.left * max(map(len, need.sequences))
            for need in self.needs
        )

    def next_tokens(self) -> set[int]:
        """Return the tokens that continue a term."""
        return {
            one[count]
            for need in self.needs
            for one in need.sequences
            if (count := need.begun(one, self.tokens)) < len(one)
        }

    def after(self, token: int, continuing: Collection[int]) -> tuple[_Need, ...]:
        """Return what is still to be written when a token follows."""
        if token in continuing:
            return self.needs
        needs = (
            replace(need, left=need.left - 1, begin=len(self.tokens))
            if need.is_complete(self.tokens)
            else need
            for need in self.needs
        )
        return tuple(need for need in needs if need.left)


@torch.inference_mode()
def constrained_search(
    step: Callable[[Tensor, State], Tensor],
    state: State,
    max_lengths: Tensor,
    config: SearchConfig,
    terms: Sequence[Sequence[Term]],
    continuing: Collection[int],
    **rules: Unpack[Rules],
) -> list[list[Hypothesis]]:
    """Find at most config.nbest outputs of each sentence that contain its terms.

    `continuing` are the tokens that continue a word; the other arguments are those of
    `beam_search`. Where no output with all terms was found, such as within the maximum length,
    those that lack the fewest are returned.
    """
    beams = _Banks(max_lengths, config, terms, continuing, rules)
    sentences = torch.arange(len(max_lengths), device=max_lengths.device)
    state.reorder(sentences.repeat_interleave(config.beam_size))  # (B, ...) -> (N, ...)
    while True:
        logits = step(beams.newest_tokens(), state)  # (N,) -> (N, V)
        state.reorder(beams.extend(logits))
        remaining = [i for i in range(len(beams.live)) if not beams.is_done(i)]
        if not remaining:
            return [[found for _, found in outputs] for outputs in beams.finished]
        if len(remaining) < len(beams.live):
            state.keep(*beams.keep(remaining, config.beam_size))


class _Banks(SearchBatch):
    """The hypotheses of B sentences, config.beam_size (`beam`) of each."""

    def __init__(
        self,
        max_lengths: Tensor,
        config: SearchConfig,
        terms: Sequence[Sequence[Term]],
        continuing: Collection[int],
        rules: Rules,
    ) -> None:
        super().__init__(max_lengths, rules)
        self.config, self.continuing = config, continuing
        counts = [Counter(term.sequences for term in some) for some in terms]
        needs = [tuple(_Need(*item) for item in some.items()) for some in counts]
        self.live = [[_Live(0.0, (rules["start_id"],), some)] for some in needs]
        # Of each sentence by its id, the best first, with the number of missing terms.
        self.finished: list[list[tuple[int, Hypothesis]]] = [[] for _ in self.live]
        within_words = torch.tensor([*continuing, self.end_id])
        self.within_words = [copy_to_device(within_words, max_lengths.device)]  # in a list, to stay

    def newest_tokens(self) -> Tensor:
        """Return the last token of each hypothesis (N,)."""
        return self._rows([[one.tokens[-1] for one in live] for live in self.live], self.end_id)

    def _rows(self, values: Sequence[Sequence[float]], missing: float) -> Tensor:
        """Copy a value of each hypothesis to the device (N,), `beam` of each sentence."""
        beam = self.config.beam_size
        filled = [[*some, *[missing] * (beam - len(some))] for some in values]
        dtype = torch.float64 if isinstance(missing, float) else torch.long
        return copy_to_device(torch.tensor(filled, dtype=dtype).flatten(), self.max_lengths.device)

    def extend(self, logits: Tensor) -> Tensor:
        """Extend the hypotheses by a token, given logits (N, V); return their parents (N,)."""
        beam = self.config.beam_size
        logits = logits.view(len(self.live), beam, -1)
        scores = output_log_probabilities(logits, self.suppressed_ids)  # (B, beam, V)
        force_tokens(scores, self.forced_tokens())
        live_scores = self._rows([[one.score for one in live] for live in self.live], -math.inf)
        scores += live_scores.view(-1, beam, 1).to(scores.dtype)
        self.length += 1
        parents = []
        for i, candidates in enumerate(self._candidates(scores)):
            self.live[i] = self._choose(i, candidates)
            if not self.live[i] and not self.finished[self.sentence_ids[i]]:
                raise impossible_error(float(scores[i].max()))  # NaN is the largest
            own = [i * beam + one.parent for one in self.live[i]]
            parents.append([*own, *[i * beam] * (beam - len(own))])
        return self._rows(parents, 0)

    def _candidates(self, scores: Tensor) -> list[dict[tuple[int, int], float]]:
        """Return, for each sentence, the scores of some hypotheses with a next token.

        They are the best of all; of each hypothesis, the best, and the best that begins a new word;
        and those that continue a term.
        """
        _, beam, vocab_size = scores.shape
        _, best = scores.flatten(1).topk(2 * beam)  # (B, 2 * beam)
        first = torch.arange(0, beam * vocab_size, vocab_size, device=scores.device)
        of_each = first + scores.argmax(dim=2)  # (B, beam)
        after_words = first + scores.index_fill(2, self.within_words[0], -math.inf).argmax(dim=2)
        chosen: list[list[int]] = torch.cat((best, of_each, after_words), dim=1).tolist()
        for row, live in zip(chosen, self.live, strict=True):
            for parent, one in enumerate(live):
                row.extend(parent * vocab_size + token for token in one.next_tokens())
        # All are read at once.
        size = beam * vocab_size
        indices = torch.tensor([i * size + index for i, row in enumerate(chosen) for index in row])
        values = iter(scores.flatten()[copy_to_device(indices, scores.device)].tolist())
        return [
            {divmod(i, vocab_size): score for i in row if (score := next(values)) > -math.inf}
            for row in chosen
        ]

    def _choose(self, i: int, candidates: dict[tuple[int, int], float]) -> list[_Live]:
        """Choose the candidates of a sentence that live on; keep the best of those that end.

        These must have all terms, unless they are cut off at the maximum length.
        """
        finished, beam = self.finished[self.sentence_ids[i]], self.config.beam_size
        truncated = self.length > self.limits[i]
        banks: dict[int, list[_Live]] = defaultdict(list)
        # The best first.
        for (parent, token), score in sorted(candidates.items(), key=lambda item: -item[1]):
            before = self.live[i][parent]
            needs = before.after(token, self.continuing)
            one = _Live(score, (*before.tokens, token), needs, parent)
            if token != self.end_id:
                banks[one.progress()].append(one)
            elif truncated or not needs:
                penalized = score / length_penalty(self.length, self.config.alpha)
                output = Hypothesis(list(before.tokens[1:]), penalized, truncated)
                finished.append((one.missing(), output))
        finished.sort(key=lambda one: (one[0], -one[1].score, one[1].token_ids))
        del finished[self.config.nbest :]
        # As many of each bank, and then the best of the others, those with more terms first.
        share = max(1, beam // max(1, len(banks)))
        chosen = [one for _, bank in sorted(banks.items(), reverse=True) for one in bank[:share]]
        others = [one for bank in banks.values() for one in bank[share:]]
        return [*chosen, *sorted(others, key=lambda one: -one.score)][:beam]

    def is_done(self, i: int) -> bool:
        """Return whether no live hypothesis of a sentence can enter its best outputs."""
        finished = self.finished[self.sentence_ids[i]]
        if not self.live[i] or self.length > self.limits[i]:
            return True
        if len(finished) < self.config.nbest:
            return False
        # As in `Beams.cannot_improve`.
        best = max(one.score for one in self.live[i])
        return finished[-1][1].score >= best / length_penalty(self.limits[i] + 1, self.config.alpha)

    def keep(self, sentences: Sequence[int], beam: int) -> tuple[Tensor, Tensor]:
        """See `SearchBatch.keep`."""
        self.live = [self.live[i] for i in sentences]
        return super().keep(sentences, beam)
