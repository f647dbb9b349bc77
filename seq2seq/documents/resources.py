"""Texts of applications: strings.xml of Android, .ts of Qt, .stringsdict of Apple."""

import re
from collections.abc import Iterator

from seq2seq.documents.document import Document, Languages, Mark, Slot, Text
from seq2seq.documents.escapes import UTF_16_ESCAPE, decode_utf_16
from seq2seq.documents.xml import Element, Role, Span, parse, read_span
from seq2seq.errors import UserError

_ANDROID_ESCAPE = re.compile(rf"({UTF_16_ESCAPE})|\\(.)|\"", re.DOTALL)
_ANDROID_REFERENCE = re.compile(r"[@?](?:\+?[\w.]+:)?\w+/[\w.]+")
# Keys of rules in a .stringsdict whose values are no texts.
_RULES = {"NSStringFormatSpecTypeKey", "NSStringFormatValueTypeKey"}
# The mark of a shortcut, in a word that must not fall apart; not a doubled one, nor an entity.
_SHORTCUT = re.compile(r"(\w*(?<!&)&(?=\w)(?!\w+;))")


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
    text = tuple(
        part
        for piece in span.text
        for part in ([piece] if isinstance(piece, Mark) else _android_parts(piece, span.cdata))
    )

    def write(translation: Text) -> str:
        if translation == text:
            return span.raw
        escaped = tuple(
            part if isinstance(part, Mark) else _android_escape(part) for part in translation
        )
        if escaped and isinstance(escaped[0], str) and escaped[0].startswith(("@", "?")):
            escaped = (f"\\{escaped[0]}", *escaped[1:])
        return span.write(('"', *escaped, '"') if quoted else escaped)

    yield Slot(text, span.start, span.end, write)


def _android_role(element: Element) -> Role:
    return "word" if element.name.endswith(":g") else "around"


def _android_parts(raw: str, cdata: bool) -> Iterator[str | Mark]:
    r"""Take the escapes away; `\n` and `\t` become marks. In CDATA, quotation marks are text."""
    done, string = 0, ""
    for found in _ANDROID_ESCAPE.finditer(raw):
        string += raw[done : found.start()]
        done = found.end()
        if found[2] in ("n", "t"):
            yield from [string] if string else []
            yield Mark(found[0])
            string = ""
        elif found[1]:
            string += decode_utf_16(found[1])
        else:
            string += found[2] or ('"' if cdata else "")
    string += raw[done:]
    yield from [string] if string else []


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
        text = tuple(
            part
            for piece in span.text
            for part in ([piece] if isinstance(piece, Mark) else _qt_parts(piece))
        )
        if target is None:
            head = f'{source.indentation()}<translation type="unfinished">'
            slots.append(_around(source, span, text, head, "</translation>", source.end))
        elif target.get("type") in ("vanished", "obsolete"):
            continue
        elif forms := target.find_all("numerusform"):
            slots += [
                _around(source, span, text, form.tag, "</numerusform>", form)
                for form in forms
                if not read_span(form, _qt_role)
            ]
        elif not read_span(target, _qt_role):
            head, tail = target.tag, "</translation>"
            if message.get("numerus") == "yes":
                head += "<numerusform>"
                tail = f"</numerusform>{tail}"
            slots.append(_around(source, span, text, head, tail, target))
    return Document(content, slots)


def _around(
    source: Element, span: Span, text: Text, head: str, tail: str, place: Element | int
) -> Slot:
    """Write a translation of Qt in place of an element, or at a place."""
    start, end = (place, place) if isinstance(place, int) else (place.start, place.end)
    head = re.sub(r"\s*/>", ">", head) + source.content[source.inside : span.start]
    tail = source.content[span.end : source.close] + tail

    def write(translation: Text) -> str:
        if not translation:
            return source.content[start:end]
        return head + (span.raw if translation == text else span.write(translation)) + tail

    return Slot(text, start, end, write)


def _qt_role(_element: Element) -> Role:
    return "alone"  # <byte value="x1b"/>, a character that XML can't contain


def _qt_parts(string: str) -> Iterator[str | Mark]:
    """Put the mark of a keyboard shortcut in front of its word."""
    before = ""
    for i, piece in enumerate(_SHORTCUT.split(string)):
        if i % 2:
            yield Mark("&amp;")
            before = piece[:-1]
        elif before + piece:
            yield before + piece


def read_stringsdict(content: str, _languages: Languages) -> Document:
    """Read the plural rules of an Apple application: all strings but the names of rules."""
    root = parse(content)
    if root.name != "plist":
        raise UserError(f"not a property list: its first element is {root.name:.50}")
    slots = []
    for holder in (x for x in root.walk() if x.name == "dict"):
        for key, value in zip(holder.children, holder.children[1:], strict=False):
            known = key.name == "key" and key.content[key.inside : key.close] in _RULES
            if value.name == "string" and not known:
                span = read_span(value, _qt_role)
                if span:
                    slots.append(Slot(span.text, span.start, span.end, span.write))
    slots.sort(key=lambda slot: slot.start)
    return Document(content, slots)
