"""Plain text: each line is a text."""

import re
from collections.abc import Iterator
from locale import locale_alias
from pathlib import PurePath

from seq2seq.documents.document import Languages, Slot, write_text
from seq2seq.errors import UserError

# Languages, but no programs; more of them, and parts of corpora and what is made of these
_PLAIN = {name.split("_")[0] for name in locale_alias} - {"c", "in", "iso", "ph", "pp", "sh", "sp"}
_PLAIN |= set(
    "ara ces deu ell fra hin ita jpn kor nld pol por ron rus spa swe tur zho"  # noqa: SIM905
    " bpe clean dev devtest hyp lc out part ref source src target test text tgt tok train trg txt"
    " valid".split(" ")
)
NOT_PLAIN = "begins as markup, data or a program, not as lines of text"
_STRUCTURED = re.compile(
    r"\s*(?:<(?:[?!]|[a-zA-Z][^<>]*(?:\n|\Z|>\s*(?:[\n<]|\Z)))"  # XML and HTML
    r"|\{\s*(?:[\"}\n]|\Z)|\[\s*(?:[\"{\[\]\n]|\Z)"  # JSON
    r"|#!|//|/\*|\(\*|;;|#include|(?:using|use|package|import|namespace) [\w.:\\]+\s*(?:\{|;\s*\n)"
    r"|---[ \r]*\n|\\[a-z]+[{\[]|WEBVTT|(?:\d+\s+)?[\d:.,]+ -->)"  # YAML, TeX, subtitles
)


def is_plain(name: str) -> bool:
    """Tell whether a name is that of lines of text, as `a.txt`, `test.en` and `test.en.part2`."""
    suffix = PurePath(name).suffix[1:].lower()
    numbered = re.sub(r"\A(part|)\d+\Z", r"\1", suffix)
    return not numbered or " " in suffix or re.split("[-_@]", numbered)[0] in _PLAIN


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
