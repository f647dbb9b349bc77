"""The state from which a training resumes: equal, changed, of an earlier version, or corrupt."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seq2seq.errors import UserError
from seq2seq.training.state import Progress, RunState, StepMetrics

PATH = Path("run/progress.json")
PROGRESS = Progress(
    step=60,
    batch=30,
    seconds=71.5,
    validated_seconds=61.5,
    best_score=0.5,
    best_step=30,
    validations_without_improvement=1,
    validation_pending=True,
    unrecorded=StepMetrics(steps=3, smoothed=2.5),
)
STATE = RunState(
    PROGRESS,
    fixed={"data": "31f2", "seed": 1, "d_k": None},
    changeable={"dropout": 0.1, "threads": 2, "dtype": "bfloat16", "slices": 1},
)
NOW = replace(STATE, progress=Progress())


def written(state: RunState) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(json.dumps(state.to_json()))
    return content


def test_a_state_is_read_as_it_was_written() -> None:
    assert NOW.restored(PATH, written(STATE)) == STATE


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("seed", 2, "was trained with seed=2, now 1"),
        ("select", "mean", "was trained with select='mean', now None"),
    ],
)
def test_a_changed_fixed_setting_is_refused_by_name(name: str, value: object, message: str) -> None:
    other = replace(STATE, fixed={**STATE.fixed, name: value})
    with pytest.raises(UserError, match=message):
        NOW.restored(PATH, written(other))


def test_changed_settings_are_listed() -> None:
    before = replace(STATE, changeable={**STATE.changeable, "threads": 8, "slices": 4})
    assert NOW.changes(before) == ["threads: 8 before, 2 now", "slices: 4 before, 1 now"]
    assert NOW.changes(STATE) == []


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda saved: saved | {"format": 3}, "written in format 3"),
        (lambda saved: saved | {"fixed": {}}, "trained with data=None, now '31f2'"),
    ],
)
def test_an_invalid_state_is_refused(
    damage: Callable[[dict[str, Any]], dict[str, Any]], message: str
) -> None:
    with pytest.raises(UserError, match=message) as error:
        NOW.restored(PATH, damage(written(STATE)))
    assert str(error.value).startswith(f"{PATH}: ")
