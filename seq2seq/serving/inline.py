"""Tags within a sentence, and their places in its translation.

`A <b>brown dog</b> runs.` is translated as a whole, so that the model sees the sentence, and
`brown dog` also by itself. If the translation of the whole contains that of the part, the tags are
put around it. If it does not, as when the part is inflected in the sentence, each text between two
tags is translated by itself.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise, takewhile
from typing import NamedTuple

_TAGS = (
    "a abbr b bdi bdo big cite del dfn em font i ins label mark q s small span strike strong sub"
    " sup time tt u"
)
INLINE = frozenset(_TAGS.split())
"""Tags that do not end a sentence."""
_FINAL = " .!?…。！？"  # what a part may end with when it is translated by itself


class Mark(NamedTuple):
    """Something that stands between two texts."""

    raw: str
    kind: str
    """`open` or `close`, of a tag in INLINE; or `space`."""
    name: str = ""


class Element(NamedTuple):
    """A text with tags around it."""

    before: str
    place: int
    after: str


@dataclass(frozen=True)
class Run:
    """Texts that are divided by nothing but white space and tags in INLINE."""

    texts: list[str]
    gaps: list[str]
    """What stands before each text, and after the last."""
    whole: str = ""
    """The text without tags; "" if it is not translated as a whole."""
    elements: Sequence[Element] = ()
    start: str = ""
    """What stands before the whole, without the tags of its elements."""
    end: str = ""
    """What stands after the whole, without the tags of its elements."""

    @property
    def lines(self) -> list[str]:
        """What is to be translated."""
        return [self.whole, *self.texts] if self.whole else self.texts

    def join(self, translated: Sequence[str]) -> str:
        """Put translations in the place of the texts."""
        whole, *texts = translated if self.whole else ("", *translated)
        spans = find_parts(whole, [texts[element.place] for element in self.elements])
        if not spans:
            escaped = (escape(text, quote=False) for text in texts)
            pairs = zip(escaped, self.gaps[1:], strict=True)
            return self.gaps[0] + "".join(text + gap for text, gap in pairs)
        parts, done = [self.start], 0
        for (begin, end), element in sorted(zip(spans, self.elements, strict=True)):
            parts += [escape(whole[done:begin], quote=False), element.before]
            parts += [escape(whole[begin:end], quote=False), element.after]
            done = end
        return "".join([*parts, escape(whole[done:], quote=False), self.end])


def make_run(texts: list[str], gaps: list[list[Mark]]) -> Run:
    """Find the elements among texts; if tags are around several of the texts, there are none.

    Args:
        texts: the texts, at least one.
        gaps: what stands before each text, and after the last.
    """
    plain = Run(texts, [_raw(gap) for gap in gaps])
    opening = [_leading(gap[::-1], "open")[::-1] for gap in gaps[:-1]]
    closing = [_leading(gap, "close") for gap in gaps[1:]]
    for gap, closed, opened in zip(gaps[1:-1], closing, opening[1:], strict=False):
        if sum(mark.kind != "space" for mark in gap) != len(closed) + len(opened):
            return plain  # a tag is closed that has just been opened
    # Tags around all of the texts are around no element.
    opening[0] = opening[0][max(0, len(opening[0]) - len(closing[0])) :]
    closing[-1] = closing[-1][: len(opening[-1])]
    for opened, closed in zip(opening, closing, strict=True):
        if [mark.name for mark in opened] != [mark.name for mark in reversed(closed)]:
            return plain
    elements = [
        Element(_raw(opened), place, _raw(closed))
        for place, (opened, closed) in enumerate(zip(opening, closing, strict=True))
        if opened
    ]
    if len(texts) == 1 or not elements:
        return plain
    spaces = [" " if any(mark.kind == "space" for mark in gap) else "" for gap in gaps[1:-1]]
    return Run(
        texts,
        plain.gaps,
        whole="".join(text + space for text, space in zip(texts, [*spaces, ""], strict=True)),
        elements=elements,
        start=_raw(mark for mark in gaps[0] if not any(mark is one for one in opening[0])),
        end=_raw(mark for mark in gaps[-1] if not any(mark is one for one in closing[-1])),
    )


def find_parts(whole: str, parts: Sequence[str]) -> list[tuple[int, int]] | None:
    """Find texts as words of another one, wherever they stand.

    Returns:
        Where each begins and ends; None if there is none, one is missing or stands there more often
        than among `parts`, or two of them overlap.
    """
    bare = [part.strip(_FINAL).lower() for part in parts]
    if not all(bare):
        return None
    counts = Counter(bare)
    waiting = {
        part: [match.span() for match in re.finditer(_as_words(part), whole, re.IGNORECASE)]
        for part in counts
    }
    if any(len(spans) != counts[part] for part, spans in waiting.items()):
        return None
    found = [waiting[part].pop(0) for part in bare]
    ordered = sorted(found)
    if any(first[1] > second[0] for first, second in pairwise(ordered)):
        return None
    return found


def _as_words(part: str) -> str:
    """Make the pattern of a text that is not a part of a longer word."""
    start = "" if _is_wide(part[0]) else r"(?<!\w)"
    end = "" if _is_wide(part[-1]) else r"(?!\w)"
    return start + re.escape(part) + end


def _is_wide(character: str) -> bool:
    """Return whether a character is of Chinese or Japanese, which have no spaces."""
    return unicodedata.east_asian_width(character) in "WF"


def _raw(marks: Iterable[Mark]) -> str:
    return "".join(mark.raw for mark in marks)


def _leading(marks: Sequence[Mark], kind: str) -> list[Mark]:
    """Return the marks of a kind at the beginning, white space among them left out."""
    found = takewhile(lambda mark: mark.kind in (kind, "space"), marks)
    return [mark for mark in found if mark.kind == kind]
