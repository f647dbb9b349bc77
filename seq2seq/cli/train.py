"""`seq2seq train`: the Hydra application, from raw text to a trained model."""

import datetime
import logging
import os
import sys
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from seq2seq.config import Config, check_words, config_path, explain, register, to_config
from seq2seq.errors import UsageError
from seq2seq.training.distributed import World
from seq2seq.training_run import Run

logger = logging.getLogger("seq2seq")


def train(words: list[str]) -> int:
    """Run the application with Hydra's command line.

    Raises:
        UsageError: an override that names nothing or has no valid value.
        UserError: bad data or a bad run.
    """
    register()
    # Hydra would print its errors and leave; with this it raises them, and they become one line.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    # Hydra takes its flags before or after all overrides, not among them.
    overrides = [word for word in words if not word.startswith("-") and "=" in word]
    flags = [word for word in words if word not in overrides]
    check_words([*flags, *overrides])
    before, sys.argv = sys.argv, ["seq2seq train", *flags, *overrides]
    world = World.of_environment()
    if not world.first:
        logger.setLevel(logging.ERROR)
    exit_codes: list[int] = []
    errors: list[Exception] = []

    @hydra.main(version_base="1.3", config_path=str(config_path()), config_name="train")
    def application(chosen: DictConfig) -> None:
        if any(code > 128 for code in exit_codes):  # a signal is for all runs of a --multirun
            return
        try:
            with world.joined():
                config = to_config(chosen)
                folder = world.on_main(lambda: _run_folder(config))
                exit_codes.append(Run(config, folder, _as_yaml(chosen), world).execute())
        except Exception as error:
            # Raised below, where Hydra has no word to add; the other runs of a --multirun go on.
            if errors:
                logger.error(f"seq2seq: {errors[-1]}")
            errors.append(error)

    try:
        if world.size > 1 and {"-m", "--multirun"} & set(flags):
            raise UsageError("--multirun can't run under torchrun: start one run after the other")
        application()
    except (HydraException, OmegaConfBaseException, UsageError) as error:
        if not world.first:  # the same command line: the first says it
            raise SystemExit(2) from error
        raise error if isinstance(error, UsageError) else UsageError(explain(error)) from error
    finally:
        sys.argv = before
    if errors:
        if isinstance(errors[-1], OmegaConfBaseException):
            raise UsageError(explain(errors[-1])) from errors[-1]
        raise errors[-1]
    if not exit_codes and {"-m", "--multirun"} >= set(flags) and flags:
        raise UsageError("no combination to run: a list of values, or a glob, is empty")
    return max(exit_codes, default=0)


def _as_yaml(chosen: DictConfig) -> str:
    return OmegaConf.to_yaml(chosen, resolve=True)


def _run_folder(config: Config) -> Path:
    """The folder as given, or a name made from what was chosen and the date."""
    application = HydraConfig.get()
    if application.mode is RunMode.MULTIRUN:
        # What all runs share was typed as it is; what differs was typed as a list, or a glob.
        swept = [item for item in application.overrides.task if item not in sys.argv]
        name = ",".join(item.lstrip("+").replace("/", "-") for item in swept) or "run"
        return Path(application.sweep.dir) / (config.run_dir or name)
    if config.run_dir is not None:
        return Path(config.run_dir)
    if config.resume:
        raise UsageError("resume=true needs to know what: give run_dir=...")
    chosen = application.runtime.choices
    date = datetime.datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    return Path("runs") / f"{chosen['data']}-{chosen['model']}-{date}"
