"""Each key of the schema mistyped, each value of a wrong type: refused before any work."""

from dataclasses import is_dataclass
from enum import Enum
from types import UnionType
from typing import Any, Union, get_args, get_origin

import pytest

from seq2seq.cli import hydra
from seq2seq.cli.fidelity import compose_config
from seq2seq.errors import UsageError
from tests.faults.conftest import Trial, Trials

# Every key with a value of its own.
KEYS = {
    key: kind
    for key, kind in hydra.KEYS.items()
    if not is_dataclass(kind) and get_origin(kind) is not dict
}


def mistypings(key: str) -> list[str]:
    """A letter dropped, one doubled, and two exchanged, in the last part of a key."""
    group, dot, name = key.rpartition(".")
    middle = len(name) // 2
    last = name[: middle - 1] + name[middle] + name[middle - 1] + name[middle + 1 :]
    found = [name[:-1], name + name[-1], last]
    if len(name) < 4:  # d_ is as near to d_v as to d_k
        found = [name + name[-1]]
    return [group + dot + word for word in found if group + dot + word not in KEYS]


def without_none(kind: Any) -> Any:
    if get_origin(kind) in (Union, UnionType):
        return next(option for option in get_args(kind) if option is not type(None))
    return kind


# Of a text no value has a wrong type.
NOT_TEXT = [key for key, kind in KEYS.items() if without_none(kind) is not str]


def test_the_walk_finds_every_key() -> None:
    assert len(KEYS) > 50
    assert {"seed", "model.d_k", "data.corpora.NAME.weight", "training.patience"} <= set(KEYS)
    kinds = {without_none(kind) for kind in KEYS.values()}
    assert kinds >= {int, float, str, bool}
    assert any(isinstance(kind, type) and issubclass(kind, Enum) for kind in kinds)


def test_each_mistyped_key_is_refused_with_the_nearest_name(trial: Trial, trials: Trials) -> None:
    for key in list(KEYS)[:: trials(5, 1)]:
        for word in mistypings(key)[: trials(1, 3)]:
            with trial("a mistyped key"):
                with pytest.raises(UsageError) as error:
                    compose_config([f"{word}=1"])
                assert str(error.value).startswith(f"no such key: {word}; did you mean {key}?")


def test_each_value_of_a_wrong_type_is_refused(trial: Trial, trials: Trials) -> None:
    for key in NOT_TEXT[:: trials(5, 1)]:
        with trial("a value of a wrong type"):
            with pytest.raises(UsageError, match=key.replace(".", r"\.")) as error:
                compose_config([f"{key}=elsewhere"])
            assert "\n" not in str(error.value)
