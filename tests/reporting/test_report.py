"""The report of a run: its numbers against the files and the scores that they come from."""

import json
import logging
import re
import shlex
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
from huggingface_hub import ModelCard
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from seq2seq.cli.hydra import config_path, quote_texts, register
from seq2seq.cli.main import main
from seq2seq.cli.train import inherit
from seq2seq.config import read_config
from seq2seq.data.config import CorpusConfig
from seq2seq.data.corpus import Split
from seq2seq.data.pair_files import SentencePair
from seq2seq.decoding.translator import Translator
from seq2seq.errors import UserError
from seq2seq.fidelity.report import examine
from seq2seq.reporting.card import facts_of_run, model_card
from seq2seq.reporting.comparison import Attention
from seq2seq.reporting.page import draw_page
from seq2seq.reporting.record import train_command
from seq2seq.reporting.report import (
    RunReport,
    distinct_names,
    load_translator,
    make_report,
    trained_subject,
)
from seq2seq.reporting.sets import (
    OtherSystem,
    Overlap,
    TextSet,
    report_sets,
)
from seq2seq.run.setup import describe_initial_model
from seq2seq.run.training_run import run_training
from seq2seq.storage.checkpoint import checkpoints, find_model, progress_file
from seq2seq.storage.model_folder import load_model
from seq2seq.training.distributed import World
from seq2seq.training.recorder import read_metrics
from tests.reporting.test_parts import OUTPUTS, REFERENCES


class Page(HTMLParser):
    """Collects the tags, the addresses and the rows of tables of a page."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.open: list[str] = []
        self.addresses: list[str | None] = []
        self.rows: list[list[str]] = []
        self.feed(content)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.addresses += [value for name, value in attrs if name in ("src", "href", "srcset")]
        if tag not in ("meta",):
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data


def test_training_writes_a_page_that_is_whole_and_loads_nothing(run: Path) -> None:
    content = (run / "report.html").read_text()
    page = Page(content)
    assert page.addresses == []
    assert not {"script", "link", "img", "iframe"} & page.tags.keys()
    assert page.tags["b"] == content.count("<div><b>")  # the tiles' alone
    assert "url(" not in content
    assert len(content) < 1_000_000
    assert "&lt;script&gt;" in content
    assert "\\u202ea\\u0007" in content
    assert "\u202e" not in content
    assert "\u0007" not in content


def test_the_page_has_the_details_that_differ_from_the_paper(run: Path) -> None:
    rows = examine(trained_subject(run, read_config(run)))
    differing = [row for row in rows if row.finding.differs or row.finding.paper is False]
    shown = Page((run / "report.html").read_text()).rows
    first = shown.index(["#", "detail", "the paper", "here", "verdict"]) + 1
    found = [row[:2] for row in shown[first : first + len(differing)] if len(row) == 5]
    assert found == [[str(row.number), row.detail.name] for row in differing] != []


def test_the_page_and_json_agree_with_metrics_and_score(
    run: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    places = {side: str(run.parent / f"valid.{side}") for side in ("source", "target")}
    assert main(["report", str(run), "--json"]) == 0
    report = json.loads(capfd.readouterr().out)
    score = ["score", "--model", str(run), "-s", places["source"], "-r", places["target"]]
    assert main([*score, "--json"]) == 0
    scores = json.loads(capfd.readouterr().out)["scores"]
    assert report["sets"][0]["scores"] == scores
    records = list(read_metrics(run / "metrics.jsonl"))
    for name, points in report["curves"].items():
        assert points == [[r["step"], r[name]] for r in records if name in r]
    assert {"train/loss", "valid/bleu", "valid/perplexity"} <= report["curves"].keys()
    content = (run / "report.html").read_text()
    rows = Page(content).rows
    for step, value in report["curves"]["valid/bleu"]:
        (row,) = [row for row in rows if row[0] == str(step) and len(row) == 4]
        assert row[3] == f"{value:.4f}"
    (shown,) = [row for row in rows if row[:3] == ["valid", "11", "BLEU"]]
    (stated,) = [score for score in scores if score["name"] == "BLEU"]
    assert shown[3] == f"{stated['value']:.2f}"
    assert stated["signature"] in content
    assert report["data"]["counts"]["train"]["read"] == 91
    assert report["ended"] == "at step 4 of 4"


def test_a_long_line_counts_in_full_and_is_not_shown(
    run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    long = " ".join(f"<i>word{i}" for i in range(20_000))
    texts = {"source": ["a man sees the sea."] * 3, "target": ["a man", long, "the sea"]}
    places = []
    for side, lines in texts.items():
        places.append(str(tmp_path / side))
        Path(places[-1]).write_text("\n".join(lines) + "\n")
    assert main(["report", str(run), "--test", *places, "-o", str(tmp_path / "page.html")]) == 0
    content = (tmp_path / "page.html").read_text()
    assert "word0" not in content
    assert len(content) < 500_000
    capfd.readouterr()
    assert main(["report", str(run), "--test", *places, "--json"]) == 0
    (one,) = json.loads(capfd.readouterr().out)["sets"]
    assert main(["score", "--model", str(run), "-s", places[0], "-r", places[1], "--json"]) == 0
    assert one["scores"] == json.loads(capfd.readouterr().out)["scores"]
    assert {sample["line"] for sample in one["samples"]} == {1, 3}
    assert "TER is skipped: line 2 has 20,000 words" in one["without_ter"]
    assert one["without_ter"] in content


def test_what_is_no_run_or_not_parallel_is_refused(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(tmp_path)]) == 1
    assert "no metrics.jsonl; give the run_dir of a run" in capsys.readouterr().err
    (tmp_path / "a").write_text("one\ntwo\n")
    (tmp_path / "b").write_text("eins\n")
    assert main(["report", str(run), "--test", str(tmp_path / "a"), str(tmp_path / "b")]) == 1
    assert re.search("a has 2 lines, .*b has 1", capsys.readouterr().err)


def test_the_command_trains_with_the_same_configuration(run: Path) -> None:
    config = read_config(run)
    config.data.corpora["back"] = CorpusConfig(pairs="a b's, {c}=1.tsv", weight=0.5, tag="<bt>")
    config.training.max_steps = None
    config.training.patience = 3
    config.training.average_alternatives = [2, 3]
    config.compile = True
    config.resume = "auto"
    name, command, *overrides = shlex.split(train_command(config))
    assert (name, command) == ("seq2seq", "train")
    quoted = quote_texts(overrides)
    register(quoted)
    with initialize_config_dir(str(config_path()), version_base="1.3"):
        again = replace(config, run_dir=None, cache=None, resume=False)
        assert OmegaConf.to_object(compose("train", quoted)) == again


def test_the_command_of_a_run_with_an_initial_model_trains_with_the_same_configuration(
    run: Path,
) -> None:
    config = replace(read_config(run), init_from=str(run), run_dir=None, cache=None)
    config.data.tokenizer.sampling = 0.1
    initial = describe_initial_model(config, run / "new")
    # Else the default dropout would be taken for one that nobody has chosen.
    initial = replace(initial, model=replace(initial.model, dropout=0.3))
    config.init_sha256 = initial.sha256
    overrides = shlex.split(train_command(config))[2:]
    quoted = quote_texts(overrides)
    register(quoted)
    with initialize_config_dir(str(config_path()), version_base="1.3"):
        chosen = compose("train", quoted)
    inherit(chosen, initial, overrides)
    assert OmegaConf.to_object(chosen) == config


def test_the_histograms_are_those_of_counting_each_pair(run: Path) -> None:
    data = json.loads((run / "data.json").read_bytes())
    tokenizer = load_model(run / "best").tokenizer
    sides = [
        tokenizer.encode((run.parent / f"train.{side}").read_text().splitlines())
        for side in ("source", "target")
    ]
    # The end symbol counts on both sides.
    ratios = [(len(t) + 1) / (len(s) + 1) for s, t in zip(*sides, strict=True)]
    bounds = [*data["ratios"]["bounds"], float("inf")]
    expected = [sum(a <= r < b for r in ratios) for a, b in pairwise(bounds)]
    assert data["ratios"]["pairs"] == expected
    for side, encoded in zip(("source", "target"), sides, strict=True):
        lengths = [len(line) + 1 for line in encoded]
        ends = pairwise([*data["histogram"]["bounds"], float("inf")])
        assert data["histogram"][side] == [sum(a <= n < b for n in lengths) for a, b in ends]
        assert data["lengths"][side][-1] == max(lengths)
    rows = Page((run / "report.html").read_text()).rows
    first = rows.index(["target per source tokens", "pairs", "bar"]) + 1
    assert [int(row[1]) for row in rows[first : first + len(expected)]] == expected


def test_the_best_validation_is_that_of_the_model_that_was_kept(run: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(run, tmp_path / "run")
    config = OmegaConf.load(copy / "config.yaml")
    OmegaConf.update(config, "data.valid_sets", {"more": config.data.valid}, force_add=True)
    OmegaConf.update(config, "training.select", "mean")
    OmegaConf.save(config, copy / "config.yaml")
    validations = [
        {"step": 2, "valid/bleu": 30.0, "valid/more/bleu": 10.0, "valid/mean/bleu": 20.0},
        {"step": 4, "valid/bleu": 28.0, "valid/more/bleu": 20.0, "valid/mean/bleu": 24.0},
    ]
    lines = "".join(f"{json.dumps(record)}\n" for record in validations)
    (copy / "metrics.jsonl").write_text(lines)
    report = make_report(copy, [])
    assert report.best == validations[1]
    content = draw_page(report)
    best = "BLEU 28.00 (valid), 20.00 (more), 24.00 (mean) at step 4"
    assert f"training.select=mean: {best}." in content
    assert ["4", "", "", "28.0000", "20.0000", "24.0000"] in Page(content).rows
    assert [one.name for one in report.sets] == ["valid", "more"]
    assert report.sets[0].scores == report.sets[1].scores
    (index,) = ModelCard(model_card(facts_of_run(report, averaged=2))).data.to_dict()["model-index"]
    names = [result["dataset"]["name"] for result in index["results"]]
    assert names == ["files, validation", "files, validation, more"]
    # The set came when the training was resumed, and no model has been better since.
    report = replace(report, model="averaged", best={"step": 2, "valid/bleu": 30.0})
    scored = facts_of_run(report, averaged=0).scored
    assert scored is not None
    assert list(scored.sets) == ["valid"]


def test_settings_that_changed_and_means_of_checkpoints_are_named(
    run: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(run, tmp_path / "run")
    path = progress_file(checkpoints(copy)[-1])
    state = json.loads(path.read_bytes())
    state["progress"]["changes"] = ["warmup_steps: 4 before, 7 now, from step 4", "b <i>"]
    path.write_text(json.dumps(state))
    finished = json.loads((copy / "finished.json").read_text())
    assert list(finished["means"]) == ["2"]
    finished |= {"means": {"3": 1.0, "2": 0.5}, "averaged": 3}
    (copy / "finished.json").write_text(json.dumps(finished))
    page = draw_page(make_report(copy, []))
    changes = "warmup_steps: 4 before, 7 now, from step 4; b &lt;i&gt;."
    assert f"Resumed with other settings: {changes}" in page
    assert "1.00 of the last 3, 0.50 of the last 2; the mean of 3 was kept." in page


def test_a_page_that_would_be_too_large_is_drawn_without_attention(report: RunReport) -> None:
    sample = replace(report.sets[0].samples[0], attention=Attention(["a"], ["b"], [[1.0]]))
    report = replace(report, sets=[replace(report.sets[0], samples=[sample])])
    small = draw_page(report)
    assert 'class="map"' in small
    assert "Attention is not shown" not in small
    of_a_set = len(draw_page(replace(report, sets=report.sets * 2))) - len(small)
    large = draw_page(replace(report, sets=report.sets * (1 + 1_000_000 // of_a_set)))
    assert 'class="map"' not in large
    assert "Attention is not shown" in large


def test_a_comparison_agrees_with_score(
    run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = shutil.copytree(run, tmp_path / "run", ignore=shutil.ignore_patterns("checkpoints"))
    config = OmegaConf.load(run / "config.yaml")
    OmegaConf.update(config, "bleu_tokenizer", "char")
    places = config.data.valid
    OmegaConf.save(config, run / "config.yaml")
    source, reference = (places[side] for side in ("source", "target"))
    (tmp_path / "other").write_text("\n".join(["<i>"] + ["a man sees the sea."] * 10) + "\n")
    report = ["report", str(run), "--compare", str(tmp_path / "other")]
    assert main([*report, "--json"]) == 0
    comparison = json.loads(capfd.readouterr().out)["sets"][0]["comparison"]
    score = ["score", "--model", str(run), "-s", source, "-r", reference, "--json"]
    assert main([*score, "--compare", str(tmp_path / "other")]) == 0
    expected = json.loads(capfd.readouterr().out)["comparisons"]
    for test, wanted in zip(comparison["tests"], expected, strict=True):
        for key in ("metric", "value", "difference", "p_value", "signature"):
            assert test[key] == wanted[key]
    assert main([*report, "-o", str(tmp_path / "page.html")]) == 0
    rows = Page((tmp_path / "page.html").read_text()).rows
    values = [expected[0]["value"] - expected[0]["difference"], expected[0]["value"]]
    assert ["BLEU", *(f"{value:.2f}" for value in values)] in [row[:3] for row in rows]


def test_two_runs_are_compared(
    run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    second = shutil.copytree(run, tmp_path / "second")
    config = OmegaConf.load(second / "config.yaml")
    OmegaConf.update(config, "training.warmup_steps", 7)
    OmegaConf.update(config, "run_dir", str(second))
    OmegaConf.save(config, second / "config.yaml")
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for record in records:
        record["step"] += 100
    (second / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    report = ["report", str(run), "--compare", str(second)]
    assert main([*report, "--json"]) == 0
    other = json.loads(capfd.readouterr().out)["other_run"]
    assert other["run"] == "second"
    assert other["same_sets"] == {"valid": "valid"}
    assert other["settings"] == {"training.warmup_steps": [4, 7]}
    assert other["model"] == find_model(run).name
    assert other["search"] == {"beam_size": 4, "alpha": 0.6}
    assert other["curves"]["valid/bleu"] == [
        [r["step"], r["valid/bleu"]] for r in records if "valid/bleu" in r
    ]
    assert main([*report, "-o", str(tmp_path / "page.html")]) == 0
    content = (tmp_path / "page.html").read_text()
    assert ["training.warmup_steps", "4", "7"] in Page(content).rows
    assert "valid, second" in content
    (models,) = [row for row in Page(content).rows if row[0] == "model"]
    assert models[1] == models[2]
    assert models[2].startswith(f"the model in {find_model(run).name}")
    assert models[2].endswith("with beam 4 and alpha 0.6")
    data = json.loads((second / "data.json").read_text())
    data["sha256"] |= {name: "0" * 64 for name in data["sha256"] if name.startswith("valid.s")}
    (second / "data.json").write_text(json.dumps(data))
    content = draw_page(make_report(run, [], system(second)))
    assert "valid, second" not in content
    assert "second was not validated on the same text as valid of this run" in content


def system(run: Path) -> OtherSystem:
    return OtherSystem(run.name, lambda text: text.sources, run)


def test_runs_of_one_name_are_told_apart(run: Path, tmp_path: Path) -> None:
    for folder in ("a", "b"):
        shutil.copytree(run, tmp_path / folder / "seed_1")
    report = make_report(tmp_path / "a" / "seed_1", [], system(tmp_path / "b" / "seed_1"))
    assert report.other_run is not None
    assert (report.run, report.other_run.run) == ("a/seed_1", "b/seed_1")
    assert report.sets[0].comparison is not None
    assert report.sets[0].comparison.other == "b/seed_1"
    itself = make_report(run, [], system(run))
    assert itself.other_run is not None
    assert (itself.run, itself.other_run.run) == ("run", "run (2)")
    paths = [Path(f"/{name}") for name in ("a/x/t", "b/x/t", "c/u")]
    assert distinct_names(paths) == ["a/x/t", "b/x/t", "/c/u"]


def test_runs_of_other_languages_are_not_compared(run: Path, tmp_path: Path) -> None:
    for name in ("fr", "de", "target"):
        copy = shutil.copytree(run, tmp_path / name)
        config = OmegaConf.load(copy / "config.yaml")
        OmegaConf.update(config, "data.target_language", name)
        OmegaConf.save(config, copy / "config.yaml")
    with pytest.raises(UserError, match=r"its data\.target_language is fr, and .* has de"):
        make_report(tmp_path / "de", [], system(tmp_path / "fr"))
    assert make_report(tmp_path / "de", [], system(tmp_path / "target")).other_run is not None


def test_lines_that_are_in_the_training_text_are_counted(run: Path) -> None:
    first, second = list(Split(read_config(run).data, "train").pairs())[:2]
    new = "not there"
    sources = [first.source, first.source, new, second.source]
    references = [first.target, new, second.target, first.target]
    report = make_report(run, [TextSet("mixed", sources, references)])
    (one,) = report.sets
    assert one.overlap == Overlap(among="the 91 training pairs", sources=3, references=3, pairs=1)
    assert one.training_note.startswith("counted in the 91 training pairs")
    assert (
        "Also among the 91 training pairs: 3 of the sources, 3 of the references and 1 of the pairs"
        in draw_page(report)
    )


def test_a_run_that_has_not_ended_says_how_far_it_is(run: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(run, tmp_path / "run")
    (copy / "finished.json").unlink()
    assert "Training ended: not yet, 4 steps are saved." in draw_page(make_report(copy, []))
    for folder in ("best", "averaged", "checkpoints"):
        shutil.rmtree(copy / folder, ignore_errors=True)
    with pytest.raises(UserError, match="its training has saved none yet"):
        make_report(copy, [])


def test_translations_of_another_text_are_not_compared(
    run: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Translator, "translate_stream", None)  # refused before the work
    (tmp_path / "other").write_text("one line\n")
    assert main(["report", str(run), "--compare", str(tmp_path / "other")]) == 1
    assert "11 and 1 lines: not the same test set" in capsys.readouterr().err
    assert main(["report", str(run), "-o", str(tmp_path / "no" / "page.html")]) == 1
    assert "no/page.html" in capsys.readouterr().err


def test_the_training_text_is_read_once_for_all_test_sets(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = []
    pairs = Split.pairs

    def counted(split: Split) -> Iterator[SentencePair]:
        read.append(split.name)
        return pairs(split)

    monkeypatch.setattr(Split, "pairs", counted)
    translator, config = load_translator(run, "cpu"), read_config(run)
    texts = [TextSet("one", OUTPUTS[:2], REFERENCES[:2]), TextSet("two", OUTPUTS, REFERENCES)]
    together = report_sets(translator, texts, config, "run", None)
    assert read == ["train"]
    alone = [report_sets(translator, [text], config, "run", None)[0] for text in texts]
    assert together == alone


def test_a_report_that_cannot_be_written_ends_no_training_badly(
    run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    (copy / "finished.json").unlink()
    (copy / "report.html").unlink()
    (copy / "report.html" / "in_the_way").mkdir(parents=True)
    logging.getLogger("seq2seq").addHandler(caplog.handler)
    try:
        assert run_training(replace(read_config(copy), resume=True), copy, "", World()) == 0
    finally:
        logging.getLogger("seq2seq").removeHandler(caplog.handler)
    assert "report.html: not written: " in caplog.text
    assert (copy / "finished.json").exists()
