"""Escapes: from the raw form of a value to its text, and a translation back to the raw form."""

import re
from collections.abc import Callable, Sequence

from seq2seq.documents.document import Slot, Text

# The halves of a character that UTF-16 writes as two, or any other character
UTF_16_ESCAPE = r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}"


def decode_utf_16(escapes: str) -> str:
    r"""Return the character that one or two `\uXXXX` stand for."""
    units = bytes.fromhex(escapes.lower().replace("\\u", ""))
    return units.decode("utf-16-be", "surrogatepass")


def unescape(
    raw: str, escape: re.Pattern[str], character: Callable[[re.Match[str]], str]
) -> tuple[str, Sequence[int]]:
    """Return the text that a raw form stands for, and where each character begins, and the end."""
    parts, offsets, done = [], [], 0
    for match in escape.finditer(raw):
        parts += [raw[done : match.start()], character(match)]
        offsets += [*range(done, match.start()), *[match.start()] * len(parts[-1])]
        done = match.end()
    return "".join([*parts, raw[done:]]), [*offsets, *range(done, len(raw) + 1)]


def quoted(
    content: str,
    start: int,
    slots: Sequence[Slot],
    offsets: Sequence[int],
    quote: Callable[[str], str] = str,
) -> list[Slot]:
    """Take slots of a value to the file, where `offsets` from `start` are those of its characters.

    `quote` writes a part of the value as the file has it.
    """

    def slot(inner: Slot) -> Slot:
        first, last = start + offsets[inner.start], start + offsets[inner.end]

        def write(text: Text) -> str:
            if text == inner.text:
                return content[first:last]
            return quote(inner.write(text))

        return Slot(inner.text, first, last, write)

    return [slot(inner) for inner in slots]
