"""`torchrun -m seq2seq train`: one of several processes prints, writes and decides."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from tests.cli.conftest import losses, overrides, weights_at
from tests.faults.test_ranks import processes_in

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]


def torchrun(*words: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [*TORCHRUN, "-m", "seq2seq", "train", *map(str, words)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300)


COMMAND = ("training.log_steps=1", "training.max_steps=4")


@pytest.fixture(scope="module")
def by_two(corpus, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The run folder of two processes, which chose its name, and standard error."""
    folder = tmp_path_factory.mktemp("by_two")
    done = torchrun(*overrides(corpus), *COMMAND, cwd=folder)
    assert done.returncode == 0, done.stderr
    (run,) = (folder / "runs").iterdir()
    return run, done.stderr


@pytest.mark.posix
def test_two_processes_make_one_run(by_two: tuple[Path, str]) -> None:
    run, stderr = by_two
    assert stderr.count("a step: 2 micro-batches") == 1
    assert "in each of 2 processes" in (run / "train.log").read_text()
    assert [path.name for path in (run / "checkpoints").iterdir()] == ["step_00000004"]


@pytest.mark.posix
def test_fewer_processes_go_on_with_a_warning(by_two: tuple[Path, str], train: Callable) -> None:
    words = (*COMMAND, f"run_dir={by_two[0]}", "resume=true", "training.max_steps=6")
    result = train(*words)
    assert result.code == 0, result.err
    assert "a step: 2 micro-batches" in result.err
    assert "processes: 2 before, 1 now" in result.err
    assert [step for step, _ in losses(by_two[0])] == [1, 2, 3, 4, 5, 6]


def test_processes_that_cannot_find_one_another_are_refused(
    train: Callable, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    for name, value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    result = train(f"run_dir={tmp_path / 'run'}")
    assert (result.code, result.err.count("\n")) == (1, 1)
    assert "MASTER_ADDR expected, but not set): start them with torchrun" in result.err


@pytest.mark.parametrize("name", ["RANK", "WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT"])
def test_a_rank_that_is_no_number_is_refused(
    train: Callable, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    monkeypatch.setenv(name, "x")
    result = train(f"run_dir={tmp_path / 'run'}")
    assert (result.code, result.err.count("\n")) == (1, 1)
    assert f"the environment has {name}='x', which is no whole number: unset it" in result.err


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds the ranks in /proc")
def test_a_training_whose_process_is_killed_goes_on_by_itself(corpus, tmp_path: Path) -> None:
    steps = ("training.log_steps=1", "training.max_steps=12", "training.checkpoint_steps=4")
    words = [*overrides(corpus), *steps]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert torchrun(*words, f"run_dir={whole}", cwd=tmp_path).returncode == 0
    command = [*TORCHRUN, "--max-restarts", "1", "-m", "seq2seq", "train", *words]
    killed.mkdir()
    training = subprocess.Popen(command, cwd=killed, stderr=subprocess.PIPE, text=True)
    while not list(killed.glob("**/checkpoints/step_00000004/validated.json")):
        assert training.poll() is None
        time.sleep(0.05)
    os.kill(processes_in(killed)[1], signal.SIGKILL)
    stderr = training.communicate(timeout=120)[1]
    assert training.returncode == 0, stderr
    (run,) = (killed / "runs").iterdir()
    assert len(re.findall("continuing from .*step_0000000[48]", stderr)) == 1
    assert losses(run) == losses(whole)
    for name, value in weights_at(whole, 12).items():
        assert torch.equal(weights_at(run, 12)[name], value), name


@pytest.mark.posix
def test_an_error_of_all_processes_is_reported_once(corpus, tmp_path: Path) -> None:
    word = "training.learning_rate_scale=1e30"
    done = torchrun(*overrides(corpus), word, f"run_dir={tmp_path / 'run'}", cwd=tmp_path)
    assert done.returncode != 0
    stderr = [line for line in done.stderr.splitlines() if line.startswith("seq2seq: ")]
    assert len(stderr) == 1, done.stderr
    assert "is not finite" in stderr[0]


@pytest.mark.posix
def test_processes_with_other_settings_do_not_train_together(corpus, tmp_path: Path) -> None:
    words = [*overrides(corpus), f"run_dir={tmp_path / 'run'}", "training.warmup_steps=5$RANK"]
    script = " ".join([sys.executable, "-m", "seq2seq", "train", *words])
    command = [*TORCHRUN, "--no-python", "bash", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode != 0
    assert done.stderr.count("seq2seq: rank 1: not all processes have the same settings:") == 1
    assert "training.warmup_steps=51 here, 50 in the first one" in done.stderr
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_a_bad_command_line_is_refused_once(
    seq2seq: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank, lines in ((0, 1), (1, 0)):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("LOCAL_RANK", str(rank))
        result = seq2seq("train", "--multirun", "seed=1,2")
        assert result.code == 2
        assert result.err.count("\n") == lines
        assert "--multirun can't run under torchrun" in result.err or not lines


@pytest.mark.parametrize(
    ("source", "code", "message"),
    [("-", 2, "give -i FILE"), ("no-file", 1, "no-file: no such file")],
)
def test_processes_at_a_terminal_do_not_answer_line_by_line(
    seq2seq: Callable, monkeypatch: pytest.MonkeyPatch, source: str, code: int, message: str
) -> None:
    for name, value in (("RANK", "0"), ("LOCAL_RANK", "0"), ("WORLD_SIZE", "2")):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    result = seq2seq("translate", "--model", "no-model", "--device", "cpu", "-i", source)
    assert (result.code, message in result.err) == (code, True), result.err
