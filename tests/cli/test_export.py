"""`seq2seq export`: all of a folder, or nothing."""

import shutil
from collections.abc import Callable
from pathlib import Path


def test_a_card_that_can_t_be_read_leaves_no_half_an_export(
    model: Path, seq2seq: Callable, tmp_path: Path
) -> None:
    shutil.copytree(model, tmp_path / "model")
    (tmp_path / "model" / "README.md").write_bytes(bytes(2**24 + 1))
    folder = tmp_path / "marian"
    result = seq2seq("export", "--model", tmp_path / "model", "--to", "marian", "-o", folder)
    assert (result.code, folder.exists()) == (1, False)
    assert "README.md" in result.err
