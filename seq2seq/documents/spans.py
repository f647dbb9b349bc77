"""Spans: from the pieces of a text in a file to a slot, without what only surrounds the words."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import islice, pairwise
from typing import NamedTuple

from seq2seq.documents.document import Kind, Mark, Slot, Text, join_strings, write_text

LINE_END = re.compile(r"\r\n|\r|\n")
# To many programs, these end a line.
_ENDS_A_LINE = re.compile(r"[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]+")
_BLOCKS = "p div ul ol dl li dt dd h[1-6] table thead tbody tr t[dh] html body blockquote hr br"
BLOCK = rf"(?i:</?(?:{_BLOCKS.replace(' ', '|')})(?=[\s/>]))"
"""The tags of HTML that end a text; they are no pairs, as others may lack their ends."""
UNPAIRED = re.compile(rf"{BLOCK}|(?i:</?(?:img|input|wbr)(?=[\s/>]))|[\s\S]*/>\Z")
ENTITY = r"&(?:#\w{1,8}|[A-Za-z]\w{1,31});"
_NO_TEXT = re.compile(r"[\ud800-\udfff]")  # half a character, which no encoding can write


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
    kind: Kind = "close" if raw.startswith("</") else "open"
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
    escape: Callable[[str], str] = str,
    outside: str | None = None,
    render: Callable[[Text, int, int], str] | None = None,
) -> list[Slot]:
    """Make a slot of pieces that follow one another, or none if nothing in them can be translated.

    White space, the characters `outside` and tags at both ends stay where they are. `render` writes
    a translation, given it and where the text starts and ends; without `render`, marks are written
    as they are, and strings by `escape`. A translation equal to its text changes nothing.
    """
    pairs, unpaired = find_pairs(pieces)
    pieces = list(pieces)
    for index in unpaired:
        piece = pieces[index]
        assert isinstance(piece.value, Mark)
        pieces[index] = piece._replace(value=Mark(piece.value.raw, "half"))
    pieces = _trim(pieces, pairs, outside)
    source = join_strings(piece.value for piece in pieces)
    words = "".join(item for item in source if isinstance(item, str))
    if not any(map(str.isalpha, words)) or _NO_TEXT.search(words):
        return []
    start, end = pieces[0].start, pieces[-1].end

    def write(translation: Text) -> str:
        if translation == source:
            return content[start:end]
        if render:
            return render(translation, start, end)
        return write_text(translation, escape)

    return [Slot(source, start, end, write)]


def one_line(text: str) -> str:
    """Replace whatever may end a line by a space."""
    return _ENDS_A_LINE.sub(" ", text)


def break_lines(text: Text, count: int, first: str = r"\S") -> Text:
    """Break a text at spaces into at most `count` lines of similar length; several become one.

    A line begins with what the pattern `first` matches.
    """
    text = tuple(
        item if isinstance(item, Mark) else re.sub("[ \t]+", " ", one_line(item)) for item in text
    )
    visible = "".join(item for item in text if isinstance(item, str))
    breaks: set[int] = set()
    current: int | None = None
    for word in re.finditer(r"[^ ]+", visible):
        middle = word.start() + (len(word[0]) - 1) / 2
        line = int(count * middle / len(visible))
        if current is None:
            current = line
        elif line > current and re.match(first, word[0]):
            breaks.add(word.start() - 1)
            current = line
    broken = iter(["\n" if at in breaks else char for at, char in enumerate(visible)])
    return tuple(
        item if isinstance(item, Mark) else "".join(islice(broken, len(item))) for item in text
    )


def find_pairs(pieces: Sequence[Piece]) -> tuple[dict[int, int], list[int]]:
    """Return the pairs of marks, from open to close, and the marks that have no partner."""
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
    return pairs, sorted([*unpaired, *waiting])


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
    if trimmed and isinstance(value := trimmed[0].value, str) and len(value) == _width(trimmed[0]):
        bare = value.lstrip(outside)
        trimmed[0] = trimmed[0]._replace(start=trimmed[0].end - len(bare), value=bare)
    if (
        trimmed
        and isinstance(value := trimmed[-1].value, str)
        and len(value) == _width(trimmed[-1])
    ):
        bare = value.rstrip(outside)
        trimmed[-1] = trimmed[-1]._replace(end=trimmed[-1].start + len(bare), value=bare)
    return trimmed


def _width(piece: Piece) -> int:
    return piece.end - piece.start


def _is_outside(piece: Piece, outside: str | None) -> bool:
    if isinstance(piece.value, str):
        return not piece.value.strip(outside)
    return piece.value.kind in ("alone", "half") and bool(piece.tag)
