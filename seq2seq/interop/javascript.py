r"""Python's regular expressions as JavaScript's, so that a page can follow the program's rules.

The result needs the flag `u`. Classes such as `\w` know all scripts, as Python's do.
"""

import re
from collections.abc import Iterable
from itertools import count
from re import _constants, _parser  # type: ignore[attr-defined]
from typing import Any

_SPACE, _DIGIT, _WORD = r"\p{White_Space}\x1c-\x1f", r"\p{Nd}", r"\p{L}\p{N}_"
_CLASSES = {"SPACE": _SPACE, "DIGIT": _DIGIT, "WORD": _WORD}
_BOUNDARY = rf"(?:(?<=[{_WORD}])(?![{_WORD}])|(?<![{_WORD}])(?=[{_WORD}]))"
_AT = {"AT_BEGINNING": "^", "AT_END_STRING": "$", "AT_BOUNDARY": _BOUNDARY}
_LOOK = {("ASSERT", 1): "?=", ("ASSERT", -1): "?<=", ("ASSERT_NOT", 1): "?!"}
_LOOK |= {("ASSERT_NOT", -1): "?<!"}
_FLAGS = {"match": "y", "fullmatch": "", "search": "", "finditer": "g"}


def regular_expression(pattern: re.Pattern[str], method: str) -> tuple[str, str]:
    """Return source and flags of the JavaScript expression for a method of a pattern.

    `match` is sticky: it matches at `lastIndex`.
    """
    if pattern.flags & ~(re.UNICODE | re.IGNORECASE | re.DOTALL | re.VERBOSE):
        raise NotImplementedError(f"flags {pattern.flags!r} of a pattern")
    source = _Writer(pattern).sequence(_parser.parse(pattern.pattern, pattern.flags))
    return (f"^(?:{source})$" if method == "fullmatch" else source), _FLAGS[method] + "u"


class _Writer:
    """Writes the parts of one parsed pattern."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self.names = {number: name for name, number in pattern.groupindex.items()}
        self.flags = pattern.flags
        self.atomic_groups = count(1)

    def sequence(self, parts: Iterable[tuple[Any, Any]]) -> str:
        """Write parts that follow one another."""
        return "".join(self.part(str(kind), value) for kind, value in parts)

    def part(self, kind: str, value: Any) -> str:
        """Write a part, such that a quantifier may follow it."""
        match kind, value:
            case "LITERAL", code:
                cases = self.cases(code)
                return f"[{cases}]" if len(cases) > len(_escaped(code)) else _escaped(code)
            case "NOT_LITERAL", code:
                return f"[^{self.cases(code)}]"
            case "ANY", _:
                return "[^]" if self.flags & re.DOTALL else r"[^\n]"
            case "IN", members:
                return self.members(members)
            case "BRANCH", (_, branches):
                return f"(?:{'|'.join(map(self.sequence, branches))})"
            case "SUBPATTERN", (number, added, removed, inner):
                before, self.flags = self.flags, (self.flags | added) & ~removed
                written = self.sequence(inner)
                self.flags = before
                name = self.names.get(number)
                return f"(?<{name}>{written})" if name else f"(?:{written})"
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT", (least, most, inner):
                repeated = self.sequence(inner)
                if len(inner) > 1:
                    repeated = f"(?:{repeated})"
                repeated += _quantifier(least, most)
                if kind == "POSSESSIVE_REPEAT":
                    return self.atomic(repeated)
                return f"(?:{repeated}?)" if kind == "MIN_REPEAT" else f"(?:{repeated})"
            case "ATOMIC_GROUP", inner:
                return self.atomic(self.sequence(inner))
            case "ASSERT" | "ASSERT_NOT", (direction, inner):
                return f"({_LOOK[kind, direction]}{self.sequence(inner)})"
            case "AT", place if str(place) in _AT:
                return _AT[str(place)]
        raise NotImplementedError(f"{kind} in a pattern")

    def atomic(self, written: str) -> str:
        """Let no part of a match be given back: a lookahead, and a reference to what it found."""
        name = f"atomic{next(self.atomic_groups)}"
        return rf"(?:(?=(?<{name}>{written}))\k<{name}>)"

    def members(self, members: list[tuple[Any, Any]]) -> str:
        """Write a set of characters."""
        is_negated, inside = False, ""
        outside = list[str]()  # of one class each, such as \W
        for kind, value in members:
            match str(kind), value:
                case "NEGATE", _:
                    is_negated = True
                case "LITERAL", code:
                    inside += self.cases(code)
                case "RANGE", (first, last):
                    inside += f"{_escaped(first)}-{_escaped(last)}"
                    if self.flags & re.IGNORECASE:
                        inside += _other_case(first, last)
                case "CATEGORY", category:
                    name = str(category).removeprefix("CATEGORY_")
                    if name in _CLASSES:
                        inside += _CLASSES[name]
                    else:
                        outside.append(f"[^{_CLASSES[name.removeprefix('NOT_')]}]")
        if not outside:
            return f"[{'^' * is_negated}{inside}]"
        either = "|".join([f"[{inside}]"] * bool(inside) + outside)
        return f"(?:(?!{either})[^])" if is_negated else f"(?:{either})"

    def cases(self, code: int) -> str:
        """Write a character, in both cases if that is ignored."""
        character = chr(code)
        if self.flags & re.IGNORECASE and character.isalpha():
            return character.lower() + character.upper()
        return _escaped(code)


def _quantifier(least: int, most: int) -> str:
    if most is _constants.MAXREPEAT:
        return {0: "*", 1: "+"}.get(least, f"{{{least},}}")
    return "?" if (least, most) == (0, 1) else f"{{{least},{most}}}"


def _other_case(first: int, last: int) -> str:
    """Write the other case of a range of letters of ASCII, and nothing for one without letters."""
    ends = chr(first), chr(last)
    if all(map(str.isascii, ends)) and len({end.islower() for end in ends}) == 1:
        if all(map(str.isalpha, ends)):
            return "-".join(end.swapcase() for end in ends)
        if all(map(str.isdigit, ends)):
            return ""
    raise NotImplementedError(f"the range {'-'.join(ends)} in both cases")


def _escaped(code: int) -> str:
    character = chr(code)
    if character in r"^$\.*+?()[]{}|/-":
        return rf"\x{code:02x}" if character == "-" else "\\" + character
    return character if character.isprintable() and not character.isspace() else rf"\u{{{code:x}}}"
