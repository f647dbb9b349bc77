"""`seq2seq tune`: its table against `score`, and what it leaves in the model folder."""

import shutil
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf

from seq2seq.cli.guests import start_training
from seq2seq.errors import UserError
from seq2seq.files import add_file, manifest_sum
from seq2seq.machine.processes import Processes
from seq2seq.model_folder import TunedSearch, load_model, read_search, save_model, save_search
from seq2seq.run.folder import find_model
from tests.models import perturb
from tests.report.conftest import copy_run
from tests.toy import toy_config


@pytest.fixture(scope="module")
def trained(sentences: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four steps, with random numbers on its weights: outputs depend on the search."""
    folder = tmp_path_factory.mktemp("tune")
    config = toy_config(folder, sentences)
    yaml = OmegaConf.to_yaml(OmegaConf.structured(config))
    start_training(config, folder / "run", yaml, Processes())
    model = load_model(find_model(folder / "run"))
    torch.manual_seed(1)
    perturb(model.model)
    save_model(find_model(folder / "run"), model)
    return folder / "run"


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A copy of a run, to be tuned."""
    return Path(shutil.copytree(trained, tmp_path / "run"))


@pytest.fixture
def text(run: Path, trained: Path) -> list[str | Path]:
    sides = [trained.parent / f"valid.{side}" for side in ("source", "target")]
    return ["-s", sides[0], "-r", sides[1]]


@pytest.mark.parametrize("metric", ["bleu", "chrf"])
def test_the_table_has_the_scores_of_score(
    metric: str, run: Path, text: list[str | Path], seq2seq: Callable, seq2seq_json: Callable
) -> None:
    before = manifest_sum(find_model(run))
    # The references are the outputs of one search, so that this search is the best.
    sources, references = run / "sources", run / "references"
    sources.write_text(Path(text[1]).read_text() + "42\n\n")  # lines that no search translates
    search = ("--alpha", "3", "--beam", "3")
    seq2seq("translate", "--model", run, "-i", sources, *search, "-o", references)
    text = ["-s", sources, "-r", references, "--tokenize", "char"]
    words = ["--beams", "1,3", "--alphas", "0,0.6,3", "--dry-run"]
    tuned = seq2seq_json("tune", "--model", run, *text, *words, "--select-by", metric)
    tried = [(trial["beam_size"], trial["alpha"]) for trial in tuned["trials"]]
    assert tried == list(product((1, 3), (0.0, 0.6, 3.0)))
    for (beam, alpha), trial in zip(tried, tuned["trials"], strict=True):
        search = ["--beam", beam, "--alpha", alpha]
        bleu, chrf, *_ = seq2seq_json("score", "--model", run, *text, *search)["scores"]
        found = {"bleu": bleu, "chrf": chrf}[metric]
        for key, field in (("name", "metric"), ("value", "value"), ("signature", "signature")):
            assert trial[field] == found[key]
        assert f"length {trial['length_ratio']:.3f}" in bleu["detail"]
    assert tuned["best"]["value"] == max(t["value"] for t in tuned["trials"]) > 99
    assert len({t["value"] for t in tuned["trials"]}) > 1
    assert tuned["written"] is None
    assert manifest_sum(find_model(run)) == before


def test_the_choice_is_the_default_of_the_model_and_options_override_it(
    run: Path, text: list[str | Path], seq2seq: Callable, seq2seq_json: Callable
) -> None:
    plain = seq2seq("translate", "--model", run, "-i", text[1], "--scores").out
    add_file(find_model(run), "README.md", b"a card\n")
    result = seq2seq("tune", "--model", run, "--beams", "3", "--alphas", "2")
    assert result.code == 0, result.err
    assert f"written: {find_model(run)}" in result.out
    assert read_search(find_model(run)) == TunedSearch(3, 2.0)
    assert (find_model(run) / "README.md").read_text() == "a card\n"

    def translate(*words: str) -> str:
        return seq2seq("translate", "--model", run, "-i", text[1], "--scores", *words).out

    assert translate() == translate("--beam", "3", "--alpha", "2") != plain
    assert translate("--alpha", "0.6") == translate("--beam", "3", "--alpha", "0.6")
    assert translate("--beam", "4", "--alpha", "0.6") == plain
    ensemble = ["--model", str(run / "best")]
    assert translate(*ensemble) == translate(*ensemble, "--beam", "4", "--alpha", "0.6")
    assert seq2seq_json("report", run)["search"] == {"beam_size": 3, "alpha": 2.0}


def test_the_best_is_that_by_the_measure_of_the_run(
    trained: Path, tmp_path: Path, seq2seq_json: Callable
) -> None:
    run = copy_run(trained, tmp_path / "chrf", {"training.select_by": "chrf"})
    words = ["--beams", "1", "--alphas", "1", "--dry-run"]
    assert seq2seq_json("tune", "--model", run, *words)["best"]["metric"] == "chrF2"


def test_files_that_a_user_keeps_beside_a_model_are_not_replaced(
    run: Path, tmp_path: Path, seq2seq: Callable
) -> None:
    model = tmp_path / "model"
    shutil.copytree(find_model(run), model)
    (model / "notes.txt").write_text("mine")
    (tmp_path / "text").write_text("a dog\n")
    for command in (
        ["tune", "--model", model, "-s", tmp_path / "text", "-r", tmp_path / "text"],
        ["average", "--model", run, "--last", "1", "-o", model],
    ):
        result = seq2seq(*command)
        assert result.code == 1
        assert "holds more than a model (notes.txt)" in result.err
    assert (model / "notes.txt").read_text() == "mine"


def test_a_model_that_is_replaced_meanwhile_is_left_as_it_is(run: Path) -> None:
    folder = find_model(run)
    before = manifest_sum(folder)
    add_file(folder, "README.md", b"another\n")
    with pytest.raises(UserError, match="replaced while it was tuned"):
        save_search(folder, TunedSearch(2, 1.0), before)
    assert load_model(folder).search is None


def test_scores_are_shown_even_if_the_model_can_t_be_written(
    run: Path, seq2seq: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise UserError("the disk is full")

    monkeypatch.setattr("seq2seq.cli.tune._write", fail)
    result = seq2seq("tune", "--model", run, "--beams", "1", "--alphas", "1")
    assert result.code == 1
    assert "the disk is full" in result.err
    assert "best: beam 1" in result.out
    assert "nothing written" in result.out
