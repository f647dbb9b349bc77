"""The record of who continues a run, when, where and by which program."""

import subprocess
import zipfile
from dataclasses import replace
from datetime import datetime, timedelta
from importlib import import_module
from pathlib import Path

import pytest
import torch
from torch import nn

import seq2seq
from seq2seq.changes import digest_of_classes
from seq2seq.device import Compute
from seq2seq.errors import UsageError
from seq2seq.run.sessions import (
    add_session,
    commit_of,
    digest_of_code,
    read_sessions,
    this_session,
)
from tests.toy import toy_config, train


def git(folder: Path, *words: str) -> str:
    """Run git without the settings of the user."""
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    command = ["git", "-C", folder, *identity, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_each_start_is_recorded_and_another_program_is_told_of(
    sentences: list[str], tmp_path: Path, warned: list[str]
) -> None:
    config = toy_config(tmp_path, sentences)
    run = train(config, tmp_path / "run", max_steps=2)
    before = read_sessions(run)
    assert [session.step for session in before] == [0]
    assert datetime.now().astimezone() - datetime.fromisoformat(before[0].started) < timedelta(1)
    assert (before[0].version, before[0].torch) == (seq2seq.__version__, torch.__version__)
    assert (before[0].precision, before[0].threads) == ("fp32", torch.get_num_threads())
    path = run / "sessions.jsonl"
    path.write_text(path.read_text().replace('"commit": "', '"commit": "of the documents'))
    train(config, run, resume=True, max_steps=3)
    assert not any("continued by" in line for line in warned)

    path.write_text(path.read_text().replace(before[0].code, "another code") + "corrupt\n")
    train(config, run, resume=True, max_steps=4)
    (line,) = [line for line in warned if "continued by" in line]
    assert f"code another code), torch {torch.__version__}, and continued by" in line
    sessions = read_sessions(run)
    assert [session.step for session in sessions] == [0, 2, 3]


def test_forms_on_trial_are_recorded_and_a_mistyped_one_is_refused(
    sentences: list[str], tmp_path: Path, warned: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = toy_config(tmp_path, sentences)
    monkeypatch.setenv("SEQ2SEQ_TRIALS", "loss_by_sum")
    with pytest.raises(UsageError, match=r"^SEQ2SEQ_TRIALS=loss_by_sum: not among"):
        train(config, tmp_path / "run", max_steps=1)
    assert not (tmp_path / "run").exists()
    monkeypatch.delenv("SEQ2SEQ_TRIALS")
    run = train(config, tmp_path / "run", max_steps=1)
    monkeypatch.setenv("SEQ2SEQ_TRIALS", "relu_in_matmul,loss_by_sums")
    train(config, run, resume=True, max_steps=2)
    assert [session.trials for session in read_sessions(run)] == ["", "loss_by_sums,relu_in_matmul"]
    (line,) = [line for line in warned if "continued by" in line]
    assert "with loss_by_sums,relu_in_matmul on trial; the result may not equal" in line


def test_all_sessions_of_a_run_are_read_and_the_oldest_are_removed_from_a_file_that_is_full(
    tmp_path: Path,
) -> None:
    compute, model = Compute(), nn.Linear(1, 1)
    session = this_session("seq2seq train " + "x" * 200, compute, model, step=0, processes=1)
    add_session(tmp_path, session)
    path = tmp_path / "sessions.jsonl"
    line = path.read_bytes()
    path.write_bytes(line * 300)
    assert read_sessions(tmp_path) == [session] * 300
    for room, kept in ((3 * len(line), 3), (3 * len(line) - 1, 2)):
        path.write_bytes(line * 300)
        add_session(tmp_path, replace(session, step=7), max_bytes=room)
        assert [one.step for one in read_sessions(tmp_path)] == [0] * (kept - 1) + [7]


def test_the_commit_is_that_of_the_checkout_which_holds_the_package(tmp_path: Path) -> None:
    package = tmp_path / "checkout" / "package"
    package.mkdir(parents=True)
    module = package / "__init__.py"
    module.write_text("")
    assert commit_of(package) == ""
    git(package.parent, "init", "-q")
    assert commit_of(package) == ""  # as of a package that is installed in a project's folder
    git(package.parent, "add", ".")
    git(package.parent, "commit", "-q", "-m", "a")
    commit = git(package, "rev-parse", "HEAD")[:12]
    assert commit_of(package) == commit
    (package.parent / "new").write_text("not the package's")
    assert commit_of(package) == commit
    module.write_text("changed = True")
    assert commit_of(package) == f"{commit}, changed"


def test_classes_whose_files_can_t_be_read_have_no_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zipfile.ZipFile(tmp_path / "own.zip", "w") as archive:
        archive.writestr("archived_class.py", "import torch\nclass Own(torch.nn.ReLU): pass\n")
    monkeypatch.syspath_prepend(tmp_path / "own.zip")
    model = nn.Sequential(import_module("archived_class").Own())
    assert digest_of_classes(model) == ""


@pytest.mark.parametrize("change", ["content", "name", "new"])
def test_the_code_has_another_digest_when_anything_in_it_is_changed(
    change: str, tmp_path: Path
) -> None:
    module = tmp_path / "inner" / "module.py"
    module.parent.mkdir()
    module.write_text("a = 1")
    before = digest_of_code(tmp_path)
    assert before == digest_of_code(tmp_path)
    if change == "content":
        module.write_text("a = 2")
    elif change == "name":
        module.rename(tmp_path / "module.py")
    else:
        (tmp_path / "new.py").write_text("")
    assert digest_of_code(tmp_path) != before
