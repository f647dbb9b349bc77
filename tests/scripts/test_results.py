"""The recipes of the table of results, on a little text and for a few steps."""

import gzip
import json
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Result
from tests.toy import TINY_MODEL

CHECKOUT = Path(__file__).parents[2]
SCRIPT = CHECKOUT / "scripts" / "results.py"
NAME = "everyday_captions_en_de"
RECIPES = {path.stem for path in (CHECKOUT / "conf" / "experiment" / "results").glob("*.yaml")}
SMALL = [*TINY_MODEL, "data.tokenizer.vocab_size=80", "device=cpu", "precision=fp32"]
SMALL += ["training.max_steps=4", "training.checkpoint_steps=2", "training.warmup_steps=4"]
SMALL += ["training.source_tokens=100", "training.target_tokens=100"]
SMALL += ["training.micro_batch_tokens=100", "training.checkpoint_minutes=null"]
SMALL += ["search.max_extra_tokens=3", "training.count_longer_side=true"]


@pytest.fixture
def corpora(tmp_path: Path, sentences: list[str]) -> Path:
    """A folder of corpora, in place of the real ones."""
    parts = {"train": sentences[20:], "val": sentences[:10], "valid": sentences[:10]}
    tests = ("test", "test_2016_flickr", "test_2017_flickr", "test_2017_mscoco")
    parts |= dict.fromkeys(tests, sentences[10:20])
    for corpus in ("multi30k", "tatoeba-en-de"):
        (tmp_path / "corpora" / corpus).mkdir(parents=True)
        for part, lines in parts.items():
            for language, text in (("en", lines), ("de", [line[::-1] for line in lines])):
                path = tmp_path / "corpora" / corpus / f"{part}.{language}.gz"
                path.write_bytes(gzip.compress(("\n".join(text) + "\n").encode()))
    return tmp_path / "corpora"


@pytest.fixture
def results() -> dict[str, Any]:
    """What the script defines."""
    return runpy.run_path(str(SCRIPT))


@pytest.fixture
def run(
    results: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Callable[..., Result]:
    """Run the script in this process; its trainings have processes of their own."""
    options = ["--runs", str(tmp_path / "runs"), f"cache={tmp_path / 'cache'}"]
    monkeypatch.setenv("PYTHONPATH", str(CHECKOUT))

    def run_script(*words: str | Path) -> Result:
        monkeypatch.setattr(sys, "argv", [str(SCRIPT), *map(str, words), *options])
        capfd.readouterr()
        code = 0
        try:
            results["main"]()
        except SystemExit as ended:
            code = int(ended.code or 0)
        return Result(code, *capfd.readouterr())

    return run_script


def test_a_result_goes_from_text_to_its_row_and_is_kept(
    corpora: Path,
    tmp_path: Path,
    run: Callable[..., Result],
    seq2seq: Callable[..., Result],
) -> None:
    words = [NAME, corpora, *SMALL]
    (corpora / "tatoeba-en-de" / "test.en.gz").unlink()  # a test set fewer to translate
    done = run(*words)
    assert done.code == 0, done.err
    head, _, row, _, machine, *signatures = done.out.splitlines()
    cells = dict(zip(head.strip("| ").split(" | "), row.strip("| ").split(" | "), strict=True))
    assert (cells["test set"], cells["seeds"]) == ("test_2016_flickr", "1")
    assert machine.startswith("Machine: ")
    folder = tmp_path / "runs" / NAME / f"{NAME}_1"
    source, reference = (corpora / f"multi30k/test_2016_flickr.{side}.gz" for side in ("en", "de"))
    beam, alpha = cells["search"].removeprefix("beam ").split(", alpha ")
    search = ("--beam", beam, "--alpha", alpha)
    scored = seq2seq("score", "--model", folder, "-s", source, "-r", reference, *search, "--json")
    names = ("BLEU", "chrF2", "TER")
    scores = [score for score in json.loads(scored.out)["scores"] if score["name"] in names]
    for score, signature in zip(scores, signatures, strict=True):
        assert cells[score["name"]] == f"{score['value']:.2f}"
        assert signature == f"- {score['name']}: `{score['signature']}`"
    before, page = ((folder / file).read_bytes() for file in ("metrics.jsonl", "report.html"))
    again = run(*words)
    assert again.out == done.out
    assert "nothing to train" in again.err
    assert (folder / "metrics.jsonl").read_bytes() == before
    assert (folder / "report.html").read_bytes() == page
    refused = run(*words, "seed=2")
    assert refused.code == 2
    assert "seed=2: set by this script" in refused.err


def test_every_recipe_has_its_row(results: dict[str, Any]) -> None:
    assert set(results["RESULTS"]) == RECIPES


def test_table_3_has_every_row_with_two_seeds(
    tmp_path: Path, results: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, ...]] = []

    def seq2seq(*words: str, **variables: str) -> str:
        calls.append(words)
        if words[0] == "train":
            assert variables == {"CORPORA": "/corpora"}
            return ""
        assert words[:3] == ("runs", "--format", "json")
        better = {"perplexity": 5.0, "BLEU": 30.5 if "B_dk16" in words[3] else 30.0}
        return json.dumps([better, {"perplexity": 6.0, "BLEU": 30.0}])

    monkeypatch.setitem(results["table_3"].__globals__, "seq2seq", seq2seq)
    page = results["table_3"](tmp_path, Path("/corpora"), ["device=cpu"])
    trainings = [words for words in calls if words[0] == "train"]
    assert len(trainings) == 38
    run = tmp_path / "B_dk16_2"
    words = ("experiment=table3_quarter", "model.d_k=4", "seed=2", f"run_dir={run}", "resume=auto")
    assert ("train", *words, "device=cpu") in trainings
    assert ("runs", "--format", "json", str(tmp_path / "B_dk16_1"), str(run)) in calls
    row = "| B_dk16 | d_k 4 | 5.50 (+0.00) | 5.16 (+0.24) | 30.25 (+0.25) | 25.1 (-0.7) |"
    assert row in page.splitlines()
    assert "| big | d_model 256, d_ff 1024, num_heads 16, dropout 0.3 | not run |" in page


def test_modern_models_have_the_better_rate_and_what_diverged_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script, done = runpy.run_path(str(SCRIPT.with_name("modern.py"))), []

    def outcome(run: Any, **_: Any) -> Any:
        done.append(run)
        best = {"paper": 0.25, "all": 1.0}.get(run.model, 0.5)
        bleu = 30 + (run.model == "all") - abs(run.scale - best) + run.seed
        diverged = run.warm_up == 3 and run.model == "paper"
        return script["Outcome"](*([] if diverged else [bleu, 2.5, 5000.0, 7_000_000, bleu + 1]))

    monkeypatch.setitem(script["main"].__globals__, "outcome", outcome)
    monkeypatch.setattr(sys, "argv", ["", "corpora", "--runs", str(tmp_path)])
    script["main"]()
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[2] == "| paper | 0.25 | 32.50 (32.00, 33.00) | 31.50 | 2.500 | 5,000 | 7,000,000 |"
    assert lines[3].startswith("| norm_position | 1 | 32.00 (31.50, 32.50)")
    assert lines[-1] == "| 3 | diverged | 2.500 |"
    assert len(done) == 6 + 8 * 2 + 2 * 5
