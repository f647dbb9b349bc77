"""The configuration of `seq2seq train`: its schema, and the nearest name to a mistyped one."""

import difflib
import io
import re
from collections.abc import Iterator
from contextlib import redirect_stderr
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, cast, get_type_hints

import yaml
from hydra._internal.utils import get_args_parser
from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import (
    AliasToken,
    AnchorToken,
    FlowMappingStartToken,
    FlowSequenceStartToken,
    TagToken,
    YAMLError,
)

from seq2seq.data.corpus import DataConfig
from seq2seq.decoding.beam_search import SearchConfig
from seq2seq.errors import UsageError, UserError
from seq2seq.model import TransformerConfig
from seq2seq.resources import resource_folder
from seq2seq.storage.atomic import read_regular_file
from seq2seq.storage.strict import MAX_BYTES
from seq2seq.training.config import TrainingConfig

_GROUPS = ("data", "model", "details", "experiment")


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
    heartbeat_timeout: float = 30.0
    """Seconds without a sign of life from one of several processes that end the training."""

    def __post_init__(self) -> None:
        """Refuse a seed that the generators can't take.

        Raises:
            UserError: it is negative or needs more than 63 bits.
        """
        if not 0 <= self.seed < 2**63:
            raise UserError(f"seed={self.seed}: must be at least 0 and below 2^63")


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
    if not run.is_dir():
        raise UserError(f"{run}: no such folder; give the run_dir of a training")
    if not path.exists():
        raise UserError(f"{path}: no such file; give the run_dir of a training")
    try:
        text = read_regular_file(path, MAX_BYTES).decode()
        _check_plain(path, text)
        saved = OmegaConf.merge(OmegaConf.structured(Config), OmegaConf.create(text))
        return cast(Config, OmegaConf.to_object(saved))
    except (OmegaConfBaseException, YAMLError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:300]
        raise UserError(f"{path}: not a configuration of this program: {reason}") from error


def _check_plain(path: Path, text: str) -> None:
    """Refuse what this program never writes, and what makes gigabytes or hours of a few lines."""
    strange = AliasToken | AnchorToken | TagToken
    nested = 0
    for token in yaml.scan(text):
        nested += isinstance(token, FlowMappingStartToken | FlowSequenceStartToken)
        if isinstance(token, strange) or nested > 50 or "${" in text:
            raise UserError(
                f"{path}: not a configuration of this program: tags, aliases, ${{...}} or nesting"
                " in it"
            )


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


def check_words(words: list[str]) -> None:
    """Refuse what Hydra's own command line would, which prints its usage and leaves.

    Raises:
        UsageError: a flag that Hydra has not, one without its value, or no override.
    """
    parser = get_args_parser()
    said = io.StringIO()
    try:
        with redirect_stderr(said):
            parser.parse_args(words)
    except SystemExit as left:
        if not left.code:
            raise
        reason = said.getvalue().strip().splitlines()[-1].partition("error: ")[2]
        hint = ""
        if reason.startswith("unrecognized"):
            hint = _nearest(reason.split()[-1], [*parser._option_string_actions, "--debug"])
        raise UsageError(f"{reason}{hint}; seq2seq train --help shows the flags") from None
    for word in parser.parse_args(words).overrides:
        if word.startswith("=") or ("=" not in word and not word.startswith("~")):
            raise UsageError(f"{word!r}: not KEY=VALUE; seq2seq train --help shows examples")


def to_config(chosen: DictConfig) -> Config:
    """What was chosen, typed and checked.

    Raises:
        UsageError: a key was added that this program has not.
        UserError: a value is out of range.
    """
    for key in _dotted(OmegaConf.to_container(chosen)):
        if key not in keys():
            raise UsageError(_no_such_key(key))
    return cast(Config, OmegaConf.to_object(chosen))


def explain(error: Exception) -> str:
    """Hydra's complaint about an override in one line, with the nearest valid name."""
    message = " ".join(str(error).split())
    # What follows names the classes of this program.
    cause = re.split(r"\s+full_key:", " ".join(str(error.__cause__ or "").split()))[0]
    if found := re.search(r"Could not override '([^']+)'\. No match in the defaults", message):
        return f"no such group: {found[1]}{_nearest(found[1], list(_GROUPS))}"
    if found := re.search(r"Could not (?:override|delete from config\. Key) '([^']+)'", message):
        key = found[1]
        if key in keys():
            return f"{key}: {cause}"
        return _no_such_key(key)
    if found := re.search(r"Could not delete\b[^']*'([^']+)'", message):
        return _no_such_key(found[1])
    if found := re.search(r"Error merging override (.+)", message):
        return f"{found[1]}: {cause}"
    if found := re.search(r"Could not find '([^']+)'", message):
        group, _, name = found[1].rpartition("/")
        while group and not choices(group):
            group, _, above = group.rpartition("/")
            name = f"{above}/{name}"
        options = choices(group)
        hint = _nearest(name, options) or f"; there are: {', '.join(options)}"
        return f"no such choice: {group}={name}{hint}"
    message = re.split(r" See https?://|\s+full_key:", f"{message} {cause}")[0]
    return message.strip()


def _dotted(tree: Any, prefix: str = "") -> Iterator[str]:
    for name, value in tree.items():
        if isinstance(value, dict) and value:
            yield from _dotted(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def _no_such_key(key: str) -> str:
    near = _nearest(key, [*keys(), "experiment", "details"])
    return f"no such key: {key}{near}; --cfg job shows them all"


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
