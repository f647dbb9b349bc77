"""Messages of programs: the texts in them, and what each way of formatting makes of characters."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from seq2seq.documents.document import Mark, Slot
from seq2seq.documents.spans import ENTITY, Piece, in_place, one_line, read_pieces, tag_piece

# <b>, </0>, <_:a-1/> and &nbsp;, and the options that a line of help begins with
_MARKUP = (
    rf"</?(?:[A-Za-z_][^<>]*+|\d+/?)>|{ENTITY}"
    r"|(?m:^) *--?[\w?]\S*(?:,? \S+){0,2}? {2,}(?=\S)"
)
# The key of a menu: `_Open` and `E_xit` of GTK, `&Open` of Qt; not `file_name`, `A & B` or `AT&T`
_KEY = re.compile(
    r"\A((?:[^_&]|&(?= ))*?)(\b[A-Z][a-z]*(?=_[a-z])|\b\w+(?=&[a-z])|(?<!\w)(?=[_&]))"
    r"([_&])(?!\w+;)([^\W_](?:[^_&]|&(?= ))*)\Z"
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
    """What stands for a word that is put in."""
    escape: Callable[[str], str] = str
    """Writes text so that it is read as such."""
    characters: dict[str, str] = field(default_factory=dict)
    """What stands for a character that would mean something else, and that character."""


# ${count > 1 ? 'dogs' : 'dog'} of Java's expression language; %<name>s, which is no tag
PLAIN = Syntax(r"""%<\w{3,}>\w*|\$\{(?:[^{}'"]++|'[^']*+'|"[^"]*+")*+\}""")
"""No way of formatting is known: other placeholders are found later."""
PRINTF = Syntax(_DIRECTIVE, lambda text: text.replace("%", "%%"), {"%%": "%"})
"""`%s` and `%(count)d`; `%%` is a percent sign."""
APPLE = replace(PRINTF, arguments=_DIRECTIVE.replace("+ #", "+#"))
"""The same where no flag says that there are directives: `100% done` has none."""
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


def combine(syntaxes: Sequence[Syntax]) -> Syntax:
    """Read a message by several rules at once."""
    if len(syntaxes) < 2:
        return syntaxes[0] if syntaxes else PLAIN
    one, other = syntaxes[0], combine(syntaxes[1:])
    return Syntax(
        f"{one.arguments}|{other.arguments}",
        lambda text: one.escape(other.escape(text)),
        {**one.characters, **other.characters},
    )


def find_texts(message: str, syntax: Syntax) -> list[Slot]:
    """Find the texts of a message: its lines, and with ICU each branch of its plurals."""
    signs = "|".join(map(re.escape, syntax.characters)) or r"(?!)"
    token = re.compile(rf"({signs})|({syntax.arguments})|{_MARKUP}")

    def read(match: re.Match[str]) -> Piece:
        raw = match[0]
        if match[1]:
            return Piece(*match.span(), syntax.characters[raw])
        if match[2] or raw[0] == "&":
            return Piece(*match.span(), Mark(raw, "word" if match[2] else "alone"))
        if raw[0] != "<":
            return Piece(*match.span(), Mark(raw), "-")
        return tag_piece(*match.span(), raw)

    slots: list[Slot] = []
    has_branches = syntax in (ICU, WITHOUT_BRANCHES)
    for start, end in find_icu_texts(message) if has_branches else [(0, len(message))]:
        for line in re.compile(r"[^\n]+").finditer(message, start, end):
            pieces = read_pieces(message, *line.span(), token, read)
            slots += in_place(message, pieces, lambda text: syntax.escape(one_line(text)))
    return slots


def key_first(message: str) -> str:
    """Put the mark of a menu's key before its word, which must not fall apart."""
    return _KEY.sub(r"\1\3\2\4", message)


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
