"""The classes of settings: what a resumed run must keep, what it may change, and where it is.

Each field of a configuration names its class where it is defined: `warmup_steps: int =
changeable(4000)`. `settings_of_run` in `seq2seq.run.resume` adds what follows from the data.
"""

import copy
from collections.abc import Iterator
from dataclasses import field, fields, is_dataclass
from enum import Enum
from functools import partial
from typing import Any, TypeAlias

Setting: TypeAlias = bool | str | int | float | None


class SettingKind(Enum):
    """The meaning of a setting for a run that is resumed or compared."""

    fixed = "a resumed run must have the same value"
    changeable = "a resumed run may have another value, and then differs from an uninterrupted one"
    free = "the updates do not depend on it"
    digested = "determines the training text, of which a resumed run must have the same digest"
    place = "where a run is, and not what it is"


def setting(default: Any, kind: SettingKind, **more: bool) -> Any:
    """A field of a configuration, with its default and its class."""
    metadata = {"kind": kind, **more}
    if isinstance(default, dict):
        return field(default_factory=lambda: copy.copy(default), metadata=metadata)
    return field(default=default, metadata=metadata)


fixed = partial(setting, kind=SettingKind.fixed)
variant = partial(setting, kind=SettingKind.fixed, variant=True)
"""A fixed setting of which any value but the default makes a model of `seq2seq.zoo`."""
changeable = partial(setting, kind=SettingKind.changeable)
free = partial(setting, kind=SettingKind.free)
digested = partial(setting, kind=SettingKind.digested)
place = partial(setting, kind=SettingKind.place)


def settings_of(config: Any, kind: SettingKind, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted names of the settings of a class, and their values as JSON has them."""
    for item in fields(config):
        value = getattr(config, item.name)
        if item.metadata.get("kind") is kind:
            yield prefix + item.name, getattr(value, "value", value)
        elif is_dataclass(value):
            yield from settings_of(value, kind, f"{prefix}{item.name}.")


def flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the values of nested dictionaries by their dotted keys; enumerations by value."""
    values: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, dict):
            values |= flat(value, f"{prefix}{key}.")
        else:
            values[prefix + key] = getattr(value, "value", value)
    return values
