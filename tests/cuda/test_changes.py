"""A change of the paper's file is obeyed on a GPU, too."""

from pathlib import Path

import pytest

from tests.changes import EDITS, SUBCLASSES, Change, assert_obeyed, name_of, smooth

USUAL = EDITS[0], EDITS[12], SUBCLASSES[1]
MORE = [change for change in EDITS + SUBCLASSES if change not in USUAL]


@pytest.mark.parametrize(
    "change",
    [*USUAL, *(pytest.param(change, marks=pytest.mark.slow) for change in MORE)],
    ids=lambda change: name_of(change),
)
def test_a_change_is_obeyed(
    change: Change, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert_obeyed(change, tmp_path, caplog, "cuda")


def test_an_edited_feed_forward_is_obeyed_where_its_relu_would_be_in_the_matmul(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEQ2SEQ_TRIALS", "relu_in_matmul")
    [edit] = (change for change in EDITS if change.value is smooth)
    assert_obeyed(edit, tmp_path, caplog, "cuda")
