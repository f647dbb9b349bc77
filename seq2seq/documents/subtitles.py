"""Subtitles: SubRip (.srt), WebVTT (.vtt) and SubStation Alpha (.ass, .ssa).

A cue is translated as one text for each of its speakers, and broken into as many lines as it had.
"""

import html
import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, pairwise

from seq2seq.documents.document import (
    Languages,
    Mark,
    MarkKind,
    Slot,
    Text,
    only_strings,
    write_text,
)
from seq2seq.documents.spans import (
    ENTITY,
    LINE_END,
    Piece,
    break_lines,
    in_place,
    read_pieces,
    split_at,
    tag_piece,
)
from seq2seq.errors import UserError

# 00:00:01,000 --> 00:00:02,500, and coordinates perhaps, with the number of the subtitle before it.
# Damaged times are times, too: -00:00:01,000 -> 00: 00:02,500
_TIME = r"[ \t]*+-?[ \t]*+\d++(?:[ \t]*+[:.,;][ \t]*+\d++)++"
_SRT_HEAD = re.compile(
    r"(?<![^\r\n])(?:[ \t]*+\d++[ \t]*+[\r\n]\s*+)?"
    rf"(?:[ \t]*+[0-9:.,]++[ \t]*+-->[ \t]*+[0-9:.,]++|{_TIME}[ \t]*+(?:[-–—=][-–—= ]*+>|→){_TIME})"
    r"[^\r\n]*+"
)
# No text: an arrow with a time, or two times to the second that stand alone
_DAMAGED = re.compile(
    r"(?<![^\r\n])(?:(?=[^\r\n]*?-->)(?=[^\r\n]*?\d[ \t]*+:[ \t]*+\d)"
    r"|(?:[^\w\r\n]*+\d++:\d++:\d++[\d.,;]*+){2}[^\w\r\n]*+(?![^\r\n]))[^\r\n]*+"
)
# <i>, </font>, {\an8} and {y:i}
_SRT_TAG = r"</?[A-Za-z][^<>]*+>|\{(?:\\|[A-Za-z]:)[^{}]*+\}"
_SRT_TOKEN = re.compile(rf"{_SRT_TAG}|{ENTITY}|{LINE_END.pattern}")
_VTT_HEAD = re.compile(r"(?<![^\r\n])[^\r\n]*?-->[^\r\n]*+")
_VTT_TOKEN = re.compile(rf"<[^<>]*+>|{ENTITY}|{LINE_END.pattern}")
_BLANK_LINE = re.compile(r"(?>\r\n|\r|\n){2}")
# {\i1}, \N, \n and \h; a brace that isn't closed is text
_ASS_TOKEN = re.compile(r"\{[^}]*+\}?|\\[Nnh]")
_LINE_END = re.compile(rf"{LINE_END.pattern}|\\N")
_ASS_SWITCH = re.compile(r"\{\\([bius])([01])\}")
_ASS_DRAWING = re.compile(r"\\p(\d+)")

# The beginning of another speaker's text, or of another line of a song
_SPEAKER = re.compile(r"[-‐–—](?![-‐–—])|>>|♪|♫|[A-Z][A-Z0-9 .'-]+:(?=\s)")
# The name of a speaker, and a sound
_LABEL = re.compile(
    r"[-‐–—>♪♫ \t]*+(?:[A-Z][A-Z0-9 .'-]*+:(?=\s|\Z)|[\[(](?P<sound>[^\[\]()\n]++)[\])])[ \t]*+"
)
_OUTSIDE = " \t\r\n\f\v-‐–—>♪♫"  # stays at both ends of a text: their signs


def read_srt(content: str, _languages: Languages) -> Iterator[Slot]:
    """Find the texts of a SubRip file; whatever is not the text of a subtitle stays as it is."""
    _, *cues = split_at(_SRT_HEAD, content)
    if not cues and content.strip():
        raise UserError("no subtitle was recognised: write times as 00:00:01,000 --> 00:00:02,500")
    for start, end in cues:
        if damaged := _DAMAGED.search(content, start, end):
            line = len(split_at(LINE_END, content[: damaged.start()]))
            raise UserError(
                f"line {line}: {damaged[0].strip()!r:.60} is no time of a subtitle: write it as"
                " 00:00:01,000 --> 00:00:02,500"
            )
        yield from _slots(
            content, read_pieces(content, start, end, _SRT_TOKEN, _read_tag), _escape_srt
        )


def read_vtt(content: str, _languages: Languages) -> Iterator[Slot]:
    """Find the texts of the cues of a WebVTT file."""
    if not re.match(r"WEBVTT(?![^ \t\r\n])", content):
        raise UserError("not a WebVTT file: it doesn't begin with WEBVTT")
    _, *cues = split_at(_VTT_HEAD, content)
    for start, end in cues:
        blank = _BLANK_LINE.search(content, start, end)
        end = blank.start() if blank else end
        pieces = read_pieces(content, start, end, _VTT_TOKEN, _read_tag)
        yield from _slots(content, pieces, partial(html.escape, quote=False))


def read_ass(content: str, _languages: Languages) -> Iterator[Slot]:
    """Find the texts of the dialogue of a SubStation Alpha file."""
    section, columns = "", 10
    for number, (start, end) in enumerate(split_at(LINE_END, content), start=1):
        line = content[start:end]
        name, _, values = line.partition(":")
        if re.fullmatch(r"\[[\w+ ]+\]\s*", line):
            section = line.strip().lower()
        elif section == "[events]" and name.strip().lower() == "format":
            columns = values.count(",") + 1
            if values.rpartition(",")[2].strip().lower() != "text":
                raise UserError(f"line {number}: the last column of the events is not Text")
        elif section == "[events]" and name.strip().lower() == "dialogue":
            text = values.split(",", columns - 1)[columns - 1 :]
            if not text:
                raise UserError(f"line {number}: fewer than {columns} columns")
            pieces = _read_ass_text(content, end - len(text[0]), end)
            yield from _slots(content, pieces, _escape_ass)
    if not section and content.strip():
        raise UserError("not a SubStation Alpha file: it has no section such as [Events]")


def _read_tag(token: re.Match[str]) -> Piece:
    raw = token[0]
    if raw[0] in "\r\n":
        return Piece(*token.span(), "\n")
    if raw[0] == "&":
        return Piece(*token.span(), html.unescape(raw))
    if raw[0] == "{" or not raw.strip("</").strip()[:1].isalpha():
        return Piece(*token.span(), Mark(raw), "{}")  # a time stamp among others
    return tag_piece(*token.span(), raw)


def _read_ass_text(content: str, start: int, end: int) -> list[Piece]:
    def read(token: re.Match[str]) -> Piece:
        raw = token[0]
        if raw[0] == "\\":
            return Piece(*token.span(), {"N": "\n", "n": " ", "h": "\xa0"}[raw[1]])
        if raw[-1] != "}":
            return Piece(*token.span(), raw)
        if switch := _ASS_SWITCH.fullmatch(raw):
            kind: MarkKind = "open" if switch[2] == "1" else "close"
            return Piece(*token.span(), Mark(raw, kind), switch[1])
        return Piece(*token.span(), Mark(raw), "{}")

    pieces, drawing = read_pieces(content, start, end, _ASS_TOKEN, read), False
    for index, piece in enumerate(pieces):
        if isinstance(piece.value, Mark):
            for size in _ASS_DRAWING.findall(piece.value.raw):
                drawing = bool(size.strip("0"))
        elif drawing:
            pieces[index] = piece._replace(value=Mark(content[piece.start : piece.end]), tag="{}")
    return pieces


def _slots(content: str, pieces: list[Piece], escape: Callable[[str], str]) -> Iterator[Slot]:
    """Make a slot for each speaker of a cue, and for each part of it between blank lines."""
    blocks: list[list[Piece]] = [[]]
    ends = [index for index, piece in enumerate(pieces) if piece.value == "\n"]
    for before, after in pairwise([-1, *ends, len(pieces)]):
        line = pieces[before + 1 : after]
        text = tuple(piece.value for piece in line)
        if not write_text(text).strip():
            blocks.append([])
            continue
        if blocks[-1] and (_SPEAKER.match(only_strings(text).strip()) or line[0].tag == "<v>"):
            blocks.append([])
        if blocks[-1]:
            blocks[-1].append(pieces[before])
        blocks[-1] += line
    render = partial(_render, content=content, escape=escape)
    for block in chain.from_iterable(map(_without_labels, blocks)):
        joined = [p._replace(value=" ") if p.value == "\n" else p for p in block]
        yield from in_place(content, joined, render, _OUTSIDE)


def _without_labels(block: list[Piece]) -> Iterator[list[Piece]]:
    """Take away the name of a speaker; make a text of a sound that is described before others."""
    block, first = [*block], 0
    for index, (start, end, value, _) in enumerate(block):
        if not isinstance(value, str):
            continue
        position = 0
        while len(value) == end - start and (label := _LABEL.match(value, position)):
            if label["sound"]:
                place = start + label.start("sound"), start + label.end("sound")
                yield [*block[first:index], Piece(*place, label["sound"])]
            first, position = index, label.end()
        if position:
            value = value[position:]
            block[index] = Piece(start + position, end, value)
        if value.strip(_OUTSIDE):
            break
    yield block[first:]


def _render(text: Text, start: int, end: int, content: str, escape: Callable[[str], str]) -> str:
    ends = _LINE_END.findall(content, start, end)
    newline, count = ends[0] if ends else "", len(ends) + 1
    lines = break_lines(text, count)
    return write_text(lines, lambda string: newline.join(map(escape, string.split("\n"))))


def _escape_srt(text: str) -> str:
    """Take the meaning from what looks like a tag or an arrow, for which there is no escape."""
    text = text.replace("-->", "-- >")
    return re.sub(_SRT_TAG, lambda tag: f"{tag[0][0]} {tag[0][1:]}", text)


def _escape_ass(text: str) -> str:
    # A word joiner, which isn't seen, parts a backslash from what would give it a meaning.
    text = re.sub(r"\\(?=[Nnh{}]|\Z)", "\\\\\u2060", text)
    return text.replace("{", "(").replace("}", ")").replace("\xa0", "\\h")
