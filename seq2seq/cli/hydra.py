"""Hydra under `seq2seq train`: the schema, texts as they were typed, errors as one line."""

import difflib
import re
from argparse import ArgumentParser
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, NoReturn, get_args, get_origin, get_type_hints

from hydra._internal.utils import get_args_parser
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Quote, QuotedString
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigKeyError, OmegaConfBaseException

from seq2seq.errors import UsageError
from seq2seq.run.config import Config, read_config

_PACKAGE = Path(__file__).resolve().parents[1]

GROUPS = ("data", "model", "schedule", "variant", "experiment", "hparams_search")


def _typed_keys(schema: type, prefix: str = "") -> dict[str, Any]:
    """Map every key, dotted, to its type; a section's name that is free to choose is `NAME`."""
    kinds: dict[str, Any] = {}
    for name, kind in get_type_hints(schema).items():
        kinds[prefix + name] = kind
        is_named = get_origin(kind) is dict
        section = get_args(kind)[1] if is_named else kind
        if is_dataclass(section):
            assert isinstance(section, type)
            kinds |= _typed_keys(section, f"{prefix}{name}." + "NAME." * is_named)
    return kinds


KEYS = _typed_keys(Config)
_NAMED_SECTIONS = {key: get_args(k)[1] for key, k in KEYS.items() if get_origin(k) is dict}
_NAMED_KEY = re.compile(rf"^({'|'.join(map(re.escape, _NAMED_SECTIONS))})\.([^.]+)")


def resource_folder(name: str) -> Path:
    """Find the folder `conf` or `data`: in a checkout next to the package, in a wheel inside it."""
    checkout = _PACKAGE.parent
    if (checkout / "pyproject.toml").is_file() and (checkout / name).is_dir():
        return checkout / name
    return _PACKAGE / "resources" / name


def choices(group: str) -> list[str]:
    """List the configurations of a group, such as `model`; nested ones as `table3/B_dk16`."""
    folder = resource_folder("conf") / group
    return sorted(str(path.relative_to(folder).with_suffix("")) for path in folder.rglob("*.yaml"))


def register(overrides: Sequence[str] = ()) -> None:
    """Register the schema, `${embedded:PATH}` and `${folder:GIVEN,OTHERWISE}` with Hydra.

    The schema gets a section for each NAME in overrides such as `data.valid_sets.NAME.source=...`,
    so that they are checked as all others are.
    """
    schema = OmegaConf.structured(Config)
    for override in overrides:
        if match := _NAMED_KEY.match(override.partition("=")[0].lstrip("+")):
            OmegaConf.select(schema, match[1])[match[2]] = _NAMED_SECTIONS[match[1]]()
    ConfigStore.instance().store(name="schema", node=schema)
    OmegaConf.register_new_resolver(
        "embedded", lambda path: str(resource_folder("data") / path), replace=True
    )
    OmegaConf.register_new_resolver(
        "folder", lambda value, otherwise: str(Path(value or otherwise).expanduser()), replace=True
    )


def quote_text(override: str, *, multirun: bool = False) -> str:
    r"""Quote a file name or other text for Hydra, so that it is read as it was typed.

    It is quoted where Hydra can't read it, or would take it for a number, for a list, for another
    text (`\\` would be `\`) or, without `multirun`, for several values. What is in quotation marks
    stays so.
    """
    key, equals, text = override.partition("=")
    is_text = KEYS.get(_general(key.lstrip("+"))) in (str, str | None)
    if not equals or not (is_text or key == "hydra.sweep.dir"):
        return override
    with suppress(HydraException):
        parsed = OverridesParser.create().parse_override(override)
        # A number would lose how it was typed.
        sweep = multirun and (parsed.is_sweep_override() or r"\," in text)
        is_quoted = isinstance(value := parsed.value(), str) and text.startswith(("'", '"'))
        if sweep or is_quoted or value in (text, None):
            return override
    return f"{key}={QuotedString(text, Quote.double).with_quotes()}"


def check_overrides(overrides: Sequence[str]) -> None:
    """Refuse, by its name, an override that Hydra's parser can't read, or that has no effect."""
    for override in overrides:
        key = override.partition("=")[0].lstrip("+~")
        if key == "hydra.run.dir":
            raise UsageError(f"{override}: the folder of a run is run_dir=FOLDER")
        try:
            OverridesParser.create().parse_override(override)
        except Exception as error:  # those of its lexer are not Hydra's
            if not key.startswith("hydra") and _general(key) not in (*KEYS, *GROUPS):
                raise UsageError(_no_such_key(key)) from error
            raise UsageError(
                f"{override}: can't be read; put quotation marks around the value, such as"
                f" '{key}=\"VALUE\"'"
            ) from error


def repeated(overrides: Sequence[str]) -> list[str]:
    """Return the last of the overrides of each key that is given twice, which Hydra obeys."""
    last: dict[str, str] = {}
    again: dict[str, str] = {}
    for override in overrides:
        key = override.partition("=")[0].lstrip("+")
        if key in last:
            again[key] = override
        last[key] = override
    return list(again.values())


def own_settings(chosen: DictConfig, run: Path, overrides: Sequence[str]) -> DictConfig:
    """Return the settings of a run that is resumed, with those that the overrides change.

    A command that chooses a group or data is whole, and has its own settings. A class is always the
    command's: what a file names is not imported.
    """
    keys = [override.partition("=")[0].lstrip("+~") for override in overrides]
    if any(key in GROUPS or key.startswith("data.") for key in keys):
        return chosen
    own = OmegaConf.structured(read_config(run))
    for key in {*keys, "run_dir", "resume", "model_class"}:
        if not key.startswith("hydra."):
            OmegaConf.update(own, key, OmegaConf.select(chosen, key))
    assert isinstance(own, DictConfig)
    return own


def check_flags(words: Sequence[str]) -> None:
    """Raise UsageError for words that Hydra's parser refuses, which would print its usage."""
    # Python 3.14 refuses help that is not a string, as Hydra's is (facebookresearch/hydra#3121).
    ArgumentParser._check_help = lambda *_: None  # type: ignore[attr-defined]
    parser = get_args_parser()

    def refuse(message: str) -> NoReturn:
        raise UsageError(f"{message}; seq2seq train --help shows the flags")

    parser.error = refuse  # type: ignore[method-assign]
    parser.parse_args(words)


def to_config(composed: DictConfig) -> Config:
    """Convert a composed configuration to a checked `Config`."""
    try:
        # Only plain values are refused if the schema lacks their keys.
        values = OmegaConf.to_container(composed)
        config = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(Config), values))
    except ConfigKeyError as error:
        raise UsageError(_no_such_key(str(error.full_key))) from error
    except OmegaConfBaseException as error:
        raise UsageError(explain(error)) from error
    assert isinstance(config, Config)
    return config


def explain(error: Exception) -> str:
    """Describe Hydra's error in one line, with the nearest valid name."""
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    message = " ".join(str(error).split())
    # The rest of the message, from `full_key` on, names our classes.
    cause = re.split(r"\s+full_key:", " ".join(str(error.__cause__ or "").split()))[0]
    if match := re.search(r"Could not override '([^']+)'\. No match in the defaults", message):
        return f"no such group: {match[1]}{_nearest(match[1], GROUPS)}"
    if match := re.search(r"Could not (?:override|delete)\b[^']* '([^']+)'", message):
        if _general(match[1]) not in (*KEYS, *GROUPS):
            return _no_such_key(match[1])
        return f"{match[1]}: {cause or message}"
    if match := re.search(r"Error merging override (.+)", message):
        section = match[1].partition("=")[0]
        if keys := [key for key in KEYS if key.startswith(f"{_general(section)}.")]:
            first = ", ".join(keys[:4]).replace(_general(section), section)
            return f"{match[1]}: a section, not a setting; give its settings, such as {first}"
        return f"{match[1]}: {cause}"
    if match := re.search(r"Could not (?:find|load) '([^'/]+)/([^']*)'", message):
        group, name = match.groups()
        if group == "hydra":  # such as launcher/joblib
            kind, _, plugin = name.partition("/")
            if near := _nearest(plugin, message.partition("Available options in")[2].split()):
                return f"no such choice: hydra/{kind}={plugin}{near}"
            package = f"hydra-{plugin.partition('_')[0]}-{kind}"
            return f"hydra/{kind}={plugin}: not installed: pip install {package}"
        near = _nearest(name, choices(group)) or f"; choose one of {', '.join(choices(group))}"
        return f"no such choice: {group}={name}{near}"
    # The rest lists the tokens of Hydra's grammar, its folders or its documentation.
    message = re.split(
        r" expecting \{| Config search path:| See https?://|\s+full_key:", f"{message} {cause}"
    )[0]
    return message.strip() or type(error).__name__


def _general(key: str) -> str:
    """Put `NAME` for a name that is free to choose."""
    return _NAMED_KEY.sub(r"\1.NAME", key)


def _no_such_key(key: str) -> str:
    keys = list(KEYS)
    if match := _NAMED_KEY.match(key):
        keys = [k.replace(f"{match[1]}.NAME.", f"{match[0]}.") for k in keys]
    return f"no such key: {key}{_nearest(key, [*keys, *GROUPS])}; --cfg job shows them all"


def _nearest(name: str, options: Collection[str]) -> str:
    near = difflib.get_close_matches(name, options, n=1)
    return f"; did you mean {near[0]}?" if near else ""
