"""HTML: the texts of a document, and the document with these texts translated.

Tags and comments stay as they stand, and so does what is not meant for readers, or marked as not to
be translated. Texts are translated with their white space as a browser shows it.

A translation can't add a tag: it is escaped, and tags, comments and raw text begin and end here
where they do in a browser (HTML standard, 13.2.5). Where that depends on what only a whole browser
knows, and one of its ways to read the document leads to another text, the rest stays as it stands.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape, unescape
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
        # Without a text, a browser might read what follows in another way.
        kept = [
            new if new.strip() else old for new, old in zip(translated, self.lines, strict=True)
        ]
        whole, *texts = kept if self.whole else ("", *kept)
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


# Whose content is a text up to the end tag, whatever is in it: `noscript` where scripts run.
_RAW = frozenset("script style textarea title xmp iframe noembed noframes noscript".split())  # noqa: SIM905
_LEFT_ALONE = _RAW - {"title", "noscript"} | {"code", "pre", "kbd", "samp", "var", "plaintext"}
# svg and math, inside which nothing is raw text, and elements inside which it may be again.
_FOREIGN = frozenset(
    "svg math foreignobject desc title mi mo mn ms mtext annotation-xml".split()  # noqa: SIM905
)
_OUTER = ("svg", "math", "title")
_EMPTY = frozenset(
    "area base br col embed hr img input link meta source track wbr".split()  # noqa: SIM905
)
_SPACES = " \t\n\r\f"  # HTML's
_ATTRIBUTE = (
    rf"[^{_SPACES}/>][^{_SPACES}/>=]*"
    rf"(?:[{_SPACES}]*=[{_SPACES}]*(?:\"[^\"]*(?:\"|\Z)|'[^']*(?:'|\Z)|[^{_SPACES}\"'>][^{_SPACES}>]*)?)?"
)
_MARKUP = re.compile(
    r"<!--(?:-?>|.*?(?:--!?>|\Z))"  # a comment
    r"|<(?:[!?]|/(?![a-zA-Z]))[^>]*(?:>|\Z)"  # read as a comment, too, or a doctype
    rf"|<(?P<slash>/?)(?P<name>[a-zA-Z][^{_SPACES}/>]*)"
    rf"(?P<attributes>(?:[{_SPACES}]+|/(?!>)|{_ATTRIBUTE})*)(?:(?P<end>/?>)|\Z)",
    re.DOTALL,
)


class Document:
    """A document: its texts, and all that stays between them."""

    def __init__(self, content: str) -> None:
        self.runs: list[Run] = []
        """The texts; texts of one sentence share a run."""
        self.rest = [""]
        """What stands before each run, and after the last."""
        self._content = content
        # The run so far: its texts, and what stands before each and after the last.
        self._texts: list[str] = []
        self._gaps: list[list[Mark]] = [[]]
        # The name of the element that is left alone, and how many of that name are open in it.
        self._alone, self._depth = "", 0
        # The open elements inside which raw text may not be raw; "?" is never closed.
        self._open: list[str] = []
        # The ends of texts that may be raw: no tag may begin before one and end after it.
        self._unsure: set[int] = set()
        self._found: dict[str, int] = {}

    @classmethod
    def of(cls, content: str) -> "Document":
        """Find the texts of a document, or of a part of one, however malformed."""
        document = cls(content)
        document._parse()
        return document

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

    def _parse(self) -> None:
        content, done = self._content, 0
        while found := _MARKUP.search(content, done):
            self._add_text(content[done : found.start()])
            end = self._end(found)
            self._unsure = {other for other in self._unsure if other > found.start()}
            if end is None or any(other < end for other in self._unsure):
                self._add_mark(content[found.start() :])
                done = len(content)
                break
            self._add_markup(found)
            # After a name, what is raw text for a browser; otherwise, the rest of a CDATA section.
            add = self._add_text if found["name"] else self._add_mark
            add(content[found.end() : end])
            done = end
        self._add_text(content[done:])
        self._finish_run()

    def _end(self, found: re.Match[str]) -> int | None:
        """Return where markup ends, with the raw text after it; None if that is not known.

        Which text is raw depends on whether scripts run, and on whether an element is of HTML or of
        svg or math. If it may be both, it is read as tags, and noted where raw text would end.
        """
        content, end = self._content, found.end()
        name = found["name"].lower() if found["end"] and not found["slash"] else ""
        if content.startswith("<![CDATA[", found.start()):
            close = self._find(r"(?<=\]\]>)", found.start() + len("<![CDATA["))
            if content.find("<", end, close) < 0:
                return max(end, close)
            return None if self._open else end
        if name == "plaintext" and not self._open:
            return len(content)
        if name not in _RAW:
            return end
        close = self._find(f"</{name}(?=[{_SPACES}/>])", end)
        commented = name == "script" and content.find("<!--", end, close) >= 0
        if commented and self._find("<script", end) < close:
            return None  # a script in a comment in a script
        if not self._open and name != "noscript":
            return close
        if close < len(content):
            self._unsure.add(close)
        return end

    def _find(self, pattern: str, start: int) -> int:
        """Return the index of the next match, or the length of the document."""
        if self._found.get(pattern, -1) < start:
            found = re.compile(pattern, re.IGNORECASE | re.ASCII).search(self._content, start)
            self._found[pattern] = found.start() if found else len(self._content)
        return self._found[pattern]

    def _add_markup(self, found: re.Match[str]) -> None:
        """Add a tag or a comment to the run or to the rest."""
        name = found["name"].lower() if found["end"] else ""
        is_end = bool(name and found["slash"])
        top = self._open[-1] if self._open else ""
        closes_itself = found["end"] == "/>" and bool(top or name in ("svg", "math"))
        begins = bool(name) and not is_end and not closes_itself and name not in _EMPTY
        if begins and not self._alone and _is_left_alone(name, found["attributes"]):
            self._alone = name
        if name in INLINE and not self._alone:
            self._gaps[-1].append(Mark(found[0], "close" if is_end else "open", name))
        else:
            self._add_mark(found[0])
        if name == self._alone and (begins or is_end):
            self._depth += 1 if begins else -1
            self._alone = name if self._depth else ""
        # What a browser may read in another way stays open.
        if is_end:
            if name == top:
                self._open.pop()
            elif name in _FOREIGN:
                self._open.append("?")
        elif name == "frameset" or (top == "select" and name not in ("option", "optgroup", "")):
            self._open.append("?")
        elif name == "select" or (begins and name in (_FOREIGN if top else _OUTER)):
            self._open.append(name)

    def _finish_run(self) -> None:
        """End the run: what follows belongs to another one."""
        if self._texts:
            self.runs.append(make_run(self._texts, self._gaps))
            self.rest.append("")
        else:
            self.rest[-1] += _raw(self._gaps[0])
        self._texts, self._gaps = [], [[]]

    def _add_mark(self, raw: str) -> None:
        """Add to the rest what ends a sentence."""
        self._finish_run()
        self.rest[-1] += raw

    def _add_text(self, raw: str) -> None:
        """Add to the run a text as it stands in the document."""
        text = unescape(raw)
        bare = text.strip(_SPACES)
        if self._alone or not bare.replace("\0", "").strip():
            self._add_space(raw)
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


def _is_left_alone(name: str, attributes: str) -> bool:
    pairs = (attribute.partition("=") for attribute in re.findall(_ATTRIBUTE, attributes))
    values = {key.strip(_SPACES).lower(): value.strip(_SPACES + "\"'") for key, _, value in pairs}
    classes = values.get("class", "").split()
    return name in _LEFT_ALONE or values.get("translate") == "no" or "notranslate" in classes
