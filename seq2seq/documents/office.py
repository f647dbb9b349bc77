"""Word and LibreOffice: `.docx` and `.odt`, ZIP archives of XML."""

import re
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from functools import partial
from io import BytesIO
from itertools import accumulate, pairwise
from operator import attrgetter
from typing import Literal, NamedTuple

from seq2seq.documents import encodings
from seq2seq.documents.document import (
    Document,
    File,
    Languages,
    Mark,
    MarkKind,
    Slot,
    Text,
    only_strings,
    write_text,
)
from seq2seq.documents.encodings import Encoding
from seq2seq.documents.xml import Element, Role, escape, parse, read_element_text, read_string
from seq2seq.errors import UserError

# Bytes without compression: of the members that are read, and of all. Beyond the former, all have
# at most ten times as many as the archive itself: a small one must not fill a server's memory.
_MAX_XML, _MAX_BYTES = 100_000_000, 1_000_000_000
_ERRORS = (
    zipfile.BadZipFile, zlib.error, struct.error, EOFError, ValueError, RuntimeError, OSError,
)  # fmt: skip


class Archive:
    """A ZIP archive without tricks: no member twice, none outside, none encrypted."""

    def __init__(self, content: bytes) -> None:
        try:
            self._zip = zipfile.ZipFile(BytesIO(content))
        except _ERRORS as error:
            raise UserError(
                f"not a ZIP archive ({error}): it is damaged, protected by a password, or has an"
                " older format"
            ) from None
        self.members = {member.filename: member for member in self._zip.infolist()}
        if len(self.members) < len(self._zip.infolist()):
            raise UserError("the archive has two members of one name")
        self.check_size(self.members, min(_MAX_BYTES, _MAX_XML + 10 * len(content)), "")
        for name, member in self.members.items():
            if name.startswith("/") or "\\" in name or ".." in name.split("/"):
                raise UserError(f"the archive has a member that lies outside it: {name!r:.100}")
            if member.flag_bits & 1:
                raise UserError("the archive is encrypted: save it without a password first")
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise UserError("the archive is compressed in a way that is not known")
        places = sorted(self._zip.infolist(), key=attrgetter("header_offset"))
        for member, following in pairwise(places):
            if member.header_offset + 30 + member.compress_size > following.header_offset:
                raise UserError("the archive has members inside one another, or is damaged")

    def check_size(self, names: Iterable[str], limit: int, kind: str) -> None:
        """Refuse an archive of which some members together have more bytes, so they say."""
        if sum(self.members[name].file_size for name in names) > limit:
            raise UserError(f"the archive has more than {limit:,} bytes{kind}")

    def read(self, name: str) -> bytes:
        """Return a member without its compression, not one byte more than it says it has."""
        member = self.members[name]
        try:
            with self._zip.open(member) as file:
                return file.read(member.file_size + 1)
        except _ERRORS:
            raise UserError("damaged") from None

    def replace(self, new: Mapping[str, bytes]) -> bytes:
        """Return the archive with other content in some members."""
        written = BytesIO()
        with zipfile.ZipFile(written, "w") as archive:
            archive.comment = self._zip.comment
            for name, member in self.members.items():
                archive.writestr(copy(member), new[name] if name in new else self.read(name))
        return written.getvalue()


# Elements in a paragraph of a .odt that are no words: layout, notes, drawings, bookmarks.
_ODT_ALONE = re.compile(
    r"text:(s|tab|line-break|soft-page-break|note|(change|bookmark|reference-mark)(-start|-end)?"
    r"|(toc|user-index|alphabetical-index)-mark.*)|draw:.*|office:.*"
)


def read_archive(
    content: bytes, is_part: Callable[[str], object], read: Callable[[Element], Iterator[Slot]]
) -> File:
    """Read the parts of an archive that `is_part` names."""
    archive = Archive(content)
    archive.check_size(filter(is_part, archive.members), _MAX_XML, " of text")
    manifest = "META-INF/manifest.xml"
    if manifest in archive.members and b"encryption-data" in archive.read(manifest):
        raise UserError("the document is encrypted: save it without a password first")
    documents: dict[str, tuple[Document, Encoding]] = {}
    for name in archive.members:
        try:
            member = archive.read(name)  # of all, so that none turns out to be damaged later
            if not is_part(name):
                continue
            text, encoding = encodings.decode(
                member, declared=encodings.XML, errors="xmlcharrefreplace"
            )
            if re.search(r"<!DOCTYPE", text[:10_000]):
                raise UserError("it has a DOCTYPE, which such documents must not have")
            slots = sorted(read(parse(text)), key=lambda slot: (slot.start, -slot.end))
            documents[name] = Document(text, slots), encoding
        except UserError as error:
            raise UserError(f"{name}: {error}") from None
    if not documents:
        raise UserError("the archive has no text: it is no document of this format")
    return File(content, documents, archive.replace)


def read_odt(content: bytes, _languages: Languages) -> File:
    """Read an OpenDocument text: its text, headers, footers, notes and comments.

    Deleted text and fields stay as they are.
    """
    return read_archive(content, {"content.xml", "styles.xml"}.__contains__, _odt_slots)


def _odt_slots(root: Element) -> Iterator[Slot]:
    if not root.name.startswith("office:"):
        raise UserError("its elements don't begin with office:, as LibreOffice writes")
    deleted = set[Element]().union(*map(Element.walk, root.walk("text:tracked-changes")))
    for element in root.walk():
        if element.name in ("text:p", "text:h") and element not in deleted:
            holes: list[tuple[Mark, int, int]] = []
            if span := read_element_text(element, partial(_odt_role, holes)):
                yield Slot(span.text, span.start, span.end, span.write, holes)


def _odt_role(holes: list[tuple[Mark, int, int]], element: Element) -> Role:
    if element.name in ("text:span", "text:a", "text:meta"):
        return "around"
    kind: Literal["alone", "word"] = "alone" if _ODT_ALONE.fullmatch(element.name) else "word"
    holes.append((Mark(element.raw, kind), element.start, element.end))
    return kind


_DOCX_PARTS = re.compile(
    r"word/((document|header|footer|footnotes|endnotes|comments)\d*"
    r"|charts/chart\d*|diagrams/(data|drawing)\d*)\.xml",
    re.ASCII,
)
# Programs write `w:p` and `a:p`; some libraries for XML give their own names to namespaces.
_NAMESPACES = (
    "wordprocessingml/main",
    "wordprocessingml/2006/main",
    "drawingml/main",
    "drawingml/2006/main",
)
# Elements around runs that stay around their translation.
_AROUND_RUNS = {"hyperlink", "ins", "moveTo", "smartTag", "customXml", "sdt", "dir", "bdo"}
# Elements that say where spelling errors and pages were in the original.
_STALE = {"proofErr", "lastRenderedPageBreak"}
# Formatting that may differ between two runs that look the same.
_UNSEEN = re.compile(
    r"<[\w.-]+:(?:lang|noProof|kern)(?:\s[^>]*)?/>|\s[\w.-]+:hint=\"\w*\""
    # Letters a point or 9 % closer or wider, as programs that read PDF write
    r"|<[\w.-]+:spacing\s[\w.-]+:val=\"-?(?:1?\d|20)\"/>"
    r"|<[\w.-]+:w\s[\w.-]+:val=\"(?:9\d|10\d)%?\"/>"
)
_HIDDEN = re.compile(r"<[\w.-]+:vanish(?:/>|\s[\w.-]+:val=\"(?:1|true|on)\"/>)")
_EMPTY = re.compile(r"<[\w.-]+:rFonts/>|<[\w.-]+:rPr/>|<([\w.-]+:rPr)></\1>")
_MAX_FIELDS = 20  # in one another
# Fields of which the result is text; that of others is computed, such as a page or a date.
_LINK = re.compile(r"\s*HYPERLINK\b")


def read_docx(content: bytes, _languages: Languages) -> File:
    """Read a Word document: its text, headers, footers, notes, comments, charts and diagrams.

    Deleted text, codes of fields and formulas stay as they are.
    """
    return read_archive(content, _DOCX_PARTS.fullmatch, _docx_slots)


def _docx_slots(root: Element) -> Iterator[Slot]:
    # The paragraphs of charts and diagrams don't know the attribute.
    is_text = root.name.startswith("w:")
    names = {name for name, value in root.attributes.items() if value.endswith(_NAMESPACES)}
    if not is_text and any(name.startswith("xmlns") for name in names - {"xmlns:w", "xmlns:a"}):
        raise UserError("its elements don't begin with w: or a:, as Word and LibreOffice write")
    prefix, space = ("w:", ' xml:space="preserve"') if is_text else ("a:", "")
    for element in root.walk(f"{prefix}p"):
        if slot := _Word(prefix, space, element).slot():
            yield slot


class _Item(NamedTuple):
    """A part of a paragraph: text of a run with its formatting, or something else as a mark."""

    part: str | Mark
    start: int
    end: int
    """Where it is in the content; for a text, where its run is."""
    format: str = ""
    field: str = ""
    """The part of a field that a run is: `begin`, `separate`, `end`, or code after a `=`."""
    run: Element | None = None
    """The run with text that a mark stands in."""

    @property
    def is_loose(self) -> bool:
        """Whether a paragraph's text needs not begin or end with it."""
        return isinstance(self.part, Mark) and not self.run and self.depth == 0

    @property
    def depth(self) -> int:
        """By how much it leads into elements around runs, or out of them."""
        kind = self.part.kind if isinstance(self.part, Mark) else "alone"
        return (kind == "open") - (kind == "close")


class _Word:
    """A paragraph of a .docx, or of a drawing in it, of which the elements have the same names."""

    def __init__(self, prefix: str, space: str, paragraph: Element) -> None:
        self._prefix = prefix
        self._text = f"<{prefix}t{space}>"
        self._content = paragraph.content
        self._run, self._run_end = f"<{prefix}r>", f"</{prefix}r>"
        # Word's bookmark where it was when the document was saved, in a word perhaps, is left out.
        self._cursor: str | None = None
        items = self._join_fields(self._read(paragraph))
        fixed = [i for i, item in enumerate(items) if not item.is_loose]
        self._items = items[fixed[0] : fixed[-1] + 1] if fixed else []
        sizes: Counter[str] = Counter()
        for item in self._items:
            sizes[item.format] += len(item.part) if isinstance(item.part, str) else 0
        self._base = max(sizes, key=sizes.__getitem__, default="")  # of equals, the first
        self._heads: dict[str, tuple[str, str]] = {}  # of marks: what to write, and the formatting

    def slot(self) -> Slot | None:
        """Return the text from the first to the last word, if there is any."""
        if not re.search(r"[^\W\d_]", only_strings(item.part for item in self._items)):
            return None
        first, last = self._items[0], self._items[-1]
        start, end = (first.run or first).start, (last.run or last).end
        holes = [(x.part, x.start, x.end) for x in self._items if isinstance(x.part, Mark)]
        text, raw = tuple(self._parts()), self._content[start:end]
        return Slot(text, start, end, lambda new: raw if new == text else self._write(new), holes)

    def _read(self, parent: Element) -> Iterator[_Item]:
        for child in parent.children:
            local = child.local if child.name.startswith(self._prefix) else ""
            inner = child.find("sdtContent") if local == "sdt" else child
            if local == "r":
                yield from self._read_run(child)
            elif local in _AROUND_RUNS and inner is not None and inner.children:
                yield self._mark(child.start, inner.inside, "open")
                yield from self._read(inner)
                yield self._mark(inner.close, child.end, "close")
            elif local == "bookmarkStart" and '"_GoBack"' in child.raw:
                self._cursor = child.get(f"{self._prefix}id")
            elif local == "bookmarkEnd" and child.get(f"{self._prefix}id") == self._cursor:
                self._cursor = None
            elif local != "pPr" and local not in _STALE:
                yield self._mark(
                    child.start, child.end, "word" if local == "fldSimple" else "alone"
                )

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
        if not any(local == "t" for local, _ in children) or _HIDDEN.search(formatting):
            if children:
                yield _Item(Mark(run.raw), run.start, run.end, field=field)
            return
        for local, child in children:
            if local == "t":
                text = re.sub(r"[^\S\t]", " ", read_string(child))
                if text:  # `<w:t/>` is none
                    yield _Item(text, run.start, run.end, format=formatting)
            else:
                mark = Mark(f"{self._run}{formatting}{child.raw}{self._run_end}")
                yield _Item(mark, child.start, child.end, run=run)

    def _join_fields(self, items: Iterable[_Item]) -> list[_Item]:
        """Make a word of each field, or a pair of marks around the text of a link."""
        joined: list[_Item] = []
        starts: list[int] = []  # where fields begin
        for item in items:
            if item.field == "begin":
                starts.append(len(joined))
            joined.append(item)
            if item.field == "end" and starts:
                start = starts.pop()
                if len(starts) > _MAX_FIELDS:
                    continue
                depths = list(accumulate(x.depth for x in joined[start:]))
                if min(depths) == depths[-1] == 0:
                    joined[start:] = self._read_field(joined[start:])
        return joined

    def _read_field(self, items: list[_Item]) -> list[_Item]:
        fields = [item.field for item in items]
        code = "".join(field[1:] for field in fields if field.startswith("="))
        first, last = items[0], items[-1]
        if "separate" in fields and _LINK.match(code):
            middle = fields.index("separate")
            start = self._mark(first.start, items[middle].end, "open")
            return [start, *items[middle + 1 : -1], self._mark(last.start, last.end, "close")]
        return [self._mark(first.start, last.end, "word")]

    def _mark(self, start: int, end: int, kind: MarkKind) -> _Item:
        return _Item(Mark(self._content[start:end], kind), start, end)

    def _parts(self) -> list[str | Mark]:
        """Put marks around text of other formatting than most of the paragraph has."""
        parts: list[str | Mark] = []
        items = self._items
        i = 0
        while i < len(items):
            first = items[i]
            i += 1
            if isinstance(first.part, Mark):
                parts.append(first.part)
                continue
            text = first.part
            while i < len(items) and isinstance(part := items[i].part, str):
                if items[i].format != first.format and part.strip():
                    break
                text += part
                i += 1
            if first.format == self._base:
                parts.append(text)
                continue
            # A link and the formatting of all of its text are one pair of marks.
            head, tail = "", ""
            is_opened = bool(parts) and isinstance(parts[-1], Mark) and parts[-1].kind == "open"
            if is_opened and i < len(items) and items[i].depth < 0:
                head, tail = (write_text((part,)) for part in (parts.pop(), items[i].part))
                i += 1
            start = f"{head}{self._run}{first.format}"
            self._heads[start] = head, first.format
            parts += [Mark(start, "open"), text, Mark(f"{self._run_end}{tail}", "close")]
        return parts

    def _write(self, translation: Text) -> str:
        """Write each string as a run of its own, in the formatting of the marks around it."""
        written = ""
        formats = [self._base]
        for item in translation:
            if isinstance(item, str):
                text = f"{self._text}{escape(item)}</{self._prefix}t>"
                written += f"{self._run}{formats[-1]}{text}{self._run_end}"
            elif item.kind == "open":
                head, formatting = self._heads.get(item.raw, (item.raw, formats[-1]))
                written += head
                formats.append(formatting)
            elif item.kind == "close":
                written += item.raw.removeprefix(self._run_end)
                formats.pop()
            else:
                written += item.raw
        return written
