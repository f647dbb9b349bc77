"""Beam search for outputs that contain given terms (Post and Vilar 2018).

The hypotheses of a sentence are divided into banks by how many tokens of the terms they have, so
that those with more are not displaced by more probable ones with fewer, and each is also extended
by the next tokens of its terms. A term counts as written when a token follows that doesn't continue
its last word.

Unlike `beam_search`, this one keeps its hypotheses on the host.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, Unpack

import torch
from torch import Tensor

from seq2seq.decoding.config import SearchConfig
from seq2seq.decoding.glossary import Term
from seq2seq.decoding.search import (
    Hypothesis,
    Rules,
    SearchBatch,
    State,
    force_tokens,
    impossible_error,
    length_penalty,
    output_log_probabilities,
)
from seq2seq.device import copy_to_device
from seq2seq.fast.topk import topk_by_blocks

Written: TypeAlias = tuple[tuple[int, int], ...]
"""For each term, how often it must still be written, and where the tokens after its last copy
begin."""


class Requirements:
    """The terms that an output must contain, and how much of them a hypothesis has."""

    def __init__(self, terms: Sequence[Term], continuing: Collection[int]) -> None:
        counts = Counter(term.sequences for term in terms)
        self.sequences, self.continuing = list(counts), continuing
        self.start: Written = tuple((count, 0) for count in counts.values())

    def read(self, written: Written, tokens: tuple[int, ...]) -> Written:
        """Return what is written when the last of these tokens follows the others."""
        if tokens[-1] in self.continuing:
            return written
        end = len(tokens) - 1
        return tuple(
            (left - 1, end)
            if left and any(tokens[begin:end][-len(one) :] == one for one in sequences)
            else (left, begin)
            for sequences, (left, begin) in zip(self.sequences, written, strict=True)
        )

    def next_tokens(self, written: Written, tokens: tuple[int, ...]) -> set[int]:
        """Return the tokens that continue a term."""
        return {
            one[count]
            for sequences, (left, begin) in zip(self.sequences, written, strict=True)
            for one in sequences
            if left and (count := _begun(one, tokens[begin:])) < len(one)
        }

    def missing(self, written: Written) -> int:
        """Return how many terms are still to be written."""
        return sum(left for left, _ in written)

    def progress(self, written: Written, tokens: tuple[int, ...]) -> int:
        """Return a number that grows with each token of the terms."""
        return sum(
            max(_begun(one, tokens[begin:]) for one in sequences) - left * max(map(len, sequences))
            for sequences, (left, begin) in zip(self.sequences, written, strict=True)
            if left
        )


def _begun(sequence: tuple[int, ...], tokens: tuple[int, ...]) -> int:
    """Return how many first tokens of a sequence are at the end of a text."""
    sizes = range(min(len(sequence), len(tokens)), 0, -1)
    return next((size for size in sizes if tokens[-size:] == sequence[:size]), 0)


@dataclass(frozen=True)
class _Live:
    """A hypothesis that grows."""

    score: float  # its log-probability
    tokens: tuple[int, ...]  # the start symbol first
    written: Written
    parent: int = 0  # the index, among those of its sentence, of what it was before the last token


@torch.inference_mode()
def constrained_search(
    step: Callable[[Tensor, State], Tensor],
    state: State,
    max_lengths: Tensor,
    config: SearchConfig,
    requirements: Sequence[Requirements],
    **rules: Unpack[Rules],
) -> list[list[Hypothesis]]:
    """Find at most config.nbest outputs of each sentence that fulfill its requirements.

    The arguments are those of `beam_search`. A sentence that has no such output, because it is too
    short for its terms, has outputs with as many of them as possible.
    """
    beams = _Banks(max_lengths, config, requirements, rules)
    sentences = torch.arange(len(max_lengths), device=max_lengths.device)
    state.reorder(sentences.repeat_interleave(beams.width))  # (B, ...) -> (N, ...)
    while True:
        logits = step(beams.newest_tokens(), state)  # (N,) -> (N, V)
        state.reorder(beams.extend(logits))
        remaining = [i for i in range(len(beams.live)) if not beams.is_done(i)]
        if not remaining:
            return [[found for _, found in outputs] for outputs in beams.finished]
        if len(remaining) < len(beams.live):
            state.keep(*beams.keep(remaining, beams.width))


class _Banks(SearchBatch):
    """The hypotheses of B sentences, `width` of each."""

    def __init__(
        self,
        max_lengths: Tensor,
        config: SearchConfig,
        requirements: Sequence[Requirements],
        rules: Rules,
    ) -> None:
        super().__init__(max_lengths, rules)
        self.config, self.requirements = config, list(requirements)
        self.width = config.beam_size
        self.live = [[_Live(0.0, (rules["start_id"],), one.start)] for one in requirements]
        # Of each sentence by its id, the best first, with the number of missing terms.
        self.finished: list[list[tuple[int, Hypothesis]]] = [[] for _ in self.live]
        within_words = torch.tensor([*requirements[0].continuing, self.end_id])
        self.within_words = [copy_to_device(within_words, max_lengths.device)]  # in a list, to stay

    def newest_tokens(self) -> Tensor:
        """Return the last token of each hypothesis (N,)."""
        return self._rows([[one.tokens[-1] for one in live] for live in self.live], self.end_id)

    def _rows(self, values: Sequence[Sequence[Any]], missing: Any) -> Tensor:
        """Copy a value of each hypothesis to the device (N,), `width` of each sentence."""
        filled = [[*some, *[missing] * (self.width - len(some))] for some in values]
        dtype = torch.float64 if isinstance(missing, float) else torch.long
        return copy_to_device(torch.tensor(filled, dtype=dtype).flatten(), self.max_lengths.device)

    def extend(self, logits: Tensor) -> Tensor:
        """Extend the hypotheses by a token, given logits (N, V); return their parents (N,)."""
        sentences, width, vocab_size = len(self.live), self.width, logits.size(1)
        logits = logits.view(sentences, width, vocab_size)
        scores = output_log_probabilities(logits, self.suppressed_ids)  # (B, width, V)
        force_tokens(scores, self.forced_tokens())
        live_scores = self._rows([[one.score for one in live] for live in self.live], -math.inf)
        scores += live_scores.view(sentences, width, 1).to(scores.dtype)
        self.length += 1
        parents = []
        for i, candidates in enumerate(self._candidates(scores)):
            self.live[i] = _choose_from_banks(self._divide(i, candidates), width)
            if not self.live[i] and not self.finished[self.sentence_ids[i]]:
                raise impossible_error(float(scores[i].max()))  # NaN is the largest
            own = [i * width + one.parent for one in self.live[i]]
            parents.append([*own, *[i * width] * (width - len(own))])
        return self._rows(parents, 0)

    def _candidates(self, scores: Tensor) -> list[dict[tuple[int, int], float]]:
        """Return, for each sentence, the scores of some hypotheses with a next token.

        They are the best of all; of each hypothesis, the best, and the best that ends no output but
        the word before it; and those that continue a term.
        """
        _, width, vocab_size = scores.shape
        _, best = topk_by_blocks(scores.flatten(1), 2 * width)  # (B, 2 * width)
        first = torch.arange(0, width * vocab_size, vocab_size, device=scores.device)
        of_each = first + scores.argmax(dim=2)  # (B, width)
        after_words = first + scores.index_fill(2, self.within_words[0], -math.inf).argmax(dim=2)
        chosen: list[list[int]] = torch.cat((best, of_each, after_words), dim=1).tolist()
        for row, live, needs in zip(chosen, self.live, self.requirements, strict=True):
            for parent, one in enumerate(live):
                wanted = needs.next_tokens(one.written, one.tokens)
                row.extend(parent * vocab_size + token for token in wanted)
        # All are read at once.
        size = width * vocab_size
        indices = torch.tensor([i * size + index for i, row in enumerate(chosen) for index in row])
        values = iter(scores.flatten()[copy_to_device(indices, scores.device)].tolist())
        return [
            {divmod(i, vocab_size): score for i in row if (score := next(values)) > -math.inf}
            for row in chosen
        ]

    def _divide(self, i: int, candidates: dict[tuple[int, int], float]) -> dict[int, list[_Live]]:
        """Divide the candidates of a sentence into banks; keep the best of those that end.

        These must have all terms, unless they are cut off at the maximum length.
        """
        needs, finished = self.requirements[i], self.finished[self.sentence_ids[i]]
        truncated = self.length > self.limits[i]
        banks: dict[int, list[_Live]] = {}
        for (parent, token), score in candidates.items():
            one = self.live[i][parent]
            tokens = (*one.tokens, token)
            written = needs.read(one.written, tokens)
            if token != self.end_id:
                bank = banks.setdefault(needs.progress(written, tokens), [])
                bank.append(_Live(score, tokens, written, parent))
            elif truncated or not needs.missing(written):
                penalized = score / length_penalty(self.length, self.config.alpha)
                output = Hypothesis(list(one.tokens[1:]), penalized, truncated)
                finished.append((needs.missing(written), output))
        finished.sort(key=lambda one: (one[0], -one[1].score, one[1].token_ids))
        del finished[self.config.nbest :]
        return banks

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
        self.requirements = [self.requirements[i] for i in sentences]
        return super().keep(sentences, beam)


def _choose_from_banks(banks: dict[int, list[_Live]], width: int) -> list[_Live]:
    """Choose as many of each bank, and then the best of the others, those with more terms first."""
    for bank in banks.values():
        bank.sort(key=lambda one: -one.score)
    share = max(1, width // max(1, len(banks)))
    chosen = [one for _, bank in sorted(banks.items(), reverse=True) for one in bank[:share]]
    others = sorted(
        (one for bank in banks.values() for one in bank[share:]), key=lambda one: -one.score
    )
    return [*chosen, *others][:width]
