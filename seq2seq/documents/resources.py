"""Messages of Android, Java, Apple, .NET and Qt."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain, pairwise

from seq2seq.documents.document import (
    UTF_16_ESCAPE,
    Document,
    Languages,
    Mark,
    Slot,
    Text,
    check_languages,
    decode_utf_16,
    join_strings,
    quoted,
    unescape,
)
from seq2seq.documents.placeholders import (
    APPLE,
    JAVA,
    PLAIN,
    find_texts,
    is_language,
    key_first,
    only_language,
)
from seq2seq.documents.spans import LINE_END, Piece, read_pieces, split_at
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
        escaped = _divide(translation, lambda string: [_android_escape(string, span.cdata)])
        if escaped and isinstance(escaped[0], str) and escaped[0].startswith(("@", "?")):
            escaped = (f"\\{escaped[0]}", *escaped[1:])
        return span.write(('"', *escaped, '"') if quoted else escaped)

    yield Slot(text, span.start, span.end, write)


def _divide(text: Text, split: Callable[[str], Iterable[str | Mark]]) -> Text:
    """Put parts in place of each string of a text."""
    each = ([piece] if isinstance(piece, Mark) else split(piece) for piece in text)
    return join_strings(chain.from_iterable(each))


def _android_role(element: Element) -> Role:
    return "word" if element.name.endswith(":g") else "around"


def _android_parts(raw: str, cdata: bool) -> list[str | Mark]:
    r"""Take the escapes away; `\n` and `\t` become marks. In CDATA, quotation marks are text."""

    def read(match: re.Match[str]) -> Piece:
        if match[2] in ("n", "t"):
            return Piece(*match.span(), Mark(match[0]))
        if match[1]:
            return Piece(*match.span(), decode_utf_16(match[1]))
        return Piece(*match.span(), match[2] or ('"' if cdata else ""))

    return [piece.value for piece in read_pieces(raw, 0, len(raw), _ANDROID_ESCAPE, read)]


def _android_escape(text: str, cdata: bool) -> str:
    text = re.sub(r"([\\'])" if cdata else r"([\\'\"])", r"\\\1", text)
    return text.replace("\n", "\\n").replace("\t", "\\t")


def read_qt(content: str, languages: Languages) -> Document:
    """Read the messages of a Qt application; only translations that are empty are filled.

    They stay unfinished: somebody is to look at them.
    """
    root = parse(content)
    if root.name != "TS":
        raise UserError(f"not a file of Qt's messages: its first element is {root.name:.50}")
    check_languages(root.get("sourcelanguage"), root.get("language"), languages)
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
            is_rule = key.name == "key" and key.content[key.inside : key.close] in _RULES
            if value.name == "string" and not is_rule and (span := read_span(value, _qt_role)):
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


# A comment or a blank line, or else a key, what is between it and its value, and the value
_PROPERTY = re.compile(
    r"(?<![^\r\n])[ \t\f]*+(?:[#!][^\r\n]*+|(?=[\r\n]|\Z)"
    r"|((?:[^\\\r\n=: \t\f]|\\(?:\r\n|[\s\S]))*+)"
    r"((?:[ \t\f]|\\(?:\r\n|\r|\n))*+(?:[=:](?:[ \t\f]|\\(?:\r\n|\r|\n))*+)?)"
    r"((?:[^\\\r\n]|\\(?:\r\n|[\s\S]))*+\\?))"
)
# A character, a line that goes on, any other escape
_JAVA_ESCAPE = re.compile(
    rf"{UTF_16_ESCAPE}"
    r"|\\(?:\r\n|\r|\n)[ \t\f]*+|\\[\s\S]|\\\Z"
)
_JAVA_CHARACTERS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}
_APPLE_TOKEN = re.compile(
    r'/\*[\s\S]*?\*/|//[^\r\n]*+|"((?:[^"\\]|\\[\s\S])*+)"|[^\s"=;{}/]++|[={};/"]'
)
_APPLE_ESCAPE = re.compile(rf"({UTF_16_ESCAPE.replace('u', '[uU]')})|\\(?:([0-7]{{1,3}})|([\s\S]))")


def read_properties(content: str, languages: Languages) -> Document:
    """Find the values of a list of properties.

    Values with `{0}` are read as Java's MessageFormat unless the apostrophes in them say otherwise.
    """
    matches = [match for match in _PROPERTY.finditer(content) if match[1] is not None]
    for match in matches:
        if wrong := re.search(r"(?<!\\)(?:\\\\)*+\\u(?![0-9a-fA-F]{4})", match[0]):
            at = match.start() + wrong.end()
            raise _refusal(content, at, "\\u needs four hexadecimal digits")
    values = [unescape(match[3], _JAVA_ESCAPE, _java_character) for match in matches]
    quotes = "".join(value for value, _ in values if re.search(r"\{\d", value))
    format_doubles = "''" in quotes or "'" not in quotes
    slots: list[Slot] = []
    for match, (value, offsets) in zip(matches, values, strict=True):
        syntax = JAVA if format_doubles and re.search(r"\{\d|''", value) else PLAIN
        texts = only_language(find_texts(value, syntax))
        slots += quoted(content, match.start(3), texts, offsets, _quote_java)
    return Document(content, slots)


def read_strings(content: str, languages: Languages) -> Document:
    """Find the values of a list of strings as macOS and iOS have them."""
    slots: list[Slot] = []
    statement: list[re.Match[str]] = []
    for token in _APPLE_TOKEN.finditer(content):
        if token[0] in ("/", '"'):  # without an end
            raise _refusal(content, token.start(), 'not "key" = "value"; nor a comment')
        if token[0].startswith("/") or token[0] in ("{", "}"):
            continue
        statement.append(token)
        if token[0] != ";":
            continue
        if [part[0] for part in statement[1::2]] not in (["=", ";"], [";"]):
            raise _refusal(content, statement[0].start(), 'not "key" = "value";')
        value = statement[2] if len(statement) == 4 else None
        if value and value[1]:
            text, offsets = unescape(value[1], _APPLE_ESCAPE, _apple_character)
            syntax = APPLE if re.search(APPLE.arguments, text) else PLAIN
            slots_of_value = only_language(find_texts(text, syntax))
            slots += quoted(content, value.start(1), slots_of_value, offsets, _quote_apple)
        statement = []
    if statement:
        raise _refusal(content, statement[0].start(), "no semicolon after the value")
    return Document(content, slots)


def _refusal(content: str, at: int, reason: str) -> UserError:
    return UserError(f"line {len(split_at(LINE_END, content[:at]))}: {reason}")


def _java_character(match: re.Match[str]) -> str:
    raw = match[0]
    if raw[1:2] == "u":
        return decode_utf_16(raw)
    return "" if raw[1:2] in ("\r", "\n", "") else _JAVA_CHARACTERS.get(raw[1], raw[1])


def _quote_java(text: str) -> str:
    """Write a text; what the encoding of the file lacks is escaped when it is encoded."""
    text = re.sub(r"\A[ =:]|\\", r"\\\g<0>", text)
    for name, character in _JAVA_CHARACTERS.items():
        text = text.replace(character, f"\\{name}")
    return text


def _apple_character(match: re.Match[str]) -> str:
    if match[1]:
        return decode_utf_16(match[1])
    return chr(int(match[2], 8)) if match[2] else _JAVA_CHARACTERS.get(match[3], match[3])


def _quote_apple(text: str) -> str:
    text = re.sub(r'["\\]', r"\\\g<0>", text)
    return text.replace("\n", "\\n").replace("\r", "\\r")
