"""The card of a model, as the Hugging Face hub reads it."""

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from huggingface_hub import ModelCard

from seq2seq.cli.main import main
from seq2seq.files import read_manifest
from seq2seq.report.card import CardScores, replace_scores
from seq2seq.report.run_report import make_report
from seq2seq.run.folder import find_model
from seq2seq.run.records import read_metrics
from seq2seq.score import Score


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


def test_the_scores_of_a_tuned_models_card_are_those_of_its_search(
    run: Path, tmp_path: Path, seq2seq_json: Callable
) -> None:
    copy = shutil.copytree(run, tmp_path / "run")
    folder = find_model(copy)
    written = (folder / "README.md").read_text()
    edited = written.replace("## Limits", "## Thanks\n\nTo \\1 all.\n\n## Limits")
    (folder / "README.md").write_text(edited)
    before = ModelCard.load(folder / "README.md").data.eval_results
    assert main(["tune", "--model", str(copy), "--beams", "2", "--alphas", "3"]) == 0
    card = ModelCard.load(folder / "README.md")
    texts = ("-s", run.parent / "valid.source", "-r", run.parent / "valid.target")
    scored = seq2seq_json("score", "--model", run, *texts, "--beam", "2", "--alpha", "3")
    scores = {score["name"]: score for score in scored["scores"]}
    names = ("BLEU", "chrF2", "TER")
    for result, old, name in zip(card.data.eval_results, before, names, strict=True):
        assert result.metric_value == pytest.approx(scores[name]["value"], abs=0.005)
        assert result.metric_name == f"{name} {scores[name]['signature']}"
        assert result.metric_args == {"beam_size": 2, "alpha": 3.0}
        assert old.metric_args == {"beam_size": 4, "alpha": 0.6}
        assert f"| {name} | {scores[name]['value']:.2f} |" in card.text
    assert "with beam 2 and alpha 3." in card.text
    # Whatever else its owner has written stays.
    start, end = "## Scores on", "## Data"
    for text in (edited, card.text):
        assert text.count(start) == text.count(end) == 1
    assert card.text.split(start)[0].strip() in edited
    assert edited.endswith(card.text.split(end)[1])
    # The comparison with the paper is that of the search with which the model translates.
    (row,) = [r for r in make_report(copy, []).differences if r.detail == "beam (6.1)"]
    assert row.here == "search.beam_size=2, search.alpha=3.0"


def test_the_card_of_a_mean_has_its_run_and_its_scores_once_it_is_tuned(
    run: Path, tmp_path: Path
) -> None:
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
    assert main(["tune", "--model", str(copy), "--beams", "2", "--alphas", "1"]) == 0
    tuned = ModelCard.load(copy / "averaged" / "README.md")
    assert tuned.data.eval_results[0].metric_args == {"beam_size": 2, "alpha": 1.0}
    before, after = tuned.text.split("## Scores on the validation set")
    assert before + "## Data" + after.split("## Data")[1] == card.text


def test_a_readme_that_is_no_card_stays_as_it_is() -> None:
    scored = CardScores("run", "data", {"valid": [Score("BLEU", 1.0, "tok:13a")]}, 4, 0.6, None)
    for text in ("a readme\n", "---\na: [\n---\n## Data\n", "---\n- a\n---\n## Data\n"):
        assert replace_scores(text.encode(), scored) == text.encode()
