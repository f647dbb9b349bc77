"""Messages of the commands, on standard error; one of torchrun's processes writes them."""

import logging
import os
import sys
from collections.abc import Sequence
from contextlib import suppress

from seq2seq.errors import printable


def rank_and_size() -> tuple[int, int]:
    """Return which of torchrun's processes this is, and of how many; without it, 0 of 1."""
    if not {"RANK", "WORLD_SIZE", "LOCAL_RANK"} <= os.environ.keys():
        return 0, 1
    return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def log_to_stderr() -> None:
    """Let the program's messages, and those of Hydra's plugins, go to standard error alone."""
    for name in ("seq2seq", "hydra_plugins"):
        logger = logging.getLogger(name)
        logger.setLevel(logging.INFO)
        logger.propagate = False
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(_Formatter())
        logger.handlers = [handler]


class _Formatter(logging.Formatter):
    """Writes messages that may hold a stranger's strings."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the message, without what a terminal obeys."""
        return printable(super().format(record))


def report(message: str) -> None:
    """Print a message on standard error, unless that is a full disk or a closed pipe."""
    with suppress(OSError):
        print(f"seq2seq: {printable(message)}", file=sys.stderr, flush=True)


def report_damaged(path: str, damaged: Sequence[int]) -> None:
    """Say on standard error how many lines of a file had bytes that were replaced, if any."""
    if damaged:
        report(
            f"{file_name(path)}: lines that were not valid UTF-8, or had NUL: {len(damaged):,}"
            f" (the first: line {damaged[0]:,}); these bytes were replaced by U+FFFD"
        )


def file_name(path: str) -> str:
    """Name a file in messages; `-` is standard input."""
    return "standard input" if path == "-" else path
