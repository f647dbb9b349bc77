"""`seq2seq train` on a toy language, through the command line."""

import argparse
import json
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seq2seq.cli.fidelity import compose_config
from seq2seq.cli.hydra import quote_text
from seq2seq.run.config import Config
from seq2seq.run.training import TrainingRun
from tests.cli.conftest import Terminal, losses


@pytest.fixture(autouse=True)
def no_learning_curve(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes most of the time of a toy run; `trained` has its curve."""
    monkeypatch.setattr("seq2seq.run.records.draw_learning_curve", lambda *_: None)


def test_a_run_leaves_its_files_in_the_run_folder(trained: Path) -> None:
    names = {path.name for path in trained.iterdir()} - {"averaged"}
    assert names == {
        "config.yaml",
        "metrics.jsonl",
        "train.log",
        "finished.json",
        "learning_curve.png",
        "report.html",
        "data.json",
        "tensorboard",
        "checkpoints",
        "best",
    }
    assert (trained / "learning_curve.png").read_bytes().startswith(b"\x89PNG")
    assert "a step takes about" in (trained / "train.log").read_text()
    assert sorted(path.name for path in (trained / "checkpoints").iterdir()) == [
        "step_00000150",
        "step_00000300",
        "step_00000450",
    ]


def test_it_learns_to_write_backwards(corpus, trained: Path, seq2seq: Callable) -> None:
    source, target = (corpus.folder / f"test.{side}" for side in ("source", "target"))

    def perplexity(output: Path) -> float:
        result = seq2seq("rescore", "--model", trained, "-s", source, "-i", output, "--json")
        return json.loads(result.out)["perplexity"]

    assert 2 * perplexity(target) < perplexity(source)  # the same words, not backwards


def test_a_run_is_resumed_if_there_is_one(corpus, tmp_path: Path, seq2seq: Callable) -> None:
    words = [*corpus.overrides(), f"run_dir={tmp_path / 'run'}", "resume=auto"]
    words.append("training.log_steps=1")
    first = seq2seq("train", *words, "training.max_steps=1")
    assert first.code == 0
    assert "continuing" not in first.err
    second = seq2seq("train", *words, "training.max_steps=2")
    assert second.code == 0
    assert "continuing from" in second.err
    assert [step for step, _ in losses(tmp_path / "run")] == [1, 2]


def test_another_corpus_is_not_resumed(corpus, trained: Path, seq2seq: Callable) -> None:
    lines = (corpus.folder / "train.target").read_text().splitlines(keepends=True)
    (corpus.folder / "other").write_text("".join(reversed(lines)))
    before = (trained / "config.yaml").read_bytes()
    words = [*corpus.overrides(), f"run_dir={trained}", "resume=true", "model.d_model=64"]
    result = seq2seq("train", *words, f"data.train.target={corpus.folder / 'other'}")
    assert result.code == 1
    assert "compare the keys of data in config.yaml" in result.err.splitlines()[-1]
    assert (trained / "config.yaml").read_bytes() == before


def test_a_changed_recipe_is_named_and_an_unfinished_end_is_finished(
    corpus, seq2seq: Callable, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    words = [*corpus.overrides(), f"run_dir={run}", "training.checkpoint_steps=2"]
    assert seq2seq("train", *words, "training.max_steps=4").code == 0
    (run / "finished.json").unlink()  # as if a signal had come while averaging
    result = seq2seq("train", *words, "training.max_steps=4", "resume=true")
    assert "mean of the last 2 checkpoints" in result.err
    assert (run / "finished.json").exists()
    words += ["training.max_steps=5", "resume=true", "training.warmup_steps=50"]
    result = seq2seq("train", *words, "model.dropout=0.3")
    assert result.code == 0
    assert "warmup_steps: 40 before, 50 now" in result.err
    assert "dropout: 0.1 before, 0.3 now" in result.err


def test_a_run_folder_is_never_overwritten(corpus, trained: Path, seq2seq: Callable) -> None:
    before = (trained / "config.yaml").read_bytes()
    result = seq2seq("train", *corpus.overrides(), f"run_dir={trained}", "seed=7")
    assert result.code == 1
    assert result.err.strip().endswith(
        "already exists; choose another run_dir, or add resume=true to continue"
    )
    assert (trained / "config.yaml").read_bytes() == before


def test_a_pair_without_learned_positions_is_named_before_the_start(
    corpus, seq2seq: Callable, tmp_path: Path
) -> None:
    for side in ("source", "target"):
        lines = (corpus.folder / f"train.{side}").read_text().splitlines()
        lines[12] = " ".join(["seven"] * 30)
        (tmp_path / side).write_text("\n".join(lines) + "\n")
    words = [*corpus.overrides(), f"run_dir={tmp_path / 'run'}", "model.positions=learned"]
    words += [f"data.train.{side}={tmp_path / side}" for side in ("source", "target")]
    result = seq2seq("train", *words, "model.max_learned_positions=29", "training.max_steps=1")
    assert result.code == 1
    assert "seq2seq: a pair of train has " in result.err.splitlines()[-1]
    assert "but positions are learned up to 29" in result.err
    assert not (tmp_path / "run").exists()


def test_a_folder_of_other_things_is_not_written_to(
    corpus, seq2seq: Callable, tmp_path: Path
) -> None:
    (tmp_path / "train.log").write_text("years: 7\n")
    result = seq2seq("train", *corpus.overrides(), f"run_dir={tmp_path}", "training.max_steps=1")
    assert result.code == 1
    assert f"{tmp_path / 'train.log'}: in the way of a new run; choose another" in result.err
    assert {path.name for path in tmp_path.iterdir()} == {"train.log"}


def test_a_start_that_fails_leaves_no_folder(corpus, seq2seq: Callable, tmp_path: Path) -> None:
    words = [*corpus.overrides(), f"run_dir={tmp_path / 'deep' / 'run'}", "training.max_steps=1"]
    large = [f"training.{name}_tokens=200000" for name in ("source", "target", "micro_batch")]
    result = seq2seq("train", *words, *large)
    assert result.code == 1
    assert "can't be filled" in result.err.splitlines()[-1]
    assert not (tmp_path / "deep").exists()
    assert seq2seq("train", *words, "data.train.source=missing").code == 1
    assert not (tmp_path / "deep").exists()


def test_a_bad_run_of_one_command_does_not_stop_the_others(
    corpus, seq2seq: Callable, tmp_path: Path
) -> None:
    words = [*corpus.overrides(), "training.max_steps=1", f"hydra.sweep.dir={tmp_path / 'a, b=c'}"]
    result = seq2seq("train", *words, "--multirun", "model.num_heads=4,5,2")
    assert result.code == 2
    assert "does not divide into 5 heads" in result.err.splitlines()[-1]
    runs = [path for path in (tmp_path / "a, b=c").iterdir() if path.is_dir()]
    assert len(runs) == 2
    assert all((run / "checkpoints" / "step_00000001").is_dir() for run in runs)


def test_runs_of_one_command_have_folders_named_after_what_differs(
    corpus, seq2seq: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []

    def begin(config: Config, folder: Path, *_: object, **__: object) -> float:
        begun.append(str(folder.relative_to(tmp_path)))
        return 0.0

    monkeypatch.setattr("seq2seq.cli.train.start_training", begin)
    monkeypatch.chdir(tmp_path)
    sweep = f"hydra.sweep.dir={tmp_path / 'sweep'}"
    words = [*corpus.overrides(), "training.max_steps=1", "resume=auto", "--multirun", "seed=1,2"]
    for where, runs in (
        ([sweep], ["sweep/seed=1", "sweep/seed=2"]),
        ([f"run_dir={tmp_path}/a b"], ["a b/seed=1", "a b/seed=2"]),
        ([f"run_dir={tmp_path}/s${{seed}}"], ["s1/seed=1", "s2/seed=2"]),
        (
            [f"run_dir={tmp_path}/x,{tmp_path}/y", sweep],
            ["x/seed=1", "x/seed=2", "y/seed=1", "y/seed=2"],
        ),
    ):
        begun.clear()
        result = seq2seq("train", *words, *where)
        assert result.code == 0, result.err
        assert sorted(begun) == runs
    assert not (tmp_path / "runs").exists()


def test_what_continues_a_run_is_named(
    corpus, seq2seq: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(run: TrainingRun) -> None:
        run.trainer.signal = signal.SIGTERM

    monkeypatch.setattr(TrainingRun, "fit", stopped)
    sweep, run_dir = f"hydra.sweep.dir={tmp_path / 'sweep'}", f"run_dir={tmp_path}/a b"
    for words, way in (
        ([run_dir], f"'{run_dir}' resume=true"),
        ([run_dir, sweep, "seed=1,2", "--multirun"], "resume=auto"),
        ([sweep, "seed=1", "--multirun"], f"{sweep} resume=auto"),
    ):
        result = seq2seq("train", *corpus.overrides(), *words)
        assert result.code == 128 + signal.SIGTERM
        assert result.err.splitlines()[-1].endswith(f"; continue with the same command and {way}")


def test_a_terminal_shows_the_losses_that_are_recorded(corpus, tmp_path: Path) -> None:
    words = [*corpus.overrides(), "training.log_steps=1", "training.max_steps=12"]
    words += ["training.checkpoint_steps=6", f"run_dir={tmp_path / 'run'}"]
    shown = Terminal("train", *words, columns=60, cwd=tmp_path).read_to_the_end()
    recorded = {(step, f"{loss:.3f}") for step, loss in losses(tmp_path / "run")}
    found = {
        (int(step), loss)
        for step, loss in re.findall(r"(\d+)/12, loss ([\d.]+), [\d,]+ tokens/s", shown)
    }
    assert found
    assert found <= recorded
    assert shown.count("(the best so far)") >= 1
    assert "each validation translates 20 lines" in shown
    assert "validating: 20 of 20 lines" in shown


def test_hydra_s_flags_are_read_by_a_parser_that_checks_help(
    seq2seq: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As Python 3.14 does.
    parser = argparse._ActionsContainer
    add = parser.add_argument

    def check(self: Any, action: argparse.Action) -> None:
        if not isinstance(action.help, str):
            raise ValueError("badly formed help string")

    def add_and_check(self: Any, *names: Any, **options: Any) -> argparse.Action:
        action = add(self, *names, **options)
        if action.help:
            self._check_help(action)
        return action

    monkeypatch.setattr(parser, "_check_help", check, raising=False)
    monkeypatch.setattr(parser, "add_argument", add_and_check)
    result = seq2seq("train", "--cfg", "job")
    assert result.code == 0
    assert "max_steps: 100000" in result.out


NAMES = ["für.en", "a=b", "a,b", "(a)", "{a: b}", "[a]", "a'b", 'a"b', "a#b", "~a", "a b", "a:b"]
NAMES += ["a%b", "null", "100", "1e3", "true", "a\\", "😀.gz", '\\"', "$HOME", "a*b?", "a\nb"]


def test_a_file_name_is_read_as_it_was_typed() -> None:
    for name in NAMES:
        config = compose_config(["data=files", f"data.train.source={name}", f"cache=./{name}"])
        assert config.data.train.source == (None if name == "null" else name)
        assert config.cache == f"./{name}"


def test_texts_are_still_swept_over() -> None:
    assert [quote_text(one, multirun=True) for one in ("run_dir=a,b", "cache=ü,b")] == [
        "run_dir=a,b",
        'cache="ü,b"',
    ]
