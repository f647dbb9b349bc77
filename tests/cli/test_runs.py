"""`seq2seq runs` on run folders that were made for it."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

import lxml.html
import pytest
from markdown_it import MarkdownIt
from omegaconf import OmegaConf

from seq2seq.files import write_folder
from seq2seq.run.sessions import Session
from seq2seq.trainer import Progress
from tests.toy import validation

SIGNATURE = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"
SESSION = Session(
    started="2026-01-01T10:00:00+00:00", step=0, version="0.3.0", code="0123456789ab",
    commit="abcdef012345, changed", torch="2.13.0", python="3.11.2", machine="Some CPU",
    precision="fp32", processes=1, threads=2, command="seq2seq train", folder="/",
)  # fmt: skip


def make_run(
    folder: Path,
    *,
    seed: int = 1,
    bleu: float = 20.0,
    test: float | None = None,
    ended: bool = True,
    signature: str = SIGNATURE,
    machine: str = "Some CPU",
    **settings: Any,
) -> Path:
    """Write what a run leaves, with a test score or without any scores of its last model."""
    folder.mkdir(parents=True)
    config = OmegaConf.create({"seed": seed})
    for key, value in settings.items():
        OmegaConf.update(config, key.replace("__", "."), value, force_add=True)
    (folder / "config.yaml").write_text(OmegaConf.to_yaml(config))
    (folder / "metrics.jsonl").write_text(json.dumps({"step": 100, **validation(bleu)}))
    (folder / "sessions.jsonl").write_text(json.dumps(asdict(SESSION) | {"machine": machine}))
    if ended:
        (folder / "finished.json").write_text('{"ended": "at step 100 of 100"}')
    if test is not None:
        values = {"valid": bleu, "test": test, "test/news": test - 1}
        sets = {}
        for name, value in values.items():
            scores = [("BLEU", value, signature), ("chrF2", value + 30, "nrefs:1|nc:6")]
            sets[name] = [{"name": n, "value": v, "signature": s} for n, v, s in scores]
        record = {"model": "best", "search": {"beam_size": 4, "alpha": 0.6}, "sets": sets}
        (folder / "scores.json").write_text(json.dumps(record))
    return folder


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """Three seeds of two dropout rates, on folders of three machines."""
    for seed, machine in enumerate(("anna", "ben", "chloé"), start=1):
        for rate in (0.1, 0.3):
            folder = tmp_path / "runs" / machine / f"model.dropout={rate},seed={seed}"
            bleu = 20 + seed + 10 * rate
            make_run(folder, seed=seed, bleu=bleu, test=bleu / 2, model__dropout=rate)
    return tmp_path / "runs"


def rows_of(table: str) -> list[list[str]]:
    """Return the cells below the titles."""
    body = re.split(r"^ *--[- ]*\n", table, maxsplit=1, flags=re.M)[1]
    return [re.split(r" {2,}", line.strip()) for line in body.splitlines()]


@pytest.mark.parametrize(
    "figures",
    [
        '{"step": 1, "train/target_tokens": 5}',
        '{"step": 1, "train/target_tokens": 1e308, "train/source_tokens": 1e308}',
        '{"step": 1, "train/target_tokens": NaN, "train/source_tokens": 1}',
        '{"step": 1, "valid/bleu": Infinity, "valid/perplexity": NaN, "valid/a/bleu": NaN}',
        '{"step": 1, "valid/bleu": 2, "valid/perplexity": 1, "valid/a/bleu": -Infinity}',
    ],
)
@pytest.mark.parametrize("progress", ["{}", '{"step": "a"}', '{"seconds": [1]}', "5"])
def test_corrupt_figures_of_a_run_are_skipped(
    tmp_path: Path, seq2seq: Callable, figures: str, progress: str
) -> None:
    run = make_run(tmp_path / "run")
    (run / "metrics.jsonl").write_text(f"{figures}\n{json.dumps({'step': 9, **validation(20.0)})}")
    state = f'{{"fixed": {{}}, "changeable": {{}}, "progress": {progress}}}'
    write_folder(run / "checkpoints" / "step_5", {"progress.json": state.encode()})

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    (row,) = json.loads(seq2seq("runs", run, "--format", "json").out, parse_constant=refuse)
    assert (row["best step"], row["BLEU"]) == (9, 20.0)
    assert "20.00" in seq2seq("runs", run).out


def test_a_validation_set_named_test_is_not_the_test_set(tmp_path: Path, seq2seq: Callable) -> None:
    run = make_run(tmp_path / "run", bleu=30.0, test=10.0)
    path = run / "scores.json"
    path.write_text(path.read_text().replace('"test/news"', '"valid/test"'))
    (row,) = json.loads(seq2seq("runs", run, "--format", "json").out)
    assert (row["BLEU"], row["BLEU test"], row["BLEU valid/test"]) == (30.0, 10.0, 9.0)


def test_tokens_are_the_means_of_a_step_times_the_steps_that_they_stand_for(
    tmp_path: Path, seq2seq: Callable
) -> None:
    run = make_run(tmp_path / "run")
    lines = [
        {"step": step, "train/source_tokens": source * 1e4, "train/target_tokens": 5e4}
        for step, source in ((10, 3.0), (30, 4.0), (31, 5.0))
    ]
    (run / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (row,) = json.loads(seq2seq("runs", run, "--format", "json").out)
    assert (row["steps"], row["million tokens"]) == (31, (10 * 8 + 20 * 9 + 1 * 10) / 100)


def test_runs_of_relative_and_of_absolute_names_are_listed_together(
    tmp_path: Path, seq2seq: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in (1, 2):
        make_run(tmp_path / str(seed), seed=seed)
    monkeypatch.chdir(tmp_path)
    for options in ([], ["--seeds"]):
        assert "20.00" in seq2seq("runs", "1", tmp_path / "2", *options).out


@pytest.mark.posix
def test_runs_are_found_however_deep_they_lie_and_other_folders_are_named(
    sweep: Path, seq2seq: Callable
) -> None:
    (sweep / "notes" / "deep").mkdir(parents=True)
    (sweep / "ben" / "figures").mkdir()
    (sweep / "ben" / "back").symlink_to(sweep)
    (sweep / ".git").mkdir()
    result = seq2seq("runs", "--format", "json", sweep)
    names = {row["run"] for row in json.loads(result.out)}
    assert names == {str(path.parent) for path in sweep.rglob("config.yaml")}
    assert len(names) == 6
    told = [line for line in result.err.splitlines() if "left out" in line]
    assert len(told) == 1
    assert told[0].endswith(f"{sweep / 'ben' / 'figures'}, {sweep / 'notes'}")


def test_a_run_that_cannot_be_read_is_named_and_the_others_are_listed(
    sweep: Path, seq2seq: Callable
) -> None:
    broken = next((sweep / "ben").iterdir())
    (broken / "config.yaml").write_text("- not a configuration")
    result = seq2seq("runs", "--format", "json", sweep)
    assert result.code == 1
    assert len(json.loads(result.out)) == 5
    assert f"seq2seq: left out: {broken / 'config.yaml'}: not a configuration" in result.err
    alone = seq2seq("runs", broken)
    assert (alone.code, alone.out) == (1, "")


def test_the_scores_of_the_last_model_are_listed_with_signature_and_origin(
    sweep: Path, seq2seq: Callable
) -> None:
    rows = json.loads(seq2seq("runs", "--format", "json", sweep).out)
    bleus = [row["BLEU"] for row in rows]
    assert bleus == sorted(bleus, reverse=True)
    best = rows[0]
    assert (best["seed"], best["model.dropout"]) == (3, 0.3)
    scores = (best["BLEU"], best["chrF"], best["BLEU test"], best["chrF test"])
    assert scores == (26.0, 56.0, 13.0, 43.0)
    assert (best["BLEU test/news"], best["chrF test/news"]) == (12.0, 42.0)
    text = seq2seq("runs", sweep)
    assert f"\nBLEU|{SIGNATURE}\n" in text.out
    assert f"program (in all runs): {SESSION.program}\n" in text.out
    assert "machine (in all runs): Some CPU\n" in text.out
    assert "--seeds" in text.err


def test_runs_that_differ_in_their_seed_alone_are_one_row(sweep: Path, seq2seq: Callable) -> None:
    make_run(sweep / "anna" / "still", seed=4, bleu=90, ended=False, model__dropout=0.1)
    rows = json.loads(seq2seq("runs", "--seeds", "--format", "json", sweep).out)
    assert [row["model.dropout"] for row in rows] == [0.3, 0.1]
    for row in rows:
        bleus = [20 + seed + 10 * row["model.dropout"] for seed in (1, 2, 3)]
        assert row["seeds"] == [1, 2, 3]
        expected = {"mean": fmean(bleus), "min": bleus[0], "max": bleus[2]}
        assert row["BLEU"] == pytest.approx(expected)
        halves = {name: value / 2 for name, value in expected.items()}
        assert row["BLEU test"] == pytest.approx(halves)
    text = seq2seq("runs", "--seeds", sweep).out
    cells = rows_of(text)[0]
    assert cells[:2] == ["0.3", "1, 2, 3"]
    assert "25.00 (24.00–26.00)" in cells
    assert f"not ended yet: {sweep / 'anna' / 'still'}" in text


@pytest.fixture
def laptops(tmp_path: Path) -> Path:
    """Three seeds on text of three laptops, of which two have a second test set."""
    for seed, user in enumerate(("anna", "ben", "cara"), start=1):
        settings = {"data__train__source": f"/home/{user}/train.en", "data__test__source": user}
        if user != "cara":
            settings["data__test_sets__news__source"] = f"{user}/news.en"
        run = make_run(tmp_path / user, seed=seed, bleu=20.0 + seed, test=10.0 + seed, **settings)
        sums = {"train.source: train.en": "a" * 64, f"test.source: {user}": "b" * 64}
        sums |= {"test_sets.news.source: news.en": "c" * 64, "seed: of no file": "d" * 64}
        (run / "data.json").write_text(json.dumps({"sha256": sums}))
    scores = tmp_path / "cara" / "scores.json"
    scores.write_text(scores.read_text().replace("test/news", "news"))
    return tmp_path


def test_seeds_share_a_row_if_they_read_the_same_text_wherever_it_lay(
    laptops: Path, seq2seq: Callable
) -> None:
    (row,) = json.loads(seq2seq("runs", "--seeds", "--format", "json", laptops).out)
    assert row["seeds"] == [1, 2, 3]
    assert row["BLEU test"] == {"mean": 12.0, "min": 11.0, "max": 13.0}
    assert row["BLEU test/news"] == {"mean": 10.5, "min": 10.0, "max": 11.0, "runs": 2}
    text = seq2seq("runs", "--seeds", laptops)
    assert "10.50 (10.00–11.00, of 2)" in text.out
    assert "warning" not in text.err
    assert "source" not in seq2seq("runs", laptops).out


def test_seeds_that_read_other_text_of_the_same_name_are_told_apart(
    laptops: Path, seq2seq: Callable
) -> None:
    record = laptops / "ben" / "data.json"
    record.write_text(record.read_text().replace("a" * 64, "e" * 64))
    text = seq2seq("runs", "--seeds", laptops).out
    assert "train.source" in text.splitlines()[0]
    assert {tuple(cells[1:3]) for cells in rows_of(text)[:2]} == {
        (f"train.en ({'a' * 12})", "1, 3"),
        (f"train.en ({'e' * 12})", "2"),
    }


def test_seeds_of_a_class_whose_code_has_changed_are_told_apart(
    tmp_path: Path, seq2seq: Callable
) -> None:
    for seed, codes in enumerate((["a" * 12], ["a" * 12], ["a" * 12, "b2"]), start=1):
        run = make_run(tmp_path / str(seed), seed=seed, model_class="my_model.Gated")
        lines = [json.dumps(asdict(SESSION) | {"class_code": code}) for code in codes]
        (run / "sessions.jsonl").write_text("\n".join(lines))
    rows = json.loads(seq2seq("runs", "--seeds", "--format", "json", tmp_path).out)
    assert {row["model_class"]: row["seeds"] for row in rows} == {
        "my_model.Gated (aaaaaaaaaaaa)": [1, 2],
        "my_model.Gated (aaaaaaaaaaaa, then b2)": [3],
    }
    make_run(tmp_path / "paper")
    shutil.rmtree(tmp_path / "3")
    rows = json.loads(seq2seq("runs", "--seeds", "--format", "json", tmp_path).out)
    assert {row["model_class"] for row in rows} == {"my_model.Gated", None}


def test_the_same_seed_twice_in_a_row_is_told(laptops: Path, seq2seq: Callable) -> None:
    shutil.copytree(laptops / "ben", laptops / "stick" / "ben")
    result = seq2seq("runs", "--seeds", laptops)
    assert "several runs of a row have the same seed" in result.err
    assert "seed 2\n" in result.err


def test_figures_that_end_before_the_run_are_told(tmp_path: Path, seq2seq: Callable) -> None:
    for name, last in (("whole", 300), ("cut", 200)):
        run = make_run(tmp_path / name)
        lines = [json.dumps({"step": 100, **validation(20.0)}), json.dumps({"step": last})]
        (run / "metrics.jsonl").write_text("\n".join(lines))
        progress = {"fixed": {}, "changeable": {}, "progress": asdict(Progress(step=300))}
        content = {"progress.json": json.dumps(progress).encode()}
        write_folder(run / "checkpoints" / "step_300", content)
    (note,) = [line for line in seq2seq("runs", tmp_path).out.splitlines() if "ends before" in line]
    assert note.endswith(f"copy the folder again: {tmp_path / 'cut'}")


@pytest.mark.parametrize(
    ("content", "reason"), [("", "it is empty"), ("seed: 1\ndata:\n  name", "line 4: ")]
)
def test_a_configuration_that_was_cut_off_is_refused(
    tmp_path: Path, seq2seq: Callable, content: str, reason: str
) -> None:
    run = make_run(tmp_path / "run")
    (run / "config.yaml").write_text(content + ("\n  x: 1" if content else ""))
    result = seq2seq("runs", run)
    assert (result.code, result.out) == (1, "")
    assert f"{run / 'config.yaml'}: not a configuration of this program: {reason}" in result.err
    assert "^" not in result.err


def test_a_latex_table_is_escaped_and_has_its_signatures_as_comments(
    tmp_path: Path, seq2seq: Callable
) -> None:
    for number, name in enumerate(("50%_of_A&B", "all_$")):
        make_run(tmp_path / name, test=10.0 + number, bleu=20.0 + number, data__name=name)
    printed = seq2seq("runs", "--format", "latex", tmp_path).out
    comments = [line for line in printed.splitlines() if line.startswith("%")]
    assert comments[0] == r"% \usepackage{booktabs}"
    assert f"% BLEU|{SIGNATURE}" in comments
    table = printed.splitlines()[len(comments) :]
    assert table[0].startswith(r"\begin{tabular}{l")
    assert table[-1] == r"\end{tabular}"
    assert {r"\toprule", r"\midrule", r"\bottomrule"} <= set(table)
    rows = [line.removesuffix(r"\\").split(" & ") for line in table if line.endswith(r"\\")]
    assert len({len(row) for row in rows}) == 1
    assert rows[1][0].strip() == r"all\_\$"
    assert rows[2][0].strip() == r"50\%\_of\_A\&B"


def test_a_markdown_table_shows_each_text_as_it_is(tmp_path: Path, seq2seq: Callable) -> None:
    names = ["<bt>", "*b*", "a|b", "`c", "[d](e)", "\\", "x_y"]
    for number, name in enumerate(names):
        make_run(tmp_path / f"{number}", data__name=name)
    table = seq2seq("runs", "--format", "markdown", tmp_path).out.partition("\n\n")[0]
    html = MarkdownIt().enable("table").render(table)
    rows = lxml.html.fromstring(html).xpath("//tbody/tr")
    assert sorted(row[1].text_content() for row in rows) == sorted(names)


def test_scores_of_several_signatures_are_said_not_to_be_comparable(
    tmp_path: Path, seq2seq: Callable
) -> None:
    make_run(tmp_path / "a", test=1.0)
    make_run(tmp_path / "b", test=2.0, signature="nrefs:1|tok:zh", machine="Another")
    make_run(tmp_path / "c")
    text = seq2seq("runs", tmp_path).out
    assert "BLEU: the signatures differ, and these scores can't be compared" in text
    assert f"BLEU|nrefs:1|tok:zh, of {tmp_path / 'b'} (BLEU)" in text
    assert "machine (not the same in all runs): " in text
    assert re.search(rf"seq2seq report RUN scores it\): {tmp_path / 'c'}$", text, re.M)


def test_the_table_fits_a_terminal_and_no_cell_is_lost(
    sweep: Path, seq2seq: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run(sweep / f"a{'b' * 100}", data__train__source="x" * 300, training__init_std=0.02)
    monkeypatch.setenv("COLUMNS", "80")
    lines = seq2seq("runs", sweep).out.splitlines()
    table = lines[: max(i for i, line in enumerate(lines) if not line) + 1]
    assert max(map(len, table)) <= 80
    whole = "".join(table)
    assert whole.count("x") >= 300
    for title in ("dropout", "seed", "init_std", "perplexity", "BLEU", "test/news"):
        assert title in whole
    monkeypatch.setenv("COLUMNS", "1000")
    assert "x" * 24 in seq2seq("runs", sweep).out


def test_what_a_stranger_has_named_is_shown_and_not_interpreted(
    tmp_path: Path, seq2seq: Callable
) -> None:
    make_run(tmp_path / "a", data__name="\x1b[31mred")
    make_run(tmp_path / "b\u202e", machine="\x1b]0;title\x07\nnext")
    for form in ("text", "markdown", "latex"):
        printed = seq2seq("runs", "--format", form, tmp_path).out
        assert not {"\x1b", "\x07", "\u202e"} & set(printed)
        assert not any(line.startswith("next") for line in printed.splitlines())
