"""`seq2seq fidelity`: compare a model with the paper, detail by detail."""

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from seq2seq.cli.text import print_json, report
from seq2seq.errors import UsageError

if TYPE_CHECKING:
    from seq2seq.config import Config
    from seq2seq.fidelity.detail import Subject


EXAMPLES = """\
Details are measured on the running model, trainer or search.

examples:
  seq2seq fidelity                                the base model and the paper's recipe
  seq2seq fidelity experiment=paper/big_en_de variant=tensor2tensor
  seq2seq fidelity --model runs/captions          a trained model, or an imported one
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `seq2seq fidelity`."""
    parser.add_argument("--model", metavar="RUN", help="run folder of a trained model")
    parser.add_argument("--json", action="store_true", help="a list of objects, not a table")
    parser.add_argument("--strict", action="store_true", help="exit code 1 if a detail differs")
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="OVERRIDE",
        help="as for seq2seq train, but by default data=wmt14_en_de",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the report; with --strict, return 1 if a detail differs from both."""
    from seq2seq.fidelity.detail import Subject, new_model
    from seq2seq.fidelity.report import DETAILS, MODEL_DETAILS, as_text, examine

    for word in arguments.overrides:
        if Path(word).is_dir():
            raise UsageError(f"{word}: to examine a run, write --model {word}")
    if arguments.model and arguments.overrides:
        raise UsageError("--model RUN has its own configuration: remove the overrides")
    if arguments.model:
        subject = _trained(Path(arguments.model))
    else:
        config = compose_config(arguments.overrides)
        subject = Subject(
            model=new_model(config.model),
            vocab_size=config.data.tokenizer.vocab_size,
            training=config.training,
            search=config.search,
            data=config.data,
        )
    imported = bool(arguments.model) and subject.run is None
    rows = examine(subject, MODEL_DETAILS if imported else DETAILS)
    if arguments.json:
        print_json(list(map(asdict, rows)))
    else:
        print(as_text(rows))
    if imported:
        report(
            f"{arguments.model} has no config.yaml: its training is not known, only the"
            " model was examined"
        )
    return int(arguments.strict and any(row.verdict == "differs" for row in rows))


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
                chosen = compose("train", overrides, return_hydra_config=True)
                if chosen.hydra.runtime.choices.data == "everyday":
                    overrides = ["data=wmt14_en_de", *overrides]
            return to_config(compose("train", overrides))
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        raise UsageError(explain(error)) from error


def _trained(run: Path) -> "Subject":
    from seq2seq.config import Config, read_config
    from seq2seq.reporting.run_report import make_subject
    from seq2seq.storage.checkpoint import find_model
    from seq2seq.storage.model_folder import load_model

    folder = find_model(run)
    trained = load_model(folder)
    if folder != run or (run / "config.yaml").exists():
        return make_subject(trained, read_config(run), run)
    # A model folder by itself, such as an imported one, has no training configuration.
    return make_subject(trained, Config(), None)
