"""HTML: the texts of a document, and the document with these texts translated.

Tags, comments and entities stay as they stand, and so does what is not meant for readers, or marked
as not to be translated. Texts are translated with their white space as a browser shows it.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from html.parser import HTMLParser
from itertools import islice, pairwise, takewhile
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
    slot: int
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
        """Replace the texts by translations."""
        whole, *texts = translated if self.whole else ("", *translated)
        spans = find_parts(whole, [texts[element.slot] for element in self.elements])
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

    `gaps` is what stands before each text, of which there is at least one, and after the last.
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
        Element(_raw(opened), slot, _raw(closed))
        for slot, (opened, closed) in enumerate(zip(opening, closing, strict=True))
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
    """Find where each text begins and ends as words of the whole.

    Return None if there is none, one is missing or occurs more often than among `parts`, or two of
    them overlap.
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
    """Return the marks of a kind at the beginning, skipping white space."""
    found = takewhile(lambda mark: mark.kind in (kind, "space"), marks)
    return [mark for mark in found if mark.kind == kind]


_LEFT_ALONE = frozenset({"script", "style", "code", "pre", "textarea", "kbd", "samp", "var"})
_RAW = frozenset({"script", "style"})  # whose content has no entities
_EMPTY = frozenset(
    "area base br col embed hr img input link meta source track wbr".split()  # noqa: SIM905
)
_SPACES = " \t\n\r\f"  # HTML's


@dataclass(frozen=True)
class Document:
    """A document: its texts, and all that stays between them."""

    runs: list[Run]
    """The texts; texts of one sentence share a run."""
    rest: list[str]
    """What stands before each run, and after the last."""

    @classmethod
    def of(cls, content: str) -> "Document":
        """Find the texts of a document, or of a part of one, however malformed."""
        parser = _Parser()
        parser.feed(content)
        parser.close()
        parser.handle_data(parser.rawdata)  # an element at the end that was never closed
        parser.finish_run()
        return cls(parser.runs, parser.rest)

    @property
    def lines(self) -> list[str]:
        """What is to be translated, without line ends."""
        return [line for run in self.runs for line in run.lines]

    def join(self, translated: list[str]) -> str:
        """Replace the texts by translations."""
        waiting = iter(translated)
        parts = [self.rest[0]]
        for run, rest in zip(self.runs, self.rest[1:], strict=True):
            parts += [run.join(list(islice(waiting, len(run.lines)))), rest]
        return "".join(parts)


class _Parser(HTMLParser):
    """Divides a document into runs and the rest."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.runs: list[Run] = []
        self.rest = [""]
        # The run so far: its texts, and what stands before each and after the last.
        self._texts: list[str] = []
        self._gaps: list[list[Mark]] = [[]]
        self._text = ""  # since the last tag; it may come in parts
        # The open elements inside the outermost one that is left alone, itself included.
        self._alone: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        is_alone = bool(self._alone) or _is_left_alone(tag, dict(attrs))
        raw = self.get_starttag_text() or ""
        self._add_mark(Mark(raw, "open", tag) if tag in INLINE and not is_alone else raw)
        if tag not in _EMPTY and is_alone:
            self._alone.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        # A slash means nothing to a browser, except in svg and math.
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        raw = f"</{tag}>"
        self._add_mark(Mark(raw, "close", tag) if tag in INLINE and not self._alone else raw)
        if tag in self._alone:
            while self._alone.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        self._text += data

    def handle_comment(self, data: str) -> None:
        self._add_mark(f"<!--{data}-->")

    def handle_decl(self, decl: str) -> None:
        self._add_mark(f"<!{decl}>")

    def parse_html_declaration(self, i: int) -> int:
        if not self.rawdata.startswith("<![", i):
            return super().parse_html_declaration(i)
        # Python's versions differ here, and some raise an error.
        close = "]]>" if self.rawdata.startswith("<![CDATA[", i) else ">"
        found = self.rawdata.find(close, i)
        end = found + len(close) if found >= 0 else len(self.rawdata)
        self._add_mark(self.rawdata[i:end])
        return end

    def handle_pi(self, data: str) -> None:
        self._add_mark(f"<?{data}>")

    def finish_run(self) -> None:
        """End the run: what follows belongs to another one."""
        self._finish_text()
        if self._texts:
            self.runs.append(make_run(self._texts, self._gaps))
            self.rest.append("")
        else:
            self.rest[-1] += _raw(self._gaps[0])
        self._texts, self._gaps = [], [[]]

    def _add_mark(self, mark: Mark | str) -> None:
        """Add a tag of INLINE to the run, or anything else to the rest."""
        if isinstance(mark, Mark):
            self._finish_text()
            self._gaps[-1].append(mark)
        else:
            self.finish_run()
            self.rest[-1] += mark

    def _finish_text(self) -> None:
        """Add the text since the last tag to the run."""
        text, self._text = self._text, ""
        bare = text.strip(_SPACES)
        if self._alone:
            self._add_space(text if self._alone[-1] in _RAW else escape(text, quote=False))
        elif not bare.strip():
            self._add_space(escape(text, quote=False))
        else:
            start, end = text.split(bare, 1)
            self._add_space(start)
            self._texts.append(" ".join(re.split(f"[{_SPACES}]+", bare)))
            self._gaps.append([])
            self._add_space(end)

    def _add_space(self, raw: str) -> None:
        """Add to the run what is not translated."""
        if raw:
            self._gaps[-1].append(Mark(raw, "space"))


def _is_left_alone(tag: str, attributes: dict[str, str | None]) -> bool:
    classes = (attributes.get("class") or "").split()
    return tag in _LEFT_ALONE or attributes.get("translate") == "no" or "notranslate" in classes
