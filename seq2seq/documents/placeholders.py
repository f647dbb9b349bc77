"""What stands in strings for something else, by its looks: `{name}`, `%s`, `<b>`, addresses.

Readers find what their format says; this finds the rest, in the strings of any text.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import chain, islice, pairwise

from seq2seq.documents.document import Kind, Mark, Text, join_strings, write_text
from seq2seq.documents.messages import HASH, find_icu_texts, is_icu
from seq2seq.documents.shown import are_words
from seq2seq.documents.spans import BLOCK, UNPAIRED

# Grammars by dialect. Where no dialect is known all are tried, in this order.
_WORDS = {
    "addresses": r"""
        (?: \b(?:https?|ftp)://|\bwww\.|\bmailto: ) [^\s<>"“”]* [^\s<>"“”.,;:!?'’)\]…]
      | (?<![\w.+-]) [\w.+-]++ @ [\w-]++ (?:\.[\w-]++)+""",
    "i18next, Vue, Handlebars": r"\{\{ [^{}\n]* \}\}",  # {{ x }}
    "Python, JavaScript, Ruby": r"[$%\#]?\{ [\w.:$\[\]-]* \}",  # {name}, ${x}, %{x}, #{x}
    "ICU": r"\{ \w+ , \s* -?\w+ (?:[,:][^{}\n]*)? \}",  # {n, number}, {day, date, ::yMMMd}
    "Apple": r"%arg\b | % (?:\d+\$)? \#@\w+@",  # %#@dogs@
    "names of files with a conversion": (  # dog_%s.txt
        r"(?a: (?<![\w@.%/-]) [\w./-]* [_/] %[sd] (?:[_./-][\w-]*\w)* )"
    ),
    "Qt": r"%L?\d{1,2} (?!\w|\$|\.\d|:[a-z]\b)",  # %1
    # %s, %-5.2f, %1$@, %(name)s, %<name>s and %count%, with the letters and signs that touch them:
    # whoever reads them, nothing is lost.
    "printf of C, Java, Apple, Python, Ruby; Symfony": r"""
        (?<!\d)
        (?: %+ (?:\(\w+\)|<\w{3,}>|\d+[$:])? [-+0\#',]* (?:\*|\d*) (?:\.(?:\*|\d*))?
            [a-zA-Z@] (?a:\w*(?:[.-]\w+)+(?=%)|\w*)
        )+ %{0,2}
      | (?<=\d) %[sd@] (?![^\W_])""",
    "ICU's quotes": r"'\{[^{}'\n]*' (?:\w+ '\}')?",  # '{'name'}', braces that are text
    "PHP, Laravel": r"(?<![\w$@.]) [$@] [A-Za-z_]\w*",  # $name, @name
    "options": r"(?<=[\s'\"`(|,=\[]) (?<!--\s) --[a-z][\w-]++ (?:=[A-Z]+)?",  # --option=WORD
    "filters of files": r"\(\* [\w.*;,\ ]* \)",  # (*.png *.jpg)
    "keys": r"\b (?:(?:Alt|Cmd|Ctrl|Meta|Shift)\+)++ \w+",
    "names of files and in programs": r"""
        (?a: (?<![\w@./<-])
        (?: [a-z\d]{2,}+ (?:_[a-z\d]{2,}+)++ (?!\w)
          | [A-Z\d]{2,}+ (?:_[A-Z\d]++)++ (?!\w)
          | \w[\w-]++ (?:\.[a-z]\w++)++ (?:[\#?](?:[\w=&]|[.,](?=\w))++)?
          | (?:\.{1,2}/[\w-]|/[\w-]++[./]\w) (?:[\w/-]|\.(?=\w))*+
        ) )""",
}
_FOUND = re.compile(
    r"""
    \{%[^{}\n]*?%\} | \{\#[^{}\n]*?\#\} | <%[^<>\n]*?%> | \{\{[\#/^!>][^{}\n]*\}\}  # of templates
  | %% | \\[nrt](?![a-z])            # a percent sign, and the end of a line, for a program
  | (?<![\w&"']) (?:&|_(?=[A-Z])) (?=[^\W_]++(?![_;]))  # the key of a menu
    """
    rf"| (?P<word> {' | '.join(_WORDS.values())} )"
    r"""
  | (?:\{(?=\w+>)|<(?=\w+\})) (?P<phrase>\w+) [>}]  # {1>...<1}
  | </? (?P<name>[a-zA-Z_][\w.:-]*|\d+(?=/?>)) [^<>]* >
    """,
    re.VERBOSE,
)
# What a program tells from others of its kind only by their order.
_UNNUMBERED = re.compile(
    r"%[-+\ #0']*+(?:\*|\d*+)(?:\.(?:\*|\d*+))?(?:hh?|ll?|[qjztL])?[a-zA-Z@]|\{(?:[:!][^{}]*+)?\}"
)
_NAMED = re.compile(r"(?:%[a-zA-Z]{2}[\w.-]*%)+")  # %count% of Symfony
# A mark that ends a line, a column or a paragraph; in .docx, with its run
_BREAK = re.compile(
    r"(?:<[\w.-]+:r(?:\s[^>]*)?>(?:<[\w.-]+:rPr>[\s\S]*</[\w.-]+:rPr>)?"
    r"(?:<[\w.-]+:(?:rPr|lastRenderedPageBreak)/>)?|<ph\b[^>]*>)?"
    r"(?:<|&lt;)(?:[\w.-]+:)?(?:(?:line-)?br(?:eak)?|cr|p?tab)\b"
    rf"|{BLOCK}"
    r"|<(?:x|ph)\b[^>]*\b(?:(?:ctype|subType)=[\"'](?:xlf:)?lb|equiv=[\"']LINE_BREAK)|\\[nt]\Z"
)
# Of a message with forms for different numbers: `{0} None|[1,Inf[ Some`, `A dog|:count dogs`
_PLURAL = re.compile(
    r"(?:^|\|)\s*(?:\{\d+\}|[\[\]](?:-?\d+|-?Inf|\*),)"
    r"|:count\b|%count%|\{(?:count|n)\}|\{\{ \w+ \}\}"
)


class Found(Mark):
    """A mark that its reader takes for a string."""

    __slots__ = ()


class _Branches(Found):
    """What stands between the texts of a message with branches."""

    __slots__ = ()


def find_placeholders(text: Text) -> Text:
    """Make marks of what stands in the strings of a text for something else."""
    parts: list[str | Mark] = []
    opened: list[tuple[int, str, str]] = []  # open marks: where they are, names, and themselves
    for part in _find_branches(text):
        if isinstance(part, Mark):
            parts.append(part)
            if part.kind == "open":
                opened.append((len(parts), "", ""))
            while part.kind == "close" and opened and opened.pop()[1]:
                pass
            continue
        done = 0
        for found in _FOUND.finditer(part):
            raw = found[0]
            parts.append(part[done : found.start()])
            done = found.end()
            name = found["name"] or found["phrase"]
            kind: Kind = "word" if found["word"] else "alone"
            if name and (raw.startswith("</") or raw.endswith("}")):
                if opened and opened[-1][1] == name:
                    start, _, opening = opened.pop()
                    parts[start] = Found(opening, "open")
                    kind = "close"
            elif name and not UNPAIRED.match(raw):
                opened.append((len(parts), name, raw))
            parts.append(Found(raw, kind))
        parts.append(part[done:])
    return tuple(filter(None, parts))


def _find_branches(text: Text) -> Iterator[str | Mark]:
    """Make marks of what stands around the branches of ICU's plurals, and of `#` in them."""
    message = "".join(part if isinstance(part, str) else "\0" for part in text)
    texts = find_icu_texts(message) if is_icu(message) else []
    spans = pairwise([0, *chain(*texts), len(message)])
    between = [message[start:end] for start, end in islice(spans, 0, None, 2)]
    if not texts or "\0" in "".join(between):
        yield from text
        return
    marks = (part for part in text if isinstance(part, Mark))
    for before, (start, end) in zip(between, [*texts, (0, 0)], strict=True):
        if before:
            yield _Branches(before)
        for piece in re.split(f"(\0|{HASH})", message[start:end]):
            if piece == "\0":
                yield next(marks, piece)
            else:
                yield Found(piece, "word") if re.fullmatch(HASH, piece) else piece


def as_strings(parts: Iterable[str | Mark]) -> Text:
    """Make strings again of what was found, as the reader knows them."""
    return join_strings(part.raw if isinstance(part, Found) else part for part in parts)


def is_unnumbered(part: str | Mark) -> bool:
    """Tell whether it is a placeholder whose order has a meaning, such as `%s` and `{}`."""
    if not isinstance(part, Mark) or _NAMED.fullmatch(part.raw):
        return False
    return part.kind == "word" and bool(_UNNUMBERED.search(part.raw))


def in_order(text: Text, source: Text) -> Text:
    """Put placeholders whose order has a meaning into that of the source."""
    waiting = filter(is_unnumbered, source)
    return tuple(next(waiting) if is_unnumbered(part) else part for part in text)


def read_by_programs(text: Text) -> list[str]:
    """List the placeholders that a program would find, such as `%s` and `{name}`."""
    parts = find_placeholders(as_strings(text))
    raws = (part.raw for part in parts if isinstance(part, Found) and part.kind == "word")
    return sorted(raw for raw in raws if "%" in raw or "{" in raw)


def without_new_quotes(text: Text, source: Text) -> Text:
    """Write an apostrophe before `{name}` so that it quotes no brace for ICU: `d’{name}`."""
    if any(_is_quoted(*pair) for pair in pairwise(source)):
        return text
    parts = list(text)
    for i, (before, mark) in enumerate(pairwise(text)):
        if isinstance(before, str) and _is_quoted(before, mark):
            parts[i] = f"{before[:-1]}\u2019"
    return tuple(parts)


def _is_quoted(before: str | Mark, mark: str | Mark) -> bool:
    braces = isinstance(mark, Mark) and mark.raw.startswith(("{", "'{"))
    return braces and isinstance(before, str) and before.endswith("'")


def divide(text: Text) -> Iterator[Text | str | Mark]:
    """Divide a text at the ends of lines, columns and paragraphs, which stay.

    So are the branches of ICU's plurals, the forms of those of Symfony, Laravel and Vue, at `|`,
    and words that only tags part: `<a>Home</a><a>News</a>`.
    """
    ends = r"[\r\n\t|]|;;" if _PLURAL.search(write_text(text)) else r"[\r\n\t]|;;"
    parts: list[str | Mark] = []
    depth = 0
    last, cut = "", 0  # the string before closing and opening marks, and where the latter begin
    for part in text:
        if isinstance(part, Mark):
            closed = bool(parts) and isinstance(parts[-1], Mark) and parts[-1].kind == "close"
            if depth == 0 and closed and part.kind == "open":
                cut = len(parts)
            elif part.kind in ("alone", "word"):
                last = ""
            depth += {"open": 1, "close": -1}.get(part.kind, 0)
        else:
            if cut and are_words(last, part):
                yield tuple(parts[:cut])
                del parts[:cut]
            last, cut = part, 0
        pieces = [part] if isinstance(part, Mark) else re.split(f"((?:{ends})+)", part)
        for piece in pieces:
            if _is_end(piece, ends):
                yield tuple(parts)
                yield piece
                parts, last, cut = [], "", 0
            elif piece:
                parts.append(piece)
    yield tuple(parts)


def _is_end(piece: str | Mark, ends: str) -> bool:
    if isinstance(piece, str):
        return bool(re.match(ends, piece))
    return isinstance(piece, _Branches) or (piece.kind == "alone" and bool(_BREAK.match(piece.raw)))
