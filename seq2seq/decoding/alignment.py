"""Word alignments: which words of a translation belong to those of its source.

`align` divides lines into the parts that were translated, lets `linking` link their pieces, and
puts the links together.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from seq2seq.decoding.capitals import Cased
from seq2seq.decoding.linking import Link, PiecePair, align_pieces, end_with_stops
from seq2seq.decoding.translation import Translation
from seq2seq.pieces import Span
from seq2seq.tokenizer import END_ID

if TYPE_CHECKING:
    from seq2seq.decoding.translator import Translator

_WORD = re.compile(r"[^ \t\r\n]+")


@dataclass(frozen=True)
class Alignment:
    """The links between a source and its translation; pieces and words are counted from 0."""

    source: str
    target: str
    source_spans: list[Span] = field(default_factory=list)
    """Where each piece stands in the source, without blanks around it."""
    target_spans: list[Span] = field(default_factory=list)
    """Where each piece stands in the translation."""
    pieces: list[Link] = field(default_factory=list)
    """The links from a piece of the source to one of the translation, one for each of these."""
    mutual: list[Link] = field(default_factory=list)
    """The links in `pieces` that are the best for the piece of the source, too."""

    @property
    def words(self) -> list[Link]:
        """The links between words, which are what blanks separate: the mutual ones of their pieces.

        A word may have several or none.
        """
        numbers, target_numbers = _word_numbers(self.source), _word_numbers(self.target)
        links = set[Link]()
        for i, j in self.mutual:
            words = numbers[slice(*self.source_spans[i])]
            links.update(product(words, target_numbers[slice(*self.target_spans[j])]))
        return sorted(link for link in links if min(link) >= 0)

    def __str__(self) -> str:
        """Return the links between words in Pharaoh's format, such as `0-0 1-2`."""
        return " ".join(f"{i}-{j}" for i, j in self.words)

    @classmethod
    def verbatim(cls, text: str) -> "Alignment":
        """Link each character of a text to itself, as if it were a piece."""
        spans = list(map(re.Match.span, re.finditer(r"\S", text)))
        links = list(enumerate(range(len(spans))))
        return cls(text, text, spans, spans, links, links)

    def link(self, span: Span, target_span: Span) -> None:
        """Link the pieces of a part of the source to those of a part of the translation alone."""
        inside = _pieces_in(self.source_spans, span)
        target_inside = _pieces_in(self.target_spans, target_span)
        for links in (self.pieces, self.mutual) if inside and target_inside else ():
            others = [(i, j) for i, j in links if i not in inside and j not in target_inside]
            links[:] = sorted([*others, *product(inside, target_inside)], key=itemgetter(1))

    def add(self, part: "Alignment", start: int, target_start: int) -> None:
        """Add the links of a part, given where it begins in source and target."""
        first, first_target = len(self.source_spans), len(self.target_spans)
        for links, more in ((self.pieces, part.pieces), (self.mutual, part.mutual)):
            links.extend((first + i, first_target + j) for i, j in more)
        for spans, text, offset, of_part in (
            (self.source_spans, self.source, start, part.source_spans),
            (self.target_spans, self.target, target_start, part.target_spans),
        ):
            spans.extend(_bare(text, offset + first, offset + last) for first, last in of_part)


def _bare(text: str, start: int, end: int) -> Span:
    """Drop the blanks at the ends of a span."""
    piece = text[start:end]
    end = start + len(piece.rstrip())
    return end - len(piece.strip()), end


def _overlap(span: Span, other: Span) -> bool:
    return span[0] < other[1] and other[0] < span[1]


def _pieces_in(spans: Sequence[Span], place: Span) -> list[int]:
    """Return the numbers of the pieces of which a part is in a place."""
    return [number for number, span in enumerate(spans) if _overlap(span, place)]


def _word_numbers(text: str) -> list[int]:
    """Return the number of the word to which each character belongs; a blank has -1."""
    numbers = [-1] * len(text)
    for number, word in enumerate(_WORD.finditer(text)):
        numbers[slice(*word.span())] = [number] * len(word[0])
    return numbers


class Part(NamedTuple):
    """A part of a line that is aligned with its translation alone."""

    line: Alignment
    start: int  # where it begins in the source, and its translation in the target
    target_start: int
    source: str  # both texts, without blanks around them
    target: str


def parts_of(
    line: Alignment, segments: Sequence[tuple[str, str, Translation]] = ()
) -> Iterator[Part]:
    """Yield the parts of a line: what is copied before each segment, the segment, and the rest."""
    end = target_end = 0
    for before, segment, translation in segments:
        start = line.source.index(segment, end + len(before))
        after = line.target.index(before, target_end) + len(before)
        target_start = line.target.index(translation.text, after)
        yield _part(line, (end, start), (target_end, target_start))
        end, target_end = start + len(segment), target_start + len(translation.text)
        yield _part(line, (start, end), (target_start, target_end))
    yield _part(line, (end, len(line.source)), (target_end, len(line.target)))


def _part(line: Alignment, span: Span, target_span: Span) -> Part:
    start, end = _bare(line.source, *span)
    target_start, target_end = _bare(line.target, *target_span)
    texts = line.source[start:end], line.target[target_start:target_end]
    return Part(line, start, target_start, *texts)


def align(
    translator: "Translator", sources: Sequence[str], targets: Sequence[str | Translation]
) -> list[Alignment]:
    """Align sources with their translations: see `Translator.alignments`."""
    texts = [target.text if isinstance(target, Translation) else target for target in targets]
    lines = list(map(Alignment, sources, texts))
    parts: list[Part] = []
    for line, target in zip(lines, targets, strict=True):
        parts += parts_of(line, target.parts if isinstance(target, Translation) else ())
    read = [translator.source_as_read(part.source) for part in parts]
    written = [translator.target_as_written(part.target) for part in parts]
    pairs = _piece_pairs(translator, parts, read, written)
    sizes = [max(len(pair.source_ids), 1 + len(pair.target_ids)) for pair in pairs]
    controls, steps = len(translator.controls), translator.alignment_steps()
    link = partial(align_pieces, translator.models, controls=controls, steps=steps)
    nothing: tuple[list[Link], list[Link]] = ([], [])
    links = translator.map_batches(link, pairs, sizes, nothing)
    tokenizer = translator.tokenizer
    for part, cased, cased_target, links_of_part in zip(parts, read, written, links, strict=True):
        aligned = Alignment.verbatim(part.source)
        if part.source != part.target:
            spans = cased.original_spans(tokenizer.source_spans(cased.text))
            target_spans = cased_target.original_spans(tokenizer.target_spans(cased_target.text))
            aligned = Alignment("", "", spans, target_spans, *links_of_part)
        part.line.add(aligned, part.start, part.target_start)
    if translator.glossary is not None:
        for line in lines:
            for span, target_span in translator.glossary.pairs(line.source, line.target):
                line.link(span, target_span)
    return lines


def _piece_pairs(
    translator: "Translator", parts: Sequence[Part], read: Sequence[Cased], written: Sequence[Cased]
) -> list[PiecePair]:
    """Encode parts; those that need no model have no pieces."""
    tokenizer, limits = translator.tokenizer, translator.limits
    sources = tokenizer.encode_source([each.text for each in read])
    targets = tokenizer.encode_target([each.text for each in written])
    pairs = []
    for part, ids, target_ids in zip(parts, sources, targets, strict=True):
        ids, target_ids = ids[: limits.source], target_ids[: limits.target]
        pair = PiecePair([END_ID], [])
        if part.source != part.target and ids and target_ids:
            stops = end_with_stops(tokenizer, ids, target_ids)
            pair = PiecePair([*translator.controls, *ids, END_ID], target_ids, stops)
        pairs.append(pair)
    return pairs
