"""A state from which no training resumes; `test_trainer.py` and `cli` resume from others."""

import json
from pathlib import Path
from typing import Any

import pytest

from seq2seq.errors import UserError
from seq2seq.files import MAX_BYTES
from seq2seq.run.config import Config
from seq2seq.run.resume import RunState, named_settings
from seq2seq.settings import SettingKind, settings_of
from seq2seq.trainer import Progress


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ({"format": 3}, "written in format 3"),
        ({"fixed": {}}, "trained with data=None, now '31f2'"),
        ({"fixed": {"data": "31f2", "seed": 2}}, "was trained with seed=2, now None"),
    ],
)
def test_a_state_of_another_run_or_version_is_refused(damage: dict[str, Any], message: str) -> None:
    now = RunState(Progress(), fixed={"data": "31f2", "d_k": None}, changeable={})
    path = Path("run/progress.json")
    assert now.restored(path, now.to_json(), {}) == now
    with pytest.raises(UserError, match=f"^{path}: .*{message}"):
        now.restored(path, now.to_json() | damage, {})


def test_a_setting_that_a_checkpoint_does_not_name_had_its_default() -> None:
    now = RunState(Progress(), fixed={"data": "31f2", "bias": True}, changeable={"alpha": 0.7})
    earlier = now.to_json() | {"fixed": {"data": "31f2"}, "changeable": {}}
    path, defaults = Path("run/progress.json"), {"bias": True, "alpha": 0.6}
    before = now.restored(path, earlier, defaults)
    assert now.record_changes(before) == ["alpha: 0.6 before, 0.7 now"]
    with pytest.raises(UserError, match="bias=False"):
        now.restored(path, earlier, defaults | {"bias": False})


def test_a_run_may_be_resumed_without_end_though_its_settings_change_each_time() -> None:
    state = RunState(Progress(), fixed={}, changeable={"threads": 1, "dtype": "float32"})
    for step in range(3000):
        threads, dtype = 1 + step % 2, ("float32", "bfloat16")[step % 2]
        now = RunState(
            Progress(step, changes=state.progress.changes),
            fixed={},
            changeable={"threads": threads, "dtype": dtype},
        )
        now.record_changes(state)
        state = now
    assert len(json.dumps(state.to_json(), indent=2)) < MAX_BYTES / 10
    last = "dtype: float32 before, bfloat16 now, from step 2,998"
    assert state.progress.changes[-1] == last


@pytest.mark.parametrize("kind", [SettingKind.fixed, SettingKind.changeable])
def test_checkpoints_tell_settings_apart_by_the_last_part_of_their_names(kind: SettingKind) -> None:
    assert len(named_settings(Config(), kind)) == len(list(settings_of(Config(), kind)))
