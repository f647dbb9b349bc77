"""`seq2seq train` on a toy language, through the command line."""

import argparse
import json
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from omegaconf import OmegaConf

from seq2seq.cli.fidelity import compose_config
from seq2seq.cli.hydra import own_settings, quote_text
from seq2seq.run.config import Config, read_config
from seq2seq.run.training import TrainingRun
from tests.cli.conftest import Terminal, losses, overrides


def test_a_run_leaves_its_files_in_the_run_folder(trained: Path) -> None:
    names = "best checkpoints config.yaml data.json finished.json"
    names += " metrics.jsonl report.html scores.json sessions.jsonl tensorboard train.log"
    assert sorted({path.name for path in trained.iterdir()} - {"averaged"}) == names.split()
    assert "a step takes about" in (trained / "train.log").read_text()
    steps = [f"step_{step:08d}" for step in (150, 300, 450)]
    assert sorted(path.name for path in (trained / "checkpoints").iterdir()) == steps


def test_it_learns_to_write_backwards(corpus, trained: Path, seq2seq: Callable) -> None:
    source, target = (corpus / f"test.{side}" for side in ("source", "target"))

    def perplexity(output: Path) -> float:
        result = seq2seq("rescore", "--model", trained, "-s", source, "-i", output, "--json")
        return json.loads(result.out)["perplexity"]

    assert 2 * perplexity(target) < perplexity(source)  # the same words, not backwards


def test_a_run_is_resumed_if_there_is_one(train: Callable, tmp_path: Path) -> None:
    words = (f"run_dir={tmp_path / 'run'}", "resume=auto", "training.log_steps=1")
    for steps in (1, 2):
        result = train(*words, f"training.max_steps={steps}")
        assert (result.code, "continuing from" in result.err) == (0, steps == 2)
    assert [step for step, _ in losses(tmp_path / "run")] == [1, 2]


def test_a_run_that_is_named_alone_goes_on_with_its_own_settings(
    train: Callable, seq2seq: Callable, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    assert train(f"run_dir={run}", "training.max_steps=1").code == 0
    result = seq2seq("train", f"run_dir={run}", "resume=true", "training.max_steps=2")
    assert result.code == 0, result.err
    assert "continuing from" in result.err
    now = read_config(run)
    assert (now.training.max_steps, now.data.tokenizer.vocab_size) == (2, 60)
    result = train(f"run_dir={run}", "resume=true", "data.tokenizer.vocab_size=50")
    assert result.code == 1
    assert "data.tokenizer.vocab_size=60, now 50: resume with" in result.err


@pytest.mark.parametrize("choice", ["data.train.source=x", "data=files", "model=big"])
def test_a_command_that_chooses_data_or_a_group_beside_a_setting_has_no_settings_of_the_run(
    tmp_path: Path, choice: str
) -> None:
    run, words = compose_config(["training.warmup_steps=5"]), ["seed=7", choice, "device=cpu"]
    OmegaConf.save(OmegaConf.structured(run), tmp_path / "config.yaml")
    chosen = OmegaConf.structured(compose_config(words))
    for own, steps in ((words, Config().training.warmup_steps), (words[::2], 5)):
        settings = own_settings(chosen, tmp_path, own)
        assert (settings.seed, settings.training.warmup_steps) == (7, steps)


def test_another_corpus_is_not_resumed(corpus, trained: Path, train: Callable) -> None:
    lines = (corpus / "train.target").read_text().splitlines(keepends=True)
    (corpus / "other").write_text("".join(reversed(lines)))
    written = (trained / "config.yaml").read_bytes()
    target = f"data.train.target={corpus / 'other'}"
    result = train(f"run_dir={trained}", "resume=true", "model.d_model=64", target)
    assert result.code == 1
    before_and_now = f"{str(corpus / 'train.target')!r}, now {str(corpus / 'other')!r}"
    assert f"was trained with data.train.target={before_and_now}" in result.err.splitlines()[-1]
    assert (trained / "config.yaml").read_bytes() == written


def test_a_changed_recipe_is_named_and_an_unfinished_end_is_finished(
    train: Callable, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    words = [f"run_dir={run}", "training.checkpoint_steps=2", "training.max_steps=4"]
    assert train(*words).code == 0
    (run / "finished.json").unlink()  # as if a signal had come while averaging
    result = train(*words, "resume=true")
    assert "mean of the last 2 checkpoints" in result.err
    assert (run / "finished.json").exists()
    words += ["training.max_steps=5", "resume=true", "training.warmup_steps=50"]
    result = train(*words, "model.dropout=0.3")
    assert result.code == 0
    assert "warmup_steps: 40 before, 50 now" in result.err
    assert "dropout: 0.1 before, 0.3 now" in result.err


def test_a_run_folder_is_never_overwritten(trained: Path, train: Callable) -> None:
    before = (trained / "config.yaml").read_bytes()
    result = train(f"run_dir={trained}", "seed=7")
    assert result.code == 1
    assert result.err.strip().endswith(
        "already exists; choose another run_dir, or add resume=true to continue"
    )
    assert (trained / "config.yaml").read_bytes() == before


def test_a_pair_without_learned_positions_is_named_before_the_start(
    corpus, train: Callable, tmp_path: Path
) -> None:
    words = [f"run_dir={tmp_path / 'run'}", "model.positions=learned"]
    for side in ("source", "target"):
        lines = (corpus / f"train.{side}").read_text().splitlines()
        lines[12] = " ".join(["seven"] * 30)
        (tmp_path / side).write_text("\n".join(lines) + "\n")
        words.append(f"data.train.{side}={tmp_path / side}")
    result = train(*words, "model.max_learned_positions=29", "training.max_steps=1")
    assert result.code == 1
    assert "seq2seq: a pair of train has " in result.err.splitlines()[-1]
    assert "but positions are learned up to 29" in result.err
    assert not (tmp_path / "run").exists()


def test_a_folder_of_other_things_is_not_written_to(train: Callable, tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text("years: 7\n")
    result = train(f"run_dir={tmp_path}", "training.max_steps=1")
    assert result.code == 1
    assert f"{tmp_path / 'train.log'}: in the way of a new run; choose another" in result.err
    assert {path.name for path in tmp_path.iterdir()} == {"train.log"}


def test_a_start_that_fails_leaves_no_folder(train: Callable, tmp_path: Path) -> None:
    words = [f"run_dir={tmp_path / 'deep' / 'run'}", "training.max_steps=1"]
    large = [f"training.{name}_tokens=200000" for name in ("source", "target", "micro_batch")]
    result = train(*words, *large)
    assert result.code == 1
    assert "can't be filled" in result.err.splitlines()[-1]
    assert not (tmp_path / "deep").exists()
    assert train(*words, "data.train.source=missing").code == 1
    assert not (tmp_path / "deep").exists()


def test_runs_of_one_command_have_folders_named_after_what_differs(
    train: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []

    def begin(config: Config, folder: Path, *_: object, **__: object) -> float:
        begun.append(str(folder.relative_to(tmp_path)))
        return 0.0

    monkeypatch.setattr("seq2seq.cli.train.start_training", begin)
    monkeypatch.chdir(tmp_path)
    sweep, run_dir = f"hydra.sweep.dir={tmp_path / 'sweep'}", f"run_dir={tmp_path}"
    for where, folders in (
        ([sweep], "sweep/1 sweep/2"),
        ([f"{run_dir}/a b"], "a b/1 a b/2"),
        ([f"{run_dir}/s${{seed}}"], "s1/1 s2/2"),
        ([f"{run_dir}/x,{tmp_path}/y", sweep], "x/1 x/2 y/1 y/2"),
    ):
        begun.clear()
        result = train("training.max_steps=1", "resume=auto", "--multirun", "seed=1,2", *where)
        assert result.code == 0, result.err
        assert " ".join(sorted(begun)).replace("seed=", "") == folders
    assert not (tmp_path / "runs").exists()


def test_what_continues_a_run_is_named(
    train: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
        result = train(*words)
        assert result.code == 128 + signal.SIGTERM
        assert result.err.splitlines()[-1].endswith(f"continue with the same command and {way}")


def test_an_override_that_is_given_twice_is_told(train: Callable, seq2seq: Callable) -> None:
    result = seq2seq("train", "seed=3", "model.dropout=0.3", "++seed=4", "--cfg", "job")
    assert "\nseed: 4\n" in result.out
    assert result.err == "warning: seed is given twice; ++seed=4 counts\n"
    assert seq2seq("train", "seed=3", "--cfg", "job").err == ""


def test_a_terminal_shows_the_losses_that_are_recorded(corpus, tmp_path: Path) -> None:
    words = [*overrides(corpus), "training.log_steps=1", "training.max_steps=12"]
    words += ["training.checkpoint_steps=6", f"run_dir={tmp_path / 'run'}"]
    shown = Terminal("train", *words, columns=60, cwd=tmp_path).read_to_the_end()
    recorded = {(step, f"{loss:.3f}") for step, loss in losses(tmp_path / "run")}
    pairs = re.findall(r"(\d+)/12, loss ([\d.]+), [\d,]+ tokens/s", shown)
    found = {(int(step), loss) for step, loss in pairs}
    assert found
    assert found <= recorded
    assert shown.count("(the best so far)") >= 1
    assert "each validation translates 20 lines" in shown
    assert "validating: 20 of 20 lines" in shown


def test_hydra_s_flags_are_read_by_a_parser_that_checks_help(
    seq2seq: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As Python 3.14 does.
    add = argparse._ActionsContainer.add_argument

    def add_and_check(self: Any, *names: Any, **options: Any) -> argparse.Action:
        action = add(self, *names, **options)
        if not isinstance(action.help or "", str):
            self._check_help(action)
        return action

    refused = Mock(side_effect=ValueError("badly formed help string"))
    monkeypatch.setattr(argparse.ArgumentParser, "_check_help", refused, raising=False)
    monkeypatch.setattr(argparse._ActionsContainer, "add_argument", add_and_check)
    result = seq2seq("train", "--cfg", "job")
    assert result.code == 0
    assert "max_steps: 100000" in result.out


NAMES = ["für.en", "a=b", "a,b", "(a)", "{a: b}", "[a]", "a'b", 'a"b', "a#b", "~a", "a b", "a:b"]
NAMES += ["a%b", "null", "100", "1e3", "true", "a\\", "😀.gz", '\\"', "$HOME", "a*b?", "a\nb"]
NAMES += [r"\\srv\a", r"a\,b", " a", "a ", r"c:\data\a.en"]


def test_a_file_name_is_read_as_it_was_typed() -> None:
    words = ["data=files"]
    for i, name in enumerate(NAMES):  # all at once: to compose takes a third of a second
        words += [f"data.valid_sets.{i}.source={name}", f"data.valid_sets.{i}.target=./{name}"]
    sets = compose_config(words).data.valid_sets
    for i, name in enumerate(NAMES):
        expected = (None if name == "null" else name, f"./{name}")
        assert (sets[str(i)].source, sets[str(i)].target) == expected


def test_texts_are_still_swept_over() -> None:
    assert quote_text("run_dir=a,b", multirun=True) == "run_dir=a,b"
    assert quote_text("cache=ü,b", multirun=True) == 'cache="ü,b"'
    for text in (r"run_dir=a\,b", "run_dir='a,b'"):  # Hydra's ways to write one with a comma
        assert quote_text(text, multirun=True) == text
