"""Lists of keys and values: Java's .properties and Apple's .strings."""

import re

from seq2seq.documents.document import Document, Languages, Slot
from seq2seq.documents.escapes import UTF_16_ESCAPE, decode_utf_16, quoted, unescape
from seq2seq.documents.language import only_language
from seq2seq.documents.messages import APPLE, JAVA, PLAIN, find_texts
from seq2seq.documents.spans import LINE_END, split_at
from seq2seq.errors import UserError

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
    found = [match for match in _PROPERTY.finditer(content) if match[1] is not None]
    for match in found:
        if wrong := re.search(r"(?<!\\)(?:\\\\)*+\\u(?![0-9a-fA-F]{4})", match[0]):
            at = match.start() + wrong.end()
            raise _refusal(content, at, "\\u needs four hexadecimal digits")
    values = [unescape(match[3], _JAVA_ESCAPE, _java_character) for match in found]
    quotes = "".join(value for value, _ in values if re.search(r"\{\d", value))
    format_doubles = "''" in quotes or "'" not in quotes
    slots: list[Slot] = []
    for match, (value, offsets) in zip(found, values, strict=True):
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
            found = only_language(find_texts(text, syntax))
            slots += quoted(content, value.start(1), found, offsets, _quote_apple)
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
