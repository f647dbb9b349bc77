"""The card of a model, as the Hugging Face hub reads it."""

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
from huggingface_hub import ModelCard

from seq2seq.cli.main import main
from seq2seq.files import read_manifest
from seq2seq.model_folder import find_model
from seq2seq.report.card import ModelFacts, facts_of_run, model_card
from seq2seq.report.record import record_average
from seq2seq.report.run_report import make_report
from seq2seq.run.folder import RunFolder
from seq2seq.run.sessions import add_session, read_sessions
from seq2seq.score import bleu


def test_the_scores_of_the_card_are_those_of_the_model(run: Path, seq2seq_json: Callable) -> None:
    assert "README.md" in read_manifest(find_model(run))
    card = ModelCard.load(find_model(run) / "README.md")
    assert card.data.license == "cc-by-4.0"
    assert card.data.pipeline_tag == "translation"
    assert card.data.eval_results[0].metric_args == {"beam_size": 4, "alpha": 0.6}
    results = iter(card.data.eval_results)
    for split, words in (("valid", "validation"), ("test", "test")):
        texts = ("-s", run.parent / f"{split}.source", "-r", run.parent / f"{split}.target")
        scored = seq2seq_json("score", "--model", run, *texts)["scores"]
        scores = {score["name"]: score for score in scored}
        for result, name in zip(islice(results, 3), ("BLEU", "chrF2", "TER"), strict=True):
            assert result.dataset_split == words
            assert result.metric_value == pytest.approx(scores[name]["value"], abs=0.005)
            assert result.metric_name == f"{name} {scores[name]['signature']}"
            assert f"| {words} | {name} | {scores[name]['value']:.2f} |" in card.text
    assert next(results, None) is None
    assert "with beam 4 and alpha 0.6." in card.text


def test_only_the_card_of_the_model_that_translated_has_its_scores(
    run: Path, tmp_path: Path
) -> None:
    """With a mean, that is the mean; without one, the best checkpoint."""
    copy = shutil.copytree(run, tmp_path / "run")
    shutil.rmtree(copy / "averaged", ignore_errors=True)
    alone = make_report(copy, [], device="cpu")
    assert main(["average", "--model", str(copy), "--last", "2"]) == 0
    beside_mean = make_report(copy, [], device="cpu")
    for report, of_best, of_mean in ((alone, True, False), (beside_mean, False, True)):
        scores = [s for each in report.sets for s in each.scores if s.name in ("BLEU", "chrF2")]
        assert scores
        for averaged, has_scores in ((0, of_best), (2, of_mean)):
            facts = facts_of_run(report, averaged=averaged)
            found = [score for _, score in facts.scores if score.name in ("BLEU", "chrF2")]
            assert found == (scores if has_scores else [])
            assert (facts.output_warnings is not None) == has_scores


def test_the_number_of_checkpoints_of_a_mean_is_recorded(tmp_path: Path) -> None:
    finished = RunFolder(tmp_path).finished
    finished.write_text('{"ended": "max_steps", "averaged": 5}')
    record_average(tmp_path, 2)
    assert RunFolder(tmp_path).read_finished() == {"ended": "max_steps", "averaged": 2}


def test_the_hub_tells_the_sets_apart() -> None:
    score, names = bleu(["the sea"], [["the sea"]]), ("valid", "news", "test", "test/old")
    config = {"data.name": "own", "search.beam_size": 4, "search.alpha": 0.6}
    scores = [(name, score) for name in names]
    card = ModelCard(model_card(ModelFacts("m", "en", ["de"], 1, "", config=config, scores=scores)))
    found = [(x.dataset_split, x.dataset_config) for x in card.data.eval_results]
    assert found == [
        ("validation", None), ("validation", "news"), ("test", None), ("test", "old")
    ]  # fmt: skip


def test_the_card_of_a_mean_has_its_run(
    run: Path, tmp_path: Path, first_files: dict[Path, list[str]]
) -> None:
    copy = shutil.copytree(run, tmp_path / "run")
    shutil.rmtree(copy / "averaged", ignore_errors=True)
    (session,) = read_sessions(copy)
    add_session(copy, replace(session, step=3, torch="9.9.9"))
    assert main(["average", "--model", str(copy), "--last", "2"]) == 0
    assert "README.md" in first_files[copy / "averaged"]
    card = ModelCard.load(copy / "averaged" / "README.md")
    assert "the mean of the last 2 checkpoints" in card.text
    assert card.data.license == "cc-by-4.0"
    assert card.data.eval_results is None
    assert "Scores" not in card.text
    assert f"Trained by {session.program}, on " in card.text
    assert "Continued from step 3 by seq2seq" in card.text
    assert "torch 9.9.9" in card.text
    recipe, file = "training.max_steps=4", run.parent / "train.source"
    assert recipe in card.text
    assert hashlib.sha256(file.read_bytes()).hexdigest() in card.text


def test_the_recipe_has_noise_corpora_and_the_start_but_no_paths() -> None:
    """The digests of the data's files are on the card already."""
    recipe = {
        "init_sha256": "0123",
        "data.noise.typos": 0.1,
        "data.corpora.back.weight": 0.5,
        "data.corpora.back.tag": "<bt>",
        "data.corpora.de.target_language": "de",
    }
    places = {"init_from": "/home/me/run", "data.corpora.back.source": "/home/me/text"}
    card = model_card(ModelFacts("m", "en", ["de"], 1, "", config=recipe | places))
    assert {f"{key}={value}" for key, value in recipe.items()} <= set(card.splitlines())
    assert "/home/me" not in card
