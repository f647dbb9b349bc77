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
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from seq2seq.cli import sweep
from seq2seq.cli.hydra import (
    check_flags,
    check_overrides,
    explain,
    own_settings,
    quote_text,
    register,
    repeated,
    resource_folder,
    to_config,
)
from seq2seq.cli.messages import log_to_stderr
from seq2seq.cli.model_class import import_class
from seq2seq.cli.training import start_training
from seq2seq.config import TransformerConfig
from seq2seq.data.corpus import DataConfig
from seq2seq.errors import UsageError, UserError
from seq2seq.machine.processes import OneProcess, call_handler, from_environment
from seq2seq.model_folder import TrainedModel, checkpoints, class_name
from seq2seq.report.record import SAMPLING, VOCABULARY
from seq2seq.run.config import Config
from seq2seq.run.start import describe_initial_model
from seq2seq.transformer import Transformer

logger = logging.getLogger("seq2seq")


def inherit(chosen: DictConfig, initial: TrainedModel, overrides: Sequence[str]) -> None:
    """Take sizes, dropout, vocabulary and languages that were not chosen from the initial model.

    A size that was chosen stays as it is: the run refuses it if it is not the initial model's.
    """
    keys = [override.partition("=")[0].lstrip("+") for override in overrides]
    for key in keys:
        if key.startswith(VOCABULARY) and key != SAMPLING:
            raise UsageError(
                f"{key}: the vocabulary is taken from init_from={chosen.init_from}"
                f" ({initial.tokenizer.vocab_size:,} pieces): remove {VOCABULARY}*"
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
    reverse = (chosen.data.target_language, chosen.data.source_language)
    if reverse == (initial.source_language, initial.target_language):
        raise UsageError(
            f"init_from={chosen.init_from} translates from {reverse[0]} to {reverse[1]}: remove"
            " data.source_language and data.target_language"
        )


def train(words: list[str]) -> int:
    """Run the application, once or for each combination of a --multirun; return 0."""
    # Makes Hydra raise its errors instead of printing them, so that they become one line.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    # Hydra takes its flags before or after all overrides, not among them.
    overrides = [word for word in words if "=" in word and not word.startswith("-")]
    flags = [word for word in words if word not in overrides]
    multirun = not {"-m", "--multirun"}.isdisjoint(flags)
    register(overrides)
    overrides = [quote_text(override, multirun=multirun) for override in overrides]
    world = from_environment()
    before = sys.argv
    try:
        if world.size > 1 and multirun:
            raise UsageError("--multirun can't run under torchrun: start each run on its own")
        if not multirun and (searches := [w for w in overrides if w.startswith("hparams_search=")]):
            raise UsageError(f"{searches[0]} searches by several runs: add --multirun")
        check_flags([*flags, *overrides])
        check_overrides(overrides)
        _tell_repeated(overrides, world)
        if multirun:
            overrides.append(sweep.folder_names(overrides))
            sweep.check_runs_first()
        sys.argv = ["seq2seq train", *flags, *overrides]
        application = hydra.main(
            version_base="1.3", config_path=str(resource_folder("conf")), config_name="train"
        )
        application(run)()
    except _FailedRun as failed:
        raise failed.error from None
    except Exception as error:
        # What Hydra prints couldn't be written; some of its own errors are OSErrors, too.
        is_hydras = isinstance(error, HydraException)
        is_output = isinstance(error, OSError) and not (is_hydras or error.filename)
        if is_output or hasattr(error, "__notes__"):  # a run's
            raise
        usage_error = error if isinstance(error, UserError) else UsageError(explain(error))
        # One process reports it.
        raise (usage_error if world.is_main else SystemExit(2)) from error
    finally:
        sys.argv = before
    return 0


def run(chosen: DictConfig) -> float:
    """Run one training, in this process or in a launcher's; return its best validation figure.

    It is the measure of `training.select_by`, which a sweeper optimizes. A signal ends the process
    after the last checkpoint, unless the launcher handles it and starts the run again.
    """
    if not logger.handlers:
        log_to_stderr()
    world = from_environment()
    if not world.is_main:
        logger.setLevel(logging.ERROR)
    hint: str | None = None
    folder: Path | None = None
    try:
        with world.process_group(chosen.distributed_timeout):
            model_class: type[Transformer] | None = None
            if chosen.model_class is not None:
                model_class = import_class(chosen.model_class, "model_class=")
                chosen.model_class = class_name(model_class)
            config = to_config(chosen)
            folder = Path(
                world.on_main(lambda: world.keep("run_dir", lambda: str(_run_folder(config))))
            )
            if HydraConfig.get().mode is RunMode.MULTIRUN:
                logger.info(f"run: {folder}")
            if (world.restarts or "SLURM_RESTART_COUNT" in os.environ) and not config.resume:
                chosen.resume = "auto"
                config = to_config(chosen)
            if config.resume and checkpoints(folder):
                chosen = own_settings(chosen, folder, HydraConfig.get().overrides.task)
                config = to_config(chosen)
            if config.init_from is not None:
                initial, chosen.init_sha256 = describe_initial_model(config, folder, model_class)
                inherit(chosen, initial, HydraConfig.get().overrides.task)
                config = to_config(chosen)
            yaml = OmegaConf.to_yaml(chosen, resolve=True)
            command = shlex.join(["seq2seq", "train", *HydraConfig.get().overrides.task])
            hint = sweep.resume_hint(config)
            return start_training(
                config,
                folder,
                yaml,
                world,
                command=command,
                resume_hint=hint,
                model_class=model_class,
            )
    except SystemExit as ended:
        if hint and folder and not checkpoints(folder):  # else the run has told it
            logger.info(f"continue with the same command and {hint}")
        call_handler(int(ended.code or 0) - 128)
        raise
    except Exception as error:
        if HydraConfig.get().mode is not RunMode.MULTIRUN:
            raise _FailedRun(error) from None
        error.add_note(f"in the run of {' '.join(HydraConfig.get().overrides.task)}")
        name = HydraConfig.get().job.override_dirname
        logger.error(f"seq2seq: {name}: {error}")  # Hydra raises only the first, in the end
        raise


def _tell_repeated(overrides: list[str], world: OneProcess) -> None:
    """Log which of several values counts, unless another process does."""
    found = repeated(overrides) if world.is_main else []
    if found and not logger.handlers:
        log_to_stderr()
    for override in found:
        key = override.partition("=")[0].lstrip("+")
        logger.warning(f"warning: {key} is given twice; {override} counts")


class _FailedRun(BaseException):
    """Carries the error of a single run past Hydra, which would print more than one line."""

    def __init__(self, error: Exception) -> None:
        self.error = error


def _run_folder(config: Config) -> Path:
    """Return the given folder, or one named after data, model and date."""
    application = HydraConfig.get()
    if application.runtime.choices.get("experiment") == "finetune" and config.init_from is None:
        raise UsageError("experiment=finetune needs a model: add init_from=MODEL")
    if application.mode is RunMode.MULTIRUN:
        return sweep.run_folder(config.run_dir, application)
    if config.run_dir is not None:
        return Path(config.run_dir).expanduser()
    if config.resume:
        raise UsageError("resume=true needs run_dir=..., the folder of the run to resume")
    choices = application.runtime.choices
    date = datetime.datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    # The jobs of an array start in the same second.
    name = f"{choices.get('data')}-{choices.get('model')}-{date}-{secrets.token_hex(3)}"
    return Path("runs") / name
