"""The readers of all formats: from a file's content to its texts, and to its bytes again."""

from collections.abc import Callable, Iterable
from functools import partial
from operator import itemgetter
from typing import Any, TypeAlias

from seq2seq.controls import UNNAMED
from seq2seq.documents import encodings, named_format
from seq2seq.documents.document import Document, File, FindSlots, Languages, Slot
from seq2seq.documents.html import read_html
from seq2seq.documents.json_messages import read_arb, read_json, read_xcstrings
from seq2seq.documents.lines import read_text, why_not_lines
from seq2seq.documents.markdown import read_markdown
from seq2seq.documents.office import read_docx, read_odt
from seq2seq.documents.po import read_po
from seq2seq.documents.resources import (
    read_android,
    read_properties,
    read_qt,
    read_resx,
    read_strings,
    read_stringsdict,
)
from seq2seq.documents.subtitles import read_ass, read_srt, read_vtt
from seq2seq.documents.tmx import read_tmx
from seq2seq.documents.xliff import read_xliff
from seq2seq.documents.xml import Element, parse
from seq2seq.errors import UserError

Reader: TypeAlias = Callable[[bytes, Languages], File]


def _text(find_slots: FindSlots, **options: Any) -> Reader:
    """Turn a reader of text into a reader of bytes, which `decode` takes with these options."""

    def read_bytes(content: bytes, languages: Languages) -> File:
        text, encoding = encodings.decode(content, **options)
        document = Document.read(find_slots, text, languages)
        return File(content, {"": (document, encoding)}, itemgetter(""))

    return read_bytes


def _xml(
    name: str, meaning: str, find_slots: Callable[[Element, Languages], Iterable[Slot]]
) -> Reader:
    """Turn a reader of an element of this name into a reader of bytes."""

    def read_root(content: str, languages: Languages) -> Iterable[Slot]:
        root = parse(content)
        if root.local != name:
            raise UserError(f"not {meaning}: its first element is {root.name:.50}")
        return find_slots(root, languages)

    return _text(read_root, declared=encodings.XML, errors="xmlcharrefreplace")


READERS: dict[str, Reader] = {
    "arb": _text(read_arb),
    "ass": _text(read_ass),
    "docx": read_docx,
    "html": _text(
        read_html, declared=encodings.HTML, usual=("utf-8", "cp1252"), errors="xmlcharrefreplace"
    ),
    "json": _text(read_json),
    "md": _text(read_markdown),
    "odt": read_odt,
    "po": _text(read_po, declared=encodings.PO),
    "properties": _text(
        read_properties, usual=("ascii", "utf-8", "iso8859-1"), errors=encodings.JAVA_ESCAPES
    ),
    "resx": _xml("root", "a file of .NET's resources", read_resx),
    "srt": _text(read_srt),
    "strings": _text(read_strings),
    "stringsdict": _xml("plist", "a property list", read_stringsdict),
    "tmx": _xml("tmx", "a TMX file", read_tmx),
    "ts": _xml("TS", "a file of Qt's messages", read_qt),
    "txt": _text(read_text),
    "vtt": _text(read_vtt),
    "xcstrings": _text(read_xcstrings),
    "xliff": _xml("xliff", "an XLIFF file", read_xliff),
    "xml": _xml("resources", "a file of Android's strings", read_android),
}
"""The reader of each format."""

_FUZZY = _text(partial(read_po, fuzzy=True), declared=encodings.PO)

BEGINNING_BYTES = 8192
"""The bytes at the beginning of a file that decide whether it is text."""


def choose_format(name: str, content: bytes) -> str:
    """Return the format that a file has by its name, or "txt" if its content is lines of text."""
    try:
        format_name = named_format(name)
    except UserError as error:
        raise UserError(f"{name}: {error}") from None
    if format_name:
        return format_name
    if reason := why_not_lines(content[:BEGINNING_BYTES]):
        raise UserError(f"{name}: {reason}")
    return "txt"


def read_file(
    name: str,
    content: bytes,
    languages: Languages,
    format_name: str | None = None,
    *,
    fuzzy: bool = False,
) -> File:
    """Read a file of a given format, or of the one that its name or its content says.

    With `fuzzy`, the fuzzy entries of a catalogue of gettext are translated again.
    """
    kind = format_name or choose_format(name, content)
    _check_languages(name, content, languages, kind)
    try:
        read = _FUZZY if fuzzy and kind == "po" else READERS[kind]
        return read(content, languages)
    except UserError as error:
        raise UserError(f"{name}: {error}") from None
    except RecursionError:
        raise UserError(f"{name}: brackets are nested too deeply") from None


def _check_languages(name: str, content: bytes, languages: Languages, kind: str) -> None:
    """Refuse a document that names its languages if the model doesn't know its own."""
    is_bilingual = kind in ("tmx", "xcstrings", "xliff")
    # The source may be "", to be detected.
    missing = ["--source-language CODE"] if is_bilingual and languages.source in UNNAMED[1:] else []
    names_target = is_bilingual or (kind == "arb" and b'"@@locale"' in content)
    if names_target and languages.target in UNNAMED:
        missing.append("--to CODE")
    if missing:
        raise UserError(
            f"{name}: names languages, but the model doesn't: add {' and '.join(missing)}"
        )
