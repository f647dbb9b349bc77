"""The text that a command reads: a file or standard input, decoded leniently."""

import json
import sys
from contextlib import AbstractContextManager, nullcontext
from typing import BinaryIO


def open_input(path: str) -> AbstractContextManager[BinaryIO]:
    """Open a file of any compression for reading; `-` is standard input."""
    from seq2seq.data.lines import open_binary

    return nullcontext(sys.stdin.buffer) if path == "-" else open_binary(path)


def read_leniently(path: str) -> list[str]:
    """Read the lines of a file; `-` is standard input.

    Bytes that are not UTF-8 are replaced and reported, so that no line is lost.
    """
    from seq2seq.data.lines import decode_leniently, iterate_lines

    with open_input(path) as stream:
        decoded = [decode_leniently(raw) for raw in iterate_lines(stream)]
    report_replaced(path, sum(replaced for _, replaced in decoded))
    return [line for line, _ in decoded]


def read_parallel(source: str, target: str) -> tuple[list[str], list[str]]:
    """Read two files whose lines are translations of each other."""
    from seq2seq.errors import UsageError
    from seq2seq.evaluation.scores import check_counts

    if source == target == "-":
        raise UsageError("standard input can't be both texts: give a file for one of them")
    sources, targets = read_leniently(source), read_leniently(target)
    check_counts({file_name(source): len(sources), file_name(target): len(targets)})
    return sources, targets


def report_replaced(path: str, lines: int) -> None:
    """Say on standard error how many lines of a file had bytes that were replaced, if any."""
    if lines:
        print(
            f"seq2seq: {file_name(path)}: lines that were not valid UTF-8, or had NUL: {lines:,};"
            " these bytes were replaced by U+FFFD",
            file=sys.stderr,
        )


def file_name(path: str) -> str:
    """Name a file in messages; `-` is standard input."""
    return "standard input" if path == "-" else path


def print_json(record: object, *, indent: int | None = 2) -> None:
    """Print a record as JSON, in UTF-8 whatever the locale is; on one line if indent is None."""
    text = json.dumps(record, indent=indent, ensure_ascii=False)
    # A file name that is not UTF-8 holds half surrogate pairs, which JSON spells as escapes.
    sys.stdout.buffer.write(text.encode(errors="backslashreplace") + b"\n")
