"""`seq2seq runs`: an overview of several runs."""

import argparse
from pathlib import Path

from tabulate import tabulate

from seq2seq.cli.text import print_json
from seq2seq.errors import printable
from seq2seq.report.overview import overview

_FORMATS = {"text": "simple", "markdown": "github", "latex": "latex_booktabs"}


def run(arguments: argparse.Namespace) -> int:
    """Print the overview."""
    folders: list[Path] = []
    for folder in map(Path, arguments.runs):
        # A folder of runs, such as --multirun's, stands for all of them.
        inside = sorted(path.parent for path in folder.glob("*/config.yaml"))
        folders += inside if inside and not (folder / "config.yaml").exists() else [folder]
    rows = overview(folders)
    if arguments.format == "json":
        print_json(rows)
    else:
        table = tabulate(rows, headers="keys", tablefmt=_FORMATS[arguments.format])
        print(printable(table))  # a stranger's config.yaml may hold anything
    return 0
