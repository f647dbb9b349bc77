"""Lines with tabs between their fields: plain text, or as a spreadsheet writes them."""

import csv
import locale
import re
from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple

from seq2seq.data.lines import read_text_lines
from seq2seq.errors import UserError

_FIELD = r'"(?:[^"]|"")*"|[^"\t\r]+'
_FIELDS, _ROW = re.compile(_FIELD), re.compile(rf"(?:{_FIELD})?(?:\t(?:{_FIELD})?)*")
# What headers consist of, besides the codes and names of languages that Python knows.
_WORDS = """
  source target src tgt term original translation text sentence sentences language eng deu ger fra
  fre spa ita por nld rus jpn zho us gb br british american brazilian simplified traditional chinese
  ukrainian persian hindi latin latvian esperanto indonesian vietnamese irish welsh serbian
  englisch französisch spanisch italienisch russisch anglais allemand espagnol español inglés
  alemán italiano português nederlands polski русский українська čeština svenska norsk suomi
  magyar türkçe 中文 日本語 bengali swahili quelle ziel hans hant germany france
"""
_HEADER = {*locale.locale_alias, *_WORDS.split()}


class TsvForm(NamedTuple):
    """How a file is read."""

    is_quoted: bool = False
    """Whether quotation marks around fields are a spreadsheet's, and no text."""
    header: str = ""
    """The first line, if it names two languages, and so is no pair."""


def tsv_form(path: str) -> TsvForm:
    """Find how a file is read, from the whole of it."""
    with closing(read_text_lines(path)) as lines:
        first = next(lines, "")
    return TsvForm(is_quoted(path), first if is_header(first) else "")


def is_quoted(path: str) -> bool:
    """Return whether all quotation marks of a file are a spreadsheet's.

    They stand around fields, and are doubled within. As a plain text may have such fields, one of
    them must hold a quotation mark or a tab, or all fields are quoted, or just those with a comma.
    """
    is_needed, kinds = False, set[tuple[bool, bool]]()
    for line in read_text_lines(path):
        if '"' not in line:
            kinds.add((False, "," in line))
        elif not _ROW.fullmatch(line):
            return False
        else:
            fields = _FIELDS.findall(line)
            kinds.update((field[0] == '"', "," in field) for field in fields)
            is_needed = is_needed or any(re.search('""|\t', field[1:-1]) for field in fields)
    quoted, with_comma = zip(*kinds, strict=True) if kinds else ((), ())
    return is_needed or (any(quoted) and (all(quoted) or quoted == with_comma))


def read_rows(path: str, form: TsvForm) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and the fields of each line but the header."""
    lines = read_text_lines(path)
    rows = csv.reader(lines, "excel-tab") if form.is_quoted else (s.split("\t") for s in lines)
    number = 0
    try:
        for number, row in enumerate(rows, start=1):
            if number > 1 or not form.header:
                yield number, row or [""]
    except csv.Error as error:  # a field that is too long
        raise UserError(f"{path}:{number + 1}: {error}") from None


def is_header(line: str) -> bool:
    """Tell whether the two columns of a line name two languages."""
    cells = [re.findall(r"[^\W_]+", cell) for cell in line.casefold().split("\t")]
    return (
        len(cells) == 2
        and cells[0] != cells[1]
        and all(cell and _HEADER.issuperset(cell) for cell in cells)
        and re.fullmatch(r'[\w\s"():/-]+', line) is not None
    )
