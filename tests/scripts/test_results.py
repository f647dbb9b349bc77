"""The recipes of the table of results, on a little text and for a few steps."""

import gzip
import json
import os
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from seq2seq.cli.main import main
from tests.toy import TINY_MODEL

CHECKOUT = Path(__file__).parents[2]
SCRIPT = CHECKOUT / "scripts" / "results.py"
RECIPES = {path.stem for path in (CHECKOUT / "conf" / "experiment" / "results").glob("*.yaml")}
SMALL = [*TINY_MODEL, "data.tokenizer.vocab_size=80"]
SMALL += ["training.max_steps=4", "training.checkpoint_steps=2"]
SMALL += ["training.source_tokens=100", "training.target_tokens=100", "training.warmup_steps=4"]
SMALL += ["training.micro_batch_tokens=100", "training.checkpoint_minutes=null", "device=cpu"]
SMALL += ["precision=fp32"]
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


def run(*words: str | Path, cache: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, SCRIPT, *map(str, words), f"cache={cache}"],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(CHECKOUT)},
        check=False,
    )


def test_a_result_goes_from_text_to_its_row_and_is_kept(
    corpora: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "everyday_captions_en_de"
    words = [name, corpora, "--runs", tmp_path / "runs", *SMALL]
    done = run(*words, cache=tmp_path / "cache")
    assert done.returncode == 0, done.stderr
    head, _, *rows, _, machine, bleu, chrf, ter = done.stdout.splitlines()
    titles = head.strip("| ").split(" | ")
    found = [dict(zip(titles, row.strip("| ").split(" | "), strict=True)) for row in rows]
    cells = {row["test set"]: row for row in found}
    assert list(cells) == ["tatoeba", "test_2016_flickr"]
    folder = tmp_path / "runs" / name / f"{name}_1"
    texts = [corpora / "multi30k" / f"test_2016_flickr.{side}.gz" for side in ("en", "de")]
    capsys.readouterr()
    score = ["score", "--model", str(folder), "-s", str(texts[0]), "-r", str(texts[1]), "--json"]
    assert main(score) == 0
    scores = {s["name"]: s for s in json.loads(capsys.readouterr().out)["scores"]}
    for line, metric in ((bleu, "BLEU"), (chrf, "chrF2"), (ter, "TER")):
        assert cells["test_2016_flickr"][metric] == f"{scores[metric]['value']:.2f}"
        assert line == f"- {metric}: `{scores[metric]['signature']}`"
    assert {row["seeds"] for row in found} == {"1"}
    assert machine.startswith("Machine: ")
    before, page = ((folder / file).read_bytes() for file in ("metrics.jsonl", "report.html"))
    (folder / "report.html").write_text("older than the search")
    os.utime(folder / "report.html", (0, 0))
    again = run(*words, cache=tmp_path / "cache")
    assert again.stdout == done.stdout
    assert "nothing to do" in again.stderr
    assert (folder / "metrics.jsonl").read_bytes() == before
    assert (folder / "report.html").read_bytes() == page
    refused = run(*words, "seed=2", cache=tmp_path / "cache")
    assert refused.returncode == 2
    assert "seed=2: set by this script" in refused.stderr


def test_test_sets_are_those_of_the_languages_of_the_run(
    corpora: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script: Any = runpy.run_path(str(SCRIPT))
    languages = "{source_language: de, target_language: en}"
    (tmp_path / "config.yaml").write_text(f"data: {languages}\n")
    missing = corpora / "multi30k" / "test_2017_mscoco.en.gz"
    missing.unlink()
    found = script["test_files"](script["RESULTS"]["multi30k_raw"], tmp_path, corpora)
    assert found == {
        name: tuple(corpora / "multi30k" / f"{name}.{language}.gz" for language in ("de", "en"))
        for name in ("test_2016_flickr", "test_2017_flickr")
    }
    line = f"test_2017_mscoco is left out: no file {missing}"
    assert capsys.readouterr().err.splitlines() == [line]


def test_a_training_that_fails_ends_the_script_with_its_line(tmp_path: Path) -> None:
    done = run("multi30k_raw", tmp_path / "nowhere", "--runs", tmp_path, cache=tmp_path)
    assert done.returncode == 1
    assert "nowhere/multi30k/train.en.gz" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGUSR1])
def test_a_signal_lets_the_training_save(
    corpora: Path, tmp_path: Path, number: signal.Signals
) -> None:
    folder = tmp_path / "runs" / "multi30k_raw" / "multi30k_raw_1"
    words = ["multi30k_raw", corpora, "--runs", tmp_path / "runs", *SMALL]
    words += ["training.max_steps=100000", f"cache={tmp_path}", "training.max_minutes=null"]
    with subprocess.Popen(
        [sys.executable, SCRIPT, *map(str, words)],
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(CHECKOUT)},
        start_new_session=True,
    ) as process:
        while process.poll() is None and not (folder / "best").exists():
            time.sleep(0.1)
        os.killpg(process.pid, number)  # as a terminal does
        _, err = process.communicate(timeout=120)
    assert process.returncode == 128 + number
    assert b"stopped and saved" in err.splitlines()[-1]


def test_every_recipe_has_its_row(tmp_path: Path) -> None:
    named = run("--help", cache=tmp_path).stdout.partition("{")[2].partition("}")[0]
    assert {name.strip() for name in named.split(",")} == RECIPES | {"table3"}


def test_table_3_has_every_row_with_two_seeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results: Any = runpy.run_path(str(SCRIPT))
    calls: list[tuple[str, ...]] = []

    def seq2seq(*words: str, **variables: str) -> str:
        calls.append(words)
        assert words[0] == "table3" or variables == {"CORPORA": "/corpora"}
        return "the table\n"

    monkeypatch.setitem(results["table_3"].__globals__, "seq2seq", seq2seq)
    assert results["table_3"](tmp_path, Path("/corpora"), ["device=cpu"]) == "the table\n"
    *trainings, table_3 = calls
    assert len(trainings) == 38
    run = tmp_path / "B_dk16_2"
    words = ("experiment=table3_quarter", "model.d_k=4", "seed=2", f"run_dir={run}", "resume=auto")
    assert ("train", *words, "device=cpu") in trainings
    folders = [word.removeprefix("run_dir=") for words in trainings for word in words[2:-2]]
    assert set(table_3[1:]) <= set(folders)
    assert str(run) in table_3
