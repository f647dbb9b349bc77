"""Pairs of sentences from files: two files of lines, .tsv, .jsonl and .tmx.

Unequal line counts, malformed rows and bytes that are not UTF-8 are errors that name file and line,
and are never skipped: one line lost on one side would shift every pair after it.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from seq2seq.data.lines import COMPRESSIONS, count_lines, open_binary, read_text_lines
from seq2seq.data.tsv import TsvForm, read_rows
from seq2seq.errors import UserError

_BLOCK_BYTES = 1 << 16
_MAX_UNIT_BYTES = 1 << 20
"""The largest unit of a translation memory, which is held in memory, all languages together."""
_MAX_LANGUAGES = 20  # that an error names
_XML_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"
# Elements within a segment whose content is formatting of another program, not text.
_CODES = {"bpt", "ept", "it", "ph", "ut"}


Languages: TypeAlias = tuple[str, str]
"""Codes of the source language and of the target language."""


class SentencePair(NamedTuple):
    """A sentence and its translation, as they stand in the corpus."""

    source: str
    target: str


def read_two_files(source: str, target: str) -> Iterator[SentencePair]:
    """Stream the pairs of two files, line by line."""
    with closing(read_text_lines(source)) as sources, closing(read_text_lines(target)) as targets:
        for number, (source_line, target_line) in enumerate(zip_longest(sources, targets), start=1):
            if source_line is None or target_line is None:
                raise UserError(
                    f"{source} has {count_lines(source):,} lines and {target} has"
                    f" {count_lines(target):,} lines: line {number:,} is the first without a"
                    " partner; give files where line k of one belongs to line k of the other"
                )
            yield SentencePair(source_line, target_line)


def read_pairs_file(path: str, languages: Languages, form: TsvForm) -> Iterator[SentencePair]:
    """Stream the pairs of one file; `form` is that of a .tsv."""
    suffix = pairs_suffix(path)
    if suffix == ".tsv":
        return _read_tsv(path, form)
    if suffix == ".jsonl":
        return _read_json_lines(path, languages)
    if suffix == ".tmx":
        return read_tmx(path, languages)
    raise UserError(
        f"{path}: must end in .tsv (a tab in each line), .jsonl or .tmx, compressed or not"
    )


def pairs_suffix(path: str) -> str:
    """Return the suffix of a file of pairs, without that of its compression."""
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    if suffixes and suffixes[-1] in COMPRESSIONS:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def _read_tsv(path: str, form: TsvForm) -> Iterator[SentencePair]:
    for number, (source, *rest) in read_rows(path, form):
        if len(rest) != 1:
            raise UserError(
                f"{path}:{number}: has {len(rest)} tabs; a line is source, tab, target: remove line"
                " breaks within a cell, and other columns, such as by cut -f1,2"
            )
        yield SentencePair(source, rest[0])


def _read_json_lines(path: str, languages: Languages) -> Iterator[SentencePair]:
    for number, line in enumerate(read_text_lines(path), start=1):
        if line.strip():
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise UserError(f"{path}:{number}: not JSON: {error}") from None
            yield pair_of(row, languages, f"{path}:{number}")


def pair_of(row: Any, languages: Languages, where: str) -> SentencePair:
    """Take the two sentences from a row, keyed by language code or by source and target."""
    if isinstance(row, Mapping) and isinstance(row.get("translation"), Mapping):
        row = row["translation"]
    if not isinstance(row, Mapping):
        raise UserError(f"{where}: not a JSON object but {type(row).__name__}")
    for source_key, target_key in (languages, ("source", "target")):
        if source_key in row and target_key in row:
            return SentencePair(
                _text(row[source_key], source_key, where), _text(row[target_key], target_key, where)
            )
    raise UserError(
        f"{where}: has no keys {languages[0]!r} and {languages[1]!r} but"
        f" {', '.join(map(repr, row)) or 'none'}; set data.source_language and"
        " data.target_language"
    )


def _text(value: Any, key: str, where: str) -> str:
    if value is None:
        return ""  # how datasets store an empty cell: a blank side, which is filtered and counted
    if not isinstance(value, str):
        raise UserError(f"{where}: {key!r} is not text but {type(value).__name__}")
    # JSON can spell what a UTF-8 file can't hold.
    if "\0" in value or any("\ud800" <= character <= "\udfff" for character in value):
        raise UserError(f"{where}: {key!r} holds a NUL or half a surrogate pair; repair the row")
    return value


def read_tmx(path: str, languages: Languages) -> Iterator[SentencePair]:
    """Stream the pairs of a translation memory; a side that a unit lacks is blank.

    `en` also stands for `en-GB` and the like, if a unit has no `en` itself. Formatting codes are
    skipped, and runs of white space, line breaks among them, become a space.
    """
    source, target = map(_normalized_code, languages)
    pairs = 0
    known: dict[str, None] = {}
    for texts in _read_units(path):
        pair = SentencePair(_side(texts, source, target), _side(texts, target, source))
        pairs += all(pair)
        if len(known) < _MAX_LANGUAGES:
            known |= dict.fromkeys(texts)
        yield pair
    if not pairs:
        raise UserError(
            f"{path}: no unit has text in both {languages[0]!r} and {languages[1]!r}; the"
            f" languages in it: {', '.join(known) or 'none'}; set data.source_language and"
            " data.target_language"
        )


def _read_units(path: str) -> Iterator[dict[str, str]]:
    """Yield the text of each unit, by language, in bounded memory."""
    from lxml import etree

    parser = etree.XMLPullParser(
        ("end",),
        tag="tu",
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        remove_comments=True,
        remove_pis=True,
    )
    number = waiting = 0
    try:
        with closing(open_binary(path)) as stream:
            while block := stream.read(_BLOCK_BYTES):
                parser.feed(block)
                waiting += len(block)
                for _, unit in parser.read_events():
                    if number == 0:
                        _check_document(unit.getroottree())
                    yield _unit_texts(unit)
                    _forget(unit)
                    number, waiting = number + 1, 0
                if waiting > _MAX_UNIT_BYTES:
                    raise ValueError(f"more than {_MAX_UNIT_BYTES:,} bytes without its end")
            root = parser.close()
            if number == 0:
                _check_document(root.getroottree())
    except etree.XMLSyntaxError as error:
        found = [(entry.line, entry.message) for entry in parser.feed_error_log]
        line, reason = found[0] if found else (1, error.msg)
        raise UserError(f"{path}:{line}: not a readable translation memory: {reason}") from None
    except ValueError as error:
        raise UserError(
            f"{path}, unit {number + 1:,}: not a readable translation memory: {error}"
        ) from None


def _check_document(document: Any) -> None:
    root, dtd = document.getroot(), document.docinfo.internalDTD
    if root.tag != "tmx":
        raise ValueError(f"the first element of the file is {root.tag[:100]!r}, not tmx")
    if dtd is not None and any(True for _ in dtd.iterentities()):
        raise ValueError("definitions in the DOCTYPE of the file, which could expand endlessly")


def _unit_texts(unit: Any) -> dict[str, str]:
    texts: dict[str, str] = {}
    for variant in unit.iter("tuv"):
        language = _normalized_code(variant.get(_XML_LANGUAGE) or variant.get("lang", ""))
        if not language:
            raise ValueError("a tuv without xml:lang")
        for segment in variant.iter("seg"):
            texts.setdefault(language, " ".join("".join(_segment_texts(segment)).split()))
    return texts


def _segment_texts(element: Any) -> Iterator[str]:
    """Yield the texts within an element, without formatting codes."""
    yield element.text or ""
    for inner in element:
        if not isinstance(inner.tag, str):
            raise ValueError(f"the entity {inner.text[:100]}: only XML's own, like &amp;, are read")
        if inner.tag not in _CODES:
            yield from _segment_texts(inner)
        yield inner.tail or ""


def _forget(unit: Any) -> None:
    """Remove a unit, and all that stands before it, from the document in memory."""
    unit.clear(keep_tail=True)
    for element in (unit, *unit.iterancestors()):
        while element.getprevious() is not None:
            del element.getparent()[0]


def _side(texts: Mapping[str, str], language: str, other: str) -> str:
    """Return the text in a language or one of its regions, but not the other side's."""
    regions = (code for code in texts if code.split("-")[0] == language and code != other)
    return texts.get(language if language in texts else next(regions, ""), "")


def _normalized_code(language: str) -> str:
    """Return one spelling of a code that may be written en_US or en-us."""
    return language.lower().replace("_", "-")
