"""Plain text: each line is a text."""

import re
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterator

from seq2seq.documents.document import Languages, Slot, write_text
from seq2seq.errors import UserError
from seq2seq.text import why_archive

NOT_PLAIN = "begins as markup, data or a program, not as lines of text"
_STRUCTURED = re.compile(
    r"\s*(?:<(?:[?!]|[a-zA-Z][^<>]*(?:\n|\Z|>\s*(?:[\n<]|\Z)))"  # XML and HTML
    r"|\{\s*(?:[\"}\n]|\Z)|\[\s*(?:[\"{\[\]\n]|\Z)"  # JSON
    r"|#!|%!|//|/\*|\(\*|;;|#include"
    r"|(?:using|use|package|import|namespace) [\w.:\\]+\s*(?:\{|;\s*\n)"
    r"|---[ \r]*\n|\\[a-z]+[{\[]|WEBVTT|(?:\d+\s+)?[\d:.,]+ -->)"  # YAML, TeX, subtitles
)
_BINARY = re.compile(rb"[\0-\x08\x0e-\x1a\x1c-\x1f\x7f]")


def why_not_lines(beginning: bytes) -> str:
    """Say why a file that begins so has no lines of text, or return ""."""
    if reason := why_packed(beginning):
        return reason
    if not beginning.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) and _BINARY.search(beginning):
        return "binary, not text"
    return NOT_PLAIN if begins_as_code(beginning.decode(errors="replace")) else ""


def why_packed(beginning: bytes) -> str:
    """Say why the text of a file that begins so must be taken out of it first, or return ""."""
    if beginning.startswith((b"%PDF-", b"{\\rtf")):
        return "PDF or RTF, not plain text; extract its text first"
    return why_archive(beginning)


def begins_as_code(content: str) -> bool:
    """Tell whether a file begins as markup, data or a program."""
    return bool(_STRUCTURED.match(content))


def read_text(content: str, languages: Languages) -> Iterator[Slot]:
    """Find the lines of a file that are text."""
    if begins_as_code(content):
        raise UserError(NOT_PLAIN)
    return read_lines(content, languages)


def read_lines(content: str, _languages: Languages) -> Iterator[Slot]:
    """Find the lines that aren't empty."""
    for line in re.finditer(r"[^\r\n]+", content):
        yield Slot((line[0],), *line.span(), write_text)
