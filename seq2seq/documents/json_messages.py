"""Messages in JSON: .json of web applications and extensions, and .arb of Flutter."""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial

from seq2seq.documents.document import Document, Languages, Slot
from seq2seq.documents.escapes import UTF_16_ESCAPE, decode_utf_16, quoted, unescape
from seq2seq.documents.language import only_language
from seq2seq.documents.messages import ICU, PLAIN, WITHOUT_BRANCHES, Syntax, find_texts, is_icu
from seq2seq.errors import UserError

# A string, with the colon after it if it is a key, or a bracket
_TOKEN = re.compile(r'"((?:[^"\\]|\\.)*+)"(\s*+:)?|[{}\[\]]')
_ESCAPE = re.compile(rf"{UTF_16_ESCAPE}|\\.")
_CHARACTERS = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
# ICU's '{'name'}'; i18next's $t(key); @:key, {'@'} and { name } of Vue; $NAME$ of browser
# extensions; $1 of MediaWiki; :name of Laravel
_JSON = replace(
    PLAIN,
    arguments=rf"{PLAIN.arguments}|'\{{'\w+'\}}'|\$t\([^()]*+\)|@(?:\.\w+)?:(?:\w[\w.-]*|\([^()]*+\))"
    r"|\{'[^']*'\}|(?<!\{)\{\s++\w+\s++\}(?!\})|\$\w+\$|\$[1-4](?![\d.,]*\d)|(?<![\w:]):[A-Za-z]\w++:?",
)
_MESSAGE_KEYS = ("message", "defaultMessage")


def read_json(content: str, languages: Languages) -> Document:
    """Find the values that are strings; of messages with a description, the message alone."""
    whole = check_json(content)
    described = isinstance(whole, dict) and [
        key
        for key in _MESSAGE_KEYS
        if whole and all(isinstance(value, dict) and key in value for value in whole.values())
    ]
    chosen = (
        match
        for depth, key, match in _values(content)
        if not described or (depth == 2 and key in described)
    )
    return Document(content, list(_slots(content, chosen, _JSON)))


def read_arb(content: str, languages: Languages) -> Document:
    """Find the messages of an application resource bundle; `@@locale` becomes the target."""
    if not isinstance(check_json(content), dict):
        raise UserError("not an application resource bundle: it is not an object")
    top = [(key, match) for depth, key, match in _values(content) if depth == 1]
    slots = list(_slots(content, (match for key, match in top if key[:1] != "@"), WITHOUT_BRANCHES))
    locale = quote_json(languages.target.replace("-", "_"))
    slots += [
        Slot((), *match.span(1), lambda text: locale) for key, match in top if key == "@@locale"
    ]
    return Document(content, sorted(slots, key=lambda slot: slot.start))


def check_json(content: str) -> object:
    """Read JSON, or say where it isn't."""
    try:
        return json.loads(content) if content.strip() else {}
    except json.JSONDecodeError as error:
        raise UserError(f"line {error.lineno}: {error.msg}, column {error.colno}") from None
    except ValueError as error:  # a number of many digits
        raise UserError(str(error)) from None


def _values(content: str) -> list[tuple[int, str, re.Match[str]]]:
    """List the strings that are values, with the number of brackets around them and their keys."""
    values, depth, key = [], 0, ""
    for match in _TOKEN.finditer(content):
        if match[0] in ("{", "["):
            depth += 1
        elif match[0] in ("}", "]"):
            depth -= 1
        elif match[2]:
            key = unescape(match[1], _ESCAPE, _character)[0]
        else:
            values.append((depth, key, match))
    return values


def _slots(content: str, matches: Iterable[re.Match[str]], syntax: Syntax) -> Iterator[Slot]:
    """Make slots of strings, which are written in ASCII if the file is and has such escapes."""
    quote = partial(quote_json, ascii_only=content.isascii() and "\\u" in content)
    for match in matches:
        text, offsets = unescape(match[1], _ESCAPE, _character)
        found = only_language(find_texts(text, ICU if is_icu(text) else syntax))
        yield from quoted(content, match.start(1), found, offsets, quote)


def quote_json(text: str, ascii_only: bool = False) -> str:
    """Write a text as it stands between quotation marks."""
    return json.dumps(text, ensure_ascii=ascii_only)[1:-1]


def _character(match: re.Match[str]) -> str:
    raw = match[0]
    return decode_utf_16(raw) if raw[1] == "u" else _CHARACTERS.get(raw[1], raw[1])
