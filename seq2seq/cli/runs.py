"""`seq2seq runs`: an overview of several runs."""

import argparse
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tabulate import MIN_PADDING, tabulate

from seq2seq.cli.messages import report
from seq2seq.cli.text import print_json
from seq2seq.errors import UserError, printable
from seq2seq.report.card import plain_markdown
from seq2seq.report.overview import (
    common_folder,
    find_runs,
    read_runs,
    remarks,
    rows_of_runs,
    rows_over_seeds,
)

_FORMATS = {"text": "simple", "markdown": "github", "latex": "latex_booktabs"}
_DECIMALS = {"BLEU": 2, "chrF": 2, "perplexity": 3}
_HEADINGS = {title: f"{title} valid" for title in _DECIMALS}
_WIDEST = 32  # characters of a column, but for the first one
_NAMES = 5  # folders that a message names


def run(arguments: argparse.Namespace) -> int:
    """Print the overview; return 1 if a run can't be read."""
    folders: list[Path] = []
    left_out: list[Path] = []
    for given in arguments.runs:
        found, without = find_runs(Path(given))
        folders += found
        left_out += without
    runs, errors = read_runs(list(dict.fromkeys(folders)))
    if not runs:
        raise UserError(errors[0])
    for error in errors:
        report(f"left out: {error}")
    if left_out:
        names = ", ".join(map(str, left_out[:_NAMES]))
        more = f" and {len(left_out) - _NAMES:,} more" if len(left_out) > _NAMES else ""
        report(f"left out, because no run is in them: {names}{more}")
    rows = rows_over_seeds(runs) if arguments.seeds else rows_of_runs(runs)
    if not rows:
        raise UserError("no run has ended: without --seeds, runs are listed that go on")
    several = {
        seed for row in rows for seed in row.get("seeds", ()) if row["seeds"].count(seed) > 1
    }
    if several:
        seeds = ", ".join(map(str, sorted(several)))
        report(
            "warning: several runs of a row have the same seed, perhaps because one was copied or"
            f" the program was edited, and its means count each: seed {seeds}"
        )
    if arguments.format == "json":
        print_json(rows)
    else:
        _print(_as_text(rows, arguments.format), list(remarks(runs)), arguments.format)
    grouped = rows_over_seeds(runs)
    if not arguments.seeds and 0 < len(grouped) < sum(one.ended for one in runs):
        report("some runs differ in their seed alone: --seeds shows their mean and range")
    return 1 if errors else 0


def _as_text(rows: Sequence[dict[str, Any]], form: str) -> list[dict[str, str]]:
    """Return the cells as they are shown, under short titles."""
    keys = list(dict.fromkeys(key for row in rows for key in row))
    if all(row.get("ended") != "not yet" for row in rows):
        keys = [key for key in keys if key != "ended"]
    name = keys[0]
    if len(rows) > 1:  # what is the same in all names says nothing
        shared = common_folder([os.path.dirname(row[name]) for row in rows])
        names = [os.path.relpath(row[name], shared) if shared else row[name] for row in rows]
        rows = [{**row, name: text} for row, text in zip(rows, names, strict=True)]
        if name == "runs" and len(set(names)) < len(names):
            keys = keys[1:]
    inner = [key.partition(".")[2] or _HEADINGS.get(key, key) for key in keys]
    titles = {
        key: printable(one if inner.count(one) == 1 else key)
        for key, one in zip(keys, inner, strict=True)
    }
    cells = []
    for row in rows:
        is_alone = len(row.get("seeds", ())) == 1
        texts = (_cell(key, row.get(key), form, is_alone=is_alone) for key in keys)
        cells.append(dict(zip(titles.values(), texts, strict=True)))
    return cells


def _cell(key: str, value: Any, form: str, *, is_alone: bool) -> str:
    """Return a cell as it is shown; the figure of a run that is alone in its row has no range."""
    decimals = _DECIMALS.get(key.split(" ")[0])
    if value is None:
        return ""
    if isinstance(value, dict) and "mean" in value:
        mean, least, most = (f"{value[name]:.{decimals}f}" for name in ("mean", "min", "max"))
        of_some = f", of {value['runs']}" if "runs" in value else ""
        if is_alone:
            return mean
        return f"{mean} ({least}{'--' if form == 'latex' else '–'}{most}{of_some})"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if decimals is not None:
        return f"{value:.{decimals}f}"
    return printable(" ".join(str(value).split()))  # a stranger's config.yaml may hold anything


def _print(rows: Sequence[dict[str, str]], notes: Sequence[str], form: str) -> None:
    """Print the table and what belongs below it; in LaTeX, as comments."""
    notes = [printable(" ".join(note.split())) for note in notes]  # each on its line
    if form == "latex":
        print(r"% \usepackage{booktabs}", *(f"% {note}" for note in notes), sep="\n")
    # Without a terminal, a line is as long as it is.
    width = shutil.get_terminal_size((10**6, 1)).columns if form == "text" else 10**6
    for part in _parts(rows, width):
        headers = list(part[0])
        cells = [list(row.values()) for row in part]
        if form == "markdown":
            headers, *cells = ([*map(plain_markdown, row)] for row in (headers, *cells))
        # Figures are right-aligned, and text is left-aligned.
        align = ["right" if _is_figure(column) else "left" for column in zip(*cells, strict=True)]
        widths = [_width(title, [row[title] for row in part], width) for title in part[0]]
        wrap = {}
        if form == "text":
            of_titles = [max(1, one - MIN_PADDING) for one in widths]
            wrap = {"maxcolwidths": widths, "maxheadercolwidths": of_titles}
        options = {"tablefmt": _FORMATS[form], "colalign": align, "disable_numparse": True}
        print(tabulate(cells, headers, **options, **wrap), end="\n\n" if form != "latex" else "\n")
    if form != "latex":
        print(*notes, sep="\n")


def _parts(rows: Sequence[dict[str, str]], width: int) -> list[list[dict[str, str]]]:
    """Divide a table that is too wide into several, each with the first column."""
    first, *titles = rows[0]
    gap, parts = 2, [[first]]
    widths = {title: _width(title, [row[title] for row in rows], width) for title in rows[0]}
    used = widths[first]
    for title in titles:
        if used + gap + widths[title] > width and len(parts[-1]) > 1:
            parts.append([first])
            used = widths[first]
        parts[-1].append(title)
        used += gap + widths[title]
    return [[{title: row[title] for title in part} for row in rows] for part in parts]


def _width(title: str, cells: Sequence[str], width: int) -> int:
    """Return how wide a column is shown: its titles are wrapped, and long texts are, too."""
    widest = max(_WIDEST, width // 3) if title in ("run", "runs") else _WIDEST
    words = (len(word) + MIN_PADDING for word in title.split())
    return min(max(*map(len, cells), *words), widest)


def _is_figure(cells: Sequence[str]) -> bool:
    return all(cell[:1].isdigit() or not cell for cell in cells)
