"""Lines that are answered one by one, as they are typed."""

import sys
from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import TypeVar

from seq2seq.decoding.segments import pair_prefixes
from seq2seq.decoding.translation import Translation
from seq2seq.decoding.translator import Translator
from seq2seq.device import oom_as_user_error
from seq2seq.errors import UserError

T = TypeVar("T")


def translate_one_by_one(
    translator: Translator, lines: Iterable[str], prefixes: Iterable[str] | None
) -> Iterator[Translation]:
    """Translate each line before the next is read.

    A line that can't be translated has a blank translation; the reason is printed.

    Raises:
        UserError: if there is not one prefix per line.
    """
    pairs = zip(lines, repeat("")) if prefixes is None else pair_prefixes(lines, prefixes)
    for number, (line, prefix) in enumerate(pairs, start=1):
        try:
            with oom_as_user_error():
                (translation,) = translator.translate([line], [prefix], first_line=number)
        except UserError as error:
            reason = str(error).removeprefix(f"line {number}: ")
            print(f"seq2seq: line {number}: {reason}", file=sys.stderr)
            translation = Translation([])
        yield translation


def with_prompt(lines: Iterable[T]) -> Iterator[T]:
    """Yield lines as the user types them; before each, print a prompt on standard error."""
    iterator = iter(lines)
    try:
        while True:
            print("> ", end="", file=sys.stderr, flush=True)
            try:
                line = next(iterator)
            except StopIteration:  # Ctrl-D
                print(file=sys.stderr)
                return
            yield line
    except KeyboardInterrupt:
        print(file=sys.stderr)
        raise
