"""A whole run of an own class, named on the command line: trained, resumed, used, reported."""

import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from seq2seq.cli.model_class import import_class
from seq2seq.decoding.resume import made_by
from seq2seq.decoding.translator import Translator
from seq2seq.errors import UsageError
from seq2seq.model_folder import checkpoints, load_model
from seq2seq.run.config import read_config
from tests.cli.conftest import overrides
from tests.own_model import GATED, in_folder
from tests.toy import weights

NAME = "gated.GatedTransformer"
OPTION = ("--model-class", NAME)


@pytest.fixture(scope="module")
def run(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four steps, stopped after two of them and resumed by the same command."""
    from seq2seq.cli.main import main

    folder = tmp_path_factory.mktemp("own")
    with pytest.MonkeyPatch.context() as patch:
        in_folder(folder, patch, "gated", GATED)
        for steps in (2, 4):
            assert main(own_words(corpus, folder / "run", steps)) == 0
    return folder / "run"


def own_words(corpus: Path, run: Path, steps: int) -> list[str]:
    words = ["train", *overrides(corpus), f"model_class={NAME}", f"run_dir={run}", "resume=auto"]
    words += ["training.checkpoint_steps=1", "training.average_checkpoints=2"]
    return [*words, f"training.max_steps={steps}", "training.validate_mean=true"]


@pytest.fixture(autouse=True)
def current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_folder(tmp_path, monkeypatch, "gated", GATED)


def test_a_run_is_resumed_averaged_and_described(
    run: Path, corpus: Path, tmp_path: Path, seq2seq: Callable
) -> None:
    assert read_config(run).model_class == NAME
    log = (run / "train.log").read_text()
    assert "continuing from" in log
    assert "mean of the last 2 checkpoints" in log
    assert "not written" not in log
    card = (run / "best" / "README.md").read_text()
    assert f"model of the class {NAME}, not the paper's" in card.replace("\\", "")
    assert f"model_class={NAME}" in card
    assert f"seq2seq translate --model FOLDER --model-class {NAME} <" in card
    page = (run / "report.html").read_text()
    assert page.count(f"own model class {NAME}</td><td>not the paper") == 14
    whole = tmp_path / "whole"
    assert seq2seq(*own_words(corpus, whole, 4)).code == 0
    pairs = zip(checkpoints(run)[-2:], checkpoints(whole)[-2:], strict=True)
    for resumed, uninterrupted in pairs:
        torch.testing.assert_close(weights(resumed), weights(uninterrupted), rtol=0, atol=0)


def test_a_resumed_run_says_that_its_class_has_changed(
    run: Path, corpus: Path, tmp_path: Path, seq2seq: Callable
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    line = "the files with the classes of the model have changed since its last start"
    for code, steps in ((GATED, 5), (GATED.replace("sigmoid", "tanh"), 6), (GATED, 7)):
        (tmp_path / "gated.py").write_text(code)
        sys.modules.pop("gated", None)
        result = seq2seq(*own_words(corpus, copy, steps))
        assert result.code == 0, result.err
        assert (line in result.err) == (steps > 5)


def test_a_translation_goes_on_with_the_code_of_the_class_that_began_it(
    run: Path, tmp_path: Path
) -> None:
    made = []
    for code in (GATED, GATED, GATED.replace("sigmoid", "tanh")):
        (tmp_path / "gated.py").write_text(code)
        sys.modules.pop("gated", None)
        translator = Translator.load(run, model_class=import_class(NAME))
        made.append(made_by([str(run)], translator.options, translator))
    assert made[0] == made[1] != made[2]


def test_the_settings_of_a_run_name_no_class_to_import(
    run: Path, corpus: Path, seq2seq: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    without = [word for word in own_words(corpus, run, 5) if "model_class" not in word]
    other = [*without, "model_class=gated.OtherTransformer"]
    alone = ["train", f"run_dir={run}", "resume=true", "training.max_steps=5"]
    for words in (without, alone, other):
        result = seq2seq(*words)
        assert result.code == 1
        assert f"is a model of the class {NAME}" in result.err.splitlines()[-1]
        assert f"model_class={NAME})" in result.err.splitlines()[-1]
        if words is not other:
            assert "gated" not in sys.modules
    assert checkpoints(run)[-1].name.endswith("4")


def test_every_command_reads_an_own_class_by_its_name_alone(
    run: Path, corpus: Path, tmp_path: Path, seq2seq: Callable
) -> None:
    source, target = corpus / "test.source", corpus / "test.target"
    output = tmp_path / "output"
    commands: dict[str, list[str | Path]] = {
        "translate": ["--model", run, "-i", source, "-o", output],
        "score": ["--model", run, "-s", source, "-r", target],
        "rescore": ["--model", run, "-s", source, "-i", target],
        "attention": ["--model", run, "--source", "one two", "--json"],
        "fidelity": ["--model", run],
        "average": ["--model", run, "--last", "2", "-o", tmp_path / "mean"],
        "report": [run, "-o", tmp_path / "page.html"],
    }
    for command, words in commands.items():
        refused = seq2seq(command, *words)
        assert refused.code == 1, command
        assert len(refused.err.splitlines()) == 1, refused.err
        assert f"is a model of the class {NAME}: if" in refused.err
        assert "gated" not in sys.modules
    for command, words in commands.items():
        result = seq2seq(command, *words, *OPTION)
        assert result.code == 0, result.err
        if command == "fidelity":
            assert result.out.splitlines()[-1].startswith("27 details: 14 not the paper's")
    kind = import_class(NAME)
    translator = Translator.load(run, model_class=kind)
    lines = source.read_text().splitlines()
    assert output.read_text().splitlines() == [t.text for t in translator.translate(lines)]
    one, other = map(weights, checkpoints(run)[-2:])
    mean = {name: ((one[name].double() + other[name]) / 2).float() for name in one}
    torch.testing.assert_close(weights(tmp_path / "mean"), mean, rtol=0, atol=0)
    assert type(load_model(tmp_path / "mean", kind).model) is kind


def test_an_option_that_no_model_needs_is_refused(
    run: Path, model: Path, tmp_path: Path, seq2seq: Callable
) -> None:
    (tmp_path / "source").write_text("one two\n")
    words = ["translate", "-i", tmp_path / "source"]
    for models, option, line in (
        ([model], OPTION, f"--model-class {NAME}: no model here is of this class: remove it"),
        ([run], ("--model-class", "gated.OtherTransformer"), f"is a model of the class {NAME}: if"),
        ([run], (*OPTION, "--model-class", "gated.OtherTransformer"), "OtherTransformer: no model"),
    ):
        result = seq2seq(*words, *(w for model in models for w in ("--model", model)), *option)
        assert result.code in (1, 2)
        assert line in result.err
    for words, line in (
        (("score", "-i", "x", "-r", "y", *OPTION), "--model-class is for --model"),
        (("fidelity", *OPTION), "--model-class is for --model"),
        (("export", "--model", run, "--to", "marian", "-o", "new"), "which no other program"),
    ):
        assert line in seq2seq(*words).err


def test_training_refuses_a_name_that_is_no_class_of_models(
    train: Callable, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    result = train(f"run_dir={run}", "model_class=gated.GatedFeedForward")
    assert result.code == 2
    assert re.search(r"model_class=gated.GatedFeedForward: .*gated.py has no class", result.err)
    assert not run.exists()


def test_a_folder_in_place_of_its_module_is_named(tmp_path: Path) -> None:
    (tmp_path / "own_models").mkdir()
    with pytest.raises(UsageError, match=r"own_models\.MyTransformer: own_models has no class"):
        import_class("own_models.MyTransformer")
