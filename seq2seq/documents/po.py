"""Catalogues of gettext (.po, .pot): empty entries are filled."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from seq2seq.documents.document import Languages, Slot, Text, check_languages, unescape
from seq2seq.documents.placeholders import (
    BRACES,
    JAVA,
    PRINTF,
    Syntax,
    combine,
    find_texts,
    key_first,
)
from seq2seq.documents.spans import LINE_END, split_at
from seq2seq.errors import UserError

_LINE = re.compile(
    r"\s*+(?:(msgctxt|msgid_plural|msgid|msgstr)(?:[ \t]*+\[[ \t]*+(\d+)[ \t]*+\])?)?+"
    r'[ \t]*+((?:"(?:[^"\\]|\\.)*+"[ \t]*+)*+)'
)
_STRING = re.compile(r'"((?:[^"\\]|\\.)*+)"')
_ESCAPE = re.compile(r"\\(?:(?P<octal>[0-7]{1,3})|x(?P<hex>[0-9A-Fa-f]{1,2})|.)")
_CHARACTERS = {
    "n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v",
}  # fmt: skip
_ESCAPES = {ord(c): f"\\{name}" for name, c in _CHARACTERS.items()} | {
    ord(c): f"\\{c}" for c in '"\\'
}
_KEYWORDS = ["msgctxt", "msgid", "msgid_plural", "msgstr"]  # in the order of an entry
_LANGUAGE = re.compile(r"^Language: *(\S+)", re.MULTILINE)
_WIDTH = 79  # as the tools of gettext write
_SYNTAXES = {
    **dict.fromkeys(["python-brace-format", "csharp-format", "c++-format", "rust-format"], BRACES),
    "java-format": JAVA,
    **dict.fromkeys(["c-format", "objc-format", "python-format", "php-format"], PRINTF),
    **dict.fromkeys(["perl-format", "lua-format", "awk-format", "javascript-format"], PRINTF),
    **dict.fromkeys(["ruby-format", "tcl-format", "object-pascal-format"], PRINTF),
}


@dataclass
class _Field:
    """What one keyword says."""

    head: int
    """Where its line begins."""
    start: int
    end: int
    """Where its strings are."""
    value: str


@dataclass
class _Entry:
    line: int
    """The number of its first line."""
    fields: dict[str, _Field] = field(default_factory=dict)
    flags: list[str] = field(default_factory=list)
    flags_at: int = -1
    """Where the first of its flags is written, or -1."""


def read_po(content: str, languages: Languages, *, fuzzy: bool = False) -> Iterator[Slot]:
    """Find the entries without a translation and, with `fuzzy`, the fuzzy ones.

    Filled entries become fuzzy, since nobody has checked them. `msgattrib --clear-fuzzy` removes
    the marks, and `msgfmt --use-fuzzy` ignores them. The header and obsolete entries stay.
    The first form of a plural is translated from the singular, and the others from the plural.
    """
    for entry in _read_entries(content):
        if entry.fields["msgid"].value or "msgctxt" in entry.fields:
            yield from _find_slots(content, entry, fuzzy)
        elif header := entry.fields.get("msgstr"):
            language = _LANGUAGE.search(header.value)
            check_languages("", language[1] if language else "", languages)


def _find_slots(content: str, entry: _Entry, fuzzy: bool) -> list[Slot]:
    slots: list[Slot] = []
    targets = [key for key in entry.fields if key.startswith("msgstr")]
    flagged = [_SYNTAXES.get(flag) for flag in entry.flags]
    syntax = combine([candidate for candidate in (PRINTF, BRACES, JAVA) if candidate in flagged])
    singular = entry.fields["msgid"].value
    plural = entry.fields["msgid_plural"].value if "msgid_plural" in entry.fields else singular
    # The first of three forms may be that of 21, too: "one file" won't do, "%d file" will.
    counts = [len(re.findall(syntax.arguments, form)) for form in (singular, plural)]
    serves_first = len(targets) == 2 or (len(targets) > 2 and counts[0] == counts[1])
    for key in targets:
        if entry.fields[key].value and not (fuzzy and "fuzzy" in entry.flags):
            continue
        is_singular = key == "msgstr" or (key == "msgstr[0]" and serves_first)
        message = singular if is_singular else plural
        slots += _fill(content, entry, entry.fields[key], key_first(message), syntax, not slots)
    return slots


def _fill(
    content: str, entry: _Entry, target: _Field, message: str, syntax: Syntax, flag: bool
) -> list[Slot]:
    """Make slots of the lines of a message: the first has the place, and others follow it."""
    slots = find_texts(message, syntax)
    line_end = LINE_END.search(content, entry.fields["msgid"].end)
    assert line_end  # `msgstr` is in another line
    newline = line_end[0]
    keyword = content[target.head : target.start]
    indent = keyword[: len(keyword) - len(keyword.lstrip())]
    head, before = "", target.start
    if flag and "fuzzy" not in entry.flags:
        before = min(fields.head for fields in entry.fields.values())
        head = f"{indent}#, fuzzy{newline}"
        if entry.flags_at >= 0:
            before, head = entry.flags_at, " fuzzy,"
        head += content[before : target.start]
    # Each text is written with what stands in the message before it, from the start of its line.
    cuts = [0, *(message.rfind("\n", 0, slot.start) + 1 for slot in slots[1:]), len(message)]

    def fill(index: int) -> Slot:
        slot = slots[index]
        start, stop = cuts[index : index + 2]

        def write(text: Text) -> str:
            line = message[start : slot.start] + slot.write(text) + message[slot.end : stop]
            fields = f'"{line.translate(_ESCAPES)}"'
            if len(slots) == 1 and "\n" not in line[:-1] and len(keyword + fields) <= _WIDTH:
                return head + fields
            return f"{newline}{indent}".join(["" if index else f'{head}""', *_wrap(line)])

        return Slot(slot.text, target.end if index else before, target.end, write)

    return [fill(index) for index in range(len(slots))]


def _wrap(text: str) -> list[str]:
    """Write a string in lines of its own."""
    lines = []
    for paragraph in re.findall(r"[^\n]*\n|[^\n]+", text):
        line = ""
        for word in re.findall(r"[^ ]* +|[^ ]+", paragraph):
            escaped = word.translate(_ESCAPES)
            if line and len(line) + len(escaped) > _WIDTH - 2:
                lines.append(f'"{line}"')
                line = ""
            line += escaped
        lines.append(f'"{line}"')
    return lines


def _read_entries(content: str) -> list[_Entry]:
    entries: list[_Entry] = []
    entry = _Entry(1)
    key, number = "", 0

    def refuse(reason: str) -> UserError:
        return UserError(f"line {number}: {reason}")

    for number, (begin, end) in enumerate(split_at(LINE_END, content), start=1):
        line = content[begin:end]
        bare = line.lstrip()
        has_target = any(name.startswith("msgstr") for name in entry.fields)
        match = _LINE.fullmatch(line)
        if not match and not bare.startswith("#"):
            raise refuse(f"not a keyword with a string in quotes: {bare:.40}")
        if has_target and (not match or match[1] in ("msgctxt", "msgid")):
            entries.append(entry)
            entry = _Entry(number)
        if not match:  # a comment
            if bare.startswith(("#,", "#=")):
                if entry.flags_at < 0 and bare.startswith("#,"):
                    entry.flags_at = begin + len(line) - len(bare) + 2
                entry.flags += [flag.strip() for flag in bare[2:].split(",")]
            continue
        if match[1]:
            key = match[1] if match[2] is None else f"{match[1]}[{int(match[2])}]"
            if not entry.fields:
                entry.line = number
            ranks = [_KEYWORDS.index(name.partition("[")[0]) for name in entry.fields]
            rank = _KEYWORDS.index(match[1])
            if key in entry.fields or (rank > 1 and 1 not in ranks) or rank < max(ranks, default=0):
                lacks_target = entry.fields and not has_target
                reason = "the entry before has no msgstr" if lacks_target else "not expected here"
                raise refuse(f"{key}: {reason}")
            if match[1] == "msgstr" and (match[2] is None) == ("msgid_plural" in entry.fields):
                raise refuse("msgstr[0] goes with msgid_plural, and msgstr without it")
            entry.fields[key] = _Field(begin, begin + match.start(3), begin + match.start(3), "")
        strings = _STRING.findall(match[3])
        if strings and key not in entry.fields:
            raise refuse("a string without a keyword")
        if strings:
            target = entry.fields[key]
            target.value += unescape("".join(strings), _ESCAPE, _CHARACTERS)[0]
            if not match[1] and target.start == target.end:
                target.start = begin + match.start(3)
            target.end = begin + match.start(3) + len(match[3].rstrip())
    if entry.fields:
        entries.append(entry)
    for entry in entries:
        number = entry.line
        if not {"msgstr", "msgstr[0]"} & set(entry.fields):
            raise refuse("the entry has no msgstr")
    return entries
