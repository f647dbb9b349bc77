"""What stands in strings for something else, by its looks: `{name}`, `%s`, `<b>`, addresses.

Readers find what their format says; this finds the rest, in the strings of any text.
"""

import re
from collections.abc import Iterable, Iterator

from seq2seq.documents.document import Kind, Mark, Text, write_text
from seq2seq.documents.spans import VOID

_FOUND = re.compile(
    r"""
    \{%[^{}\n]*?%\} | \{\#[^{}\n]*?\#\} | <%[^<>\n]*?%> | \{\{[\#/^!>][^{}\n]*\}\}  # of templates
  | (?P<word>
      (?: \b(?:https?|ftp)://|\bwww\.|\bmailto: ) [^\s<>"“”]* [^\s<>"“”.,;:!?'’)\]…]  # an address
    | (?<![\w.+-]) [\w.+-]++ @ [\w-]++ (?:\.[\w-]++)+
    | \{\{ [^{}\n]* \}\}                # {{ x }}
    | [$%\#]?\{ [\w.:$-]* \}            # {name}, ${x}, %{x}, #{x}
    | \{ \w+ (?:,\s*\w+)+ \}            # {n, number}
    | (?<!\d) %
      (?: \w+%                          # %count%
      | L?\d{1,2} (?!\w|\$)             # %1 of Qt
      | (?:\(\w+\)|\d+\$)? [-+0\#']* \d* (?:\.\d+)? (?:hh?|ll?|[qjzt])? [a-zA-Z@] (?![^\W_])
      )
    )
  | </? (?P<name>[a-zA-Z][\w.:-]*) [^<>]* >
    """,
    re.VERBOSE,
)
# What a program tells from others of its kind only by their order.
_UNNUMBERED = re.compile(
    r"%[-+\ #0']*+(?:\*|\d*+)(?:\.(?:\*|\d*+))?(?:hh?|ll?|[qjztL])?[a-zA-Z@]|\{(?:[:!][^{}]*+)?\}"
)
_BREAK = r"(?:<|&lt;)(?:\w+:)?(?:line-)?br(?:eak)?\b|\\n\Z"  # a mark that ends a line
# Of a message with forms for different numbers: `{0} None|[1,Inf[ Some`, `A dog|:count dogs`
_PLURAL = re.compile(
    r"(?:^|\|)\s*(?:\{\d+\}|[\[\]](?:-?\d+|-?Inf|\*),)"
    r"|:count\b|%count%|\{(?:count|n)\}|\{\{ \w+ \}\}"
)


class Found(Mark):
    """A mark that its reader takes for a string."""

    __slots__ = ()


def find_placeholders(text: Text) -> Text:
    """Make marks of what stands in the strings of a text for something else."""
    parts: list[str | Mark] = []
    opened: list[tuple[int, str, str]] = []  # open marks: where they are, names, and themselves
    for part in text:
        if isinstance(part, Mark):
            parts.append(part)
            if part.kind == "open":
                opened.append((len(parts), "", ""))
            while part.kind == "close" and opened and opened.pop()[1]:
                pass
            continue
        done = 0
        for found in _FOUND.finditer(part):
            parts.append(part[done : found.start()])
            done = found.end()
            name = found["name"]
            kind: Kind = "word" if found["word"] else "alone"
            if name and found[0].startswith("</"):
                if opened and opened[-1][1] == name:
                    start, _, raw = opened.pop()
                    parts[start] = Found(raw, "open")
                    kind = "close"
            elif name and not (found[0].endswith("/>") or name.lower() in VOID):
                opened.append((len(parts), name, found[0]))
            parts.append(Found(found[0], kind))
        parts.append(part[done:])
    return tuple(filter(None, parts))


def as_strings(parts: Iterable[str | Mark]) -> Text:
    """Make strings again of what was found, as the reader knows them."""
    strings: list[str | Mark] = []
    for part in parts:
        if isinstance(part, Found):
            part = part.raw
        if isinstance(part, str) and strings and isinstance(strings[-1], str):
            strings[-1] += part
        elif part:
            strings.append(part)
    return tuple(strings)


def is_unnumbered(part: str | Mark) -> bool:
    """Tell whether it is a placeholder whose order has a meaning, such as `%s` and `{}`."""
    return isinstance(part, Mark) and bool(_UNNUMBERED.fullmatch(part.raw))


def in_order(text: Text, source: Text) -> Text:
    """Put placeholders whose order has a meaning into that of the source."""
    waiting = filter(is_unnumbered, source)
    return tuple(next(waiting) if is_unnumbered(part) else part for part in text)


def divide(text: Text) -> Iterator[Text | str | Mark]:
    """Divide a text at line ends and `<br>`, which stay, except inside pairs of marks.

    So are the forms of plurals of Symfony, Laravel and Vue, at `|`.
    """
    ends = r"[\r\n|]" if _PLURAL.search(write_text(text)) else r"[\r\n]"
    parts: list[str | Mark] = []
    depth = 0
    for part in text:
        if isinstance(part, Mark):
            depth += {"open": 1, "close": -1}.get(part.kind, 0)
        pieces = [part] if depth or isinstance(part, Mark) else re.split(f"({ends}+)", part)
        for piece in pieces:
            found = (_BREAK, piece.raw) if isinstance(piece, Mark) else (ends, piece)
            if depth == 0 and re.match(*found):
                yield tuple(parts)
                yield piece
                parts = []
            elif piece:
                parts.append(piece)
    yield tuple(parts)
