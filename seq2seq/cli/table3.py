"""`seq2seq table3`: compare runs with the rows of the paper's Table 3."""

import argparse
import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from seq2seq.cli.text import print_json
from seq2seq.errors import UserError

if TYPE_CHECKING:
    from seq2seq.fidelity.table3 import TableRun


EXAMPLES = """\
Each run is matched with a row by the settings in which it differs from the base run, which is the
run with the fewest differences from the others. Runs that agree in all settings of the table are
the seeds of one row, which shows their mean. Scores are from the last validation.

example:
  seq2seq train --multirun '+experiment/table3=glob(*)' data=wmt14_en_de
  seq2seq table3 runs/multirun-*/*/
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `seq2seq table3`."""
    parser.add_argument("--json", action="store_true", help="a list of objects, not a table")
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run folders, one of them base")


def run(arguments: argparse.Namespace) -> int:
    """Print the table."""
    from seq2seq.fidelity.table3 import as_text, compare

    lines = compare([_read_run(Path(folder)) for folder in arguments.runs])
    if arguments.json:
        print_json([asdict(line) for line in lines])
    else:
        print(as_text(lines))
    return 0


def _read_run(folder: Path) -> "TableRun":
    from seq2seq.fidelity.table3 import TableRun, table_settings
    from seq2seq.model_folder import count_parameters
    from seq2seq.reporting.overview import summarize

    run = summarize(folder)
    config, last = run.config, run.last
    if not last:
        raise UserError(f"{folder}: contains no validation; train until the first checkpoint")
    if not all(map(math.isfinite, last.values())):
        raise UserError(f"{folder}: the last validation has a value that is not finite")
    return TableRun(
        name=run.name,
        settings=table_settings(config.model, config.training.label_smoothing),
        seed=config.seed,
        step=int(last["step"]),
        perplexity=float(last["valid/perplexity"]),
        bleu=float(last["valid/bleu"]),
        parameters=count_parameters(config.model, config.data.tokenizer.vocab_size),
    )
