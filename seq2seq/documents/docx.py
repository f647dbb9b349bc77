"""Word's .docx: paragraphs, whose runs are joined where they look the same."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise

from seq2seq.documents.document import File, Kind, Languages, Mark, Slot, Text, write_text
from seq2seq.documents.office import Paragraph, read_archive
from seq2seq.documents.xml import Element, Role, escape, pair, read_string

_DOCX_PARTS = re.compile(
    r"word/((document|header|footer|footnotes|endnotes|comments)\d*"
    r"|charts/chart\d*|diagrams/(data|drawing)\d*)\.xml",
    re.ASCII,
)
_MAIN = re.compile(r"word/document\d*\.xml")
_NAMESPACES = "http://(?:schemas.openxmlformats.org/{0}/2006|purl.oclc.org/ooxml/{0})/main"
_WORD, _DRAWING = (
    re.compile(rf"\sxmlns:([\w.-]+)\s*=\s*[\"']{_NAMESPACES.format(name)}[\"']")
    for name in ("wordprocessingml", "drawingml")
)
# Elements around runs that stay around their translation.
_AROUND_RUNS = {"hyperlink", "ins", "moveTo", "smartTag", "customXml", "sdt", "dir", "bdo"}
# What says where spelling errors and pages were in the original.
_STALE = {"proofErr", "lastRenderedPageBreak"}
_RANGE = re.compile(r"(bookmark|commentRange|perm)(Start|End)")
# What may differ in the formatting of two runs that look the same.
_UNSEEN = re.compile(r"<[\w.-]+:(?:lang|noProof)(?:\s[^>]*)?/>|\s[\w.-]+:hint=\"\w*\"")
_EMPTY = re.compile(r"<[\w.-]+:rFonts/>|<[\w.-]+:rPr/>|<([\w.-]+:rPr)></\1>")
_MAX_FIELDS = 20  # in one another
# Fields of which the result is text; that of others is computed, such as a page or a date.
_LINK = re.compile(r"\s*HYPERLINK\b")


def read_docx(content: bytes, _languages: Languages) -> File:
    """Read a Word document: its text, headers, footers, notes, comments, charts and diagrams.

    Deleted text, codes of fields and formulas stay as they are.
    """
    return read_archive(content, _MAIN.fullmatch, _DOCX_PARTS.fullmatch, _docx_slots)


def _docx_slots(root: Element) -> Iterator[Slot]:
    found = _WORD.search(root.tag) or _DRAWING.search(root.tag)
    prefix = f"{found[1]}:" if found else "w:"
    # Drawings don't know the attribute.
    space = "" if found and found.re is _DRAWING else ' xml:space="preserve"'
    for element in root.walk():
        if element.name == f"{prefix}p" and (slot := _Word(prefix, space, element).slot()):
            yield slot


@dataclass(frozen=True)
class _Item:
    """A part of a paragraph: text of a run with its formatting, or something else as a mark."""

    part: str | Mark
    start: int
    end: int
    """Where it is in the content; for a part of a run, where the run is."""
    role: Role = "alone"
    format: str = ""
    field: str = ""
    """What a run is to a field: `begin`, `separate`, `end`, or code after a `=`."""
    in_run: bool = False
    """Whether it stands in a run with text."""

    @property
    def is_loose(self) -> bool:
        """Whether a paragraph's text needs not begin or end with it."""
        return isinstance(self.part, Mark) and not self.in_run and self.depth == 0

    @property
    def is_cursor(self) -> bool:
        """Whether it is the bookmark where Word was when the document was saved."""
        return isinstance(self.part, Mark) and '"_GoBack"' in self.part.raw

    @property
    def depth(self) -> int:
        """By how much it leads into elements around runs, or out of them."""
        return (self.role == ("open", None)) - (self.role == ("close", None))


class _Word:
    """A paragraph of a .docx, or of a drawing in it, of which the elements have the same names."""

    def __init__(self, prefix: str, space: str, paragraph: Element) -> None:
        self._prefix = prefix
        self._text = f"<{prefix}t{space}>"
        self._content = paragraph.content
        self._run, self._run_end = f"<{prefix}r>", f"</{prefix}r>"
        self._holes: list[tuple[Mark, int, int]] = []
        items = self._join_fields(self._read(paragraph))
        cursors = {
            i
            for i, (one, other) in enumerate(pairwise(items))
            if one.is_cursor and other.role == ("close", one.role[1])
        }
        items = [x for i, x in enumerate(items) if not cursors & {i - 1, i}]
        kept = [i for i, item in enumerate(items) if not item.is_loose]
        self._items = items[kept[0] : kept[-1] + 1] if kept else []
        sizes: Counter[str] = Counter()
        for item in self._items:
            sizes[item.format] += len(item.part) if isinstance(item.part, str) else 0
        self._base = sizes.most_common(1)[0][0] if kept else ""
        self._heads: dict[str, tuple[str, str]] = {}  # of marks: what to write, and the formatting

    def slot(self) -> Slot | None:
        """Return the text from the first to the last word, if there is any."""
        texts = (item.part for item in self._items if isinstance(item.part, str))
        if not any(re.search(r"[^\W\d_]", text) for text in texts):
            return None
        start, end = self._items[0].start, self._items[-1].end
        return Paragraph(pair(self._parts()), start, end, self._write, self._holes)

    def _read(self, parent: Element) -> Iterator[_Item]:
        for child in parent.children:
            local = child.local if child.name.startswith(self._prefix) else ""
            inner = child.find("sdtContent") if local == "sdt" else child
            if local == "r":
                yield from self._read_run(child)
            elif local in _AROUND_RUNS and inner is not None and inner.children:
                start = Mark(self._content[child.start : inner.inside])
                close = Mark(self._content[inner.close : child.end])
                yield _Item(start, child.start, inner.inside, ("open", None))
                yield from self._read(inner)
                yield _Item(close, inner.close, child.end, ("close", None))
            elif found := _RANGE.fullmatch(local):
                key = (found[1], child.get(f"{self._prefix}id"))
                role: Role = ("open" if found[2] == "Start" else "close", key)
                yield _Item(Mark(child.raw), child.start, child.end, role)
            elif local != "pPr" and local not in _STALE:
                kind: Kind = "word" if local == "fldSimple" else "alone"
                yield _Item(self._mark(child, child.raw, kind), child.start, child.end)

    def _read_run(self, run: Element) -> Iterator[_Item]:
        """Yield the texts of a run, and what else is in it as runs by themselves."""
        formatting, field = "", ""
        children = []
        for child in run.children:
            local = child.local if child.name.startswith(self._prefix) else ""
            if local == "rPr":
                formatting = _EMPTY.sub("", _EMPTY.sub("", _UNSEEN.sub("", child.raw)))
            elif local == "fldChar":
                field = child.get(f"{self._prefix}fldCharType")
            elif local == "instrText":
                field = f"={read_string(child)}"
            if local != "rPr" and local != "softHyphen" and local not in _STALE:
                children.append((local, child))
        if not any(local in ("t", "noBreakHyphen") for local, _ in children):
            if children:
                yield _Item(self._mark(run, run.raw), run.start, run.end, field=field)
            return
        for local, child in children:
            if local in ("t", "noBreakHyphen"):
                text = re.sub(r"[^\S\t]", " ", read_string(child)) if local == "t" else "\u2011"
                yield _Item(text, run.start, run.end, format=formatting)
            else:
                mark = self._mark(child, f"{self._run}{formatting}{child.raw}{self._run_end}")
                yield _Item(mark, run.start, run.end, in_run=True)

    def _mark(self, element: Element, raw: str, kind: Kind = "alone") -> Mark:
        mark = Mark(raw, kind)
        if any(x.name == f"{self._prefix}p" for x in element.walk()):
            self._holes.append((mark, element.start, element.end))
        return mark

    def _join_fields(self, items: Iterable[_Item]) -> list[_Item]:
        """Make a word of each field, or a pair of marks around the text of a link."""
        joined: list[_Item] = []
        begun: list[int] = []  # where fields begin
        for item in items:
            if item.field == "begin":
                begun.append(len(joined))
            joined.append(item)
            if item.field == "end" and begun:
                start = begun.pop()
                if len(begun) > _MAX_FIELDS:
                    continue
                depths = list(accumulate(x.depth for x in joined[start:]))
                if min(depths) == depths[-1] == 0:
                    joined[start:] = self._read_field(joined[start:])
        return joined

    def _read_field(self, items: list[_Item]) -> list[_Item]:
        code = "".join(item.field[1:] for item in items if item.field.startswith("="))
        places = [i for i, item in enumerate(items) if item.field == "separate"]
        first, last = items[0], items[-1]
        if places and _LINK.match(code):
            end = items[places[0]].end
            mark = Mark(self._content[first.start : end])
            start = _Item(mark, first.start, end, ("open", None))
            close = _Item(last.part, last.start, last.end, ("close", None))
            return [start, *items[places[0] + 1 : -1], close]
        return [_Item(Mark(self._content[first.start : last.end], "word"), first.start, last.end)]

    def _parts(self) -> list[tuple[str | Mark, Role]]:
        """Put marks around text of other formatting than most of the paragraph has."""
        parts: list[tuple[str | Mark, Role]] = []
        items = self._items
        i = 0
        while i < len(items):
            first = items[i]
            i += 1
            if isinstance(first.part, Mark):
                parts.append((first.part, first.role))
                continue
            text = first.part
            while i < len(items) and isinstance(part := items[i].part, str):
                if items[i].format != first.format and part.strip():
                    break
                text += part
                i += 1
            if first.format == self._base:
                parts.append((text, "alone"))
                continue
            # A link and the formatting of all of its text are one pair of marks.
            head, tail = "", ""
            if parts and parts[-1][1] == ("open", None) and i < len(items) and items[i].depth < 0:
                head, tail = (write_text((part,)) for part in (parts.pop()[0], items[i].part))
                i += 1
            start = f"{head}{self._run}{first.format}"
            self._heads[start] = head, first.format
            parts.append((Mark(start), ("open", None)))
            parts.append((text, "alone"))
            parts.append((Mark(f"{self._run_end}{tail}"), ("close", None)))
        return parts

    def _write(self, translation: Text) -> str:
        """Write each string as a run of its own, in the formatting of the marks around it."""
        written = []
        formats = [self._base]
        for part in translation:
            if isinstance(part, str):
                if part:
                    text = f"{self._text}{escape(part)}</{self._prefix}t>"
                    written.append(f"{self._run}{formats[-1]}{text}{self._run_end}")
            elif part.kind == "open":
                head, formatting = self._heads.get(part.raw, (part.raw, formats[-1]))
                written.append(head)
                formats.append(formatting)
            elif part.kind == "close":
                written.append(part.raw.removeprefix(self._run_end))
                formats.pop()
            else:
                written.append(part.raw)
        return "".join(written)
