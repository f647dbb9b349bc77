"""Glossaries: terms of the source and their translations, which outputs must contain.

`constrained_search` is that of Post and Vilar (2018).

The hypotheses of a sentence are divided into banks by how many tokens of the terms they have, so
that those with more are not displaced by more probable ones with fewer, and each is also extended
by the next tokens of its terms. A term counts as written when a token follows that doesn't continue
its last word.

Unlike `beam_search`, this one keeps its hypotheses on the host.
"""

import logging
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, starmap
from pathlib import Path
from typing import TypeAlias, Unpack

import numpy as np
import torch
from torch import Tensor

from seq2seq import search
from seq2seq.case import upper_case
from seq2seq.device import copy_to_device
from seq2seq.errors import UserError
from seq2seq.pieces import Span
from seq2seq.text import is_header, is_quoted, read_text_lines, split_cells
from seq2seq.tokenizer import START_ID, UNKNOWN_ID, Tokenizer

logger = logging.getLogger("seq2seq")

# Scripts without spaces between words: Thai, Burmese, Khmer, Chinese, ...
_UNSPACED = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\uffff"
_LETTER = rf"[^\W{_UNSPACED}]"  # or digit, of a script with spaces
_WITHIN_WORD = re.compile(rf"(?<={_LETTER})(?=-?{_LETTER})|(?<={_LETTER}-)(?={_LETTER})")

Sequences: TypeAlias = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Term:
    """A term of a source, and its translation."""

    source: str
    target: str
    sequences: Sequences
    """The token ids of each way to write the translation; `<s>` is the beginning of the output."""
    capitals: str = ""
    """The translation in capitals."""

    def is_added(self, source: str, text: str) -> bool:
        """Tell whether a translation has the term beside, and not in place of, the model's word.

        A long word of it is there more often than the source has the term, or the term stands by
        itself after the end of the sentence.
        """
        times = max(1, source.lower().count(self.source.lower()))
        words = re.findall(r"\w{4,}", self.target.lower())
        written = Counter(re.findall(r"\w+", text.lower()))
        if any(written[word] > times * words.count(word) for word in words):
            return True
        before, term, after = text.rpartition(self.target)
        is_last = bool(term) and not re.search(r"\w", after)
        ends = before.rstrip().endswith((".", "!", "?")) and not re.search(r"[.!?]\s+\w", source)
        return is_last and ends

    def places_in(self, text: str) -> list[Span]:
        """Return where a translation contains the term as whole words."""
        spans: list[Span] = []
        # The first word of a translation may begin with a capital letter, and all may be in them.
        lowered = text[:1].lower() + text[1:]
        for form, target in (
            (text, self.target),
            (lowered, self.target),
            (text, self.capitals or self.target),
        ):
            matches = map(re.Match.span, re.finditer(re.escape(target), form))
            spans = max(spans, [span for span in matches if _is_free(text, *span)], key=len)
        return spans


def _is_free(text: str, start: int, end: int) -> bool:
    """Return whether a part of a text neither begins nor ends within a word."""
    return not (_WITHIN_WORD.match(text, start) or _WITHIN_WORD.match(text, end))


def _ways_to_write(target: str, tokenizer: Tokenizer) -> tuple[str, Sequences] | None:
    """Return a translation as the tokenizer spells it, and each way to write it, as token ids.

    Return nothing if the tokenizer has no tokens for it.
    """
    after_space, mark, after_mark = map(
        tuple, tokenizer.encode_target([target, "。", "。" + target])
    )
    if not after_space or UNKNOWN_ID in after_space:
        return None
    (written,) = tokenizer.decode([list(after_space)])
    if re.match(f"[{_UNSPACED}]", written):  # within a text, it has no space before it
        within = after_mark[len(mark) :] if after_mark[: len(mark)] == mark else after_space
        return written, (within, (START_ID, *after_space))
    # The first word of a translation may begin with a capital letter.
    (capitalized,) = tokenizer.encode_target([written[0].upper() + written[1:]])
    if not written[0].islower() or UNKNOWN_ID in capitalized:
        return written, (after_space,)
    return written, (after_space, (START_ID, *capitalized))


class Glossary:
    """Terms, found in a source: the longest first, none within another word.

    A term in small letters is found in other cases too, and any term in capitals, unless another
    term is spelled like that.
    """

    def __init__(
        self,
        terms: Mapping[str, str] | str | Path,
        tokenizer: Tokenizer,
        languages: tuple[str, str] = ("", ""),
    ) -> None:
        terms = terms if isinstance(terms, Mapping) else read_glossary(terms)
        self._terms: dict[str, Term] = {}
        wrong: list[str] = []
        for source, target in terms.items():
            source, target = (" ".join(words.split()) for words in (source, target))
            if not source:
                raise UserError(f"glossary: the term for {target!r:.80} is blank; remove it")
            if ways := _ways_to_write(target, tokenizer):
                capitals = upper_case(ways[0], languages[1])
                self._terms[source] = Term(source, *ways, capitals)
            else:
                wrong.append(f"{target!r:.80} for {source!r:.80}")
        if wrong:
            listed = ", ".join(wrong[:20]) + f" and {len(wrong) - 20:,} more" * (len(wrong) > 20)
            raise UserError(
                f"glossary: the model can't write {listed}; choose other words, or remove the lines"
            )
        for source in sorted(self._terms, key=str.islower, reverse=True):
            self._terms.setdefault(upper_case(source, languages[0]), self._terms[source])
        self._lengths = sorted(set(map(len, self._terms)), reverse=True)
        pieces = tokenizer.pieces(list(range(tokenizer.vocab_size)))
        self.continuing = frozenset(i for i, p in enumerate(pieces) if re.match(rf"{_LETTER}|-", p))
        """The tokens that continue a word when they follow it."""

    def find(self, source: str) -> list[Term]:
        """Return the terms of a source, each as often as it occurs."""
        return [term for term, _ in self._places(source)]

    def _places(self, source: str) -> list[tuple[Term, Span]]:
        places: list[tuple[Term, Span]] = []
        end = 0
        # Several blanks in the source are one in a term.
        offsets = [x.start() for x in re.finditer(r"\s+|\S", source)]
        ends = [x.end() for x in re.finditer(r"\s+|\S", source)]
        source = re.sub(r"\s+", " ", source)
        for start in range(len(source)):
            if start < end or _WITHIN_WORD.match(source, start):
                continue
            for length in self._lengths:
                words = source[start : start + length]
                term = self._terms.get(words) or self._terms.get(words.lower())
                if term and _is_free(source, start, start + len(words)):
                    end = start + len(words)
                    places.append((term, (offsets[start], ends[end - 1])))
                    break
        return places

    def pairs(self, source: str, translation: str) -> Iterator[tuple[Span, Span]]:
        """Yield where a term and its translation stand, if both stand there equally often."""
        by_target: dict[str, tuple[Term, list[Span]]] = {}
        for term, span in self._places(source):
            by_target.setdefault(term.target, (term, []))[1].append(span)
        for term, spans in by_target.values():
            targets = term.places_in(translation)
            if len(spans) == len(targets):
                yield from zip(spans, targets, strict=True)


def read_glossary(path: str | Path) -> dict[str, str]:
    """Read a glossary: on each line a term, a tab, and its translation.

    Blank lines, comments, which begin with `#`, and a first line that names languages are skipped.
    A spreadsheet may have quoted cells.
    """
    terms: dict[str, str] = {}
    lines = [
        (number, line)
        for number, line in enumerate(read_text_lines(path), start=1)
        if line.strip() and not line.startswith("#")
    ]
    quoted = is_quoted(path, lines)
    for number, line in lines:
        if number == 1 and is_header(line):
            logger.info(
                f"seq2seq: {path}: the first line, {line!r}, names languages and is left out; if it"
                " is a term, write another line above it"
            )
            continue
        source, *targets = (" ".join(cell.split()) for cell in split_cells(line, quoted=quoted))
        if len(targets) != 1:
            columns = f"{len(targets) + 1} columns" if targets else "one column"
            raise UserError(
                f"{path}: line {number}: {line!r:.80} has {columns} and not two, a term and its"
                " translation; save a spreadsheet as text with tabs"
            )
        if not source or not targets[0]:
            side = "translation" if source else "term"
            raise UserError(f"{path}: line {number}: {line!r:.80}: the {side} is empty")
        if terms.setdefault(source, targets[0]) != targets[0]:
            raise UserError(
                f"{path}: line {number}: {source!r:.80} has another translation above; remove one"
            )
    if not terms:
        raise UserError(f"{path}: no term in it: write a term, a tab and its translation per line")
    return terms


@dataclass(frozen=True)
class _Need:
    """A term that is still to be written."""

    sequences: Sequences  # its ways to be written
    left: int  # how often
    begin: int = 0  # where the tokens after its last copy begin

    def begun(self, tokens: tuple[int, ...], sequence: tuple[int, ...]) -> int:
        """Return how many first tokens of a sequence are at the end of the tokens."""
        sizes = range(min(len(sequence), len(tokens) - self.begin), 0, -1)
        return next((size for size in sizes if tokens[-size:] == sequence[:size]), 0)


@dataclass(frozen=True)
class _Live:
    """A hypothesis that grows."""

    score: float  # its log-probability
    tokens: tuple[int, ...]  # the start symbol first
    needs: tuple[_Need, ...]
    parent: int = 0  # the index, among those of its sentence, of what it was before the last token

    def progress(self) -> int:
        """Return a number that grows with each token of the terms."""
        progress = 0
        for need in self.needs:
            progress += max(map(partial(need.begun, self.tokens), need.sequences))
            progress -= need.left * max(map(len, need.sequences))
        return progress

    def next_tokens(self) -> set[int]:
        """Return the tokens that continue a term."""
        tokens = set[int]()
        for need in self.needs:
            for sequence in need.sequences:
                count = need.begun(self.tokens, sequence)
                tokens.update(sequence[count : count + 1])
        return tokens

    def after(self, token: int, continuing: Collection[int]) -> tuple[_Need, ...]:
        """Return what is still to be written when a token follows."""
        if token in continuing:
            return self.needs
        needs = []
        for need in self.needs:
            if any(need.begun(self.tokens, way) == len(way) for way in need.sequences):
                need = replace(need, left=need.left - 1, begin=len(self.tokens))
            if need.left:
                needs.append(need)
        return tuple(needs)


@torch.inference_mode()
def constrained_search(
    step: Callable[[Tensor, search.State], Tensor],
    state: search.State,
    max_lengths: Tensor,
    config: search.SearchConfig,
    terms: Sequence[Sequence[Term]],
    continuing: Collection[int],
    **rules: Unpack[search.Rules],
) -> list[list[search.Hypothesis]]:
    """Find at most config.nbest outputs of each sentence that contain its terms.

    `continuing` are the tokens that continue a word; the other arguments are those of
    `beam_search`. Where no output with all terms was found, such as within the maximum length,
    those that lack the fewest are returned.
    """
    beams = _Banks(max_lengths, config, terms, continuing, rules)
    sentences = torch.arange(len(max_lengths), device=max_lengths.device)
    state.reorder(sentences.repeat_interleave(config.beam_size))  # (B, ...) -> (N, ...)
    while True:
        newest = beams.of_each(lambda hypothesis: hypothesis.tokens[-1])
        logits = step(newest, state)  # (N,) -> (N, V)
        state.reorder(beams.extend(logits))
        remaining = [i for i in range(len(beams.live)) if not beams.is_done(i)]
        if not remaining:
            return [[hypothesis for _, hypothesis in outputs] for outputs in beams.finished]
        if len(remaining) < len(beams.live):
            state.keep(*beams.keep(remaining, config.beam_size))


class _Banks(search.SearchBatch):
    """The hypotheses of B sentences, config.beam_size (`beam`) of each."""

    def __init__(
        self,
        max_lengths: Tensor,
        config: search.SearchConfig,
        terms: Sequence[Sequence[Term]],
        continuing: Collection[int],
        rules: search.Rules,
    ) -> None:
        super().__init__(max_lengths, rules)
        self.config, self.continuing = config, continuing
        self.nothing = [_Live(-math.inf, (self.end_id,), ())] * config.beam_size
        self.live: list[list[_Live]] = []  # of each sentence the best first, then nothing
        for of_sentence in terms:
            counts = Counter(term.sequences for term in of_sentence)
            first = _Live(0.0, (rules["start_id"],), tuple(starmap(_Need, counts.items())))
            self.live.append([first, *self.nothing[1:]])
        # The outputs of each sentence by its id, the best first, with the numbers of missing terms.
        self.finished: list[list[tuple[int, search.Hypothesis]]] = [[] for _ in self.live]
        within_words = torch.tensor([*continuing, self.end_id])
        self.within_words = [copy_to_device(within_words, max_lengths.device)]  # in a list, to stay

    def of_each(self, value: Callable[[_Live], float]) -> Tensor:
        """Copy a value of each hypothesis to the device (N,)."""
        values = np.array(list(map(value, chain(*self.live))))
        return copy_to_device(torch.from_numpy(values), self.max_lengths.device)

    def extend(self, logits: Tensor) -> Tensor:
        """Extend the hypotheses by a token, given logits (N, V); return their parents (N,)."""
        shape = len(self.live), self.config.beam_size
        scores = self.log_probabilities(logits.view(*shape, -1))  # (B, beam, V)
        live_scores = self.of_each(lambda hypothesis: hypothesis.score)
        scores += live_scores.view(*shape, 1).to(scores.dtype)
        self.length += 1
        for i, candidates in enumerate(self._candidates(scores)):
            self.live[i] = self._choose(i, candidates)
            if self.live[i] == self.nothing and not self.finished[self.sentence_ids[i]]:
                raise search.nan_error()
        parents = self.of_each(lambda hypothesis: hypothesis.parent).view(shape)
        return search.rows_of(torch.arange(shape[0], device=parents.device), parents, shape[1])

    def _candidates(self, scores: Tensor) -> list[dict[tuple[int, int], float]]:
        """Return, for each sentence, the scores of some hypotheses with a next token.

        They are the best of all; of each hypothesis, the best, and the best that begins a new word;
        and those that continue a term.
        """
        _, beam, vocab_size = scores.shape
        first = torch.arange(0, scores.numel(), vocab_size, device=scores.device).view(-1, beam)
        best = first[:, :1] + scores.flatten(1).topk(2 * beam).indices  # (B, 2 * beam)
        of_each = first + scores.argmax(dim=2)  # (B, beam)
        after_words = first + scores.index_fill(2, self.within_words[0], -math.inf).argmax(dim=2)
        likely = torch.cat((best, of_each, after_words), dim=1)
        indices: list[int] = likely.flatten().tolist()
        for row, hypothesis in enumerate(chain(*self.live)):
            indices.extend(row * vocab_size + token for token in hypothesis.next_tokens())
        # All are read at once.
        values = scores.flatten()[copy_to_device(torch.tensor(indices), scores.device)].tolist()
        candidates: list[dict[tuple[int, int], float]] = [{} for _ in self.live]
        for index, score in zip(indices, values, strict=True):
            row, token = divmod(index, vocab_size)
            if score > -math.inf:
                candidates[row // beam][row % beam, token] = score
        return candidates

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
            hypothesis = _Live(score, (*before.tokens, token), needs, parent)
            if token != self.end_id:
                banks[hypothesis.progress()].append(hypothesis)
            elif truncated or not needs:
                penalized = score / search.length_penalty(self.length, self.config.alpha)
                output = search.Hypothesis(list(before.tokens[1:]), penalized, truncated)
                finished.append((sum(need.left for need in needs), output))
        finished.sort(key=lambda output: (output[0], -output[1].score, output[1].token_ids))
        del finished[self.config.nbest :]
        # An equal share of each bank, those with more terms first, and then the best of the others.
        share = max(1, beam // max(1, len(banks)))
        rest = list(chain.from_iterable(bank[share:] for bank in banks.values()))
        rest.sort(key=lambda hypothesis: -hypothesis.score)
        by_progress = (bank[:share] for _, bank in sorted(banks.items(), reverse=True))
        return [*chain.from_iterable(by_progress), *rest, *self.nothing][:beam]

    def is_done(self, i: int) -> bool:
        """Return whether no live hypothesis of a sentence can enter its best outputs."""
        finished = self.finished[self.sentence_ids[i]]
        if self.live[i] == self.nothing or self.length > self.limits[i]:
            return True
        if len(finished) < self.config.nbest:
            return False
        # The bound is that of `Beams.cannot_improve`.
        best = max(hypothesis.score for hypothesis in self.live[i])
        penalty = search.length_penalty(self.limits[i] + 1, self.config.alpha)
        return finished[-1][1].score >= best / penalty

    def keep(self, sentences: Sequence[int], beam: int) -> tuple[Tensor, Tensor]:
        """See `SearchBatch.keep`."""
        self.live = [self.live[i] for i in sentences]
        return super().keep(sentences, beam)
