"""Translation memories: the pairs of a .tmx file (TMX 1.4), read as a stream.

The file may come from anybody. It may not define anything in its DOCTYPE, since the expansion of
entities knows no bounds, and nothing that it refers to is opened.
"""

import re
from collections.abc import Iterator
from contextlib import closing
from typing import BinaryIO
from xml.parsers import expat

from seq2seq.data.lines import open_binary
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
            pair = _text(unit, source_language), _text(unit, target_language)
            both += all(pair)
            yield pair
    if not both:
        found = ", ".join(list(reader.languages)) or "none"
        raise UserError(
            f"{path}: no unit has text in both {source_language!r} and {target_language!r}; the"
            f" languages in it: {found}; set data.source_language and data.target_language"
        )


def _text(unit: dict[str, str], language: str) -> str:
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
