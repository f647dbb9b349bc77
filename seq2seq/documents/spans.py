"""Spans: from the pieces of a text in a file to a slot, without what only surrounds the words."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import islice, pairwise
from typing import NamedTuple

from seq2seq.documents.document import (
    Mark,
    MarkKind,
    Slot,
    Text,
    join_strings,
    map_strings,
    only_strings,
    write_text,
)

LINE_END = re.compile(r"\r\n|\r|\n")
# To many programs, these end a line.
_ENDS_A_LINE = re.compile(r"[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]+")
_BLOCKS = "p div ul ol dl li dt dd h[1-6] table thead tbody tr t[dh] html body blockquote hr br"
BLOCK = rf"(?i:</?(?:{_BLOCKS.replace(' ', '|')})(?=[\s/>]))"
"""The tags of HTML that end a text; they are no pairs, as others may lack their ends."""
UNPAIRED = re.compile(rf"{BLOCK}|(?i:</?(?:img|input|wbr)(?=[\s/>]))|[\s\S]*/>\Z")
ENTITY = r"&(?:#\w{1,8}|[A-Za-z]\w{1,31});"
# A comment, or an element in a string whose content is no text, or is marked so
KEPT = (
    r"<!--(?:[^<-]|-(?!->)|<(?!!--))*+-->"
    r"|<(?P<kept>(?i:code|kbd|samp|var|pre|script|style)(?=[\s>])|(?a:[a-zA-Z][\w-]*+)"
    r"(?=[^<>]*?\s(?i:translate=[\"']?no)\b|[^<>]*?\s(?i:class)=[\"'][^\"'<>]*\bnotranslate\b))"
    r"(?:\s[^<>]*+)?+>(?:[^<]|<(?!/(?P=kept)\s*+>)){0,2000}+</(?P=kept)\s*+>"
)
# `code` of Markdown, ``code``, :ref:`name` and `name`_ of reStructuredText
TICKED = (
    r"(?<![\w`])(?::[\w+.-]{1,40}+(?::[\w+.-]{1,40}+)?:)?(?P<ticks>`{1,3}+)"
    r"(?!\s)[^`\n]{1,500}+(?<!\s)(?P=ticks)(?!`)_{0,2}+(?!\w)"
)
NO_TEXT = re.compile(r"[\ud800-\udfff]")  # half a character, which no encoding can write


class Piece(NamedTuple):
    """Some characters of a file, and what they mean."""

    start: int
    end: int
    value: str | Mark
    tag: str = ""
    """An opening and a closing mark of the same tag are a pair. A mark that is alone and has a tag
    says nothing to readers; without a tag it does, as `%s` does."""


def tag_piece(start: int, end: int, raw: str) -> Piece:
    """Return the piece of a tag as HTML writes them, such as `<b>`, `</b>` or `<br/>`."""
    name = re.split(r"[\s.<>/]", raw.lstrip("</"), maxsplit=1)[0]
    kind: MarkKind = "close" if raw.startswith("</") else "open"
    if UNPAIRED.match(raw):
        kind = "alone"
    return Piece(start, end, Mark(raw, kind), f"<{name}>")


def split_at(pattern: re.Pattern[str], content: str, start: int = 0) -> list[tuple[int, int]]:
    """Return where the parts of a file begin and end that are between matches of a pattern."""
    spans = [(0, start), *(match.span() for match in pattern.finditer(content, start))]
    return [(span[1], following[0]) for span, following in pairwise([*spans, (len(content), 0)])]


def read_pieces(
    content: str,
    start: int,
    end: int,
    token: re.Pattern[str],
    read: Callable[[re.Match[str]], Piece],
) -> list[Piece]:
    """Split a part of a file at the tokens of its format; what is between them is text."""
    pieces, end_before = [], start
    for match in token.finditer(content, start, end):
        if match.start() > end_before:
            pieces.append(Piece(end_before, match.start(), content[end_before : match.start()]))
        pieces.append(read(match))
        end_before = match.end()
    if end > end_before:
        pieces.append(Piece(end_before, end, content[end_before:end]))
    return pieces


def in_place(
    content: str,
    pieces: Sequence[Piece],
    render: Callable[[Text, int, int], str],
    outside: str | None = None,
) -> list[Slot]:
    """Make a slot of pieces that follow one another, or none if nothing in them can be translated.

    White space, the characters `outside` and tags at both ends stay where they are. `render` writes
    a translation, given it and where the text starts and ends. One equal to its text changes
    nothing.
    """
    pieces = _trim(*_find_pairs(pieces), outside)
    source = join_strings(piece.value for piece in pieces)
    words = only_strings(source)
    if not any(map(str.isalpha, words)) or NO_TEXT.search(words):
        return []
    start, end = pieces[0].start, pieces[-1].end

    def write(translation: Text) -> str:
        return content[start:end] if translation == source else render(translation, start, end)

    return [Slot(source, start, end, write)]


def one_line(text: str) -> str:
    """Replace whatever may end a line by a space."""
    return _ENDS_A_LINE.sub(" ", text)


def break_lines(text: Text, count: int, first: str = r"\S") -> Text:
    """Break a text at spaces into at most `count` lines of similar length; several become one.

    A line begins with what the pattern `first` matches.
    """
    text = map_strings(lambda string: re.sub("[ \t]+", " ", one_line(string)), text)
    visible = only_strings(text)
    broken = list(visible)
    current = -1
    for word in re.finditer(r"[^ ]+", visible):
        middle = word.start() + (len(word[0]) - 1) / 2
        line = int(count * middle / len(visible))
        if current < 0:
            current = line
        elif line > current and re.match(first, word[0]):
            broken[word.start() - 1] = "\n"
            current = line
    waiting = iter(broken)
    return map_strings(lambda string: "".join(islice(waiting, len(string))), text)


def _find_pairs(pieces: Sequence[Piece]) -> tuple[list[Piece], dict[int, int]]:
    """Return where marks open and close pairs; those that have no partner become halves."""
    halved = list(pieces)
    pairs: dict[int, int] = {}
    waiting: list[int] = []
    unpaired: list[int] = []
    names: Counter[str] = Counter()  # of those that wait
    for index, piece in enumerate(pieces):
        kind = piece.value.kind if isinstance(piece.value, Mark) else "alone"
        if kind == "open":
            waiting.append(index)
            names[piece.tag] += 1
        elif kind == "close" and names[piece.tag]:
            while pieces[waiting[-1]].tag != piece.tag:
                unpaired.append(waiting.pop())
                names[pieces[unpaired[-1]].tag] -= 1
            pairs[waiting.pop()] = index
            names[piece.tag] -= 1
        elif kind == "close":
            unpaired.append(index)
    for index in unpaired + waiting:
        raw = write_text((halved[index].value,))
        halved[index] = halved[index]._replace(value=Mark(raw, "half"))
    return halved, pairs


def _trim(pieces: list[Piece], pairs: dict[int, int], outside: str | None) -> list[Piece]:
    """Leave out tags and white space at both ends, and tags around all."""
    first, last = 0, len(pieces) - 1
    while first <= last:
        if _is_outside(pieces[first], outside):
            first += 1
        elif _is_outside(pieces[last], outside):
            last -= 1
        elif pairs.get(first) == last and pieces[first].tag:
            first, last = first + 1, last - 1
        else:
            break
    trimmed = pieces[first : last + 1]
    for index, strip in ((0, str.lstrip), (-1, str.rstrip)) if trimmed else ():
        start, end, value, _ = trimmed[index]
        if isinstance(value, str) and len(value) == end - start:
            bare = strip(value, outside)
            left = len(value) - len(bare)
            place = (start + left, end) if index == 0 else (start, end - left)
            trimmed[index] = Piece(*place, bare)
    return trimmed


def _is_outside(piece: Piece, outside: str | None) -> bool:
    if isinstance(piece.value, str):
        return not piece.value.strip(outside)
    return piece.value.kind in ("alone", "half") and bool(piece.tag)
