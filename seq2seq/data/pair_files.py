"""Pairs of sentences from files: two files of lines, .tsv, .jsonl and .tmx.

Unequal line counts, malformed rows and bytes that are not UTF-8 are errors that name file and line,
and are never skipped: one line lost on one side would shift every pair after it.
"""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import closing
from itertools import zip_longest
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeAlias
from xml.parsers import expat

from seq2seq.data.lines import COMPRESSED_SUFFIXES, count_lines, open_binary, read_text_lines
from seq2seq.errors import UserError

_BLOCK_BYTES = 1 << 16
_MAX_TOKEN_BYTES = 1 << 20
"""The largest tag or comment; the parser holds it in memory until it ends."""
_MAX_UNIT_CHARACTERS = 1 << 20
"""The most text in a unit, all languages together."""
_MAX_DEPTH = 100
_MAX_LANGUAGES = 20  # that an error names
_LANGUAGE = "http://www.w3.org/XML/1998/namespace lang"
# Elements within a segment whose content is formatting of another program, not text.
_CODES = {"bpt", "ept", "it", "ph", "ut"}


def read_tmx(path: str, source_language: str, target_language: str) -> Iterator[tuple[str, str]]:
    """Yield source and target of each unit, in order; a side that a unit lacks is blank.

    `en` also stands for `en-GB` and the like, if a unit has no `en` itself. Formatting codes are
    left out, and runs of white space, line breaks among them, become a space.

    Raises:
        UserError: if the file is not XML, defines anything in its DOCTYPE, has an endless tag or
            unit, or no unit has text in both languages; the message names the file and the line.
    """
    reader = _Reader(path)
    both = 0
    with closing(open_binary(path)) as stream:
        for unit in reader.units(stream):
            pair = _tmx_text(unit, source_language), _tmx_text(unit, target_language)
            both += all(pair)
            yield pair
    if not both:
        found = ", ".join(list(reader.languages)) or "none"
        raise UserError(
            f"{path}: no unit has text in both {source_language!r} and {target_language!r}; the"
            f" languages in it: {found}; set data.source_language and data.target_language"
        )


def _tmx_text(unit: dict[str, str], language: str) -> str:
    wanted = _code(language)
    if wanted in unit:
        return unit[wanted]
    return next((text for code, text in unit.items() if code.split("-")[0] == wanted), "")


def _code(language: str) -> str:
    """Return one spelling of a code that may be written en_US or en-us."""
    return language.lower().replace("_", "-")


class _Reader:
    """Collects the units of one file: the text of each, by language."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.languages: dict[str, None] = {}
        self._units: list[dict[str, str]] = []
        self._unit: dict[str, str] = {}
        self._language = ""
        self._segment: list[str] | None = None
        self._characters = 0
        self._codes = self._depth = 0
        self._parser = parser = expat.ParserCreate(namespace_separator=" ")
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters_of
        parser.StartDoctypeDeclHandler = self._doctype
        parser.SkippedEntityHandler = self._entity
        parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)

    def units(self, stream: BinaryIO) -> Iterator[dict[str, str]]:
        """Yield the units of a stream."""
        position, done = 0, False
        while not done:
            block = stream.read(_BLOCK_BYTES)
            position, done = position + len(block), not block
            try:
                self._parser.Parse(block, done)
            except expat.ExpatError as error:
                raise self._error(expat.ErrorString(error.code), error.lineno) from None
            if position - self._parser.CurrentByteIndex > _MAX_TOKEN_BYTES + _BLOCK_BYTES:
                raise self._error(f"a tag or comment of more than {_MAX_TOKEN_BYTES:,} bytes")
            yield from self._units
            self._units.clear()

    def _error(self, reason: str, line: int | None = None) -> UserError:
        line = line or self._parser.CurrentLineNumber
        return UserError(f"{self.path}:{line}: not a readable translation memory: {reason}")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self._error(f"elements nested more than {_MAX_DEPTH} deep")
        if self._depth == 1 and name != "tmx":
            raise self._error(f"its first element is {name[:100]!r}, not tmx")
        if name == "tu":
            self._unit, self._characters = {}, 0
        elif name == "tuv":
            self._language = _code(attributes.get(_LANGUAGE) or attributes.get("lang", ""))
            if not self._language:
                raise self._error("a tuv without xml:lang")
            self._count(self._language)
        elif name == "seg":
            self._segment, self._codes = [], 0
        elif self._segment is not None and name in _CODES:
            self._codes += 1

    def _end(self, name: str) -> None:
        self._depth -= 1
        if name == "tu":
            self._units.append(self._unit)
        elif name == "seg" and self._segment is not None:
            text = re.sub(r"\s+", " ", "".join(self._segment)).strip()
            self._unit.setdefault(self._language, text)
            if len(self.languages) < _MAX_LANGUAGES:
                self.languages[self._language] = None
            self._segment = None
        elif self._segment is not None and name in _CODES:
            self._codes -= 1

    def _characters_of(self, text: str) -> None:
        if self._segment is not None and not self._codes:
            self._count(text)
            self._segment.append(text)

    def _count(self, text: str) -> None:
        self._characters += len(text)
        if self._characters > _MAX_UNIT_CHARACTERS:
            raise self._error(f"a unit of more than {_MAX_UNIT_CHARACTERS:,} characters")

    def _doctype(self, name: str, system: str | None, public: str | None, inside: int) -> None:
        if inside:
            raise self._error("definitions in its DOCTYPE, which could expand endlessly")

    def _entity(self, name: str, is_parameter: int) -> None:
        raise self._error(f"the entity {name[:100]!r}: only XML's own, such as &amp;, are read")


Languages: TypeAlias = tuple[str, str]
"""Codes of the source language and of the target language."""


class SentencePair(NamedTuple):
    """A sentence and its translation, as they stand in the corpus."""

    source: str
    target: str


def read_two_files(source: str, target: str) -> Iterator[SentencePair]:
    """Stream the pairs of two files, line by line.

    Raises:
        UserError: while reading, if they differ in their number of lines.
    """
    with closing(read_text_lines(source)) as sources, closing(read_text_lines(target)) as targets:
        for number, (source_line, target_line) in enumerate(zip_longest(sources, targets), start=1):
            if source_line is None or target_line is None:
                raise UserError(
                    f"{source} has {count_lines(source):,} lines and {target} has"
                    f" {count_lines(target):,} lines: line {number:,} is the first without a"
                    " partner; give files where line k of one belongs to line k of the other"
                )
            yield SentencePair(source_line, target_line)


def read_pairs_file(path: str, languages: Languages) -> Iterator[SentencePair]:
    """Stream the pairs of one file.

    Raises:
        UserError: if its suffix is unknown; while reading, if a line is malformed.
    """
    suffix = pairs_suffix(path)
    if suffix == ".tsv":
        return _read_tsv(path)
    if suffix == ".jsonl":
        return _read_json_lines(path, languages)
    if suffix == ".tmx":
        return (SentencePair(*pair) for pair in read_tmx(path, *languages))
    raise UserError(f"{path}: a file of pairs must end in .tsv, .jsonl or .tmx, compressed or not")


def pairs_suffix(path: str) -> str:
    """Return the suffix of a file of pairs, without that of its compression."""
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    if suffixes and suffixes[-1] in COMPRESSED_SUFFIXES:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def _read_tsv(path: str) -> Iterator[SentencePair]:
    for number, line in enumerate(read_text_lines(path), start=1):
        source, *rest = line.split("\t")
        if len(rest) != 1:
            raise UserError(f"{path}:{number}: has {len(rest)} tabs; a line is source, tab, target")
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
    """Take the two sentences from a row, keyed by language code or by source and target.

    Raises:
        UserError: if the row has no such keys, or their values are not text.
    """
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
