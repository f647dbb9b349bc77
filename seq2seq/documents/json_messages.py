"""Messages in JSON: `.json` of web pages, `.arb` of Flutter, `.xcstrings` of Xcode."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from secrets import token_hex
from typing import Any

from seq2seq.documents.document import (
    UTF_16_ESCAPE,
    Languages,
    Slot,
    Text,
    check_languages,
    quoted,
    same_language,
    unescape,
    write_text,
)
from seq2seq.documents.placeholders import (
    ICU,
    PLAIN,
    WITHOUT_BRANCHES,
    Syntax,
    find_texts,
    is_icu,
    is_language,
    only_language,
)
from seq2seq.documents.spans import NO_TEXT
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
_MESSAGE_KEYS = {"message", "defaultMessage"}


def read_json(content: str, _languages: Languages) -> Iterator[Slot]:
    """Find the values that are strings; of messages with a description, the message alone."""
    whole = check_json(content)
    entries = list(whole.values()) if isinstance(whole, dict) else []
    described = set[str]()
    if entries and all(isinstance(entry, dict) for entry in entries):
        described = _MESSAGE_KEYS.intersection(*entries)
    for depth, key, match in _values(content):
        if not described or (depth == 2 and key in described):
            yield from _slots(content, match, _JSON)


def read_arb(content: str, languages: Languages) -> Iterator[Slot]:
    """Find the messages of an application resource bundle; `@@locale` becomes the target."""
    bundle = check_json(content)
    if not isinstance(bundle, dict):
        raise UserError("not an application resource bundle: it is not an object")
    locale = str(bundle.get("@@locale", ""))
    if not same_language(locale, languages.target):  # it may be a copy that is to be translated
        check_languages(locale, "", languages)
    target = quote_json(languages.target.replace("-", "_"))
    for depth, key, match in _values(content):
        if depth == 1 and key == "@@locale":
            yield Slot((), *match.span(1), lambda _: target)
        elif depth == 1 and key[:1] != "@":
            yield from _slots(content, match, WITHOUT_BRANCHES)


def check_json(content: str) -> object:
    """Read JSON, or say where it isn't."""
    try:
        return json.loads(content) if content.strip() else {}
    except ValueError as error:  # not JSON, or a number of many digits
        raise UserError(str(error)) from None


def _values(content: str) -> Iterator[tuple[int, str, re.Match[str]]]:
    """Yield the strings that are values, with the number of brackets around them and their keys."""
    depth, key = 0, ""
    for match in _TOKEN.finditer(content):
        if match[0] in ("{", "["):
            depth += 1
        elif match[0] in ("}", "]"):
            depth -= 1
        elif match[2]:
            key = json.loads(f'"{match[1]}"')
        else:
            yield depth, key, match


def _slots(content: str, match: re.Match[str], syntax: Syntax) -> Iterator[Slot]:
    text, offsets = unescape(match[1], _ESCAPE, _CHARACTERS)
    slots = only_language(find_texts(text, ICU if is_icu(text) else syntax))
    return quoted(content, match.start(1), slots, offsets, quote_json)


def quote_json(text: str) -> str:
    """Write a text as it stands between quotation marks."""
    return _dump(text)[1:-1]


def _dump(value: object, **options: Any) -> str:
    """Write JSON, with escapes for half a surrogate pair alone, which no encoding can write."""
    written = json.dumps(value, ensure_ascii=False, **options)
    return NO_TEXT.sub(lambda match: f"\\u{ord(match[0]):04x}", written)


_MEMBER = re.compile(r'[\s,{]*("(?:[^"\\]|\\.)*+")\s*:\s*')


def read_xcstrings(content: str, languages: Languages) -> Iterator[Slot]:
    """Find the strings that lack the target language; what they get needs review.

    A string without a text in the source language is its key. Plurals have the source's forms.
    """
    catalogue = check_json(content)
    if not isinstance(catalogue, dict) or not isinstance(catalogue.get("strings"), dict):
        raise UserError('not a catalogue of strings: it has no object "strings"')
    is_source = same_language(str(catalogue.get("sourceLanguage")), languages.source)
    first = next(start for name, _, start, _ in _members(content, 0) if name == "strings")
    for key, entry, start, end in _members(content, first):
        localizations = entry.get("localizations", {}) if isinstance(entry, dict) else None
        if not isinstance(localizations, dict) or entry.get("shouldTranslate") is False:
            continue
        source = _find(localizations, languages.source)
        target = _find(localizations, languages.target)
        forms = localizations.get(source) or ({"stringUnit": {"value": key}} if is_source else None)
        earlier = _empty(localizations.get(target), "")[1]
        is_done = any(unit.get("state") != "new" for unit in earlier)
        if is_done or source == target != "":
            continue
        gap = token_hex(16)  # nobody knows it, so no document has it
        emptied, units = _empty(forms, gap)
        new = {**entry, "localizations": {**localizations, target or languages.target: emptied}}
        yield from _fill(start, end, new, [unit["value"] for unit in units], gap)


def _members(content: str, at: int) -> Iterator[tuple[str, Any, int, int]]:
    """Yield the members of an object: keys, values, and where these begin and end."""
    while match := _MEMBER.match(content, at):
        value, at = json.JSONDecoder().raw_decode(content, match.end())
        yield json.loads(match[1]), value, match.end(), at


def _find(localizations: Mapping[str, object], language: str) -> str:
    """Return the code of a localization into a language, perhaps of a country; "" without one."""
    bare = language.lower().split("-")[0]
    codes = [code for code in localizations if code.lower().split("-")[0] == bare]
    return language if language in codes else next(iter(codes), "")


def _empty(localization: object, gap: str) -> tuple[object, list[dict[str, Any]]]:
    """Return a localization with `gap` for the value of each unit, and its units."""
    units = []

    def empty(form: dict[str, Any]) -> dict[str, Any]:
        if not isinstance(form.get("value"), str):
            return form
        units.append(form)
        new = {"state": "needs_review", "value": gap}
        return {**new, **form, **new}

    return json.loads(json.dumps(localization), object_hook=empty), units


def _fill(
    start: int, end: int, entry: dict[str, Any], texts: list[str], gap: str
) -> Iterator[Slot]:
    """Make slots of texts, and of what Xcode writes around them in an entry."""
    if not any(map(_is_translated, texts)):
        return
    written = _dump(entry, indent=2, separators=(",", " : "))
    before, *pieces = written.replace("\n", "\n    ").split(gap)
    yield Slot((), start, end, lambda _: before)
    for text, after in zip(texts, pieces, strict=True):

        def write(translation: Text, text: str = text, after: str = after) -> str:
            return quote_json(write_text(translation or (text,))) + after

        yield Slot((text,) if _is_translated(text) else (), end, end, write)


def _is_translated(text: str) -> bool:
    return is_language((text,)) and not NO_TEXT.search(text)
