"""Markdown: paragraphs, headings, items of lists and cells of tables.

markdown-it finds these; code, HTML, front matter and definitions of links stay as they are.
"""

import html
import re
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from seq2seq.documents.document import Languages, Mark, Slot, Text, quoted
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

if TYPE_CHECKING:
    from markdown_it.token import Token

_FRONT_MATTER = re.compile(r"(---|\+\+\+)[ \t]*[\r\n](?:[\s\S]*?[\r\n])??\1[ \t]*(?![^\r\n])")
# Directives of Docusaurus, MkDocs and MyST; modules of MDX
_DIRECTIVE = re.compile(
    r"\s*(?::::|!!!|\?\?\?|=== [\"']|-+8<-|<<<|@(?:import|include)\b|\([\w:.-]+\)=\Z"
    r"|import\s[^'\"]*['\"][^'\"]*['\"];?\Z"
    r"|export\s(?:default|const|let|var|function|class)\s)"
)
# Formulas, whose lines are no paragraphs
_FORMULA = re.compile(
    r"^[ \t]*(?:(?:\$\$|\\\[)[ \t]*\n(?:(?!```|\$\$|\\\]|\\\[[ \t]*\n)[\s\S])*+(?:\$\$|\\\])[^\n]*"
    r"|\\begin\{(\w+\*?)\}(?:(?!```|\\begin)[\s\S])*?\\end\{\1\})$",
    re.MULTILINE,
)
# The beginning of a footnote, a definition or an abbreviation
_NOTE = r"\[\^[^\[\]\s]++\]:|:[ \t]|\*\[[^\[\]]++\]:"
# {.class}, { #id }, {: a=b} and {width=50%}
_STYLE = r"\{ ?(?:[:#.]|[\w-]+=)[^{}\n]*+\}"
_DESTINATION = r"(?:<[^<>\n]*+>|(?:[^()\s\\]|\\.|\((?:[^()\s\\]|\\.)*+\))*+)"
_TITLE = r"""(?:\s++(?:"(?:[^"\\]|\\.)*+"|'(?:[^'\\]|\\.)*+'|\((?:[^()\\]|\\.)*+\)))?"""
# CommonMark has no spaces in an address, but writers do: `(my dog.md "Title")`
_SPACED = r"\((?:[^()\"\\\n]|\\.|\"[^\"\n]*+\"|\([^()\n]*+\))*+\)"
_TARGET = rf"(?:\(\s*+{_DESTINATION}{_TITLE}\s*+\)|{_SPACED})"
# Inline forms that are not plain text; the first that matches counts
_FORMS = {
    "formula": r"\$\$[^$]++\$\$|\$[^$\s](?:[^$\n]*[^$\s])?\$(?!\d)"
    r"|\\\((?=[^\\\n]*(?:[\^_=]|\\[A-Za-z]))(?:[^\\\n]|\\[^()\n])*+\\\)",
    "escape": r"\\[!-/:-@\[-`{-~]",
    "picture": rf"!\[[^\[\]]*+\](?:{_TARGET}|\[[^\[\]]*+\])?(?:{_STYLE})?",
    "start": rf"\A\[(?:[ xX]|![A-Za-z-]+)\][+-]?(?=\s)|\A\[(?:TOC|toc)\]|\A(?:{_NOTE})",
    "comment": r"<!--(?:[^<-]|-(?!->)|<(?!!--))*+-->|<\?(?:[^<?]|\?(?!>)|<(?!\?))*+\?>"
    r"|<![A-Z][^<>]*+>|<!\[CDATA\[(?:[^\]<]|\](?!\]>)|<(?!!\[))*+\]\]>",
    "command": r"\{\{[<%][^{}]*+\}\}|\{%[^%]*+%\}|\{/\*(?:[^*{]|\*(?!/\})|\{(?!/\*))*+\*/\}",
    "style": _STYLE,
    "code": r"(?<!`)(?:\{[\w:-]++\})?"
    rf"(?P<ticks>`++)(?!`)[\s\S]*?(?<!`)(?P=ticks)(?!`)(?:{_STYLE})?",
    "address": r"<[A-Za-z][\w+.-]*+:[^\s<>]*+>|<[^\s<>@]++@[^\s<>]++>"
    r"|(?:https?://|www\.)[^\s<>\]]*[^\s<>.,;:!?\"')\]*_~]",
    "name": r"\{\{[^{}]*+\}\}|(?<!\w):[a-z][\w+-]*+:|\+\+[\w+-]+\+\+",
    "note": r"\[\^[^\[\]\s]++\]",
    "reference": r"!?\[\[[^\[\]\n]++\]\]|\[-?@[^\[\]]++\]|\\[A-Za-z]++(?:\{[^{}\n]*+\})*+",
    "tag": r"</?[A-Za-z][^<>]*+>",
    "entity": ENTITY,
    "open": r"\^?\[",
    "close": rf"\](?:{_TARGET}|\[[^\[\]]*+\])?(?:{_STYLE})?",
    "line": r"\n",
    "run": r"\*+|_+|~~",
}
_TOKEN = re.compile("|".join(f"(?P<{name}>{form})" for name, form in _FORMS.items()))
_MOST_LACKING = 5  # cells that tables lack, for each character of a document
_MAX_LABEL = 1000  # characters, as CommonMark has it
_HARD_BREAK = re.compile(r"\\|  ")  # after the text of a line
# What would begin a block at the start of a line: a backslash goes before its last sign
_BLOCK = re.compile(
    r"(?:[#+=-](?=[#+=-]*+(?:\s|\Z))|>|:(?=::)|!(?=!!)|\?(?=\?\?)|\d{1,9}[.)](?=\s|\Z))"
)
_SPECIAL = re.compile(
    r"[\\`*\[\]~]|(?<!\w)_|_(?!\w)|<(?=[A-Za-z/!?])|&(?=#?\w+;)|!\Z|(?<= )#(?=#*\Z)"
)


def read_markdown(content: str, _languages: Languages) -> Iterator[Slot]:
    """Find the texts of a document: CommonMark, and the tables of GitHub."""
    from markdown_it import MarkdownIt

    front = _FRONT_MATTER.match(content)
    lines = split_at(LINE_END, content, front.end() if front else 0)
    parser = MarkdownIt("commonmark").enable("table")
    tokens: list[Token] = []
    env: dict[str, Any] = {}
    text = "\n".join(content[a:b] for a, b in lines)
    text = _FORMULA.sub(lambda match: "\n" * match[0].count("\n"), text)
    _check_tables(text)
    parser.block.parse(text, parser, env, tokens)
    labels = set(env.get("references", {}))

    cell_end = 0  # where the last cell of a row ended
    for before, token in pairwise(tokens):
        if token.type == "inline" and token.map:
            in_table = before.type in ("th_open", "td_open")
            first, after = token.map[0], token.map[0] + token.content.count("\n") + 1
            for group in _locate(content, lines[first:after], token.content, cell_end, in_table):
                yield from _slots(content, group, labels, in_table)
                cell_end = group[-1][1]


def _check_tables(text: str) -> None:
    """Refuse many cells that are not there, which markdown-it would add to short rows."""
    signs = lacking = 0
    for line in text.split("\n"):
        if "-" in line and not line.strip("-:| \t>"):  # the line below the header
            signs = line.count("|")
        elif not line.strip():
            signs = 0
        lacking += max(0, signs - 1 - line.count("|"))
    if lacking > _MOST_LACKING * len(text):
        raise UserError(f"the rows of its tables lack {lacking:,} cells that their headers have")


def _locate(
    content: str, lines: list[tuple[int, int]], text: str, first: int, in_table: bool
) -> list[list[tuple[int, int]]]:
    """Find where the lines of a paragraph are, those of a note or a definition by themselves."""
    groups: list[list[tuple[int, int]]] = [[]]
    for (start, end), line in zip(lines, text.split("\n"), strict=False):
        bare = line.strip()
        if not in_table and re.search(r"(?<!\\)(?:\\\\)*\\\Z", bare):
            bare = bare[:-1]
        if in_table:
            bare = bare.replace("|", "\\|")
        at = content.find(bare, max(start, first), end)
        if at < 0 or _DIRECTIVE.match(bare):
            groups.append([])
            continue
        if re.match(_NOTE, bare):
            groups.append([])
        groups[-1].append((at, at + len(bare)))
    return list(filter(None, groups))


def _slots(
    content: str, lines: list[tuple[int, int]], labels: set[str], in_table: bool
) -> Iterator[Slot]:
    text = "\n".join(content[start:end] for start, end in lines)
    offsets: list[int] = []
    for start, end in lines:
        offsets += range(start, end + 1)
    pieces = with_labels(text, _with_emphasis(text, _read(text)), labels)
    groups: list[list[Piece]] = [[]]
    for piece in pieces:
        if text[piece.start] == "\n" and _HARD_BREAK.match(content, offsets[piece.start]):
            groups.append([])
        else:
            groups[-1].append(piece)
    slots: list[Slot] = []
    for group in filter(None, groups):
        at = text.find("\n", group[0].start, group[-1].end)
        newline = content[offsets[at] : offsets[at + 1]] if at >= 0 else ""
        render = partial(_render, source=text, newline=newline, in_table=in_table)
        slots += in_place(text, group, render)
    return quoted(content, 0, slots, offsets)


def _read(text: str) -> list[Piece]:
    def read(token: re.Match[str]) -> Piece:
        raw, span = token[0].replace("\n", " "), token.span()
        match token.lastgroup:
            case "escape":
                return Piece(*span, raw[1])
            case "entity":
                return Piece(*span, html.unescape(raw))
            case "picture" | "start" | "comment" | "command" | "style":
                return Piece(*span, Mark(raw), "outside")
            case "note":  # a word in its place would touch the word before it
                return Piece(*span, Mark(raw))
            case "open" | "close" as kind:
                return Piece(*span, Mark(raw, kind), "[")
            case "tag":
                return tag_piece(*span, raw)
            case "run":
                return Piece(*span, raw, "run")
            case "line":
                return Piece(*span, raw)
        return Piece(*span, Mark(raw, "word"))

    return read_pieces(text, 0, len(text), _TOKEN, read)


def _with_emphasis(text: str, pieces: list[Piece]) -> list[Piece]:
    """Pair `*`, `**` and so on; section 6.2 of CommonMark says which of them open and close."""
    marks: list[Piece] = []
    waiting: dict[str, list[int]] = {"*": [], "_": [], "~": []}
    for piece in pieces:
        if piece.tag != "run":
            marks.append(piece)
            continue
        sign = text[piece.start]
        before = text[piece.start - 1] if piece.start else " "
        after = text[piece.end] if piece.end < len(text) else " "
        left = not after.isspace() and (after.isalnum() or not before.isalnum())
        right = not before.isspace() and (before.isalnum() or not after.isalnum())
        opens = left and (sign != "_" or not right or not before.isalnum())
        closes = right and (sign != "_" or not left or not after.isalnum())
        start = piece.start
        while closes and waiting[sign] and start < piece.end:
            opening = marks[waiting[sign][-1]]
            end = start + opening.end - opening.start
            if end > piece.end:
                break
            at = waiting[sign].pop()
            marks[at] = opening._replace(
                value=Mark(text[opening.start : opening.end], "open"), tag=f"{sign}{at}"
            )
            marks.append(Piece(start, end, Mark(text[start:end], "close"), f"{sign}{at}"))
            for stack in waiting.values():
                while stack and stack[-1] > at:
                    stack.pop()
            start = end
        if start < piece.end:
            if opens:
                waiting[sign].append(len(marks))
            marks.append(Piece(start, piece.end, text[start : piece.end]))
    return marks


def with_labels(text: str, pieces: list[Piece], labels: set[str]) -> list[Piece]:
    """Give links that are defined by their text, such as `[guide]`, the text as their label."""
    from markdown_it.common.utils import normalizeReference

    marked, waiting = list(pieces), []
    for index, piece in enumerate(pieces):
        raw = text[piece.start : piece.end]
        if piece.tag == "[" and raw[-1] == "[":
            waiting.append(index)
        elif piece.tag == "[" and waiting:
            opening = waiting.pop()
            start = marked[opening].end
            if raw not in ("]", "][]") or piece.start - start >= _MAX_LABEL:
                continue
            label = text[start : piece.start]
            if normalizeReference(label) in labels:
                value = Mark(f"][{label}]".replace("\n", " "), "close")
                # Without a tag, they are part of the text, even at its edges.
                marked[opening] = marked[opening]._replace(tag="")
                marked[index] = piece._replace(value=value, tag="")
    return marked


def _render(text: Text, start: int, end: int, source: str, newline: str, in_table: bool) -> str:
    begins_line = not start or source[start - 1] == "\n"
    count = 1 + source.count("\n", start, end)
    strings = []
    for item in break_lines(text, count, r"[^\W\d_]"):
        if isinstance(item, Mark):
            strings.append(item.raw)
            continue
        raw = _SPECIAL.sub(r"\\\g<0>", item)
        if in_table:
            raw = raw.replace("|", "\\|")
        if begins_line and not strings and (block := _BLOCK.match(raw := raw.lstrip())):
            raw = f"{raw[: block.end() - 1]}\\{raw[block.end() - 1 :]}"
        strings.append(raw.replace("\n", newline))
    return "".join(_with_flanks(strings, text))


def _with_flanks(strings: list[str], text: Text) -> list[str]:
    """Add the spaces without which `*` and `_` would neither open nor close."""
    spaced = list(strings)
    for index, mark in enumerate(text):
        if not isinstance(mark, Mark) or set(mark.raw) - {"*", "_"}:
            continue
        before = strings[index - 1][-1:] if index else ""
        after = strings[index + 1][:1] if index + 1 < len(strings) else ""
        if mark.kind == "close" and after.isalnum() and ("_" in mark.raw or not before.isalnum()):
            spaced[index] += " "
        if mark.kind == "open" and before.isalnum() and ("_" in mark.raw or not after.isalnum()):
            spaced[index] = f" {mark.raw}"
    return spaced
