"""A state from which no training resumes; `test_trainer.py` and `cli` resume from others."""

from pathlib import Path
from typing import Any

import pytest

from seq2seq.errors import UserError
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
    assert now.changes(now.restored(path, earlier, defaults)) == ["alpha: 0.6 before, 0.7 now"]
    with pytest.raises(UserError, match="bias=False"):
        now.restored(path, earlier, defaults | {"bias": False})


@pytest.mark.parametrize("kind", [SettingKind.fixed, SettingKind.changeable])
def test_checkpoints_tell_settings_apart_by_the_last_part_of_their_names(kind: SettingKind) -> None:
    assert len(named_settings(Config(), kind)) == len(list(settings_of(Config(), kind)))
