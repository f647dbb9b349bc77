"""Messages of Android, Java, Apple, .NET and Qt."""

import re
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from operator import attrgetter

from seq2seq.documents.document import (
    UTF_16_ESCAPE,
    Languages,
    Mark,
    Slot,
    Text,
    check_languages,
    join_strings,
    map_strings,
    quoted,
    read_escape,
    unescape,
)
from seq2seq.documents.placeholders import (
    JAVA,
    PLAIN,
    find_texts,
    is_language,
    only_language,
)
from seq2seq.documents.spans import LINE_END, split_at
from seq2seq.documents.xml import Element, ElementText, Role, opened, read_element_text
from seq2seq.errors import UserError

_ANDROID_ESCAPE = re.compile(rf"{UTF_16_ESCAPE}|\\.|\"", re.DOTALL)
_ANDROID_REFERENCE = re.compile(r"[@?](?:\+?[\w.]+:)?\w+/[\w.]+")
_MOST_FORMS = 10  # of a plural in Qt's files, each of which gets the whole message
# Keys of rules in a .stringsdict whose values are no texts.
_RULES = {"NSStringFormatSpecTypeKey", "NSStringFormatValueTypeKey"}


def read_android(root: Element, _languages: Languages) -> Iterator[Slot]:
    """Read the resources of an Android application: strings, string arrays and plurals.

    What is not translatable, and what refers to another resource, stays as it is.
    """
    for holder in root.children:
        if holder.get("translatable") == "false":
            continue
        if holder.name == "string":
            yield from _android_slots(holder)
        elif holder.name in ("string-array", "plurals"):
            for item in holder.find_all("item"):
                yield from _android_slots(item)


def _android_slots(element: Element) -> Iterator[Slot]:
    span = read_element_text(element, _android_role)
    if not span or _ANDROID_REFERENCE.fullmatch(span.raw):
        return
    quoted = len(span.raw) > 1 and span.raw[0] == span.raw[-1] == '"' and span.raw[-2] != "\\"
    text = join_strings(_android_parts(span))

    def write(translation: Text) -> str:
        if translation == text:
            return span.raw
        escaped = map_strings(partial(_android_escape, cdata=span.cdata), translation)
        if escaped and isinstance(escaped[0], str) and escaped[0].startswith(("@", "?")):
            escaped = (f"\\{escaped[0]}", *escaped[1:])
        return span.write(('"', *escaped, '"') if quoted else escaped)

    if is_language(text):
        yield Slot(text, span.start, span.end, write)


def _android_role(element: Element) -> Role:
    return "word" if element.name.endswith(":g") else "around"


def _android_parts(span: ElementText) -> Iterator[str | Mark]:
    r"""Take the escapes away; `\n` and `\t` become marks. In CDATA, quotation marks are text."""
    for item in span.text:
        if isinstance(item, Mark):
            yield item
            continue
        end = 0
        for match in _ANDROID_ESCAPE.finditer(item):
            yield item[end : match.start()]
            end = match.end()
            if match[0] in ("\\n", "\\t"):
                yield Mark(match[0])
            elif match[0] == '"':
                yield '"' if span.cdata else ""
            else:
                yield read_escape(match, {})
        yield item[end:]


def _android_escape(text: str, cdata: bool) -> str:
    text = re.sub(r"([\\'])" if cdata else r"([\\'\"])", r"\\\1", text)
    return text.replace("\n", "\\n").replace("\t", "\\t")


def read_qt(root: Element, languages: Languages) -> Iterator[Slot]:
    """Read the messages of a Qt application; only translations that are empty are filled.

    They stay unfinished: somebody is to look at them.
    """
    check_languages(root.get("sourcelanguage"), root.get("language"), languages)
    for message in root.walk("message"):
        source, target = message.find("source"), message.find("translation")
        if source is None or not (span := read_element_text(source, _qt_role)):
            continue
        if target is None:
            head = f'{source.indentation()}<translation type="unfinished">'
            yield span.slot(source.end, source.end, head, "</translation>")
        elif target.get("type") in ("vanished", "obsolete"):
            continue
        elif forms := target.find_all("numerusform"):
            if len(forms) > _MOST_FORMS:
                raise UserError(f"{len(forms):,} plural forms of a message: languages have six")
            for form in forms:
                if not read_element_text(form, _qt_role):
                    yield span.slot(form.start, form.end, opened(form.tag), "</numerusform>")
        elif not read_element_text(target, _qt_role):
            head, tail = opened(target.tag), "</translation>"
            if message.get("numerus") == "yes":
                head += "<numerusform>"
                tail = f"</numerusform>{tail}"
            yield span.slot(target.start, target.end, head, tail)


def _qt_role(element: Element) -> Role:
    # A variant of a length, or <byte value="x1b"/>, a character that XML can't contain
    return "around" if element.name == "lengthvariant" else "alone"


def read_stringsdict(root: Element, _languages: Languages) -> list[Slot]:
    """Read the plural rules of an Apple application: all strings but the names of rules."""
    slots = []
    for holder in root.walk("dict"):
        for key, value in pairwise(holder.children):
            is_rule = key.name == "key" and key.content[key.inside : key.close] in _RULES
            if (
                value.name == "string"
                and not is_rule
                and (span := read_element_text(value, _qt_role))
            ):
                slots.append(Slot(span.text, span.start, span.end, span.write))
    return sorted(slots, key=attrgetter("start"))


def read_resx(root: Element, _languages: Languages) -> Iterator[Slot]:
    """Read the resources of a .NET application: strings, but no other types and no locked ones."""
    for data in root.find_all("data"):
        value, comment = data.find("value"), data.find("comment")
        is_string = data.get("type").partition(",")[0] in ("", "System.String")
        # `>>label.Name` is what a designer of forms keeps.
        if value is None or not is_string or data.get("mimetype") or data.get("name")[:2] == ">>":
            continue
        span = read_element_text(value, _qt_role, line_ends=True)
        if is_language(span.text) and not (comment and "{Locked}" in comment.raw):
            yield Slot(span.text, span.start, span.end, span.write)


# A comment or a blank line, or else a key, what is between it and its value, and the value
_PROPERTY = re.compile(
    r"(?<![^\r\n])[ \t\f]*+(?:[#!][^\r\n]*+|(?=[\r\n]|\Z)"
    r"|((?:[^\\\r\n=: \t\f]|\\(?:\r\n|[\s\S]))*+)"
    r"((?:[ \t\f]|\\(?:\r\n|\r|\n))*+(?:[=:](?:[ \t\f]|\\(?:\r\n|\r|\n))*+)?)"
    r"((?:[^\\\r\n]|\\(?:\r\n|[\s\S]))*+\\?))"
)
# A character, a line that goes on, any other escape
_JAVA_ESCAPE = re.compile(rf"{UTF_16_ESCAPE}|\\(?:\r\n|\r|\n)[ \t\f]*+|\\[\s\S]|\\\Z")
_JAVA_CHARACTERS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}
_CONTINUED = {"\r": "", "\n": ""}  # the end of a line, and the white space after it, are no text
_APPLE_TOKEN = re.compile(
    r'/\*[\s\S]*?\*/|//[^\r\n]*+|"((?:[^"\\]|\\[\s\S])*+)"|[^\s"=;{}/]++|[={};/"]'
)
_APPLE_ESCAPE = re.compile(
    rf"{UTF_16_ESCAPE.replace('u', '[uU]')}|\\(?:(?P<octal>[0-7]{{1,3}})|[\s\S])"
)


def read_properties(content: str, _languages: Languages) -> Iterator[Slot]:
    """Find the values of a list of properties; those with `{0}` are Java's MessageFormat."""
    for match in _PROPERTY.finditer(content):
        if match[1] is None:
            continue
        if wrong := re.search(r"(?<!\\)(?:\\\\)*+\\u(?![0-9a-fA-F]{4})", match[0]):
            place = match.start() + wrong.end()
            raise _refusal(content, place, "\\u needs four hexadecimal digits")
        value, offsets = unescape(match[3], _JAVA_ESCAPE, _JAVA_CHARACTERS | _CONTINUED)
        syntax = JAVA if re.search(r"\{\d|''", value) else PLAIN
        slots = only_language(find_texts(value, syntax))
        yield from quoted(content, match.start(3), slots, offsets, _quote_java)


def read_strings(content: str, _languages: Languages) -> Iterator[Slot]:
    """Find the values of a list of strings as macOS and iOS have them."""
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
            text, offsets = unescape(value[1], _APPLE_ESCAPE, _JAVA_CHARACTERS)
            slots = only_language(find_texts(text, PLAIN))
            yield from quoted(content, value.start(1), slots, offsets, _quote_apple)
        statement = []
    if statement:
        raise _refusal(content, statement[0].start(), "no semicolon after the value")


def _refusal(content: str, at: int, reason: str) -> UserError:
    return UserError(f"line {len(split_at(LINE_END, content[:at]))}: {reason}")


def _quote_java(text: str) -> str:
    """Write a text; what the encoding of the file lacks is escaped when it is encoded."""
    text = re.sub(r"\A[ =:]|\\", r"\\\g<0>", text)
    for name, character in _JAVA_CHARACTERS.items():
        text = text.replace(character, f"\\{name}")
    return text


def _quote_apple(text: str) -> str:
    text = re.sub(r'["\\]', r"\\\g<0>", text)
    return text.replace("\n", "\\n").replace("\r", "\\r")
