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

from seq2seq.data.lines import COMPRESSED_SUFFIXES, count_lines, read_text_lines
from seq2seq.data.tmx import read_tmx
from seq2seq.errors import UserError

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
