"""The report of a run: its numbers against the files and the scores that they come from."""

import json
import math
import shlex
import shutil
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from lxml import html
from omegaconf import DictConfig, OmegaConf
from torch.nn import Linear

from seq2seq.cli.hydra import quote_text, register, resource_folder
from seq2seq.cli.main import main
from seq2seq.cli.train import inherit
from seq2seq.cli.training import start_training
from seq2seq.data.corpus import CorpusConfig, Split
from seq2seq.decoding.linking import KnownText, choose_step
from seq2seq.device import Compute
from seq2seq.errors import UsageError, UserError
from seq2seq.machine.processes import OneProcess
from seq2seq.model_folder import find_model, load_model
from seq2seq.paper.details import compare
from seq2seq.report.page import draw_page
from seq2seq.report.record import known_settings, read_scores, train_command
from seq2seq.report.run_report import as_trained, make_report
from seq2seq.report.sets import Overlap, TextSet
from seq2seq.run.config import read_config
from seq2seq.run.records import read_metrics
from seq2seq.run.sessions import read_sessions, this_session
from seq2seq.run.start import describe_initial_model
from tests.report.conftest import copy_run


def table_rows(content: str) -> list[list[str]]:
    rows = html.fromstring(content).iter("tr")
    return [[cell.text_content() for cell in row] for row in rows]


def composed(overrides: list[str]) -> DictConfig:
    """What Hydra makes of a command line."""
    quoted = list(map(quote_text, overrides))
    register(quoted)
    with initialize_config_dir(str(resource_folder("conf")), version_base="1.3"):
        return compose("train", quoted)


def test_training_writes_a_page_that_loads_nothing(run: Path) -> None:
    content = (run / "report.html").read_text()
    page = html.fromstring(content)
    assert page.xpath("//script | //link | //img | //iframe | //@src | //@href | //@srcset") == []
    assert len(page.xpath("//b")) == content.count("<div><b>")  # the tiles' alone
    assert "url(" not in content
    assert len(content) < 1_000_000
    assert "&lt;script&gt;" in content
    assert "\\u202ea\\u0007" in content
    assert "\u202e" not in content
    assert "\u0007" not in content


def test_the_page_has_the_details_that_differ_from_the_paper(run: Path) -> None:
    trained = load_model(find_model(run))
    differing = [row for row in compare(as_trained(trained, read_config(run))) if row.here]
    shown = table_rows((run / "report.html").read_text())
    first = shown.index(["#", "detail", "the paper", "here", "verdict"]) + 1
    found = [row[:2] for row in shown[first : first + len(differing)] if len(row) == 5]
    assert found == [[str(row.number), row.detail] for row in differing] != []


def test_the_page_and_json_agree_with_metrics_and_score(
    run: Path, seq2seq: Callable, seq2seq_json: Callable
) -> None:
    source, reference = (run.parent / f"valid.{side}" for side in ("source", "target"))
    report = seq2seq_json("report", run)
    scores = seq2seq_json("score", "--model", run, "-s", source, "-r", reference)["scores"]
    assert report["sets"][0]["scores"] == scores
    records = list(read_metrics(run / "metrics.jsonl"))
    for name, points in report["curves"].items():
        assert points == [[r["step"], r[name]] for r in records if name in r]
    assert {"train/loss", "valid/bleu", "valid/perplexity"} <= report["curves"].keys()
    content = (run / "report.html").read_text()
    # Not the smoothed loss, which is higher.
    step, perplexity = report["curves"]["train/perplexity"][-1]
    assert f'title="training, with dropout: {math.log(perplexity):.4g} at step {step}"' in content
    (shown,) = [row for row in table_rows(content) if row[:3] == ["valid", "11", "BLEU"]]
    (stated,) = [score for score in scores if score["name"] == "BLEU"]
    assert shown[3] == f"{stated['value']:.2f}"
    assert stated["signature"] in content
    assert report["data"]["counts"]["train"]["read"] == 91
    assert report["ended"] == "at step 4 of 4"
    (row,) = json.loads(seq2seq("runs", run, "--format", "json").out)
    assert (row["steps"], row["minutes"]) == (report["steps"], round(report["minutes"], 1))


def test_lines_are_those_of_the_file_though_blank_pairs_are_left_out(
    run: Path, tmp_path: Path
) -> None:
    for side in ("source", "target"):
        (tmp_path / f"valid.{side}").write_text("\na dog.\n\nthe sea.\n")
    files = {f"data.valid.{side}": str(tmp_path / f"valid.{side}") for side in ("source", "target")}
    valid, *_ = make_report(copy_run(run, tmp_path / "run", files), ()).sets
    assert {sample.line for sample in valid.samples} == {2, 4}
    assert {line.line for line in valid.warning_lines} <= {2, 4}


def test_a_long_line_is_no_sample(run: Path, tmp_path: Path, seq2seq_json: Callable) -> None:
    long = " ".join(f"<i>word{i}" for i in range(20_000))
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_text("a man sees the sea.\n" * 3)
    target.write_text(f"a man\n{long}\nthe sea\n")
    (one,) = seq2seq_json("report", run, "--test", source, target)["sets"]
    assert {sample["line"] for sample in one["samples"]} == {1, 3}
    assert "TER is skipped: line 2 has 20,000 words" in one["without_ter"]


def test_the_command_trains_with_the_same_configuration(run: Path) -> None:
    config = read_config(run)
    config.data.corpora["back"] = CorpusConfig(pairs="a b's, {c}=1.tsv", weight=0.5, tag="<bt>")
    config.training.max_steps = None
    config.training.patience = 3
    config.compile = True
    config.resume = "auto"
    name, command, *overrides = shlex.split(train_command(config))
    assert (name, command) == ("seq2seq", "train")
    again = replace(config, run_dir=None, cache=None, resume=False)
    assert OmegaConf.to_object(composed(overrides)) == again


def test_secrets_of_urls_are_in_no_record(run: Path) -> None:
    config = read_config(run)
    config.data.train.source = "https://anna:a%21b@example.org/a.en?v=1&access_token=a!b#c"
    config.data.valid.source = "s3://bucket/a@b.en"
    for text in (train_command(config), *map(str, known_settings(config).values())):
        assert "a!b" not in text
        assert "a%21b" not in text
    known = known_settings(config)
    assert known["data.train.source"] == "https://***@example.org/a.en?v=1&access_token=***#c"
    assert known["data.valid.source"] == config.data.valid.source
    session = this_session(
        "seq2seq train data.train.source=https://a:b@c/d",
        Compute(),
        Linear(1, 1),
        step=0,
        processes=1,
    )
    assert session.command == "seq2seq train data.train.source=https://***@c/d"


def test_the_command_of_a_run_with_an_initial_model_trains_with_the_same_configuration(
    run: Path,
) -> None:
    config = replace(read_config(run), init_from=str(run), run_dir=None, cache=None)
    config.data.tokenizer.sampling = 0.1
    initial, config.init_sha256 = describe_initial_model(config, run / "new")
    # Else the default dropout would be taken for one that nobody has chosen.
    initial.model.config = replace(initial.model.config, dropout=0.3)
    overrides = shlex.split(train_command(config))[2:]
    chosen = composed(overrides)
    inherit(chosen, initial, overrides)
    chosen.init_sha256 = config.init_sha256
    assert OmegaConf.to_object(chosen) == config
    reverse = (initial.target_language, initial.source_language)
    chosen.data.source_language, chosen.data.target_language = reverse
    with pytest.raises(UsageError, match=f"translates from {reverse[1]} to {reverse[0]}"):
        inherit(chosen, initial, overrides)


def test_the_page_has_the_sessions_with_the_command_that_was_typed(run: Path) -> None:
    (session,) = read_sessions(run)
    name, command, *words = shlex.split(session.command)
    assert (name, command) == ("seq2seq", "train")
    assert {"data=files", "training.max_steps=4", f"run_dir={run}"} <= set(words)
    assert session.folder == json.loads((run / "data.json").read_text())["folder"]
    program = f"{session.program}, Python {session.python}"
    shown = [session.started, "0", program, session.machine, "fp32", session.command]
    assert shown in table_rows((run / "report.html").read_text())


def test_lengths_are_those_of_the_encoded_text(run: Path) -> None:
    lengths = json.loads((run / "data.json").read_bytes())["lengths"]
    tokenizer = load_model(run / "best").tokenizer
    for column, side in enumerate(("source", "target"), start=1):
        encoded = tokenizer.encode((run.parent / f"train.{side}").read_text().splitlines())
        # The end symbol counts on both sides; of 91 lines, the percentiles are lines.
        expected = sorted(len(ids) + 1 for ids in encoded)
        assert len(expected) == 91
        for percentile, *tokens in lengths:
            assert tokens[column - 1] == expected[round(0.9 * percentile)], percentile
    shown = table_rows((run / "report.html").read_text())
    assert ["source", *(f"{tokens:,}" for _, tokens, _ in lengths)] in shown


def test_the_best_validation_is_that_of_the_model_that_was_kept(run: Path, tmp_path: Path) -> None:
    more = {"more": asdict(read_config(run).data.valid)}
    settings = {"data.valid_sets": more, "training.select": "mean"}
    copy = copy_run(run, tmp_path / "run", settings)
    validations = [
        {"step": 2, "valid/bleu": 30.0, "valid/more/bleu": 10.0, "valid/mean/bleu": 20.0},
        {"step": 4, "valid/bleu": 28.0, "valid/more/bleu": 20.0, "valid/mean/bleu": 24.0},
    ]
    lines = "".join(f"{json.dumps(record)}\n" for record in validations)
    (copy / "metrics.jsonl").write_text(lines)
    report = make_report(copy, [])
    assert report.best == validations[1]
    assert "BLEU 28.00 (valid), 20.00 (more), 24.00 (mean) at step 4." in draw_page(report)
    assert [one.name for one in report.sets] == ["valid", "more", "test"]
    assert report.sets[0].scores == report.sets[1].scores


def test_the_model_that_a_training_ends_with_is_scored_on_its_test_sets(
    run: Path, tmp_path: Path, seq2seq_json: Callable
) -> None:
    source, reference = (run.parent / f"test.{side}" for side in ("source", "target"))
    scores = seq2seq_json("score", "--model", run, "-s", source, "-r", reference)["scores"]
    record = read_scores(run)
    assert record.model == find_model(run).name
    assert list(record.sets) == ["valid", "test"]
    assert list(map(asdict, record.sets["test"])) == scores
    bleu = scores[0]
    log = (run / "train.log").read_text()
    assert f"test: BLEU {bleu['value']:.2f} ({bleu['signature']}), chrF2 " in log
    rows = [row for row in table_rows((run / "report.html").read_text()) if row[0] == "test"]
    assert [row[2] for row in rows] == [score["name"] for score in scores]

    # A report records them again, with a set that was added; a new mean has none.
    more = {
        f"data.{key}.{side}": str(path)
        for key in ("test_sets.other", "valid_sets.test")  # any set may have any name
        for side, path in (("source", source), ("target", reference))
    }
    copy = copy_run(run, tmp_path / "run", more)
    (copy / "scores.json").write_text("corrupt")
    assert read_scores(copy) is None
    assert main(["report", str(copy)]) == 0
    assert list(read_scores(copy).sets) == ["valid", "valid/test", "test", "test/other"]
    assert read_scores(copy).sets["test/other"] == record.sets["test"]
    assert main(["average", "--model", str(copy), "--last", "1"]) == 0
    assert read_scores(copy) is None


def test_a_mean_aligns_without_the_test_sets(run: Path, tmp_path: Path) -> None:
    copy = copy_run(run, tmp_path / "run", {"data.test.source": str(tmp_path / "gone")})
    assert main(["average", "--model", str(copy), "--last", "1"]) == 0
    assert load_model(copy / "averaged").alignment is not None


def test_lines_that_are_in_the_training_text_are_counted(run: Path, tmp_path: Path) -> None:
    first, second = list(Split(read_config(run).data, "train").pairs())[:2]
    new = "not there"
    sources = [first.source, first.source, new, second.source]
    references = [first.target, new, second.target, first.target]
    report = make_report(run, [TextSet("mixed", sources, references)])
    (one,) = report.sets
    assert one.overlap == Overlap(among="the 91 training pairs", sources=3, references=3, pairs=1)
    copy = copy_run(run, tmp_path / "run", {"data.train.source": "nowhere"})
    assert "it can't be read: nowhere" in draw_page(make_report(copy, []))


def test_a_run_that_has_not_ended_says_how_far_it_is(run: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(run, tmp_path / "run")
    (copy / "finished.json").unlink()
    assert "Training ended: not yet, 4 steps are saved." in draw_page(make_report(copy, []))
    for folder in ("best", "averaged", "checkpoints"):
        shutil.rmtree(copy / folder, ignore_errors=True)
    with pytest.raises(UserError, match="its training has saved none yet"):
        make_report(copy, [])


def test_a_report_that_cannot_be_written_ends_no_training_badly(
    run: Path, tmp_path: Path, warned: list[str]
) -> None:
    copy = shutil.copytree(run, tmp_path / "run")
    (copy / "finished.json").unlink()
    (copy / "report.html").unlink()
    (copy / "report.html" / "in_the_way").mkdir(parents=True)
    start_training(replace(read_config(copy), resume=True), copy, "", OneProcess())
    assert "report.html: not written: " in "\n".join(warned)
    assert (copy / "finished.json").exists()


def test_models_of_a_run_align_where_its_validation_text_says(run: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(run, tmp_path / "run")
    shutil.rmtree(copy / "averaged", ignore_errors=True)
    assert main(["average", "--model", str(copy), "--last", "2"]) == 0
    texts = [
        (run.parent / f"valid.{side}").read_text().splitlines() for side in ("source", "target")
    ]
    for folder in (copy / "best", copy / "averaged"):
        trained = load_model(folder)
        assert trained.alignment == choose_step(trained, KnownText(*texts))
