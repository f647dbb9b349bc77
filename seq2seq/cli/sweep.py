"""The runs of a --multirun: their folders, and what is wrong with them before the first starts."""

import hashlib
import logging
import shlex
from collections.abc import Sequence
from pathlib import Path

from hydra.conf import HydraConf
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob
from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper
from hydra.types import RunMode
from omegaconf import OmegaConf

from seq2seq.cli.hydra import choices, to_config
from seq2seq.cli.messages import log_to_stderr
from seq2seq.data.corpus import DataConfig, Split
from seq2seq.errors import UsageError, UserError
from seq2seq.run.config import Config

logger = logging.getLogger("seq2seq")

_MAX_NAME = 240  # bytes, of a folder


def folder_names(overrides: list[str]) -> str:
    """Return the override by which the folders of a --multirun are named after what differs."""
    swept: dict[str, bool] = {}
    for override in OverridesParser.create().parse_overrides(overrides):
        key, value = override.key_or_group, override.value()
        if isinstance(value, Glob) and not value.filter(choices(key)):
            raise UsageError(
                f"{override.input_line}: no combination to run: nothing has such a name"
            )
        swept[key] = override.is_sweep_override()
    swept["run_dir"] = False
    fixed = [key for key, is_swept in swept.items() if not is_swept]
    return f"hydra.job.config.override_dirname.exclude_keys={fixed}"


def run_folder(run_dir: str | None, hydra: HydraConf) -> Path:
    """Return the folder of a run of a --multirun, by Hydra's part of its configuration."""
    name = hydra.job.override_dirname.replace("/", "-") or "run"
    if len(name.encode()) > _MAX_NAME:
        name = f"{name[: _MAX_NAME // 8]}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"
    parent = Path(run_dir).expanduser() if run_dir else Path(hydra.sweep.dir)
    return parent / name


def resume_hint(config: Config) -> str | None:
    """Return the overrides that continue all runs of a --multirun; None for a single run."""
    application = HydraConfig.get()
    if application.mode is not RunMode.MULTIRUN:
        return None
    # With resume=true, runs that have not started would be refused.
    folder = [] if config.run_dir else [shlex.quote(f"hydra.sweep.dir={application.sweep.dir}")]
    return " ".join([*folder, "resume=auto"])


def check_runs_first() -> None:
    """Let Hydra's own sweeper check all runs, which it composes anyway, before the first starts."""
    for sweeper in Plugins.instance().discover(Sweeper):
        if sweeper.__name__ == "BasicSweeper":  # Hydra executes its file again, so no import has it
            sweeper.validate_batch_is_legal = _check_runs  # type: ignore[attr-defined]


def _check_runs(sweeper: Sweeper, batch: Sequence[Sequence[str]]) -> None:
    """Log why runs can't be; refuse a sweep without any, or of which two would share a folder."""
    if not logger.handlers:
        log_to_stderr()
    assert sweeper.hydra_context is not None
    assert sweeper.config is not None
    load = sweeper.hydra_context.config_loader.load_sweep_config
    names: dict[Path, str] = {}
    wrong = 0
    missing: dict[str, str] = {}  # what is wrong with data, "" if nothing: a URL is opened once
    for overrides in batch:
        composed = load(sweeper.config, list(overrides))
        name = composed.hydra.job.override_dirname
        folder = run_folder(composed.run_dir, composed.hydra)
        if names.setdefault(folder, name) != name:
            raise UsageError(
                f"{folder}: {names[folder]} and {name} would have the same folder: sweep over them"
                " in two commands, each with a folder of its own"
            )
        try:
            settings = [str(key) for key in composed if key != "hydra"]
            data = to_config(OmegaConf.masked_copy(composed, settings)).data
        except UserError as error:
            logger.error(f"seq2seq: {name}: {error}")
            wrong += 1
            continue
        if (key := repr(data)) not in missing:
            missing[key] = _what_is_missing(data)
        if missing[key]:
            logger.error(f"seq2seq: {name}: {missing[key]}")
            wrong += 1
    if wrong == len(batch) and sweeper.max_batch_size is None:  # type: ignore[attr-defined]
        raise UsageError("no run of this sweep can start")


def _what_is_missing(data: DataConfig) -> str:
    """Return why the text of a configuration can't be opened, or "" if it can."""
    try:
        for split in (*data.training_names(), *data.validation_names(), *data.test_names()):
            Split(data, split).files()
    except UserError as error:
        return str(error)
    return ""
