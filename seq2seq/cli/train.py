"""`seq2seq train`: the Hydra application, from raw text to a trained model."""

import datetime
import logging
import os
import secrets
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from seq2seq.cli.hydra import (
    explain,
    python314_help_workaround,
    quote_texts,
    raise_usage_errors,
    register,
    resource_folder,
    to_config,
)
from seq2seq.config import Config
from seq2seq.data.config import DataConfig
from seq2seq.errors import UsageError, UserError
from seq2seq.model import TransformerConfig
from seq2seq.run.setup import describe_initial_model
from seq2seq.run.training_run import run_training
from seq2seq.storage.trained_model import TrainedModel
from seq2seq.training.distributed import World

logger = logging.getLogger("seq2seq")

_VOCABULARY = "data.tokenizer."
_SAMPLING = "data.tokenizer.sampling"  # of any vocabulary


def inherit(chosen: DictConfig, initial: TrainedModel, overrides: Sequence[str]) -> None:
    """Take sizes, dropout, vocabulary and languages that were not chosen from the initial model.

    A size that was chosen stays as it is: the run refuses it if it is not the initial model's.
    """
    keys = [override.partition("=")[0].lstrip("+") for override in overrides]
    refused = [key for key in keys if key.startswith(_VOCABULARY) and key != _SAMPLING]
    if refused:
        raise UsageError(
            f"{refused[0]}: the vocabulary is taken from init_from={chosen.init_from}"
            f" ({initial.tokenizer.vocab_size:,} pieces): remove {_VOCABULARY}*"
        )
    default, inherited = asdict(TransformerConfig()), asdict(initial.model.config)
    for name, value in default.items():
        if chosen.model[name] == value and not {"model", f"model.{name}"} & set(keys):
            chosen.model[name] = inherited[name]
    chosen.data.tokenizer.vocab_size = initial.tokenizer.vocab_size
    languages = (DataConfig.source_language, DataConfig.target_language)
    if (chosen.data.source_language, chosen.data.target_language) == languages:
        chosen.data.source_language = initial.source_language
        chosen.data.target_language = initial.target_language


def train(words: list[str]) -> int:
    """Run the application; return 0, or 128 + the signal that ended a run early."""
    # Makes Hydra raise its errors instead of printing them, so that they become one line.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    # Hydra takes its flags before or after all overrides, not among them.
    overrides = [word for word in words if _is_override(word)]
    flags = [word for word in words if word not in overrides]
    multirun = bool({"-m", "--multirun"} & set(flags))
    register(overrides)
    overrides = quote_texts(overrides, multirun=multirun)
    world = World.from_environment()
    if not world.is_main:
        logger.setLevel(logging.ERROR)
    before, sys.argv = sys.argv, ["seq2seq train", *flags, *overrides]
    try:
        if world.size > 1 and multirun:
            raise UsageError("--multirun can't run under torchrun: start each run on its own")
        exit_codes = _run_application(world)
    except UsageError as error:
        # One process reports it.
        raise (error if world.is_main else SystemExit(2)) from error
    finally:
        sys.argv = before
    if not exit_codes and multirun and len(flags) == 1:
        raise UsageError("no combination to run: a list of values, or a glob, is empty")
    return max(exit_codes, default=0)


def _run_application(world: World) -> list[int]:
    """Run all combinations of a --multirun, or the one run; return the exit codes."""
    exit_codes: list[int] = []
    errors: list[Exception] = []

    @hydra.main(version_base="1.3", config_path=str(resource_folder("conf")), config_name="train")
    def application(chosen: DictConfig) -> None:
        if any(code > 128 for code in exit_codes):  # a signal ends all runs
            return
        try:
            with world.process_group(chosen.distributed_timeout):
                config = to_config(chosen)
                folder = Path(
                    world.on_main(lambda: world.keep("run_dir", lambda: str(_run_folder(config))))
                )
                if world.restarts and not config.resume:
                    chosen.resume = "auto"
                    config = to_config(chosen)
                if config.init_from is not None:
                    initial, chosen.init_sha256 = describe_initial_model(config, folder)
                    inherit(chosen, initial, HydraConfig.get().overrides.task)
                    config = to_config(chosen)
                yaml = OmegaConf.to_yaml(chosen, resolve=True)
                hint = _resume_hint(config)
                exit_codes.append(run_training(config, folder, yaml, world, resume_hint=hint))
        except Exception as error:
            # Raised below, outside Hydra, so that the other runs of a --multirun continue.
            if errors:
                logger.error(f"seq2seq: {errors[-1]}")
            errors.append(error)

    try:
        with python314_help_workaround(), raise_usage_errors():
            application()
    except UserError:
        raise
    except Exception as error:  # Hydra's: those of a run are in `errors`
        raise UsageError(explain(error)) from error
    if errors:
        raise errors[-1]
    return exit_codes


def _is_override(word: str) -> bool:
    return not word.startswith("-") and "=" in word


def _resume_hint(config: Config) -> str | None:
    """Return the overrides that continue all runs of a --multirun; None for a single run."""
    application = HydraConfig.get()
    if application.mode is not RunMode.MULTIRUN:
        return None
    # With resume=true, runs that have not started would be refused.
    known = [] if config.run_dir else [shlex.quote(f"hydra.sweep.dir={application.sweep.dir}")]
    return " ".join([*known, "resume=auto"])


def _run_folder(config: Config) -> Path:
    """Return the given folder, or one named after data, model and date."""
    application = HydraConfig.get()
    if application.runtime.choices.get("experiment") == "finetune" and config.init_from is None:
        raise UsageError("experiment=finetune needs a model: add init_from=MODEL")
    if application.mode is RunMode.MULTIRUN:
        words = [word for word in sys.argv[1:] if _is_override(word)]
        # What all runs share, as Hydra spells it for each.
        fixed = {
            f"{one.get_key_element()}={one.get_value_element_as_str()}"
            for one in OverridesParser.create().parse_overrides(words)
            if not one.is_sweep_override()
        }
        items = [i.lstrip("+") for i in application.overrides.task if i not in fixed]
        name = ",".join(i.replace("/", "-") for i in items if not i.startswith("run_dir="))
        if config.run_dir is None:
            return Path(application.sweep.dir) / (name or "run")
        return Path(config.run_dir).expanduser() / name
    if config.run_dir is not None:
        return Path(config.run_dir).expanduser()
    if config.resume:
        raise UsageError("resume=true needs run_dir=..., the folder of the run to resume")
    chosen = application.runtime.choices
    date = datetime.datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    # The jobs of an array start in the same second.
    name = f"{chosen.get('data')}-{chosen.get('model')}-{date}-{secrets.token_hex(3)}"
    return Path("runs") / name
