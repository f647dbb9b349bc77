"""Placeholders in strings, found by their looks: `{name}`, `%s`, `<b>`, addresses.

Readers find what their format says; this finds the rest, in the strings of any text: placeholders,
the branches of messages, and values that are code rather than language.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, count, islice, pairwise, starmap

from seq2seq.documents.document import Mark, Slot, Text, join_strings, only_strings, write_text
from seq2seq.documents.projection import UNSPACED, are_apart, are_words
from seq2seq.documents.spans import (
    BLOCK,
    ENTITY,
    KEPT,
    TICKED,
    UNPAIRED,
    Piece,
    in_place,
    one_line,
    read_pieces,
    tag_piece,
)

# <b>, </0>, <_:a-1/> and &nbsp;, and the options that a line of help begins with
_MARKUP = (
    rf"</?(?:[A-Za-z_][^<>]*+|\d+/?)>|{ENTITY}"
    r"|(?m:^) *--?[\w?]\S*(?:,? \S+){0,2}? {2,}(?=\S)"
)
# {0}, {count, number} and {0,choice,0#none|1#one {1}}
_ARGUMENT = r"\{(?:[^{}]++|\{(?:[^{}]++|\{[^{}]*+\})*+\})*+\}"
# Braces that are text: '{' and '{name}'
_QUOTED = r"'[{}][^']*'"
# %s, %-5.2f, %1$@, %(name)s, %<name>s and %{name}; a percent sign stays with its number
_DIRECTIVE = (
    r"%(?:\d+[$:])?(?:\([^()]*+\)|<\w+>)?[-+ #0']*+(?:\*|\d+)?(?:\.(?:\*|\d*))?"
    r"(?:hh|ll|[hlLqjzt])?[A-Za-z@](?:%%)?|%\{\w+\}|%(?:\d+\$)?#@\w+@"
)
# A number in the branches of ICU's plurals, with the ending of an English ordinal
HASH = r"(?<![A-Za-z\d#])#(?:st|nd|rd|th)?(?![A-Za-z\d#])"
_ICU_TOKEN = re.compile(
    r"''|'[{}][^']*'|\{\s*+[\w.-]++\s*+,\s*+(?:plural|select|selectordinal)\s*+,|[{}]"
)


@dataclass(frozen=True)
class Syntax:
    """How a program reads a message before it shows it."""

    arguments: str = r"(?!)"
    """A pattern of what the program replaces by a value."""
    escape: Callable[[str], str] = str
    """Writes text so that it is read as such."""
    characters: dict[str, str] = field(default_factory=dict)
    """Escapes, and the characters that they stand for."""


# ${count > 1 ? 'dogs' : 'dog'} of Java's expression language; %<name>s, which is no tag
PLAIN = Syntax(r"""%<\w{3,}>\w*|\$\{(?:[^{}'"]++|'[^']*+'|"[^"]*+")*+\}""")
"""No way of formatting is known: other placeholders are found later."""
PRINTF = Syntax(_DIRECTIVE, lambda text: text.replace("%", "%%"), {"%%": "%"})
"""`%s` and `%(count)d`; `%%` is a percent sign."""
BRACES = Syntax(_ARGUMENT, lambda text: re.sub(r"([{}])", r"\1\1", text), {"{{": "{", "}}": "}"})
"""Python's and C#'s `{name}`; `{{` is a brace."""
JAVA = Syntax(
    rf"{_ARGUMENT}|'[^']+'",
    lambda text: re.sub(r"[{}]", r"'\g<0>'", text.replace("'", "''")),
    {"''": "'"},
)
"""Java's MessageFormat: `{0}`; `''` is an apostrophe."""
WITHOUT_BRANCHES = Syntax(
    rf"{_QUOTED}|{_ARGUMENT}",
    escape=lambda text: re.sub(
        # An apostrophe before a brace would make it text, to some readers and not to others.
        r"'(?=[{}#|]|\Z)",
        "\u2019",
        text,
    ).translate({ord("{"): "(", ord("}"): ")"}),
    characters={"''": "'"},
)
"""`{name}` of ICU, with or without apostrophes that quote; `#` is text."""
ICU = Syntax(
    rf"{_QUOTED}|{_ARGUMENT}|{HASH}",
    escape=lambda text: WITHOUT_BRANCHES.escape(text).replace("#", "\uff03"),
    characters=WITHOUT_BRANCHES.characters,
)
"""`{count, plural, one{# dog} other{# dogs}}`."""


def find_texts(message: str, syntax: Syntax) -> list[Slot]:
    """Find the texts of a message: its lines, and with ICU each branch of its plurals."""
    signs = "|".join(map(re.escape, syntax.characters)) or r"(?!)"
    read_as = rf"(?P<sign>{signs})|(?P<argument>{syntax.arguments})"
    token = re.compile(rf"{KEPT}|{TICKED}|{read_as}|{_MARKUP}")

    def read(match: re.Match[str]) -> Piece:
        raw = match[0]
        if match["sign"]:
            return Piece(*match.span(), syntax.characters[raw])
        if match["argument"] or match["ticks"] or _is_word(match["kept"]):
            return Piece(*match.span(), Mark(raw, "word"))
        if raw[0] == "&":
            return Piece(*match.span(), Mark(raw, "alone"))
        if raw[0] != "<" or match["kept"] or raw.startswith("<!"):
            return Piece(*match.span(), Mark(raw), "-")
        return tag_piece(*match.span(), raw)

    def write(text: Text, _start: int, _end: int) -> str:
        return write_text(text, lambda string: syntax.escape(one_line(string)))

    slots: list[Slot] = []
    has_branches = syntax in (ICU, WITHOUT_BRANCHES)
    for span in find_icu_texts(message) if has_branches else [(0, len(message))]:
        for line in re.compile(r"[^\n]+").finditer(message, *span):
            pieces = read_pieces(message, *line.span(), token, read)
            slots += in_place(message, pieces, write)
    return slots


def _is_word(name: str | None) -> bool:
    """Tell whether an element whose content stays is a word in a sentence, as code is."""
    return bool(name) and str(name).lower() not in ("pre", "script", "style")


def is_icu(message: str) -> bool:
    """Tell whether a message has branches."""
    return any("," in token[0] for token in _ICU_TOKEN.finditer(message) if token[0][0] == "{")


def find_icu_texts(message: str) -> list[tuple[int, int]]:
    """Find what is text outside and inside of branches; nothing if the braces don't match."""
    runs, start = [], 0
    within = ["text"]
    for token in _ICU_TOKEN.finditer(message):
        raw = token[0]
        if raw[0] == "'":
            continue
        if raw == "}":
            ended = within.pop()
            if not within:
                return []
            if ended == "text":
                runs.append((start, token.start()))
            elif ended == "branches":
                start = token.end()
        elif within[-1] == "branches":
            within.append("text")
            start = token.end()
        elif raw != "{" and within[-1] == "text":
            runs.append((start, token.start()))
            within.append("branches")
        else:
            within.append("argument")
    return [*runs, (start, len(message))] if within == ["text"] else []


_ENDING = rf"(?:(?![{UNSPACED}])[^\W_])*+"
# Grammars by dialect. Where no dialect is known all are tried, in this order.
_WORDS = {
    "addresses": r"""
        (?: \b(?:https?|ftp)://|\bwww\.|\bmailto: ) [^\s<>"“”]* [^\s<>"“”.,;:!?'’)\]…]
      | (?<![\w.+-]) [\w.+-]++ @ [\w-]++ (?:\.[\w-]++)+""",
    # {{ x }}, {{{ x }}}; with the letters that touch it, as in {count}m
    "i18next, Vue, Handlebars": rf"""
        (?: \{{\{{\{{ [^{{}}\n]*+ \}}\}}\}} | \{{\{{ [^{{}}\n]* \}}\}} ) {_ENDING}""",
    # {name}, ${x}, %{x}, #{x}
    "Python, JavaScript, Ruby": rf"[$%\#]?\{{ [\w.:$\[\]-]* \}}{_ENDING}",
    "ICU": r"\{ \w+ , \s* -?\w+ (?:[,:][^{}\n]*)? \}",  # {n, number}, {day, date, ::yMMMd}
    "Apple": r"%arg\b | % (?:\d+\$)? \#@\w+@",  # %#@dogs@
    "Qt": r"%L?\d{1,2} (?!\w|\$|\.\d|:[a-z]\b)",  # %1
    # %s, %-5.2f, %1$@, %(name)s, %<name>s and %count%, with the letters and signs that touch them:
    # whoever reads them, nothing is lost.
    "printf of C, Java, Apple, Python, Ruby; Symfony": r"""
        (?<!\d)
        (?: %++ (?:\(\w+\)|<\w{3,}>|\d+[$:])? [-+0\#',]*+ (?:\*|\d*+) (?:\.(?:\*|\d*+))?
            [a-zA-Z@] (?a:\w*(?:[.-]\w+)+(?=%)|\w*)
        )+ %{0,2}
      | (?<=\d) %[sd@] (?![^\W_])""",
    "ICU's quotes": r"'\{[^{}'\n]*' (?:\w+ '\}')?",  # '{'name'}', braces that are text
    "PHP, Laravel": r"(?<![\w$@.]) [$@] [A-Za-z_]\w*",  # $name, @name
    "options": r"(?<=[\s'\"`(|,=\[]) (?<!--\s) --[a-z][\w-]++ (?:=[A-Z]+)?",  # --option=WORD
    "filters of files": r"\(\* [\w.*;,\ ]* \)",  # (*.png *.jpg)
    "code": TICKED,
    "wikis": r"\[\[ [^\[\]\n]{1,300}+ \]\]",  # [[a|b]]
    # [a] if [/a] follows, [/a], [a b="c"] and [a /]; another word in brackets is a word.
    "shortcodes": r"""\[ (?P<code>[a-z][\w-]{0,40}+) \]
        (?= (?: [^\[] | \[(?!/(?P=code)\]) ){0,500}+ \[/(?P=code)\] )
      | \[/ (?P<end_of_code>[a-z][\w-]{0,40}+) \]
      | (?<![\w\]])\[ [a-z][\w-]{0,40}+ (?: \s?/\]
        | (?: \s{1,9}+[\w-]{1,40}+=(?:"[^"\n]{0,200}+"|'[^'\n]{0,200}+'|[^\s\[\]"']{1,200}+) ){1,9}+
          \s?/?\] ) (?![\[(:])""",
    "keys": r"\b (?:(?:Alt|Cmd|Ctrl|Meta|Shift)\+){1,5}+ \w+",
    "names of files and in programs": r"""
        (?a: (?<![\w@./<-])
        (?: [a-z\d]{2,}+ (?:_[a-z\d]{2,}+)++ (?!\w)
          | [A-Z\d]{2,}+ (?:_[A-Z\d]++)++ (?!\w)
          | \w[\w-]++ (?:\.[a-z]\w++)++ (?:[\#?](?:[\w=&]|[.,](?=\w))++)?
          | (?:\.{1,2}/[\w-]|/[\w-]++[./]\w) (?:[\w/-]|\.(?=\w))*+
        ) )""",
}
_FOUND = re.compile(
    rf"{KEPT} |"
    r"""
    \{%[^{}\n]*?%\} | \{\#[^{}\n]*?\#\} | <%[^<>\n]*?%> | \{\{[\#/^!>][^{}\n]*\}\}  # of templates
  | [\u2600-\u27bf\U0001f000-\U0001faff]  # signs and pictures, with what changes their looks
      [\u200d\u20e3\ufe0f\u2600-\u27bf\U0001f000-\U0001faff]*+
  | %% | \\[nrt](?![a-z])            # a percent sign, and the end of a line, for a program
  | (?<![\w&"']) (?:&|_(?=[A-Z])) (?=[^\W_]++(?![_;]))  # the key of a menu
    """
    rf"| (?P<word> {' | '.join(_WORDS.values())} )"
    r"""
  | (?:\{(?=\w+>)|<(?=\w+\})) (?P<phrase>\w+) [>}]  # {1>...<1}
  | (?P<link> (?<![!\]\\])\[(?=[^\[\]\n]{1,300}+\]\([^()\s]{1,500}+\)) | \]\([^()\s]{1,500}+\) )
  | </? (?P<name>[a-zA-Z_][\w.:-]*+|\d++(?=/?>)) [^<>]*+ >
    """,
    re.VERBOSE,
)
_LINK = re.compile(r"<(?:a|del|ins)\b|<[\w.-]+:(?:hyperlink|a|ins)\b|\[")
# Placeholders without a number, which a program tells apart only by their order.
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
# Messages with forms for different numbers: `{0} None|[1,Inf[ Some`, `A dog|:count dogs`
_PLURAL = re.compile(
    r"(?:^|\|)\s*(?:\{\d+\}|[\[\]](?:-?\d+|-?Inf|\*),)"
    r"|:count\b|%count%|\{(?:count|n)\}|\{\{ \w+ \}\}"
)


class Found(Mark):
    """A mark that its reader takes for a string."""

    __slots__ = ()


class _Branches(Found):
    """The code between the texts of a message with branches."""

    __slots__ = ()


def find_placeholders(text: Text) -> Text:
    """Make marks of what stands in the strings of a text for something else."""
    items: list[str | Mark] = []
    opened: list[tuple[int, str, str]] = []  # open marks: where they are, names, and themselves
    for item in _find_branches(text):
        if isinstance(item, Mark):
            items.append(item)
            if item.kind == "open":
                opened.append((len(items), "", ""))
            while item.kind == "close" and opened and opened.pop()[1]:
                pass
            continue
        end = 0
        for match in _FOUND.finditer(item):
            raw = match[0]
            items.append(item[end : match.start()])
            end = match.end()
            name = _name_of(match)
            mark: str | Mark = Found(
                raw, "word" if match["word"] or _is_word(match["kept"]) else "alone"
            )
            if name and raw.startswith("](") and not (opened and opened[-1][1] == name):
                mark = raw
            elif name and (raw.startswith(("</", "](", "[/")) or raw.endswith("}")):
                if opened and opened[-1][1] == name:
                    start, _, opening = opened.pop()
                    items[start] = Found(opening, "open")
                    mark = Found(raw, "close")
            elif name and not UNPAIRED.match(raw):
                opened.append((len(items), name, raw))
            items.append(mark)
        items.append(item[end:])
    return tuple(filter(None, items))


def _name_of(match: re.Match[str]) -> str:
    """Return the name of what may begin or end a pair of marks, or ""."""
    if code := match["code"] or match["end_of_code"]:
        return f"[{code}"
    return match["name"] or match["phrase"] or ("[" if match["link"] else "")


def _find_branches(text: Text) -> Iterator[str | Mark]:
    """Make marks of what stands around the branches of ICU's plurals, and of `#` in them."""
    strings = only_strings(text)
    gap = next(sign for sign in map(chr, count(0xE000)) if sign not in strings)  # for a mark
    message = only_strings(text, mark=gap)
    texts = find_icu_texts(message) if is_icu(message) else []
    spans = pairwise([0, *chain(*texts), len(message)])
    between = [message[start:end] for start, end in islice(spans, 0, None, 2)]
    if not texts or gap in "".join(between):
        yield from text
        return
    marks = (item for item in text if isinstance(item, Mark))
    for before, (start, end) in zip(between, [*texts, (0, 0)], strict=True):
        if before:
            yield _Branches(before)
        for piece in re.split(f"({gap}|{HASH})", message[start:end]):
            if piece == gap:
                yield next(marks)
            else:
                yield Found(piece, "word") if re.fullmatch(HASH, piece) else piece


def as_strings(items: Iterable[str | Mark]) -> Text:
    """Make strings again of what was found, as the reader knows them."""
    return join_strings(item.raw if isinstance(item, Found) else item for item in items)


def is_unnumbered(item: str | Mark) -> bool:
    """Tell whether it is a placeholder whose order has a meaning, such as `%s` and `{}`."""
    if not isinstance(item, Mark) or _NAMED.fullmatch(item.raw):
        return False
    return item.kind == "word" and bool(_UNNUMBERED.search(item.raw))


def in_order(text: Text, source: Text) -> Text:
    """Put placeholders whose order has a meaning into that of the source."""
    waiting = filter(is_unnumbered, source)
    return tuple(next(waiting) if is_unnumbered(item) else item for item in text)


def read_by_programs(text: Text) -> list[str]:
    """List the placeholders that a program would find, such as `%s` and `{name}`."""
    items = find_placeholders(as_strings(text))
    raws = (item.raw for item in items if isinstance(item, Found) and item.kind == "word")
    return sorted(raw for raw in raws if "%" in raw or "{" in raw)


def without_new_quotes(text: Text, source: Text) -> Text:
    """Write an apostrophe before `{name}` so that it quotes no brace for ICU: `d’{name}`."""
    if any(starmap(_is_quoted, pairwise(source))):
        return text
    items = list(text)
    for i, (before, mark) in enumerate(pairwise(text)):
        if isinstance(before, str) and _is_quoted(before, mark):
            items[i] = f"{before[:-1]}\u2019"
    return tuple(items)


def _is_quoted(before: str | Mark, mark: str | Mark) -> bool:
    braces = isinstance(mark, Mark) and mark.raw.startswith(("{", "'{"))
    return braces and isinstance(before, str) and before.endswith("'")


def divide(text: Text) -> Iterator[Text | str | Mark]:
    """Divide a text at the ends of lines, columns and paragraphs, which stay.

    So are the branches of ICU's plurals, the forms of those of Symfony, Laravel and Vue, at `|`,
    and words that only tags part: `<a>Home</a><a>News</a>`; but what goes on in small letters
    is one word, `<b>wo</b><i>man</i>`, unless it is in links.
    """
    ends = r"[\r\n\t|]|;;" if _PLURAL.search(write_text(text)) else r"[\r\n\t]|;;"
    items: list[str | Mark] = []
    depth = 0
    last, cut = "", 0  # the string before closing and opening marks, and where the latter begin
    for item in text:
        if isinstance(item, Mark):
            closed = bool(items) and isinstance(items[-1], Mark) and items[-1].kind == "close"
            if depth == 0 and closed and item.kind == "open":
                cut = len(items)
            elif item.kind in ("alone", "word"):
                last = ""
            depth += {"open": 1, "close": -1}.get(item.kind, 0)
        else:
            if cut and (are_words if _is_link(items[cut]) else are_apart)(last, item):
                yield tuple(items[:cut])
                del items[:cut]
            last, cut = item, 0
        pieces = [item] if isinstance(item, Mark) else re.split(f"((?:{ends})+)", item)
        for piece in pieces:
            if _is_end(piece, ends):
                yield tuple(items)
                yield piece
                items, last, cut = [], "", 0
            elif piece:
                items.append(piece)
    yield tuple(items)


def _is_link(item: str | Mark) -> bool:
    return isinstance(item, Mark) and bool(_LINK.match(item.raw))


def _is_end(piece: str | Mark, ends: str) -> bool:
    if isinstance(piece, str):
        return bool(re.match(ends, piece))
    return isinstance(piece, _Branches) or (piece.kind == "alone" and bool(_BREAK.match(piece.raw)))


# `en-US`, `YYYY-MM-DD`, time zones and paths, though they are letters
_CODE = (
    r"[a-z]{2,3}(?:-[A-Z][a-z]{3}|-[A-Z]{2})+(?![\w-])|(?:([DdEHhLMmQSswYy])\1++-?)++(?![\w-])"
    r"|(?:Africa|America|Asia|Atlantic|Australia|Europe|Indian|Pacific)/|[a-z][\w-]*/"
)
# Letters in one case or with a capital (`iPhone`, too): alone, joined as in `E-mail`, `file(s)` and
# `Yes/No`, or as the end of `2FA-Method`; with punctuation
_PART = r"(?>(?:[A-Z]?[a-z]+|[A-Z]+s?|[a-z][A-Z][a-z]+)(?![A-Za-z]))"
_WORD = re.compile(
    rf"(?:-(?=[A-Za-z]{{3}}))?[\"'“”„«‹‘(\[¿¡*•–—&]*+(?!{_CODE})"
    rf"(?:{_PART}(?:(?:['’&-]|-?/(?:-|(?=[A-Z]))){_PART}|\([A-Za-z]{{1,3}}\))*|(?:\w+-)+[A-Z][a-z]{{2,}})"
    r"[\"'“”»›’)\].,:;!?…*%–—-]*"
)


def is_language(text: Text) -> bool:
    """Tell whether a text has words, and no more code: `12px`, `a/b`, `x.y` or `userName`.

    What has letters beyond ASCII is a word, and a single letter is neither.
    """
    words_alone = ""
    for item in find_placeholders(text):
        if isinstance(item, Mark):
            words_alone += "0" if item.kind == "word" else " "
        else:
            words_alone += item
    words = code = 0
    for token in words_alone.split():
        letters = "".join(filter(str.isalpha, token))
        if not letters.isascii() or (len(letters) > 1 and _WORD.fullmatch(token)):
            words += 1
        elif len(letters) > 1:
            code += 1
    return words >= max(code, 1)


def only_language(slots: Iterable[Slot]) -> list[Slot]:
    """Leave out what a program reads."""
    return [slot for slot in slots if is_language(slot.text)]
