"""Files of pairs of sentences: .tsv, also as a spreadsheet writes it, .jsonl and .tmx.

Malformed rows and bytes that are not UTF-8 are errors that name file and line, and are never
skipped.
"""

import hashlib
import json
import locale
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from functools import cached_property, lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

from seq2seq.errors import UserError
from seq2seq.text import (
    COMPRESSIONS,
    SentencePair,
    has_text,
    is_header,
    is_quoted,
    open_binary,
    read_text_lines,
    split_cells,
)

LanguagePair: TypeAlias = tuple[str, str]
"""Codes of the source language and of the target language."""


class PairsFile:
    """A file of pairs, .tsv, .jsonl or .tmx, compressed or not."""

    def __init__(self, path: str, languages: LanguagePair) -> None:
        self._path, self._languages = path, languages
        suffixes = Path(path.lower()).suffixes
        if suffixes and suffixes[-1] in COMPRESSIONS:
            suffixes.pop()
        self._suffix = suffixes[-1] if suffixes else ""

    def pairs(self) -> Iterator[SentencePair]:
        """Stream the pairs."""
        if self._suffix == ".tsv":
            return _read_tsv(self._path, self._is_quoted, self._header)
        if self._suffix == ".jsonl":
            return _read_json_lines(self._path, self._languages)
        if self._suffix == ".tmx":
            return read_tmx(self._path, self._languages)
        raise UserError(
            f"{self._path}: must end in .tsv (a tab in each line), .jsonl or .tmx, compressed"
            f" ({', '.join(COMPRESSIONS)}) or not; save a spreadsheet as text with tabs, in UTF-8,"
            " and extract the files of an archive;"
            " data.dataset=FOLDER reads .csv and .parquet files"
        )

    def locate(self, number: int) -> str:
        """Name a pair, counted from 1, by its line, or its unit in a translation memory."""
        if self._suffix == ".tmx":
            return f"{self._path}, unit {number:,}"
        if self._suffix == ".jsonl":  # may have blank lines
            with closing(read_text_lines(self._path)) as lines:
                numbers = (i for i, line in enumerate(lines, start=1) if line.strip())
                number = next(islice(numbers, number - 1, None), number)
        return f"{self._path}:{number + bool(self._header)}"

    def remarks(self) -> Iterator[str]:
        """Say what in the file is not read as it stands there."""
        if self._header:
            yield f"{self._path}:1: a header, left out: {self._header!r}"
        if self._is_quoted:
            yield f"{self._path}: quoted as by a spreadsheet, and read so"

    @cached_property
    def _header(self) -> str:
        """The first line of a .tsv, if it names two languages, and so is no pair."""
        if self._suffix != ".tsv":
            return ""
        with closing(read_text_lines(self._path)) as lines:
            first = next(lines, "")
        codes = "\t".join(self._languages).casefold()
        return first if is_header(first) or first.replace('"', "").casefold() == codes else ""

    @cached_property
    def _is_quoted(self) -> bool:
        """Whether quotation marks around the fields of a .tsv are a spreadsheet's, and no text."""
        if self._suffix != ".tsv":
            return False
        return is_quoted(self._path, enumerate(read_text_lines(self._path), start=1))


_BLOCK_BYTES = 1 << 16
_MAX_UNIT_BYTES = 1 << 20
"""The largest unit of a translation memory, which is held in memory, all languages together."""
_MAX_LANGUAGES = 20  # that an error names
_XML_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"
# Elements within a segment whose content is formatting of another program, not text.
_CODES = {"bpt", "ept", "it", "ph", "ut"}


def _read_tsv(path: str, quoted: bool, header: str) -> Iterator[SentencePair]:
    lines = read_text_lines(path)
    for number, line in enumerate(lines, start=1):
        if number == 1 and header:
            continue
        if not line and next(lines, None) is None:
            return  # a blank last line
        row = split_cells(line, quoted=quoted)
        if len(row) != 2:
            raise UserError(
                f"{path}:{number}: has {len(row) - 1} tabs; a line is source, tab, target: save a"
                " spreadsheet as text with tabs, without other columns or line breaks within cells"
            )
        yield SentencePair(*row)


def _read_json_lines(path: str, languages: LanguagePair) -> Iterator[SentencePair]:
    for number, line in enumerate(read_text_lines(path), start=1):
        if line.strip():
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise UserError(f"{path}:{number}: not JSON: {error}") from None
            yield pair_of(row, languages, f"{path}:{number}")


def pair_of(row: Any, languages: LanguagePair, where: str) -> SentencePair:
    """Take the two sentences from a row, keyed by language code or by source and target."""
    if isinstance(row, Mapping) and isinstance(row.get("translation"), Mapping):
        row = row["translation"]
    if not isinstance(row, Mapping):
        raise UserError(f"{where}: not a JSON object but {type(row).__name__}")
    if not (keys := _keys_of_sides(tuple(row), languages)):
        raise UserError(
            f"{where}: has no keys {languages[0]!r} and {languages[1]!r} but"
            f" {', '.join(map(repr, row)) or 'none'}; {_advice(row)}"
        )
    source, target = (_text(row[key], key, where) for key in keys)
    return SentencePair(source, target)


@lru_cache
def _keys_of_sides(keys: tuple[str, ...], languages: LanguagePair) -> tuple[str, ...]:
    """Return the keys of source and target, such as `en` and `de` or `English` and `de-AT`."""
    for pair in (languages, ("source", "target")):
        if all(key in keys for key in pair):
            return pair
    sides = [[key for key in keys if _names_language(key, code)] for code in languages]
    one_each = all(len(side) == 1 for side in sides) and sides[0] != sides[1]
    return (*sides[0], *sides[1]) if one_each else ()


def _names_language(key: str, code: str) -> bool:
    """Tell whether a key is a language's code, one of its regions, or its English name."""
    key = _normalized_code(key)
    code_of_name = locale.locale_alias.get(key, "").partition("_")[0]
    return _normalized_code(code) in (key, key.partition("-")[0], code_of_name)


def _advice(row: Mapping[str, Any]) -> str:
    """Say what makes a row without the keys of the languages readable."""
    for key, value in row.items():
        if isinstance(value, list) and value and isinstance(value[0], Mapping):
            return f"write the rows in {key!r} one per line: jq -c '.{key}[]' FILE > FILE.jsonl"
        if isinstance(value, str) and re.match(r"\{\s*['\"]", value):
            return (
                f"{key!r} is a dictionary that was written as text: save the dataset by"
                " to_parquet or to_json, or each language in a column of its own"
            )
    return (
        "set data.source_language and data.target_language, or rename the columns to 'source'"
        " and 'target'"
    )


def check_csv(path: str) -> None:
    """Raise an error that names what in a .csv file is no text in UTF-8 or no comma."""
    with closing(read_text_lines(path)) as lines:
        header = next(lines, "")
        for mark in (";", "\t"):
            if mark in header and "," not in header:
                raise UserError(
                    f"{path}:1: the columns are separated by {mark!r}: save the file with commas,"
                    " or give text with tabs as data.train.pairs=FILE.tsv"
                )
        for _ in lines:  # whose bytes are checked
            pass


def _text(value: Any, key: str, where: str) -> str:
    if value is None:
        return ""  # how datasets store an empty cell: a blank side, which is filtered and counted
    if not isinstance(value, str):
        raise UserError(f"{where}: {key!r} is not text but {type(value).__name__}")
    # JSON can spell what a UTF-8 file can't hold.
    if "\0" in value or any("\ud800" <= character <= "\udfff" for character in value):
        raise UserError(f"{where}: {key!r} holds a NUL or half a surrogate pair; repair the row")
    return value


def read_tmx(path: str, languages: LanguagePair) -> Iterator[SentencePair]:
    """Stream the pairs of a translation memory; a side that a unit lacks is blank.

    `en` also stands for `en-GB` and the like, if a unit has no `en` itself. Formatting codes are
    skipped, and runs of white space, line breaks among them, become a space.
    """
    source, target = map(_normalized_code, languages)
    pairs = 0
    codes: dict[str, None] = {}
    for texts in _read_units(path):
        pair = SentencePair(_side(texts, source, target), _side(texts, target, source))
        pairs += all(pair)
        if len(codes) < _MAX_LANGUAGES:
            codes |= dict.fromkeys(texts)
        yield pair
    if not pairs:
        raise UserError(
            f"{path}: no unit has text in both {languages[0]!r} and {languages[1]!r}; the"
            f" languages in it: {', '.join(codes) or 'none'}; set data.source_language and"
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
        first = next(iter(parser.feed_error_log), None)
        line, reason = (first.line, first.message) if first else (1, error.msg)
        raise UserError(f"{path}:{line}: not a readable translation memory: {reason}") from None
    except ValueError as error:
        raise UserError(
            f"{path}, unit {number + 1:,}: not a readable translation memory: {error}"
        ) from None


def _check_document(document: Any) -> None:
    root, dtd = document.getroot(), document.docinfo.internalDTD
    if root.tag != "tmx":
        raise ValueError(f"the first element of the file is {root.tag[:100]!r}, not tmx")
    if dtd is not None and dtd.entities():
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


def _side(texts: Mapping[str, str], language: str, other_language: str) -> str:
    """Return the text in a language or one of its regions, but not the other side's."""
    regions = (code for code in texts if code.split("-")[0] == language and code != other_language)
    return texts.get(language if language in texts else next(regions, ""), "")


def _normalized_code(language: str) -> str:
    """Return one spelling of a code that may be written en_US or en-us."""
    return language.lower().replace("_", "-")


HeldOut: TypeAlias = dict[bytes, tuple[int, SentencePair]]
"""Pairs with their numbers in the training text, by digests of their sources."""


def hold_out(train: Iterable[SentencePair], number: int) -> HeldOut:
    """Choose pairs of different sources: of those with the lowest digests, the first ones."""
    held_out: HeldOut = {}
    for numbered in enumerate(train, start=1):
        if has_text(numbered[1]):
            held_out.setdefault(source_digest(numbered[1]), numbered)
        if len(held_out) > 2 * number + 1:
            held_out = dict(sorted(held_out.items())[: number + 1])
    if len(held_out) <= number:
        raise UserError(
            f"data.valid_from_train={number}: data.train has {len(held_out):,} different sources:"
            " lower it, so that some are left for training"
        )
    return dict(sorted(sorted(held_out.items())[:number], key=lambda item: item[1][0]))


def source_digest(pair: SentencePair) -> bytes:
    """Return what pairs of equal sources, but for white space, have in common."""
    return hashlib.blake2b(" ".join(pair.source.split()).encode(), digest_size=8).digest()
