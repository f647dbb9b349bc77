"""`seq2seq average`: the mean of several checkpoints (section 6.1)."""

import argparse
from pathlib import Path

_EXAMPLE = """\
example:
  seq2seq average --model runs/captions --last 5 -o runs/captions/averaged
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `seq2seq average`."""
    parser.epilog = _EXAMPLE
    parser.add_argument("--model", required=True, metavar="RUN", help="run folder")
    parser.add_argument(
        "--last", type=int, default=5, metavar="K", help="number of newest checkpoints (default 5)"
    )
    parser.add_argument(
        "-o", "--output", metavar="FOLDER", help="new, or a model to replace (default RUN/averaged)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Average checkpoints and write the model.

    Raises:
        UsageError: if --last is below 1.
        UserError: if the run has fewer checkpoints, one is damaged, or the output exists and is
            not a model.
    """
    from seq2seq.errors import UsageError, UserError
    from seq2seq.storage.checkpoint import average, checkpoints
    from seq2seq.storage.model_folder import check_place_of_model, save_model

    run_folder = Path(arguments.model)
    if arguments.last < 1:
        raise UsageError(f"--last {arguments.last}: must be at least 1")
    found = checkpoints(run_folder)
    if len(found) < arguments.last:
        raise UserError(
            f"{run_folder}: has {len(found)} checkpoints, not {arguments.last}: lower --last"
        )
    output = run_folder / "averaged" if arguments.output is None else Path(arguments.output)
    check_place_of_model(output)
    save_model(output, average(found[-arguments.last :]))
    print(output)
    return 0
