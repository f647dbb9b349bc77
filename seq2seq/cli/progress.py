"""The progress of a translation: a bar on a terminal, or a line a minute in a log."""

import sys
from pathlib import Path
from typing import NoReturn

from tqdm import tqdm

from seq2seq.cli.messages import report
from seq2seq.text import count_lines

_LOG_SECONDS = 60.0
_LOG_FORMAT = "{n_fmt} of {total_fmt}{unit}, {rate_noinv_fmt}, {remaining} left"


class _LineAMinute(tqdm):  # type: ignore[type-arg]
    """A bar for a log."""

    monitor_interval = 0

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        """Write a line, unless it is to clear the bar."""
        if msg is None:
            report(str(self))


def progress_bar(
    unit: str, output: str, counted: str | None = None, *, hidden: bool = False
) -> "tqdm[NoReturn]":
    """Make a bar on standard error, unless the output goes there too.

    If the lines of a file can be `counted` beforehand, the bar shows the remaining time.
    """
    on_terminal = sys.stderr.isatty()
    hidden = hidden or (on_terminal and output == "-" and sys.stdout.isatty())
    total = None
    if counted is not None and not hidden and Path(counted).expanduser().is_file():
        total = count_lines(counted)
    if on_terminal or hidden:
        return tqdm(total=total, unit=unit, disable=hidden)
    return _LineAMinute(
        total=total,
        unit=unit,
        leave=False,
        bar_format=_LOG_FORMAT,
        delay=_LOG_SECONDS,
        mininterval=_LOG_SECONDS,
        miniters=1,
    )
