"""Apple's catalogues of strings, .xcstrings, with all languages of an application in one file."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from seq2seq.documents.document import Document, Filled, Languages, Slot, Text, write_text
from seq2seq.documents.json_messages import check_json, quote_json
from seq2seq.documents.language import is_language
from seq2seq.documents.xliff import same_language
from seq2seq.errors import UserError

_MEMBER = re.compile(r'[\s,{]*("(?:[^"\\]|\\.)*+")\s*:\s*')


def read_xcstrings(content: str, languages: Languages) -> Document:
    """Find the strings that lack the target language; what they get needs review.

    A string without a text in the source language is its key. Plurals have the source's forms.
    """
    catalogue = check_json(content)
    if not isinstance(catalogue, dict) or not isinstance(catalogue.get("strings"), dict):
        raise UserError('not a catalogue of strings: it has no object "strings"')
    is_source = same_language(str(catalogue.get("sourceLanguage")), languages.source)
    first = next(start for name, _, start, _ in _members(content, 0) if name == "strings")
    slots: list[Slot] = []
    groups = []
    for key, entry, start, end in _members(content, first):
        known = entry.get("localizations", {}) if isinstance(entry, dict) else None
        if not isinstance(known, dict) or entry.get("shouldTranslate") is False:
            continue
        source, target = _find(known, languages.source), _find(known, languages.target)
        forms = known.get(source) or ({"stringUnit": {"value": key}} if is_source else None)
        is_done = any(unit.get("state") != "new" for unit in _empty(known.get(target))[1])
        emptied, units = _empty(forms)
        texts = [unit["value"] for unit in units]
        if is_done or source == target != "" or not any(is_language((text,)) for text in texts):
            continue
        new = {**entry, "localizations": {**known, target or languages.target: emptied}}
        filled = _fill(start, end, new, texts)
        groups.append(range(len(slots), len(slots) + len(filled)))
        slots += filled
    return Filled(content, slots, groups)


def _members(content: str, at: int) -> Iterator[tuple[str, Any, int, int]]:
    """Yield the members of an object: keys, values, and where these begin and end."""
    while found := _MEMBER.match(content, at):
        value, at = json.JSONDecoder().raw_decode(content, found.end())
        yield json.loads(found[1]), value, found.end(), at


def _find(localizations: Mapping[str, object], language: str) -> str:
    """Return the code of a localization into a language, perhaps of a country; "" without one."""
    bare = language.lower().split("-")[0]
    codes = [code for code in localizations if code.lower().split("-")[0] == bare]
    return language if language in codes else next(iter(codes), "")


def _empty(localization: object) -> tuple[object, list[dict[str, Any]]]:
    """Return a localization with U+0000 for the value of each unit, and its units."""
    units = []

    def empty(form: dict[str, Any]) -> dict[str, Any]:
        if not isinstance(form.get("value"), str):
            return form
        units.append(form)
        new = {"state": "needs_review", "value": "\0"}
        return {**new, **form, **new}

    return json.loads(json.dumps(localization), object_hook=empty), units


def _fill(start: int, end: int, entry: dict[str, Any], texts: list[str]) -> list[Slot]:
    """Make slots of texts, and of what Xcode writes around them in an entry."""
    written = json.dumps(entry, indent=2, separators=(",", " : "), ensure_ascii=False)
    before, *pieces = written.replace("\n", "\n    ").split("\\u0000", len(texts))
    slots = [Slot((), start, end, lambda _: before)]
    for text, after in zip(texts, pieces, strict=True):

        def write(translation: Text, text: str = text, after: str = after) -> str:
            return quote_json(write_text(translation or (text,))) + after

        slots.append(Slot((text,) if is_language((text,)) else (), end, end, write))
    return slots
