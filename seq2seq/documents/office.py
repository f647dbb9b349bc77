"""OpenDocument's .odt, and what .docx shares with it: paragraphs in an archive of XML files."""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from seq2seq.documents import encodings
from seq2seq.documents.document import Document, File, Languages, Mark, Slot, Text
from seq2seq.documents.encodings import Encoding
from seq2seq.documents.xml import Element, Role, parse, read_span
from seq2seq.documents.zipped import Archive
from seq2seq.errors import UserError

# What in a paragraph of a .odt is no word: layout, notes, drawings, and what marks a place.
_ODT_ALONE = re.compile(
    r"text:(s|tab|line-break|soft-page-break|note|change|bookmark|reference-mark"
    r"|(toc|user-index|alphabetical-index)-mark.*)|draw:.*|office:.*"
)
_ODT_RANGE = re.compile(r"(text:bookmark|text:reference-mark|text:change)-(start|end)")


@dataclass(frozen=True)
class Paragraph(Slot):
    """A paragraph, and what in it has paragraphs of its own: a mark, and where that element is."""

    holes: Sequence[tuple[Mark, int, int]] = ()


@dataclass(frozen=True)
class _Part(Document):
    """An XML file of an archive; the paragraphs of notes and text boxes lie within others."""

    def join(self, translations: Sequence[Text | None]) -> str:
        """Put translations in their places."""
        slots = list(zip(self.slots, translations, strict=True))
        return self._render(0, len(self.content), slots)

    def _render(self, start: int, end: int, slots: Sequence[tuple[Slot, Text | None]]) -> str:
        parts, i = [], 0
        while i < len(slots):
            slot, text = slots[i]
            i += 1
            if text is None:
                continue
            first = i
            while i < len(slots) and slots[i][0].start < slot.end:
                i += 1
            parts += [self.content[start : slot.start], self._write(slot, text, slots[first:i])]
            start = slot.end
        return "".join([*parts, self.content[start:end]])

    def _write(self, slot: Slot, text: Text, within: Sequence[tuple[Slot, Text | None]]) -> str:
        """Write a paragraph, with those that are within it."""
        if text == slot.text:
            return self._render(slot.start, slot.end, within)
        assert isinstance(slot, Paragraph)
        new: dict[Mark, str] = {}
        starts = [inner.start for inner, _ in within]
        for mark, start, end in slot.holes:
            inner = within[bisect_left(starts, start) : bisect_left(starts, end)]
            old = self.content[start:end]
            new[mark] = mark.raw.replace(old, self._render(start, end, inner))
        return slot.write(
            tuple(
                Mark(new[part], part.kind) if isinstance(part, Mark) and part in new else part
                for part in text
            )
        )


def read_archive(
    content: bytes,
    is_main: Callable[[str], object],
    is_part: Callable[[str], object],
    read: Callable[[Element], Iterator[Slot]],
) -> File:
    """Read the parts of an archive that `is_part` names, if it has the one that `is_main` does."""
    archive = Archive(content)
    if not any(map(is_main, archive.names)):
        raise UserError("the archive has no main part: it is no document of this format")
    manifest = "META-INF/manifest.xml"
    if manifest in archive.names and b"encryption-data" in archive.read(manifest):
        raise UserError("the document is encrypted: save it without a password first")
    parts: dict[str, tuple[Document, Encoding]] = {}
    for name in filter(is_part, archive.names):
        try:
            text, encoding = encodings.decode(
                archive.read(name), declared=encodings.XML, errors="xmlcharrefreplace"
            )
            if re.search(r"<!DOCTYPE", text[:10_000]):
                raise UserError("it has a DOCTYPE, which such documents must not have")
            slots = sorted(read(parse(text)), key=lambda slot: (slot.start, -slot.end))
        except UserError as error:
            raise UserError(f"{name}: {error}") from None
        parts[name] = _Part(text, slots), encoding
    return File(parts, archive.replace)


def read_odt(content: bytes, _languages: Languages) -> File:
    """Read an OpenDocument text: its text, headers, footers, notes and comments.

    Deleted text and fields stay as they are.
    """
    parts = {"content.xml", "styles.xml"}
    return read_archive(content, "content.xml".__eq__, parts.__contains__, _odt_slots)


def _odt_slots(root: Element) -> Iterator[Slot]:
    tracked = (x for x in root.walk() if x.name == "text:tracked-changes")
    deleted = {x for changes in tracked for x in changes.walk()}
    for element in root.walk():
        if element.name in ("text:p", "text:h") and element not in deleted:
            holes: list[tuple[Mark, int, int]] = []
            if span := read_span(element, partial(_odt_role, holes)):
                yield Paragraph(span.text, span.start, span.end, span.write, holes)


def _odt_role(holes: list[tuple[Mark, int, int]], element: Element) -> Role:
    if element.name in ("text:span", "text:a", "text:meta"):
        return "around"
    if found := _ODT_RANGE.fullmatch(element.name):
        key = element.get("text:name") or element.get("text:change-id")
        return ("open" if found[2] == "start" else "close"), (found[1], key)
    kind: Literal["alone", "word"] = "alone" if _ODT_ALONE.fullmatch(element.name) else "word"
    if any(x.name in ("text:p", "text:h") for x in element.walk()):
        holes.append((Mark(element.raw, kind), element.start, element.end))
    return kind
