"""`seq2seq fidelity`: a model beside the paper, detail by detail."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from seq2seq.config import Config
    from seq2seq.reproduction.subject import Subject

_EXAMPLE = """\
Each detail is measured on a live model, on the trainer and on the search, never read from a
configuration alone.

examples:
  seq2seq fidelity                                the base model and the paper's recipe
  seq2seq fidelity experiment=paper/big_en_de variant=tensor2tensor
  seq2seq fidelity --model runs/captions          a trained model
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `seq2seq fidelity`."""
    parser.epilog = _EXAMPLE
    parser.add_argument("--model", metavar="RUN", help="run folder of a trained model")
    parser.add_argument("--json", action="store_true", help="a list of objects, not a table")
    parser.add_argument(
        "--strict", action="store_true", help="exit code 1 if a detail is nobody's but ours"
    )
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="OVERRIDE",
        help="as for seq2seq train; the data are wmt14_en_de if none are named",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the report.

    Returns:
        0; with --strict 1 if something differs from both the paper and the authors' code.

    Raises:
        UsageError: an override that names nothing, or overrides beside a run.
        UserError: no run there, or a damaged one.
    """
    from seq2seq.errors import UsageError
    from seq2seq.reproduction.report import as_json, as_text, examine

    if arguments.model and arguments.overrides:
        raise UsageError("--model RUN has its own configuration: leave out the overrides")
    if arguments.model:
        subject = _trained(Path(arguments.model))
    else:
        subject = _configured(compose_config(arguments.overrides))
    rows = examine(subject)
    print(as_json(rows) if arguments.json else as_text(rows))
    return int(arguments.strict and any(row.finding.differs for row in rows))


def compose_config(overrides: list[str]) -> "Config":
    """What `seq2seq train` would do with these overrides; on the paper's data if none are named.

    Raises:
        UsageError: an override that names nothing or has no valid value.
    """
    from hydra import compose, initialize_config_dir
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    from seq2seq.cli.overrides import (
        check_command_line,
        config_path,
        explain,
        register,
        to_config,
    )
    from seq2seq.errors import UsageError

    check_command_line(overrides)
    register()
    try:
        with initialize_config_dir(str(config_path()), version_base="1.3"):
            if not any(override.startswith("data=") for override in overrides):
                chosen = compose("train", overrides, return_hydra_config=True)
                if chosen.hydra.runtime.choices.data == "everyday":
                    overrides = ["data=wmt14_en_de", *overrides]
            return to_config(compose("train", overrides))
    except (HydraException, OmegaConfBaseException) as error:
        raise UsageError(explain(error)) from error


def _configured(config: "Config") -> "Subject":
    from seq2seq.reproduction.subject import untrained

    return untrained(config.model, config.training, config.search, config.data)


def _trained(run_folder: Path) -> "Subject":
    from seq2seq.config import read_config
    from seq2seq.reproduction.subject import trained
    from seq2seq.storage.checkpoint import find_model, load_model

    model = load_model(find_model(run_folder)).model
    config = read_config(run_folder)
    return trained(model, config.training, config.search, config.data, run_folder)
