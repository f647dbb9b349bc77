"""Plain text: each line is a text."""

import re
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterator

from seq2seq.documents.document import Languages, Slot, write_text
from seq2seq.errors import UserError
from seq2seq.text import NOT_PLAIN, begins_as_code, why_packed

_BINARY = re.compile(rb"[\0-\x08\x0e-\x1a\x1c-\x1f\x7f]")


def why_not_lines(beginning: bytes) -> str:
    """Say why a file that begins so has no lines of text, or return ""."""
    if reason := why_packed(beginning):
        return reason
    if not beginning.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) and _BINARY.search(beginning):
        return "binary, not text"
    return NOT_PLAIN if begins_as_code(beginning.decode(errors="replace")) else ""


def read_text(content: str, languages: Languages) -> Iterator[Slot]:
    """Find the lines of a file that are text."""
    if begins_as_code(content):
        raise UserError(NOT_PLAIN)
    return read_lines(content, languages)


def read_lines(content: str, _languages: Languages) -> Iterator[Slot]:
    """Find the lines that aren't empty."""
    for line in re.finditer(r"[^\r\n]+", content):
        yield Slot((line[0],), *line.span(), write_text)
