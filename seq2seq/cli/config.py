"""The configuration of `seq2seq train`: its schema, and the nearest name to a mistyped one."""

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, cast, get_type_hints

from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from seq2seq.cli.resources import resource_folder
from seq2seq.data.corpus import DataConfig
from seq2seq.decoding.beam_search import SearchConfig
from seq2seq.errors import UserError
from seq2seq.model import TransformerConfig
from seq2seq.training.trainer import TrainingConfig


@dataclass(kw_only=True)
class Config:
    """All that a person chooses of a run."""

    data: DataConfig = field(default_factory=DataConfig)
    model: TransformerConfig = field(default_factory=TransformerConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    search: SearchConfig = field(default_factory=SearchConfig)
    run_dir: str | None = None
    """The folder of the run; made from data, model and date if not given."""
    resume: bool = False
    """Go on with the run in run_dir."""
    cache: str | None = None
    """Where encoded corpora are kept; seq2seq/ in the user's cache folder if not given."""
    seed: int = 1
    """Of weights, order and dropout."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:1, ..."""
    precision: str = "auto"
    """fp32, bf16, or auto: bf16 where this machine's matrix products gain from it."""
    stall_seconds: float = 30.0
    """Seconds without a sign of life from one of several processes that end the training."""


def register() -> None:
    """Make the schema and the `${embedded:...}` paths known to Hydra."""
    ConfigStore.instance().store(name="schema", node=Config)
    OmegaConf.register_new_resolver(
        "embedded", lambda path: str(resource_folder("data") / path), replace=True
    )


def read_config(run: Path) -> Config:
    """The configuration that a run was started with; keys that are newer have their defaults.

    Raises:
        UserError: there is none, or it is not this program's.
    """
    path = run / "config.yaml"
    try:
        saved = OmegaConf.merge(OmegaConf.structured(Config), OmegaConf.load(path))
        return cast(Config, OmegaConf.to_object(saved))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; give the run_dir of a training") from error
    except (OmegaConfBaseException, YAMLError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{path}: not a configuration of this program: {reason}") from error


def keys(schema: type = Config, prefix: str = "") -> Iterator[str]:
    """Every key that can be overridden, dotted."""
    types = get_type_hints(schema)
    for item in fields(schema):
        yield prefix + item.name
        kind: Any = types[item.name]
        if is_dataclass(kind):
            assert isinstance(kind, type)
            yield from keys(kind, f"{prefix}{item.name}.")


def choices(group: str) -> list[str]:
    """The configurations of a group, such as `model`; nested ones as `table3/B_dk16`."""
    folder = resource_folder("conf") / group
    return sorted(str(path.relative_to(folder).with_suffix("")) for path in folder.rglob("*.yaml"))


def explain(error: Exception) -> str:
    """Hydra's complaint about an override in one line, with the nearest valid name."""
    message = " ".join(str(error).split())
    cause = " ".join(str(error.__cause__ or "").split())
    if found := re.search(r"Could not override '([^']+)'", message):
        key = found[1]
        if key in keys():
            return f"{key}: {cause}"
        return f"no such key: {key}{_nearest(key, list(keys()))}; --cfg job shows them all"
    if found := re.search(r"Could not find '([^']+)'", message):
        group, _, name = found[1].partition("/")
        options = choices(group)
        hint = _nearest(name, options) or f"; there are: {', '.join(options)}"
        return f"no such choice: {group}={name}{hint}"
    if found := re.search(r"Could not override '([^']+)'.*No match in the defaults list", message):
        return f"no such group: {found[1]}"
    return f"{message} {cause}".strip()


def _nearest(name: str, options: list[str]) -> str:
    # The last part alone counts as well: max_steps is near training.max_steps.
    by_leaf = {option.rpartition(".")[2]: option for option in options}
    near = difflib.get_close_matches(name, options, n=1, cutoff=0.6)
    if not near:
        leaf = difflib.get_close_matches(name.rpartition(".")[2], by_leaf, n=1, cutoff=0.7)
        near = [by_leaf[leaf[0]]] if leaf else []
    return f"; did you mean {near[0]}?" if near else ""


def config_path() -> Path:
    """The folder that Hydra reads."""
    return resource_folder("conf")
