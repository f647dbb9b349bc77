"""Text that a command reads, a file or standard input, decoded leniently; and its output."""

import json
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from itertools import chain, islice
from pathlib import Path
from typing import BinaryIO

from seq2seq.cli.messages import file_name, report, report_damaged
from seq2seq.errors import UsageError, UserError
from seq2seq.files import MANIFEST, is_stream, read_manifest
from seq2seq.text import (
    NOT_PLAIN,
    begins_as_code,
    create_binary,
    decode_leniently,
    iterate_lines,
    open_binary,
    why_not_text,
    why_packed,
)


def check_output(output: str, *inputs: str) -> None:
    """Refuse an output, `-` for standard output, that is an input, or a file of a run or a model.

    Say so if it replaces another file.
    """
    if (status := _regular_file(output, 1)) is None:
        return
    for name in inputs:
        if (input_status := _regular_file(name, 0)) and os.path.samestat(input_status, status):
            raise UserError(f"{file_name(name)}: is the output, too; choose another output")
    if output == "-" or is_stream(Path(output)):
        return
    from seq2seq.run.folder import RunFolder

    path = Path(os.path.realpath(os.path.expanduser(output)))
    files = {MANIFEST, *(file.name for file in RunFolder(path.parent).files)}
    with suppress(UserError):  # in a folder without a model
        files |= read_manifest(path.parent).keys()
    if path.name in files:
        raise UserError(f"{output}: is a file of a run or a model; choose another output")
    if status.st_size:
        report(f"{output}: will be replaced")


def _regular_file(path: str, standard_stream: int) -> os.stat_result | None:
    with suppress(OSError, ValueError):
        status = os.fstat(standard_stream) if path == "-" else os.stat(os.path.expanduser(path))
        return status if stat.S_ISREG(status.st_mode) else None
    return None


def check_text(path: str, lines: Iterator[bytes], *, plain: bool = False) -> Iterator[bytes]:
    """Return all of the lines; refuse what is not text, by the first of them.

    With `plain`, also refuse markup, data and programs, whose format can be given instead.
    """
    first = list(islice(lines, 100))
    damaged = [(i, raw) for i, raw in enumerate(first, start=1) if decode_leniently(raw)[1]]
    # Most lines of an archive of text may be text.
    if first and (reason := why_packed(first[0])):
        raise UserError(f"{file_name(path)}: {reason}")
    if 2 * len(damaged) > len(first):
        number, raw = damaged[0]
        raise UserError(f"{file_name(path)}: not plain text: line {number}: {why_not_text(raw)}")
    if plain and begins_as_code(b"\n".join(first).decode(errors="replace")):
        raise UserError(f"{file_name(path)}: {NOT_PLAIN}; --format txt translates its lines")
    return chain(first, lines)


def open_input(path: str) -> AbstractContextManager[BinaryIO]:
    """Open a file of any compression for reading; `-` is standard input."""
    return nullcontext(sys.stdin.buffer) if path == "-" else open_binary(path)


def open_output(path: str) -> AbstractContextManager[BinaryIO]:
    """Open a file of any compression for writing; `-` is standard output."""
    return nullcontext(sys.stdout.buffer) if path == "-" else create_binary(path)


def read_leniently(path: str) -> list[str]:
    """Read the lines of a file; `-` is standard input."""
    damaged: list[int] = []
    with open_input(path) as stream:
        lines = list(decode_lines(check_text(path, iterate_lines(stream)), damaged))
    report_damaged(path, damaged)
    return lines


def decode_lines(raw_lines: Iterable[bytes], damaged: list[int]) -> Iterator[str]:
    """Decode lines as they come; add the numbers of those with bytes that are not UTF-8 to a list.

    These bytes are replaced, so that no line is lost.
    """
    for number, raw in enumerate(raw_lines, start=1):
        line, replaced = decode_leniently(raw)
        if replaced:
            damaged.append(number)
        yield line


def read_parallel(source: str, target: str) -> tuple[list[str], list[str]]:
    """Read two files whose lines are translations of each other."""
    from seq2seq.score import check_counts

    if source == target == "-":
        raise UsageError("standard input can't be both texts: give a file for one of them")
    sources, targets = read_leniently(source), read_leniently(target)
    check_counts({file_name(source): len(sources), file_name(target): len(targets)})
    return sources, targets


def print_json(record: object, *, indent: int | None = 2) -> None:
    """Print a record as JSON, in UTF-8 whatever the locale is; on one line if indent is None."""
    text = json.dumps(record, indent=indent, ensure_ascii=False)
    # A file name that is not UTF-8 holds half surrogate pairs, which JSON spells as escapes.
    sys.stdout.buffer.write(text.encode(errors="backslashreplace") + b"\n")


def print_path(path: str | Path) -> None:
    """Print a path by the bytes of its name, which are not always UTF-8."""
    sys.stdout.buffer.write(os.fsencode(path) + b"\n")
