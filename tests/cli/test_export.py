"""`seq2seq export` and other commands that write a model: all of a folder, or nothing."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest


def test_a_card_that_can_t_be_read_leaves_no_half_an_export(
    model: Path, seq2seq: Callable, tmp_path: Path
) -> None:
    shutil.copytree(model, tmp_path / "model")
    (tmp_path / "model" / "README.md").write_bytes(bytes(2**24 + 1))
    folder = tmp_path / "marian"
    result = seq2seq("export", "--model", tmp_path / "model", "--to", "marian", "-o", folder)
    assert (result.code, folder.exists()) == (1, False)
    assert "README.md" in result.err


@pytest.mark.parametrize(
    ("to", "library"),
    [("marian", "torch"), ("ctranslate2", "ctranslate2"), ("onnx", "onnx"), ("web", "onnx")],
)
@pytest.mark.filterwarnings("ignore")  # the libraries' own
def test_the_card_is_in_a_folder_when_it_gets_its_name(
    model: Path,
    seq2seq: Callable,
    tmp_path: Path,
    first_files: dict[Path, list[str]],
    to: str,
    library: str,
) -> None:
    pytest.importorskip(library)
    shutil.copytree(model, tmp_path / "model")
    (tmp_path / "model" / "README.md").write_bytes(b"# Card\xff\n")
    folder = tmp_path / "exported"
    result = seq2seq("export", "--model", tmp_path / "model", "--to", to, "-o", folder)
    assert result.code == 0, result.err
    assert "README.md" in first_files[folder]
    assert (folder / "README.md").read_bytes() == b"# Card\xff\n"


@pytest.mark.parametrize(
    "command",
    [
        ("export", "--model", "run", "--to", "marian"),
        ("import", "run"),
        ("average", "--model", "run", "--last", "1"),
    ],
)
def test_a_model_goes_to_the_home_folder_that_its_path_names(
    seq2seq: Callable,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    (tmp_path / "run" / "checkpoints" / "step_1").mkdir(parents=True)
    (tmp_path / "home" / "model").mkdir(parents=True)
    (tmp_path / "home" / "model" / "notes.txt").touch()
    result = seq2seq(*command, "-o", "~/model")  # as it comes from --output=~/model in a shell
    assert result.code == 1
    assert re.search("home/model: (already exists|holds more than a model)", result.err)
