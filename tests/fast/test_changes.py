"""A change of the paper's file is obeyed by training and translation, fast forms or not."""

import importlib
from pathlib import Path

import pytest

from seq2seq import changes
from tests.changes import EDITS, SUBCLASSES, Change, assert_obeyed, name_of


@pytest.mark.parametrize("change", EDITS + SUBCLASSES, ids=name_of)
def test_a_change_is_obeyed(
    change: Change, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert_obeyed(change, tmp_path, caplog, "cpu")


def test_the_digests_are_those_of_the_code() -> None:
    """Otherwise, test the fast forms, and write them: `python scripts/digests.py`."""
    modules = [importlib.import_module(f"seq2seq.{name}") for name in changes.MODULES]
    now = {key: digest for module in modules for key, digest in changes.digests(module).items()}
    assert now == changes.tested()
    assert changes.changed_functions(*changes.MODULES) == []
