"""The formats: from a file's name to its reader, and a file as its texts and its bytes again."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Protocol

from seq2seq.documents import encodings
from seq2seq.documents.document import Document, Languages, Text
from seq2seq.documents.encodings import Encoding
from seq2seq.documents.lines import read_lines
from seq2seq.documents.office import read_docx, read_odt
from seq2seq.documents.resources import read_android, read_qt, read_stringsdict
from seq2seq.documents.tmx import read_tmx
from seq2seq.documents.xliff import read_xliff
from seq2seq.errors import UserError


class File(Protocol):
    """A file that was read."""

    @property
    def texts(self) -> list[Text]:
        """What is to be translated."""

    def join(self, translations: Sequence[Text | None]) -> bytes:
        """Return the file with translations in their places; where there is None, nothing changes.

        With None everywhere, it is the same file.
        """


@dataclass(frozen=True)
class TextFile:
    """A file of characters."""

    document: Document
    encoding: Encoding

    @property
    def texts(self) -> list[Text]:
        """What is to be translated."""
        return self.document.texts

    def join(self, translations: Sequence[Text | None]) -> bytes:
        """Return the file with translations in their places."""
        return self.encoding.encode(self.document.join(translations))


@dataclass(frozen=True)
class Format:
    """How the files of a format are read."""

    read: Callable[[bytes, Languages], File]


def _text(read: Callable[[str, Languages], Document], **encoding: Any) -> Format:
    """Make a format of characters; `encoding` is how `encodings.decode` finds theirs."""

    def read_file(content: bytes, languages: Languages) -> File:
        text, found = encodings.decode(content, **encoding)
        return TextFile(read(text, languages), found)

    return Format(read_file)


def _xml(read: Callable[[str, Languages], Document]) -> Format:
    return _text(read, declared=encodings.XML, escape=encodings.xml_reference)


FORMATS = {
    # .properties: usual=("ascii", "utf-8", "iso8859-1"), escape=encodings.java_escape
    # .po: declared=encodings.PO
    "docx": Format(read_docx),
    "odt": Format(read_odt),
    "stringsdict": _xml(read_stringsdict),
    "tmx": _xml(read_tmx),
    "ts": _xml(read_qt),
    "txt": _text(read_lines),
    "xliff": _xml(read_xliff),
    "xml": _xml(read_android),
}
"""By the suffix of its files, without the dot."""

_SAME = dict.fromkeys(("xlf", "sdlxliff", "mqxliff", "mxliff"), "xliff")
_SAME |= {"docm": "docx", "dotx": "docx", "ott": "odt"}
"""Other suffixes of the same formats."""


def find_format(name: str) -> str:
    """Return the format that a file has by its name; "" if there is none."""
    suffix = PurePath(name).suffix[1:].lower()
    suffix = _SAME.get(suffix, suffix)
    return suffix if suffix in FORMATS else ""


def read_file(
    name: str, content: bytes, languages: Languages, format_name: str | None = None
) -> File:
    """Read a file of the format that its name says, or of a given one."""
    chosen = format_name or find_format(name)
    if chosen not in FORMATS:
        known = ", ".join(FORMATS)
        raise UserError(f"{name}: format {chosen or 'unknown'}: choose one of {known}")
    try:
        return FORMATS[chosen].read(content, languages)
    except UserError as error:
        raise UserError(f"{name}: {error}") from None
