"""`seq2seq fidelity`: compare a model with the paper, detail by detail."""

import argparse
from dataclasses import asdict
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from seq2seq.cli.hydra import explain, quote_text, register, resource_folder, to_config
from seq2seq.cli.messages import report
from seq2seq.cli.text import print_json
from seq2seq.errors import UsageError, printable
from seq2seq.model_folder import find_model, load_model
from seq2seq.paper.details import as_text, compare
from seq2seq.report.run_report import as_trained
from seq2seq.run.config import Config, read_config


def run(arguments: argparse.Namespace) -> int:
    """Print the comparison; return 0."""
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
        print(printable(as_text(rows)))
    if model_alone:
        report(
            f"{arguments.model} has no config.yaml: its training is not known, only the"
            " model was examined"
        )
    return 0


def compose_config(overrides: list[str]) -> Config:
    """Compose the configuration of `seq2seq train`, by default on the paper's data."""
    overrides = list(map(quote_text, overrides))
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


def _trained(run: Path) -> tuple[Config, bool]:
    """Return the configuration of a model, and whether its training is not known."""
    folder = find_model(run)
    trained = load_model(folder)
    if folder != run or (run / "config.yaml").exists():
        return as_trained(trained, read_config(run)), False
    # A model folder by itself, such as an imported one, has no training configuration.
    return as_trained(trained, Config()), True
