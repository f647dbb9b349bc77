"""The card of a model, as the Hugging Face hub reads it."""

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from huggingface_hub import ModelCard

from seq2seq.cli.main import main
from seq2seq.files import read_manifest
from seq2seq.run.folder import find_model
from seq2seq.run.records import read_metrics


def test_the_card_reads_as_the_hub_reads_it_and_has_the_metrics_of_the_run(run: Path) -> None:
    best = max(
        (r for r in read_metrics(run / "metrics.jsonl") if "valid/bleu" in r),
        key=lambda record: record["valid/bleu"],
    )
    assert "README.md" in read_manifest(run / "best")
    card = ModelCard.load(run / "best" / "README.md")
    results = card.data.eval_results
    assert card.data.license == "cc-by-4.0"
    assert card.data.pipeline_tag == "translation"
    assert results[0].metric_type == "bleu"
    assert results[0].metric_args == {"beam_size": 4, "alpha": 0.6}
    assert "tok:13a" in results[0].metric_name
    assert results[0].metric_value == pytest.approx(best["valid/bleu"], abs=0.005)


def test_the_scores_of_the_card_are_those_of_the_model(run: Path, seq2seq_json: Callable) -> None:
    card = ModelCard.load(find_model(run) / "README.md")
    texts = ("-s", run.parent / "valid.source", "-r", run.parent / "valid.target")
    scored = seq2seq_json("score", "--model", run, *texts)["scores"]
    scores = {score["name"]: score for score in scored}
    for result, name in zip(card.data.eval_results, ("BLEU", "chrF2", "TER"), strict=True):
        assert result.metric_value == pytest.approx(scores[name]["value"], abs=0.005)
        assert result.metric_name == f"{name} {scores[name]['signature']}"
        assert f"| {name} | {scores[name]['value']:.2f} |" in card.text
    assert "with beam 4 and alpha 0.6." in card.text


def test_the_card_of_a_mean_has_its_run(run: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(run, tmp_path / "run")
    shutil.rmtree(copy / "averaged", ignore_errors=True)
    assert main(["average", "--model", str(copy), "--last", "2"]) == 0
    card = ModelCard.load(copy / "averaged" / "README.md")
    assert "the mean of the last 2 checkpoints" in card.text
    assert card.data.license == "cc-by-4.0"
    assert card.data.eval_results is None
    assert "Scores" not in card.text
    recipe, file = "training.max_steps=4", run.parent / "train.source"
    assert recipe in card.text
    assert hashlib.sha256(file.read_bytes()).hexdigest() in card.text
