"""`seq2seq export`: another program translates as `seq2seq translate` does."""

import shutil
from collections.abc import Callable
from pathlib import Path

from seq2seq.storage.checkpoint import find_model


def test_an_existing_folder_is_kept(trained: Path, seq2seq: Callable, tmp_path: Path) -> None:
    folder = shutil.copytree(find_model(trained), tmp_path / "folder")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    result = seq2seq("export", "--model", trained, "--to", "marian", "-o", folder)
    assert (result.code, {p.name: p.read_bytes() for p in folder.iterdir()}) == (1, before)
    assert "already exists" in result.err


def test_a_card_that_can_t_be_read_leaves_no_half_an_export(
    trained: Path, seq2seq: Callable, tmp_path: Path
) -> None:
    shutil.copytree(find_model(trained), tmp_path / "model")
    (tmp_path / "model" / "README.md").write_bytes(bytes(2**24 + 1))
    folder = tmp_path / "marian"
    result = seq2seq("export", "--model", tmp_path / "model", "--to", "marian", "-o", folder)
    assert (result.code, folder.exists()) == (1, False)
    assert "README.md" in result.err
