"""Texts of applications: Android's strings.xml, Qt's .ts, Apple's .stringsdict, .NET's .resx."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain, pairwise

from seq2seq.documents.document import Document, Languages, Mark, Slot, Text, join_strings
from seq2seq.documents.escapes import UTF_16_ESCAPE, decode_utf_16
from seq2seq.documents.language import is_language
from seq2seq.documents.messages import key_first
from seq2seq.documents.spans import Piece, read_pieces
from seq2seq.documents.xml import Element, Role, opened, parse, read_span
from seq2seq.errors import UserError

_ANDROID_ESCAPE = re.compile(rf"({UTF_16_ESCAPE})|\\(.)|\"", re.DOTALL)
_ANDROID_REFERENCE = re.compile(r"[@?](?:\+?[\w.]+:)?\w+/[\w.]+")
# Keys of rules in a .stringsdict whose values are no texts.
_RULES = {"NSStringFormatSpecTypeKey", "NSStringFormatValueTypeKey"}


def read_android(content: str, _languages: Languages) -> Document:
    """Read the resources of an Android application: strings, string arrays and plurals.

    What is not translatable, and what refers to another resource, stays as it is.
    """
    root = parse(content)
    if root.name != "resources":
        raise UserError(f"not a file of Android's strings: its first element is {root.name:.50}")
    slots: list[Slot] = []
    for holder in root.children:
        if holder.get("translatable") == "false":
            continue
        if holder.name == "string":
            slots += _android_slots(holder)
        elif holder.name in ("string-array", "plurals"):
            for item in holder.find_all("item"):
                slots += _android_slots(item)
    return Document(content, slots)


def _android_slots(element: Element) -> Iterator[Slot]:
    span = read_span(element, _android_role)
    if not span or _ANDROID_REFERENCE.fullmatch(span.raw):
        return
    quoted = len(span.raw) > 1 and span.raw[0] == span.raw[-1] == '"' and span.raw[-2] != "\\"
    text = _divide(span.text, partial(_android_parts, cdata=span.cdata))
    if not is_language(text):
        return

    def write(translation: Text) -> str:
        if translation == text:
            return span.raw
        escaped = _divide(translation, lambda string: [_android_escape(string)])
        if escaped and isinstance(escaped[0], str) and escaped[0].startswith(("@", "?")):
            escaped = (f"\\{escaped[0]}", *escaped[1:])
        return span.write(('"', *escaped, '"') if quoted else escaped)

    yield Slot(text, span.start, span.end, write)


def _divide(text: Text, parts: Callable[[str], Iterable[str | Mark]]) -> Text:
    """Put parts in place of each string of a text."""
    each = ([piece] if isinstance(piece, Mark) else parts(piece) for piece in text)
    return join_strings(chain.from_iterable(each))


def _android_role(element: Element) -> Role:
    return "word" if element.name.endswith(":g") else "around"


def _android_parts(raw: str, cdata: bool) -> list[str | Mark]:
    r"""Take the escapes away; `\n` and `\t` become marks. In CDATA, quotation marks are text."""

    def read(found: re.Match[str]) -> Piece:
        if found[2] in ("n", "t"):
            return Piece(*found.span(), Mark(found[0]))
        if found[1]:
            return Piece(*found.span(), decode_utf_16(found[1]))
        return Piece(*found.span(), found[2] or ('"' if cdata else ""))

    return [piece.value for piece in read_pieces(raw, 0, len(raw), _ANDROID_ESCAPE, read)]


def _android_escape(text: str) -> str:
    text = re.sub(r"([\\'\"])", r"\\\1", text)
    return text.replace("\n", "\\n").replace("\t", "\\t")


def read_qt(content: str, _languages: Languages) -> Document:
    """Read the messages of a Qt application; only translations that are empty are filled.

    They stay unfinished: somebody is to look at them.
    """
    root = parse(content)
    if root.name != "TS":
        raise UserError(f"not a file of Qt's messages: its first element is {root.name:.50}")
    slots = []
    for message in (x for x in root.walk() if x.name == "message"):
        source, target = message.find("source"), message.find("translation")
        if source is None or not (span := read_span(source, _qt_role, quotes=True)):
            continue
        span = replace(span, text=_divide(span.text, lambda string: [key_first(string)]))
        if target is None:
            head = f'{source.indentation()}<translation type="unfinished">'
            slots.append(span.slot(source.end, source.end, head, "</translation>"))
        elif target.get("type") in ("vanished", "obsolete"):
            continue
        elif forms := target.find_all("numerusform"):
            slots += [
                span.slot(form.start, form.end, opened(form.tag), "</numerusform>")
                for form in forms
                if not read_span(form, _qt_role)
            ]
        elif not read_span(target, _qt_role):
            head, tail = opened(target.tag), "</translation>"
            if message.get("numerus") == "yes":
                head += "<numerusform>"
                tail = f"</numerusform>{tail}"
            slots.append(span.slot(target.start, target.end, head, tail))
    return Document(content, slots)


def _qt_role(element: Element) -> Role:
    # A variant of a length, or <byte value="x1b"/>, a character that XML can't contain
    return "around" if element.name == "lengthvariant" else "alone"


def read_stringsdict(content: str, _languages: Languages) -> Document:
    """Read the plural rules of an Apple application: all strings but the names of rules."""
    root = parse(content)
    if root.name != "plist":
        raise UserError(f"not a property list: its first element is {root.name:.50}")
    slots = []
    for holder in (x for x in root.walk() if x.name == "dict"):
        for key, value in pairwise(holder.children):
            known = key.name == "key" and key.content[key.inside : key.close] in _RULES
            if value.name == "string" and not known and (span := read_span(value, _qt_role)):
                slots.append(Slot(span.text, span.start, span.end, span.write))
    slots.sort(key=lambda slot: slot.start)
    return Document(content, slots)


def read_resx(content: str, _languages: Languages) -> Document:
    """Read the resources of a .NET application: strings, but no other types and no locked ones."""
    root = parse(content)
    if root.name != "root":
        raise UserError(f"not a file of .NET's resources: its first element is {root.name:.50}")
    slots = []
    for data in root.find_all("data"):
        value, comment = data.find("value"), data.find("comment")
        is_string = data.get("type").partition(",")[0] in ("", "System.String")
        # `>>label.Name` is what a designer of forms keeps.
        if value is None or not is_string or data.get("mimetype") or data.get("name")[:2] == ">>":
            continue
        span = read_span(value, _qt_role, line_ends=True)
        if is_language(span.text) and not (comment and "{Locked}" in comment.raw):
            slots.append(Slot(span.text, span.start, span.end, span.write))
    return Document(content, slots)
