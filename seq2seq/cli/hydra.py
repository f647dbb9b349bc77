"""Overrides of `seq2seq train`: checks, and Hydra's errors as one line with the nearest name."""

import difflib
import io
import re
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints
from unittest.mock import patch

from hydra._internal.utils import get_args_parser
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Quote, QuotedString
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from seq2seq.config import Config
from seq2seq.errors import UsageError

_PACKAGE = Path(__file__).resolve().parents[1]


def resource_folder(name: str) -> Path:
    """Find the folder `conf` or `data`: in a checkout beside the package, in a wheel inside it."""
    checkout = _PACKAGE.parent
    if (checkout / "pyproject.toml").is_file() and (checkout / name).is_dir():
        return checkout / name
    return _PACKAGE / "resources" / name


# Flags of which Hydra takes one at most.
_MODES = ("run", "multirun", "cfg", "info", "shell_completion")

_ANY_NAME = "NAME"

GROUPS = ("data", "model", "schedule", "variant", "experiment")


def config_path() -> Path:
    """Return the folder that Hydra reads."""
    return resource_folder("conf")


def register(overrides: Sequence[str] = ()) -> None:
    """Register the schema and the resolver of `${embedded:...}` paths with Hydra.

    The schema has a section for each NAME in overrides such as `data.valid_sets.NAME.source=...`,
    so that they are checked as all others are.
    """
    schema = OmegaConf.structured(Config)
    for override in overrides:
        section, name = _named_section(override.partition("=")[0].lstrip("+"))
        if section:
            OmegaConf.select(schema, section)[name] = _named_sections()[section]()
    ConfigStore.instance().store(name="schema", node=schema)
    OmegaConf.register_new_resolver(
        "embedded", lambda path: str(resource_folder("data") / path), replace=True
    )


def keys(schema: type = Config) -> Iterator[str]:
    """Yield every key that can be overridden, dotted."""
    for key, _ in _typed_keys(schema):
        yield key


def _typed_keys(schema: type, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every key with its type; a name that is free to choose is `NAME`."""
    types = get_type_hints(schema)
    for item in fields(schema):
        kind = types[item.name]
        yield prefix + item.name, kind
        if isinstance(kind, type) and is_dataclass(kind):
            yield from _typed_keys(kind, f"{prefix}{item.name}.")
        elif get_origin(kind) is dict:
            yield from _typed_keys(get_args(kind)[1], f"{prefix}{item.name}.{_ANY_NAME}.")


def _named_sections() -> dict[str, type]:
    """Return the keys below which sections are named freely, each with a section's schema."""
    typed = _typed_keys(Config)
    return {key: get_args(kind)[1] for key, kind in typed if get_origin(kind) is dict}


def _named_section(key: str) -> tuple[str, str]:
    """Return the section and the free name in a key, or two empty strings."""
    for section in _named_sections():
        if key.startswith(f"{section}."):
            return section, key.split(".")[section.count(".") + 1]
    return "", ""


def _general(key: str) -> str:
    """Put `NAME` in the place of a name that is free to choose."""
    section, name = _named_section(key)
    if not section:
        return key
    return ".".join([section, _ANY_NAME, key.removeprefix(f"{section}.{name}").lstrip(".")])


def choices(group: str) -> list[str]:
    """List the configurations of a group, such as `model`; nested ones as `table3/B_dk16`."""
    folder = config_path() / group
    return sorted(str(path.relative_to(folder).with_suffix("")) for path in folder.rglob("*.yaml"))


def quote_texts(overrides: list[str], *, multirun: bool = False) -> list[str]:
    """Overrides in which file names and other texts stand as typed, whatever is in them.

    A text is quoted for Hydra where it can't read it as it stands, or would take it for a number,
    for a list or, without `multirun`, for several values.
    """
    return [_quote_text(override, multirun=multirun) for override in overrides]


def _quote_text(override: str, *, multirun: bool) -> str:
    key, equals, text = override.partition("=")
    text_keys = [name for name, kind in _typed_keys(Config) if kind in (str, str | None)]
    text_keys += ["hydra.sweep.dir"]
    if not equals or _general(key.lstrip("+")) not in text_keys:
        return override
    try:
        parsed = OverridesParser.create().parse_override(override)
    except HydraException:
        pass
    else:
        # A number would lose how it was typed.
        sweep = multirun and parsed.is_sweep_override()
        if sweep or isinstance(parsed.value(), str | QuotedString | None):
            return override
    return f"{key}={QuotedString(text, Quote.double).with_quotes()}"


@contextmanager
def any_help() -> Iterator[None]:
    """Let Hydra's parser be made by Python 3.14, which refuses help that is not a string.

    Hydra 1.3 has such help, which it makes when it is shown (facebookresearch/hydra#3121).
    """
    with patch.object(ArgumentParser, "_check_help", lambda *_: None, create=True):
        yield


def check_command_line(words: list[str]) -> None:
    """Check the command line before Hydra does, which would print its usage and exit.

    Raises:
        UsageError: if a flag is unknown, lacks its value or reads a pickle, two flags exclude each
            other, a word is not an override, a section has no valid name or is set to one value, a
            key is to be removed, or a group has no choice.
    """
    with any_help():
        parser = get_args_parser()
    usage = io.StringIO()
    try:
        with redirect_stderr(usage):
            parser.parse_args(words)
    except SystemExit as error:
        if not error.code:
            raise
        reason = usage.getvalue().strip().splitlines()[-1].partition("error: ")[2]
        hint = ""
        if reason.startswith("unrecognized"):
            hint = _nearest(reason.split()[-1], [*parser._option_string_actions, "--debug"])
        raise UsageError(f"{reason}{hint}; seq2seq train --help shows the flags") from None
    parsed = parser.parse_args(words)
    if parsed.experimental_rerun is not None:
        raise UsageError(
            "--experimental-rerun reads a pickle, which may execute anything; give the overrides"
            " of that run again"
        )
    modes = [mode for mode in _MODES if getattr(parsed, mode) not in (None, False)]
    if len(modes) > 1:
        flags = " and ".join(f"--{mode.replace('_', '-')}" for mode in modes)
        raise UsageError(f"{flags} exclude each other; give one of them")
    if parsed.resolve and parsed.cfg is None:
        raise UsageError("--resolve is for --cfg: give --cfg job --resolve")
    for word in parsed.overrides:
        if word.startswith("=") or ("=" not in word and not word.startswith("~")):
            raise UsageError(f"{word!r}: not KEY=VALUE; seq2seq train --help shows examples")
        key = word.partition("=")[0].lstrip("+")
        section, _ = _named_section(key)
        if section and not re.fullmatch(rf"{re.escape(section)}\.[\w-]+\..+", key):
            raise UsageError(
                f"{word}: give {section}.NAME.KEY=VALUE, such as {section}.{_ANY_NAME}.source=FILE,"
                " with a NAME of letters, digits, _ and -"
            )
        _check_section(word)
        _check_choice(word)


def _check_section(word: str) -> None:
    """Refuse to remove a key, and to set a section of several keys to one value."""
    key, _, value = word.lstrip("+~").partition("=")
    if _general(key) not in keys() or key in GROUPS:  # Hydra's to explain
        return
    below = [name for name in keys() if name.startswith(f"{key}.")]
    example = below[0] if below else key
    if word.startswith("~"):
        raise UsageError(f"{word}: a key can't be removed; give {example}=VALUE instead")
    refused = value != "{}" if key in _named_sections() else not value.startswith("{")
    if below and refused:
        raise UsageError(f"{word}: {key} is a section; set its keys, such as {example}=...")


def _check_choice(word: str) -> None:
    """Refuse what can't be a choice of a group; whether there is such a choice, Hydra knows."""
    group = word.partition("=")[0].lstrip("+")
    if group not in GROUPS:
        return
    try:
        override = OverridesParser.create().parse_override(word)
    except HydraException:  # raised and explained later
        return
    values = [override.value()]
    if override.is_sweep_override():
        values = list(override.sweep_iterator()) if override.is_choice_sweep() else []
    if not all(isinstance(value, str | QuotedString) and str(value) for value in values):
        raise UsageError(f"{word}: give one choice{_listed(choices(group))}")


def to_config(chosen: DictConfig) -> Config:
    """Convert a composed configuration to a checked `Config`.

    Raises:
        UsageError: if it has an unknown key, or a value is out of range.
    """
    container = OmegaConf.to_container(chosen)
    assert isinstance(container, dict)
    for key in _dotted(container):
        if _general(key) not in keys():
            raise UsageError(_no_such_key(key))
    config = OmegaConf.to_object(chosen)
    assert isinstance(config, Config)
    return config


def explain(error: Exception) -> str:
    """Describe Hydra's error in one line, with the nearest valid name."""
    message = " ".join(str(error).split())
    # The rest of the message, from `full_key` on, names classes of this program.
    cause = re.split(r"\s+full_key:", " ".join(str(error.__cause__ or "").split()))[0]
    if found := re.search(r"Could not override '([^']+)'\. No match in the defaults", message):
        return f"no such group: {found[1]}{_nearest(found[1], list(GROUPS))}"
    if found := re.search(r"Could not (?:override|delete from config\. Key) '([^']+)'", message):
        key = found[1]
        if _general(key) in keys():
            return f"{key}: {cause}"
        return _no_such_key(key)
    if found := re.search(r"Could not delete\b[^']*'([^']+)'", message):
        return _no_such_key(found[1])
    if found := re.search(r"Error merging override (.+)", message):
        return f"{found[1]}: {cause}"
    if found := re.search(r"Could not (?:find|load) '([^'/]+)/([^']+)'", message):
        group, name = found.groups()
        options = choices(group) if group in GROUPS else []
        return f"no such choice: {group}={name}{_nearest(name, options) or _listed(options)}"
    # The rest lists the tokens of Hydra's grammar, its folders or its documentation.
    message = re.split(
        r" expecting \{| Config search path:| See https?://|\s+full_key:", f"{message} {cause}"
    )[0]
    return message.strip()


def _dotted(tree: Mapping[Any, object], prefix: str = "") -> Iterator[str]:
    for name, value in tree.items():
        if isinstance(value, dict) and value:
            yield from _dotted(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def _no_such_key(key: str) -> str:
    section, name = _named_section(key)
    known = list(keys())
    if section:
        known = [k.replace(f"{section}.{_ANY_NAME}.", f"{section}.{name}.") for k in known]
    near = _nearest(key, [*known, *GROUPS])
    return f"no such key: {key}{near}; --cfg job shows them all"


def _listed(options: list[str]) -> str:
    """Name the options, or the folders that hold them if there are any."""
    places = sorted({re.sub("/.*", "/...", option) for option in options})
    return f"; choose from: {', '.join(places)}" if places else ""


def _nearest(name: str, options: list[str]) -> str:
    # Also match the last word alone: max_steps is near training.max_steps.
    by_leaf = {option.rpartition(".")[2]: option for option in options}
    near = difflib.get_close_matches(name, options, n=1, cutoff=0.6)
    if not near:
        leaf = difflib.get_close_matches(name.rpartition(".")[2], by_leaf, n=1, cutoff=0.7)
        near = [by_leaf[leaf[0]]] if leaf else []
    return f"; did you mean {near[0]}?" if near else ""
