"""The report of a run folder with corrupt, hostile or oddly named files in it."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from seq2seq.cli.main import main
from seq2seq.data.checks import FilterCounts
from seq2seq.errors import UserError
from seq2seq.files import MAX_BYTES
from seq2seq.model_folder import find_model
from seq2seq.report.record import ScoreRecord, read_scores, record_scores
from seq2seq.run.data_record import DataRecord, read_data_record
from seq2seq.score import Score
from tests.report.conftest import copy_run

FIGURES = (
    '{"step": 5, "valid/bleu": 1e308}',
    '{"step": 6, "valid/bleu": -1e308}',
    '{"step": 7, "valid/bleu": NaN, "valid/perplexity": Infinity}',
    '{"step": 8, "valid/bleu": 5e-324}',
    '{"step": -9, "</style><script>/bleu": 1, "valid/\\ud800\\u202e/bleu": 1}',
)


@pytest.mark.posix
def test_no_figure_of_a_corrupt_run_keeps_its_page_from_being_written(
    run: Path, tmp_path: Path
) -> None:
    copy, precious = shutil.copytree(run, tmp_path / "run"), tmp_path / "precious"
    (copy / "metrics.jsonl").write_text("\n".join(FIGURES))
    (copy / "data.json").write_text('{"counts": {"train": {"read": "many"}}}')
    (copy / "report.html").unlink(missing_ok=True)
    precious.write_text("years of work")
    (copy / "report.html").symlink_to(precious)
    assert main(["report", str(copy)]) == 0
    assert precious.read_text() == "years of work"
    page = (copy / "report.html").read_text()
    assert "<script" not in page
    assert "\u202e" not in page
    assert "The run has no record of its data." in page


def test_json_is_strict_whatever_the_figures_and_the_names_are(
    run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    copy = shutil.copytree(run, tmp_path / 'run "é')
    (copy / "metrics.jsonl").write_text("\n".join(FIGURES))
    assert main(["report", str(copy), "--json"]) == 0

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    report = json.loads(capfd.readouterr().out, parse_constant=refuse)
    assert report["run"] == copy.name
    assert report["curves"]["valid/bleu"] == [[8, 5e-324]]


@pytest.mark.skipif(sys.platform != "linux", reason="names of any bytes are Linux's")
def test_the_name_of_an_output_is_printed_byte_for_byte(run: Path, tmp_path: Path) -> None:
    output = os.fsencode(tmp_path) + b"/mean\xff"
    command = [sys.executable, "-m", "seq2seq", "average", "--model", run, "--last", "1"]
    done = subprocess.run([*command, "-o", output], capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, output + b"\n", b"")


@pytest.mark.skipif(not shutil.which("localedef"), reason="needs localedef, which makes locales")
def test_it_is_printed_so_where_names_are_not_in_utf_8(run: Path, tmp_path: Path) -> None:
    made = ["localedef", "-i", "de_DE", "-f", "ISO-8859-1", tmp_path / "de_DE"]
    if subprocess.run(made, capture_output=True).returncode:
        pytest.skip("this system has no Latin-1")
    latin = os.environ | {"LOCPATH": str(tmp_path), "LC_ALL": "de_DE", "PYTHONUTF8": "0"}
    output = os.fsencode(tmp_path) + "/Übung".encode("latin-1")
    command = [sys.executable, "-m", "seq2seq", "average", "--model", run, "--last", "1"]
    done = subprocess.run([*command, "-o", output], capture_output=True, env=latin)
    assert (done.returncode, done.stdout, done.stderr) == (0, output + b"\n", b"")


@pytest.mark.parametrize("record", ['{"counts": {"train": {"read": true}}}', '{"warnings": "abc"}'])
def test_a_corrupt_record_of_data_is_no_record(tmp_path: Path, record: str) -> None:
    (tmp_path / "data.json").write_text(record)
    assert read_data_record(tmp_path) is None
    (tmp_path / "data.json").write_text('{"warnings": ["abc"], "of_another_version": [1]}')
    assert read_data_record(tmp_path) == DataRecord(warnings=["abc"])


def test_the_records_of_hundreds_of_sets_are_read_and_more_are_refused(tmp_path: Path) -> None:
    scores = [Score(name, 12.345, "nrefs:1|" + "x" * 70, "y" * 50) for name in "abcde"]
    record = ScoreRecord("best", {"alpha": 0.6}, {f"test/{i}": scores for i in range(300)})
    record_scores(tmp_path, record)
    assert read_scores(tmp_path) == record
    with pytest.raises(UserError, match=r"scores\.json: can't be written: it would have"):
        record_scores(tmp_path, replace(record, model="x" * MAX_BYTES))
    assert read_scores(tmp_path) == record

    dropped = dict.fromkeys(["blank source", "too long"], 12345)
    data = DataRecord(counts={f"{i}": FilterCounts(read=9, dropped=dropped) for i in range(700)})
    (tmp_path / "data.json").write_text(json.dumps(asdict(data), indent=2))
    assert read_data_record(tmp_path) == data


@pytest.mark.posix
def test_validation_text_that_is_a_pipe_is_refused(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy, pipe = shutil.copytree(run, tmp_path / "run"), tmp_path / "pipe"
    os.mkfifo(pipe)
    config = (copy / "config.yaml").read_text()
    (copy / "config.yaml").write_text(config.replace(f"{run.parent}/valid.source", str(pipe)))
    assert main(["report", str(copy)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{pipe}: not a regular file" in line


def test_a_set_that_has_lost_its_text_is_named(
    run: Path, tmp_path: Path, seq2seq: Callable
) -> None:
    blank = tmp_path / "blank"
    blank.write_text("\n" * 5)
    copy = copy_run(run, tmp_path / "run", {"data.test.target": str(blank)})
    result = seq2seq("report", copy)
    assert result.code == 1
    source = run.parent / "test.source"
    assert f"data.test: {source} and {blank}: no pair has text on both sides" in result.err


def test_files_that_a_user_keeps_beside_a_model_are_not_replaced(
    run: Path, tmp_path: Path, seq2seq: Callable
) -> None:
    model = shutil.copytree(find_model(run), tmp_path / "model")
    (model / "notes.txt").write_text("mine")
    result = seq2seq("average", "--model", run, "--last", "1", "-o", model)
    assert (result.code, "holds more than a model (notes.txt)" in result.err) == (1, True)
    assert (model / "notes.txt").read_text() == "mine"
