"""Glossaries: terms of the source, and how they are to be translated.

`constrained_search.py` writes the terms; here they are read, found, and looked for in the output.
"""

import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from seq2seq.errors import UserError
from seq2seq.text import is_header, read_text_lines
from seq2seq.tokenizer import START_ID, UNKNOWN_ID, Span, Tokenizer

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

    def places_in(self, text: str) -> list[Span]:
        """Return where a translation contains the term as whole words."""
        # The first word of a translation may begin with a capital letter.
        of_forms = (
            [one.span() for one in re.finditer(re.escape(self.target), form)]
            for form in (text, text[:1].lower() + text[1:])
        )
        return max(
            ([span for span in spans if _is_free(text, *span)] for spans in of_forms), key=len
        )


def _is_free(text: str, start: int, end: int) -> bool:
    """Return whether a part of a text neither begins nor ends within a word."""
    return not (_WITHIN_WORD.match(text, start) or _WITHIN_WORD.match(text, end))


def _ways_to_write(target: str, tokenizer: Tokenizer) -> tuple[str, Sequences]:
    """Return a translation as the tokenizer spells it, and each way to write it, as token ids."""
    after_space, mark, after_mark = map(
        tuple, tokenizer.encode_target([target, "。", "。" + target])
    )
    if not after_space or UNKNOWN_ID in after_space:
        raise UserError(f"glossary: the model can't write {target!r:.80}; choose other words")
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

    A term in small letters is found in other cases too, unless another term is spelled like that.
    """

    def __init__(self, terms: Mapping[str, str] | str | Path, tokenizer: Tokenizer) -> None:
        terms = terms if isinstance(terms, Mapping) else read_glossary(terms)
        self._terms = {
            source: Term(source, *_ways_to_write(target, tokenizer))
            for source, target in terms.items()
        }
        self._lengths = sorted({len(source) for source in terms}, reverse=True)
        pieces = tokenizer.pieces(list(range(tokenizer.vocab_size)))
        self.continuing = frozenset(i for i, p in enumerate(pieces) if re.match(rf"{_LETTER}|-", p))
        """The tokens that continue a word when they follow it."""

    def find(self, source: str) -> list[Term]:
        """Return the terms of a source, each as often as it occurs."""
        return [term for term, _ in self._places(source)]

    def _places(self, source: str) -> list[tuple[Term, Span]]:
        places: list[tuple[Term, Span]] = []
        end = 0
        for start in range(len(source)):
            if start < end or _WITHIN_WORD.match(source, start):
                continue
            for length in self._lengths:
                words = source[start : start + length]
                term = self._terms.get(words) or self._terms.get(words.lower())
                if term and _is_free(source, start, start + length):
                    end = start + length
                    places.append((term, (start, end)))
                    break
        return places

    def pairs(self, source: str, translation: str) -> Iterator[tuple[Span, Span]]:
        """Yield where a term and its translation stand, if both stand there equally often."""
        places = self._places(source)
        for term in {term.target: term for term, _ in places}.values():
            spans = [span for one, span in places if one.target == term.target]
            targets = term.places_in(translation)
            if len(spans) == len(targets):
                yield from zip(spans, targets, strict=True)


def read_glossary(path: str | Path) -> dict[str, str]:
    """Read a glossary: on each line a term, a tab, and its translation.

    Blank lines, comments, which begin with `#`, and a first line that names languages are skipped.
    """
    terms: dict[str, str] = {}
    for number, line in enumerate(read_text_lines(path), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        if number == 1 and is_header(line):
            logger.info(f"{path}: the first line, which names languages, is no term")
            continue
        source, *targets = (" ".join(column.split()) for column in line.split("\t"))
        if len(targets) != 1 or not source or not targets[0]:
            raise UserError(
                f"{path}: line {number}: {line!r:.80} is not a term, a tab and its translation"
            )
        if source in terms:
            raise UserError(f"{path}: line {number}: {source!r:.80} is there twice; remove one")
        terms[source] = targets[0]
    if not terms:
        raise UserError(f"{path}: no term in it: write a term, a tab and its translation per line")
    return terms
