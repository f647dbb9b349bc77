"""`seq2seq fidelity`: compare a model with the paper, detail by detail."""

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from seq2seq.cli.text import print_json, report
from seq2seq.errors import UsageError

if TYPE_CHECKING:
    from seq2seq.run.config import Config


EXAMPLES = """\
examples:
  seq2seq fidelity                                the base model and the paper's recipe
  seq2seq fidelity experiment=paper/big_en_de variant=tensor2tensor
  seq2seq fidelity --model runs/captions          a trained model, or an imported one
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `seq2seq fidelity`."""
    parser.add_argument("--model", metavar="RUN", help="run folder of a trained model")
    parser.add_argument("--json", action="store_true", help="a list of objects, not a table")
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="OVERRIDE",
        help="as for seq2seq train, but by default data=wmt14_en_de",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the comparison; return 0."""
    from seq2seq.paper.details import as_text, compare

    for word in arguments.overrides:
        if Path(word).is_dir():
            raise UsageError(f"{word}: to examine a run, write --model {word}")
    if arguments.model and arguments.overrides:
        raise UsageError("--model RUN has its own configuration: remove the overrides")
    model_alone = False
    if arguments.model:
        config, model_alone = _trained(Path(arguments.model))
    else:
        config = compose_config(arguments.overrides)
    rows = compare(config, model_alone=model_alone)
    if arguments.json:
        print_json(list(map(asdict, rows)))
    else:
        print(as_text(rows))
    if model_alone:
        report(
            f"{arguments.model} has no config.yaml: its training is not known, only the"
            " model was examined"
        )
    return 0


def compose_config(overrides: list[str]) -> "Config":
    """Compose the configuration of `seq2seq train`, by default on the paper's data."""
    from hydra import compose, initialize_config_dir
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    from seq2seq.cli.hydra import explain, quote_text, register, resource_folder, to_config

    overrides = [quote_text(override) for override in overrides]
    register(overrides)
    try:
        with initialize_config_dir(str(resource_folder("conf")), version_base="1.3"):
            if not any(override.startswith("data=") for override in overrides):
                composed = compose("train", overrides, return_hydra_config=True)
                if composed.hydra.runtime.choices.data == "everyday":
                    overrides = ["data=wmt14_en_de", *overrides]
            return to_config(compose("train", overrides))
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        raise UsageError(explain(error)) from error


def _trained(run: Path) -> "tuple[Config, bool]":
    """Return the configuration of a model, and whether its training is not known."""
    from seq2seq.model_folder import load_model
    from seq2seq.report.run_report import as_trained
    from seq2seq.run.config import Config, read_config
    from seq2seq.run.folder import find_model

    folder = find_model(run)
    trained = load_model(folder)
    if folder != run or (run / "config.yaml").exists():
        return as_trained(trained, read_config(run)), False
    # A model folder by itself, such as an imported one, has no training configuration.
    return as_trained(trained, Config()), True
