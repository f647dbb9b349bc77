"""`seq2seq fidelity`: compare a model with the paper, detail by detail."""

import argparse
from dataclasses import asdict
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from seq2seq.cli.hydra import (
    check_overrides,
    explain,
    quote_text,
    register,
    resource_folder,
    to_config,
)
from seq2seq.cli.messages import report
from seq2seq.cli.model_class import load_models
from seq2seq.cli.text import print_json
from seq2seq.errors import UsageError, printable
from seq2seq.model_folder import find_model
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
    if arguments.model_class and not arguments.model:
        raise UsageError("--model-class is for --model: to train a class is model_class=NAME")
    model_alone = False
    if arguments.model:
        config, model_alone = _trained(arguments)
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
    check_overrides(overrides)
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


def _trained(arguments: argparse.Namespace) -> tuple[Config, bool]:
    """Return the configuration of a model, and whether its training is not known."""
    run = Path(arguments.model)
    (trained,) = load_models([arguments.model], arguments.model_class)
    if find_model(run) != run or (run / "config.yaml").exists():
        return as_trained(trained, read_config(run)), False
    # A model folder by itself, such as an imported one, has no training configuration.
    return as_trained(trained, Config()), True
