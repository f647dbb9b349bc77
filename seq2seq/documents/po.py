"""Catalogues of gettext (.po, .pot): empty entries are filled."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

from seq2seq.documents.document import Languages, Slot, Text, check_languages, unescape
from seq2seq.documents.placeholders import (
    BRACES,
    JAVA,
    PLAIN,
    PRINTF,
    Syntax,
    find_texts,
)
from seq2seq.documents.spans import LINE_END, split_at
from seq2seq.errors import UserError

# Languages have six forms of plurals at most, and each has all texts of the plural.
_LINE = re.compile(
    r"\s*+(?:(msgctxt|msgid_plural|msgid|msgstr)(?:[ \t]*+\[[ \t]*+(\d)[ \t]*+\])?)?+"
    r'[ \t]*+((?:"(?:[^"\\]|\\.)*+"[ \t]*+)*+)'
)
_STRING = re.compile(r'"((?:[^"\\]|\\.)*+)"')
_ESCAPE = re.compile(r"\\(?:(?P<octal>[0-7]{1,3})|x(?P<hex>[0-9A-Fa-f]{1,2})|.)")
_CHARACTERS = {
    "n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", '"': '"',
    "\\": "\\",
}  # fmt: skip
_ESCAPES = {ord(character): f"\\{name}" for name, character in _CHARACTERS.items()}
_LANGUAGE = re.compile(r"^Language: *(\S+)", re.MULTILINE)
_SYNTAXES = {
    **dict.fromkeys(["python-brace-format", "csharp-format", "c++-format", "rust-format"], BRACES),
    "java-format": JAVA,
    **dict.fromkeys(["c-format", "objc-format", "python-format", "php-format"], PRINTF),
    **dict.fromkeys(["perl-format", "lua-format", "awk-format", "javascript-format"], PRINTF),
    **dict.fromkeys(["ruby-format", "tcl-format", "object-pascal-format"], PRINTF),
}


@dataclass
class _Field:
    """The text after one keyword."""

    head: int
    """Where its line begins."""
    start: int
    end: int
    """Where its strings are."""
    value: str = ""


@dataclass
class _Entry:
    line: int
    """The number of its first line."""
    fields: dict[str, _Field] = field(default_factory=dict)
    targets: dict[str, _Field] = field(default_factory=dict)
    flags: list[str] = field(default_factory=list)
    flags_at: int = -1
    """Where the first of its flags is written, or -1."""


def read_po(content: str, languages: Languages, *, fuzzy: bool = False) -> Iterator[Slot]:
    """Find the entries without a translation and, with `fuzzy`, the fuzzy ones.

    Filled entries become fuzzy, since nobody has checked them. `msgattrib --clear-fuzzy` removes
    the marks, and `msgfmt --use-fuzzy` ignores them. The header and obsolete entries stay.
    The first form of a plural is translated from the singular, and the others from the plural.
    """
    for entry in list(_read_entries(content)):
        if not {"msgstr", "msgstr[0]"} & entry.targets.keys():
            raise UserError(f"line {entry.line}: the entry has no msgstr")
        if entry.fields["msgid"].value or "msgctxt" in entry.fields:
            yield from _find_slots(content, entry, fuzzy)
        elif header := entry.targets.get("msgstr"):
            language = _LANGUAGE.search(header.value)
            check_languages("", language[1] if language else "", languages)


def _find_slots(content: str, entry: _Entry, fuzzy: bool) -> list[Slot]:
    slots: list[Slot] = []
    syntax = next(filter(None, map(_SYNTAXES.get, entry.flags)), PLAIN)
    singular = entry.fields["msgid"].value
    plural = entry.fields.get("msgid_plural", entry.fields["msgid"]).value
    # The first of three forms may be that of 21, too: "one file" won't do, "%d file" will.
    arguments = re.compile(syntax.arguments)
    is_counted = len(arguments.findall(singular)) == len(arguments.findall(plural))
    serves_first = len(entry.targets) == 2 or (len(entry.targets) > 2 and is_counted)
    for key, target in entry.targets.items():
        if not target.value or (fuzzy and "fuzzy" in entry.flags):
            is_singular = key == "msgstr" or (key == "msgstr[0]" and serves_first)
            message = singular if is_singular else plural
            slots += _fill(content, entry, target, message, syntax, flag=not slots)
    return slots


def _fill(
    content: str, entry: _Entry, target: _Field, message: str, syntax: Syntax, flag: bool
) -> Iterator[Slot]:
    """Make slots of the lines of a message: the first has the place, and others follow it."""
    slots = find_texts(message, syntax)
    line_end = LINE_END.search(content, entry.fields["msgid"].end)
    assert line_end  # `msgstr` is in another line
    keyword = content[target.head : target.start]
    indent = keyword[: len(keyword) - len(keyword.lstrip())]
    head, place = "", target.start
    if flag and "fuzzy" not in entry.flags:
        place, head = next(iter(entry.fields.values())).head, f"{indent}#, fuzzy{line_end[0]}"
        if entry.flags_at >= 0:
            place, head = entry.flags_at, " fuzzy,"
        head += content[place : target.start]

    def write(first: str, slot: Slot, before: str, after: str, text: Text) -> str:
        line = before + slot.write(text) + after
        strings = [f'"{piece.translate(_ESCAPES)}"' for piece in line.splitlines(keepends=True)]
        if len(slots) == len(strings) == 1:
            return head + strings[0]
        return f"{line_end[0]}{indent}".join([first, *strings])

    first, start = f'{head}""', 0
    # Each text is written with what stands in the message before it, from the start of its line.
    for slot, following in pairwise([*slots, None]):
        assert slot is not None
        end = message.rfind("\n", 0, following.start) + 1 if following else len(message)
        around = message[start : slot.start], message[slot.end : end]
        yield Slot(slot.text, place, target.end, partial(write, first, slot, *around))
        first, start, place = "", end, target.end


def _read_entries(content: str) -> Iterator[_Entry]:
    entry = _Entry(1)
    current: _Field | None = None
    number = 0

    def refuse(reason: str) -> UserError:
        return UserError(f"line {number}: {reason}")

    for number, (begin, end) in enumerate(split_at(LINE_END, content), start=1):
        line = content[begin:end]
        bare = line.lstrip()
        match = _LINE.fullmatch(line)
        if not match and not bare.startswith("#"):
            raise refuse(f"not a keyword with a string in quotes: {bare:.40}")
        if entry.targets and (not match or match[1] in ("msgctxt", "msgid")):
            yield entry
            entry, current = _Entry(number), None
        if not match:  # a comment
            if bare.startswith(("#,", "#=")):
                if entry.flags_at < 0 and bare.startswith("#,"):
                    entry.flags_at = begin + len(line) - len(bare) + 2
                entry.flags += map(str.strip, bare[2:].split(","))
            continue
        place = begin + match.start(3)
        if match[1]:
            key = match[1] if match[2] is None else f"{match[1]}[{int(match[2])}]"
            if not entry.fields:
                entry.line = number
            group = entry.targets if match[1] == "msgstr" else entry.fields
            if key in group or (group is entry.targets and "msgid" not in entry.fields):
                lacks_target = entry.fields and not entry.targets
                reason = "the entry before has no msgstr" if lacks_target else "not expected here"
                raise refuse(f"{key}: {reason}")
            if match[1] == "msgstr" and (match[2] is None) == ("msgid_plural" in entry.fields):
                raise refuse("msgstr[0] goes with msgid_plural, and msgstr without it")
            group[key] = current = _Field(begin, place, place)
        if strings := _STRING.findall(match[3]):
            if current is None:
                raise refuse("a string without a keyword")
            current.value += unescape("".join(strings), _ESCAPE, _CHARACTERS)[0]
            if not match[1] and current.start == current.end:
                current.start = place
            current.end = place + len(match[3].rstrip())
    if entry.fields:
        yield entry
