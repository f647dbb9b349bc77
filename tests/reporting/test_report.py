"""The report of a run: its numbers against the files and the scores that they come from."""

import hashlib
import json
import logging
import re
import shlex
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from sacrebleu import BLEU

from seq2seq.cli.hydra import config_path, quote_texts, register
from seq2seq.cli.main import main
from seq2seq.cli.train import inherit
from seq2seq.config import read_config
from seq2seq.data.config import CorpusConfig
from seq2seq.data.corpus import Split
from seq2seq.data.pair_files import SentencePair
from seq2seq.decoding.translation import Candidate, Translation
from seq2seq.decoding.translator import Translator
from seq2seq.errors import UserError
from seq2seq.evaluation.scores import ScoreConfig, bleu
from seq2seq.evaluation.significance import LineBleu, words
from seq2seq.files.manifest import manifest_sum, read_manifest
from seq2seq.reporting.buckets import (
    by_length,
    by_rarest_word,
    by_word_frequency,
    by_word_kind,
    make_buckets,
    training_frequencies,
)
from seq2seq.reporting.card import facts_of_run, model_card
from seq2seq.reporting.comparison import Attention, differing_parts, line_changes, ngram_changes
from seq2seq.reporting.draw import bucket_table, draw_curves
from seq2seq.reporting.page import draw_page
from seq2seq.reporting.record import train_command
from seq2seq.reporting.report import distinct_names, load_translator, make_report
from seq2seq.reporting.sets import (
    OtherSystem,
    Overlap,
    TextSet,
    examine_health,
    report_sets,
)
from seq2seq.run.setup import describe_parent
from seq2seq.run.training_run import run_training
from seq2seq.storage.checkpoint import find_model
from seq2seq.storage.model_folder import load_model, save_search
from seq2seq.storage.trained_model import TunedSearch
from seq2seq.training.distributed import World
from seq2seq.training.recorder import read_metrics


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


def test_the_page_of_a_training_has_the_details_that_differ_from_the_paper(
    run: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["fidelity", "--model", str(run), "--json"]) == 0
    entries = json.loads(capfd.readouterr().out)
    expected = [
        str(e["number"]) for e in entries if e["as_paper"] is False or e["verdict"] == "differs"
    ]
    rows = Page((run / "report.html").read_text()).rows
    first = rows.index(["#", "detail", "the paper", "here", "verdict"]) + 1
    found = [row[0] for row in rows[first : first + len(expected)] if len(row) == 5]
    assert found == expected != []


def test_the_page_and_json_agree_with_metrics_and_score(
    run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    places = {side: str(run.parent / f"valid.{side}") for side in ("source", "target")}
    assert main(["report", str(run), "-o", str(tmp_path / "page.html")]) == 0
    capfd.readouterr()
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
    content = (tmp_path / "page.html").read_text()
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
    assert "TER is left out: line 2 has 20,000 words" in one["without_ter"]
    assert one["without_ter"] in content


def test_a_folder_without_metrics_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(tmp_path)]) == 1
    assert "no metrics.jsonl; give the run_dir of a training" in capsys.readouterr().err


def test_texts_that_are_not_parallel_are_refused(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a").write_text("one\ntwo\n")
    (tmp_path / "b").write_text("eins\n")
    assert main(["report", str(run), "--test", str(tmp_path / "a"), str(tmp_path / "b")]) == 1
    assert re.search("a has 2 lines, .*b has 1", capsys.readouterr().err)


def split(lines: Sequence[str]) -> list[list[str]]:
    return [line.split() for line in lines]


REFERENCES = ["a man sees the sea .", "the woman likes an apple .", "nobody paints .", "a a a a b"]
OUTPUTS = ["a man likes the sea .", "the woman likes an apple .", "nobody sees the sea .", "a b b"]


def bleu_of(lines: Sequence[int]) -> float:
    return bleu([OUTPUTS[i] for i in lines], [[REFERENCES[i] for i in lines]]).value


def test_a_bucket_has_the_bleu_of_its_lines_and_the_buckets_all_lines() -> None:
    lengths = [5, 9, 4, 30]
    buckets = by_length(lengths, LineBleu(OUTPUTS, REFERENCES))
    assert sum(bucket.count for bucket in buckets) == len(lengths)
    for bucket in buckets:
        end = float("inf") if bucket.end is None else bucket.end
        lines = [i for i, length in enumerate(lengths) if bucket.start <= length < end]
        assert bucket.value == bleu_of(lines)
        assert bucket.low <= bucket.value <= bucket.high
    assert [bucket.count for bucket in buckets] == [1, 2, 1]


def test_bleu_looks_at_a_long_line_once_for_all_buckets_and_intervals(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    long = " ".join(f"word{i}" for i in range(5000))
    outputs, references = [*OUTPUTS, "a b"], [*REFERENCES, long]
    read = 0
    score = BLEU.corpus_score

    def counted(self: BLEU, hypotheses: list[str], lists: list[list[str]], **more: Any) -> Any:
        nonlocal read
        read += lists[0].count(long)
        return score(self, hypotheses, lists, **more)

    monkeypatch.setattr(BLEU, "corpus_score", counted)
    line_bleu = LineBleu(outputs, references)
    line_bleu.interval()
    buckets = make_buckets([5, 9, 4, 30, 2], Counter(words(long)), outputs, references, line_bleu)
    assert read == 1
    assert {bucket.by for bucket in buckets if bucket.metric == "BLEU"} == {
        "source_length",
        "rarest_word",
    }


def test_lines_are_put_by_the_rarest_word_of_their_reference() -> None:
    counts = {word: 20 for line in REFERENCES for word in line.split()} | {"nobody": 1, "b": 0}
    bleu = LineBleu([*OUTPUTS, "a b"], [*REFERENCES, ""])
    buckets = by_rarest_word(counts, split([*REFERENCES, ""]), bleu)
    assert {bucket.start: bucket.count for bucket in buckets} == {0: 1, 1: 1, 10: 2}
    assert buckets[-1].value == bleu_of([0, 1])
    assert buckets[0].value == bleu_of([3])


def test_word_f1_is_that_of_counting_each_word_by_hand() -> None:
    counts = Counter({"a": 100, "b": 1})
    found = by_word_frequency(counts, split(["a b b x"]), split(["a a a a b"]))
    (rare,) = [bucket for bucket in found if bucket.start == 1]
    # One of the two b is right: precision 1/2, recall 1.
    assert rare.value == pytest.approx(100 * 2 * 0.5 * 1 / 1.5)
    assert rare.count == 1
    buckets = by_word_frequency(counts, split(OUTPUTS), split(REFERENCES))
    assert sum(b.count for b in buckets) == sum(map(len, split(REFERENCES)))


def test_words_are_of_the_first_kind_that_fits() -> None:
    reference = "Im Jahr 1900 war der Mann der Chef 1900"
    output = "Im Jahr 1900 war die Frau"
    buckets = {b.kind: b for b in by_word_kind(split([output]), split([reference]))}
    assert {kind: bucket.count for kind, bucket in buckets.items()} == {
        "with digits": 2, "with a capital": 4, "repeated in the line": 2, "other": 1,
    }  # fmt: skip
    # "1900" is right once: precision 1, recall 1/2. "die" is another word, which is wrong.
    assert buckets["with digits"].value == pytest.approx(100 * 2 / 3)
    assert buckets["repeated in the line"].value == 0
    assert buckets["other"].value == pytest.approx(100 * 2 / 3)
    assert buckets["with a capital"].value == pytest.approx(100 * 2 * 2 / (3 + 4))


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


def test_the_command_of_a_run_that_went_on_from_a_model_trains_with_the_same_configuration(
    run: Path,
) -> None:
    config = replace(read_config(run), init_from=str(run), run_dir=None, cache=None)
    config.data.tokenizer.sampling = 0.1
    parent = describe_parent(config, run / "new")
    # Else the default dropout would be taken for one that nobody has chosen.
    parent = replace(parent, model=replace(parent.model, dropout=0.3))
    config.init_sha256 = parent.sha256
    overrides = shlex.split(train_command(config))[2:]
    quoted = quote_texts(overrides)
    register(quoted)
    with initialize_config_dir(str(config_path()), version_base="1.3"):
        chosen = compose("train", quoted)
    inherit(chosen, parent, overrides)
    assert OmegaConf.to_object(chosen) == config


def test_the_histogram_counts_every_training_sentence(run: Path) -> None:
    data = json.loads((run / "data.json").read_bytes())
    bounds, kept = data["histogram"]["bounds"], data["counts"]["train"]["kept"]
    for side in ("source", "target"):
        counts, quantiles = data["histogram"][side], data["lengths"][side]
        assert sum(counts) == kept
        longest = max(place for place, count in enumerate(counts) if count)
        end = (*bounds, float("inf"))[longest + 1]
        assert bounds[longest] <= quantiles[-1] < end


def test_the_histogram_of_length_ratios_is_that_of_counting_each_pair(run: Path) -> None:
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
    assert sum(expected) == data["counts"]["train"]["kept"]
    rows = Page((run / "report.html").read_text()).rows
    first = rows.index(["target per source tokens", "pairs", "bar"]) + 1
    assert [int(row[1]) for row in rows[first : first + len(expected)]] == expected


def test_frequencies_are_counted_in_the_target_side() -> None:
    pairs = [SentencePair("the sea", "a sea, a sea"), SentencePair("", "the man")]
    assert training_frequencies(["sea the apple"], pairs) == ({"sea": 2, "the": 1}, 2)


def test_the_interval_agrees_with_sacrebleu_within_a_point() -> None:
    outputs, references = OUTPUTS * 30, REFERENCES * 30
    low, high = LineBleu(outputs, references).interval()
    result = BLEU().corpus_score(outputs, [references], n_bootstrap=1000)
    center, half = result._mean, result._ci
    assert low == pytest.approx(center - half, abs=1)
    assert high == pytest.approx(center + half, abs=1)


@pytest.mark.parametrize(
    ("text", "other", "marked"),
    [
        ("the  red house", "that is the house", ["red"]),
        ("the red big house ", " the house", ["red", "big"]),
        ("私は学生です。", "私は先生です。", ["学"]),
        ("in the town.", "in the (town)", ["."]),
        ("a b", "", ["a", "b"]),
        ("", "a", []),
    ],
)
def test_words_that_the_other_text_lacks_are_marked(
    text: str, other: str, marked: list[str]
) -> None:
    parts = differing_parts(text, other)
    assert "".join(part for part, _ in parts) == text
    assert [part for part, differs in parts if differs] == marked


def test_words_are_those_of_the_tokenizer_of_bleu() -> None:
    outputs, references = ["私は学生"], ["私は先生"]
    bleu = LineBleu(outputs, references, ScoreConfig(tokenize="char"))
    pairs = [SentencePair("", "先生と先生")]
    counts, _ = training_frequencies(references, pairs, "char")
    assert counts == {"先": 2, "生": 2}
    buckets = make_buckets([3], counts, outputs, references, bleu)
    (kind,) = [bucket for bucket in buckets if bucket.by == "word_kind"]
    assert (kind.count, kind.value) == (4, 75.0)
    _, lost = ngram_changes(["私は学生"], ["私は先生"], references, "char")
    assert "先 生" in {change.ngram for change in lost}


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


def test_settings_that_changed_while_training_are_named(
    run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    copy = shutil.copytree(run, tmp_path / "run")
    config = read_config(copy)
    config.run_dir, config.resume = str(copy), True
    config.training.max_steps, config.training.warmup_steps = 6, 7
    config.search.beam_size = 1
    yaml = OmegaConf.to_yaml(OmegaConf.structured(config))
    assert run_training(config, copy, yaml, World()) == 0
    capfd.readouterr()
    assert main(["report", str(copy), "--json"]) == 0
    changes = [
        "warmup_steps: 4 before, 7 now, from step 4",
        "beam_size: 4 before, 1 now, from step 4",
    ]
    assert json.loads(capfd.readouterr().out)["changes"] == changes
    content = (copy / "report.html").read_text()
    assert f"Resumed with other settings: {'; '.join(changes)}." in content


def test_a_run_without_checkpoints_has_its_machine(run: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(run, tmp_path / "run")
    before = make_report(copy, [])
    shutil.rmtree(copy / "checkpoints")
    after = make_report(copy, [])
    assert after.minutes is None
    assert after.machine
    assert before.machine.startswith(f"{after.machine}, ")


def test_a_page_that_would_be_too_large_is_drawn_without_attention(run: Path) -> None:
    report = make_report(run, [])
    sample = replace(report.sets[0].samples[0], attention=Attention(["a"], ["b"], [[1.0]]))
    report = replace(report, sets=[replace(report.sets[0], samples=[sample])])
    small = draw_page(report)
    assert 'class="map"' in small
    assert "Attention is left out" not in small
    of_a_set = len(draw_page(replace(report, sets=report.sets * 2))) - len(small)
    large = draw_page(replace(report, sets=report.sets * (1 + 1_000_000 // of_a_set)))
    assert 'class="map"' not in large
    assert "Attention is left out" in large


def test_an_interval_without_width_is_not_shown() -> None:
    bleu = LineBleu(OUTPUTS, REFERENCES)
    rows = Page(bucket_table(by_length([4, 9, 9, 9], bleu), "tokens")).rows
    assert [row[3] == "" for row in rows[1:]] == [True, False]


@pytest.mark.parametrize(("steps", "labels"), [(1, ["0", "1"]), (4, ["0", "1", "3", "4"])])
def test_steps_stand_where_they_are(steps: int, labels: list[str]) -> None:
    drawn = draw_curves("loss", {"a": [(step, 1.0) for step in range(1, steps + 1)]})
    found = re.findall(r'<text x="([\d.]+)" y="212" class="\w+">(\d+)</text>', drawn)
    assert [label for _, label in found] == labels
    places = re.findall(r"([\d.]+),[\d.]+", re.findall('points="([^"]*)"', drawn)[0])
    assert {found[i][0] for i in range(1, len(found))} <= set(places)


def test_ngrams_are_won_and_lost_as_counted_by_hand() -> None:
    won, lost = ngram_changes(["a b c"], ["a c x"], ["a b c"])
    assert {(n.ngram, n.run, n.other) for n in won} == {
        (ngram, 1, 0) for ngram in ("b", "a b", "b c", "a b c")
    }
    assert lost == []


def test_lines_are_sorted_by_the_change_of_their_chrf() -> None:
    changes = line_changes(
        ["1", "2", "3"], ["abc", "abc", "abc"], ["abc", "abd", "x"], ["x", "abd", "abc"]
    )
    assert [change.line for change in changes] == [1, 2, 3]
    assert [change.run_chrf for change in changes] == [change.other_chrf for change in changes][
        ::-1
    ]


@pytest.mark.parametrize("tokenizer", ["13a", "char"])
def test_a_comparison_agrees_with_score(
    tokenizer: str, run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = shutil.copytree(run, tmp_path / "run", ignore=shutil.ignore_patterns("checkpoints"))
    config = OmegaConf.load(run / "config.yaml")
    OmegaConf.update(config, "bleu_tokenizer", tokenizer)
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


def test_two_runs_stand_beside_one_another(
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
    content = draw_page(make_report(run, [], beside(second)))
    assert "valid, second" not in content
    assert "second was not validated on the same text as valid of this run" in content


def beside(run: Path) -> OtherSystem:
    return OtherSystem(run.name, lambda text: text.sources, run)


def test_runs_of_one_name_are_told_apart(run: Path, tmp_path: Path) -> None:
    for folder in ("a", "b"):
        shutil.copytree(run, tmp_path / folder / "seed_1")
    report = make_report(tmp_path / "a" / "seed_1", [], beside(tmp_path / "b" / "seed_1"))
    assert report.other_run is not None
    assert (report.run, report.other_run.run) == ("a/seed_1", "b/seed_1")
    assert report.sets[0].comparison is not None
    assert report.sets[0].comparison.other == "b/seed_1"
    itself = make_report(run, [], beside(run))
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
    with pytest.raises(UserError, match=r"its data\.target_language is fr, and that of .* is de"):
        make_report(tmp_path / "de", [], beside(tmp_path / "fr"))
    assert make_report(tmp_path / "de", [], beside(tmp_path / "target")).other_run is not None


def test_lines_that_are_in_the_training_text_are_counted(run: Path) -> None:
    first, second = list(Split(read_config(run).data, "train").pairs())[:2]
    new = "not there"
    sources = [first.source, first.source, new, second.source]
    references = [first.target, new, second.target, first.target]
    (one,) = make_report(run, [TextSet("mixed", sources, references)]).sets
    assert one.overlap == Overlap(among="the 91 training pairs", sources=3, references=3, pairs=1)
    assert one.training_note.startswith("counted in the 91 training pairs")
    content = draw_page(make_report(run, [TextSet("mixed", sources, references)]))
    assert (
        "Also among the 91 training pairs: 3 of the sources, 3 of the references and 1 of the pairs"
        in content
    )


def test_the_means_of_checkpoints_are_shown_with_what_became_of_them(
    run: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(run, tmp_path / "run")
    finished = json.loads((copy / "finished.json").read_text())
    assert list(finished["means"]) == ["2"]
    kept = "that of 2 was kept" if "averaged" in finished else "none was kept"
    bleu = f"{finished['means']['2']:.2f} of the last 2; {kept}."
    assert f"BLEU of the mean of checkpoints: {bleu}" in draw_page(make_report(copy, []))
    finished |= {"means": {"3": 1.0, "2": 0.5}, "averaged": 3}
    (copy / "finished.json").write_text(json.dumps(finished))
    content = draw_page(make_report(copy, []))
    assert "1.00 of the last 3, 0.50 of the last 2; that of 3 was kept." in content


def test_a_training_that_has_not_ended_says_how_far_it_is(run: Path, tmp_path: Path) -> None:
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


def test_the_card_reads_as_the_hub_reads_it_and_has_the_metrics_of_the_run(run: Path) -> None:
    best = max(
        (r for r in read_metrics(run / "metrics.jsonl") if "valid/bleu" in r),
        key=lambda record: record["valid/bleu"],
    )
    for folder in (run / "best", *run.glob("averaged")):
        assert "README.md" in read_manifest(folder)
        load_model(folder)
        card = ModelCard.load(folder / "README.md")
        results = card.data.eval_results
        assert card.data.license == "cc-by-4.0"
        assert card.data.pipeline_tag == "translation"
        assert results[0].metric_type == "bleu"
        assert results[0].metric_args == {"beam_size": 4, "alpha": 0.6}
        assert "tok:13a" in results[0].metric_name
        sums = re.findall("[0-9a-f]{64}", card.text)
        file = run.parent / "train.source"
        assert hashlib.sha256(file.read_bytes()).hexdigest() in sums
        if folder.name == "averaged":
            number = json.loads((run / "finished.json").read_bytes())["averaged"]
            assert f"the mean of the last {number} checkpoints" in card.text
        if folder.name == "best":
            assert results[0].metric_value == pytest.approx(best["valid/bleu"], abs=0.005)


def test_the_scores_of_a_tuned_models_card_are_those_of_its_search(
    run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    copy = shutil.copytree(run, tmp_path / "run")
    folder = find_model(copy)
    written = (folder / "README.md").read_text()
    edited = written.replace("## Limits", "## Thanks\n\nTo \\1 all.\n\n## Limits")
    (folder / "README.md").write_text(edited)
    before = ModelCard.load(folder / "README.md").data.eval_results
    assert main(["tune", "--model", str(copy), "--beams", "2", "--alphas", "3"]) == 0
    card = ModelCard.load(folder / "README.md")
    capfd.readouterr()
    valid = [str(run.parent / f"valid.{side}") for side in ("source", "target")]
    search = ["--beam", "2", "--alpha", "3"]
    assert (
        main(["score", "--model", str(run), "-s", valid[0], "-r", valid[1], *search, "--json"]) == 0
    )
    scores = {s["name"]: s for s in json.loads(capfd.readouterr().out)["scores"]}
    for result, old, name in zip(
        card.data.eval_results, before, ("BLEU", "chrF2", "TER"), strict=True
    ):
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
    load_model(folder)
    # The comparison with the paper is that of the search with which the model translates.
    (row,) = [row for row in make_report(copy, []).fidelity if row.detail.name == "beam (6.1)"]
    assert row.finding.here.startswith("beam 2, alpha 3")


def test_the_card_of_a_mean_has_its_run_and_its_scores_once_it_is_tuned(
    run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
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


def test_a_mean_that_is_made_anew_is_the_one_of_the_page(
    run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    copy = Path(shutil.copytree(run, tmp_path / "a copy"))
    averaging = ["average", "--model", str(copy), "--last", "2"]
    assert main(averaging) == 0
    capfd.readouterr()
    assert main(["tune", "--model", str(copy), "--beams", "2", "--alphas", "1"]) == 0
    assert f"next: seq2seq report '{copy}', for a page" in capfd.readouterr().out
    assert main([*averaging[:-1], "1"]) == 0
    assert (advice := f"next: seq2seq tune --model '{copy}' (") in capfd.readouterr().out
    assert make_report(copy, []).averaged == 1
    assert main(["tune", "--model", str(copy), "--beams", "2", "--alphas", "1"]) == 0
    capfd.readouterr()
    other = tmp_path / "another folder"
    assert main([*averaging, "-o", str(other)]) == 0
    assert "next" not in capfd.readouterr().out
    assert make_report(copy, []).averaged == 1
    save_search(other, TunedSearch(2, 1.0), manifest_sum(other))
    assert main([*averaging, "-o", str(other)]) == 0
    given = "-s SOURCE -r REFERENCE"
    assert f"next: seq2seq tune --model '{other}' {given} (" in capfd.readouterr().out
    shutil.rmtree(copy / "averaged")
    assert main(["tune", "--model", str(copy), "--beams", "2", "--alphas", "1"]) == 0  # of best
    capfd.readouterr()
    assert main(averaging) == 0
    assert advice in capfd.readouterr().out


def test_a_mean_of_checkpoints_alone_has_a_card(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run / "checkpoints", tmp_path / "checkpoints")
    assert main(["average", "--model", str(tmp_path), "--last", "1"]) == 0
    text = ModelCard.load(tmp_path / "averaged" / "README.md").text
    assert f"# {tmp_path.name}\n".replace("_", "\\_") in text
    assert "the last checkpoint" in text
    assert "It is not known to this program." in text


def test_a_best_model_that_is_a_mean_is_called_one(run: Path) -> None:
    report = make_report(run, [])
    for mean, origin in ((False, "the checkpoint"), (True, "the running mean of the weights")):
        config = report.config | {"training.validate_mean": mean}
        facts = facts_of_run(replace(report, config=config), averaged=0)
        assert f", {origin} that validated best." in model_card(facts)


def test_the_first_lines_of_each_kind_of_suspicious_translation_are_shown() -> None:
    def translation(text: str, **more: Any) -> Translation:
        return Translation([Candidate(text, 0.0, text.split(), False)], **more)

    sources = ["a dog", "the sea", "x" * 5000, *["red"] * 9]
    outputs = ["ein Hund", "", "the " * 9, *["red"] * 9]
    translations = [translation(text) for text in outputs]
    translations[0] = translation("ein Hund", unknown=2)
    health, lines = examine_health(sources, translations)
    assert (health.empty, health.copied, health.repeating, health.unknown) == (1, 9, 1, 2)
    found = {kind: [one.line for one in lines if one.kind == kind] for kind in vars(health)}
    assert {kind: numbers for kind, numbers in found.items() if numbers} == {
        "empty": [2],
        "copied": [4, 5, 6, 7, 8],
        "repeating": [3],
        "unknown": [1],
    }
    assert all(one.source == sources[one.line - 1][:1000] for one in lines)


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
