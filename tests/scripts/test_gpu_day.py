"""The day with a GPU: parts that fail or take too long, several calls, and what they are."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

import seq2seq
from scripts.gpu_day import (
    FULL,
    SMALL,
    Parts,
    bleu_line,
    do_parts,
    figures_of_step,
    origin,
    write_corpora,
    write_table3,
)
from scripts.measurements import CHECKOUT, Measurements, Part, Result
from scripts.table3 import CONCLUSIONS, ROWS, Scores, compare
from seq2seq.fast.trials import TRIALS
from seq2seq.machine.resources import machine_name

pytestmark = pytest.mark.posix  # parts are groups of processes


def part(name: str, code: str, **choices: Any) -> Part:
    return Part(name, ("-c", code), **choices)


def rows_of(table: str) -> list[list[str]]:
    return [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")]


def test_a_part_that_fails_or_takes_too_long_is_a_line_of_the_table(tmp_path: Path) -> None:
    day = Measurements(tmp_path, "a card", "a program", 10**6)
    parts = (
        part("good", "print('5 tokens')", figures=lambda printed: {"tokens": int(printed[0])}),
        part(
            "bad",
            "import sys; print('no way'); sys.exit('a b | c')",
            figures=lambda printed: {"": printed.splitlines()[7]},
        ),
        part("a step", "import sys; sys.exit('out of memory')", figures=figures_of_step),
        part("a score", "print('no score')", figures=bleu_line),
        part("slow", "import time; time.sleep(10**6)", seconds=0.1),
        part("elsewhere", "", needs=tmp_path / "corpora"),
    )
    ended = [day.measure(one).ended for one in parts]
    absent = f"not started: no folder {tmp_path / 'corpora'}"
    unread = "failed: its figures can't be read (LookupError('no line begins with BLEU'))"
    assert ended == [
        *("done", "failed: a b | c", "failed: out of memory", unread, "out of time", absent)
    ]
    table = (tmp_path / "table.md").read_text()
    _, *found = rows_of(table)
    assert [row[:4] for row in found] == [
        ["good", "tokens 5", found[0][2], "done"],
        ["bad", "", found[1][2], "failed: a b / c"],
        ["a step", "", found[2][2], "failed: out of memory"],
        ["a score", "", found[3][2], unread],
        ["slow", "", found[4][2], "out of time"],
    ]
    assert all(row[4:6] == ["a card", "a program"] for row in found)
    assert "- good: `python -c print('5 tokens')`" in table
    assert (tmp_path / "output/bad.txt").read_text() == "no way\na b | c\n"


def test_the_next_call_does_what_is_left(tmp_path: Path) -> None:
    now = [0.0]
    started = tmp_path / "started"
    parts = [
        part("first", f"open({str(started)!r}, 'a').write('x')"),
        part("second", f"open({str(tmp_path / 'second')!r})"),
        part("training", "", least=50.0),
    ]
    for end in ("failed", "done"):
        day = Measurements(tmp_path, "", "", 100.0, grace=10.0, clock=lambda: now[0])
        now[0] += 45.0
        complete = do_parts(parts, day, (), again=False)
        assert not complete
        assert day.results[-1].part == "second"
        assert day.results[-1].ended.startswith(end)
        (tmp_path / "second").touch()
    assert started.read_text() == "x"
    day = Measurements(tmp_path, "", "", 100.0, grace=10.0, clock=lambda: now[0])
    assert do_parts(parts, day, (), again=False)
    assert [row[0] for row in rows_of(day.table())[1:]] == ["first", "second", "training"]
    assert do_parts(parts, day, ("fir",), again=True)
    assert started.read_text() == "xx"


def test_a_training_that_is_done_again_begins_anew_and_one_that_was_stopped_goes_on(
    tmp_path: Path,
) -> None:
    run = tmp_path / "run"
    steps = f"import pathlib, sys; p = pathlib.Path({str(run)!r}); p.mkdir(exist_ok=True)"
    steps += "; (p / str(len(list(p.iterdir())))).touch(); sys.exit({})"
    day = Measurements(tmp_path, "", "", 10**6)
    taken = []
    for code, again in ((1, False), (0, False), (1, True), (0, True), (0, True)):
        training = part("training", steps.format(code), runs=[run])
        do_parts([training], day, (), again=again)
        taken.append(len(list(run.iterdir())))
    assert taken == [1, 2, 1, 2, 1]
    day = Measurements(tmp_path, "", "", 1.0)  # too little time to start anything
    do_parts([training], day, (), again=True)
    assert run.exists()


class Imagined(Measurements):
    """Measurements that take no time: the part that is best on validation has most letters."""

    failing = ""

    def measure(self, part: Part) -> Result:
        figures = {"perplexity": 9.0, "BLEU": float(len(part.name))}
        ended = "failed: no" if part.name == self.failing else "done"
        result = Result(
            part.name, ended, figures, 1, "", "", "2026-01-02 03:04", " ".join(part.command)
        )
        self.results.append(result)
        return result


def imagined(folder: Path, failing: str = "") -> Imagined:
    day = Imagined(folder, "", "", 1.0)
    day.failing = failing
    parts = Parts(folder, FULL, Path("/corpora"), day.done)
    assert do_parts(parts, day, (), again=False) == (not failing)
    return day


def test_what_is_best_on_validation_is_trained_with_all_seeds_and_scored(tmp_path: Path) -> None:
    commands = {result.part: result.command for result in imagined(tmp_path).results}
    scored = commands["quality/Multi30k, scored with BPE-dropout 0.03"]
    assert scored.startswith("scripts/results.py multi30k_published /corpora --runs ")
    assert "data.tokenizer.sampling=0.03" in scored
    first_seed = commands["quality/Multi30k, BPE-dropout 0.03"]
    runs = scored.split("--runs ")[1].split()[0]
    assert f"run_dir={runs}/multi30k_published/multi30k_published_1 " in first_seed
    assert sum("Multi30k, scored" in name for name in commands) == 1
    without = imagined(tmp_path, "quality/Multi30k, as published").results
    assert not any("Multi30k, scored" in result.part for result in without)


def test_what_is_done_without_its_scores_is_not_compared(tmp_path: Path) -> None:
    class WithoutScores(Imagined):
        def measure(self, part: Part) -> Result:
            super().measure(part).figures.clear()
            return self.results[-1]

    day = WithoutScores(tmp_path, "", "", 1.0)
    do_parts(Parts(tmp_path, FULL, Path("/corpora"), day.done), day, (), again=False)
    assert not any("scored" in result.part for result in day.results)
    write_table3(day, FULL.about_rows)
    assert not (tmp_path / "table3.md").exists()


def test_the_card_and_the_program_are_those_of_a_session(tmp_path: Path) -> None:
    card, program = origin("cpu")
    assert card == machine_name(torch.device("cpu"))
    assert program.startswith(f"seq2seq {seq2seq.__version__} (")
    with pytest.raises(SystemExit, match=r"^RuntimeError: .* device string: no_device"):
        origin("no_device")


def test_a_call_is_over_in_time_however_long_its_beginning_takes(tmp_path: Path) -> None:
    words = ("--small", "--seconds", "20.1", "--only", "speed", tmp_path)
    done = subprocess.run(
        [sys.executable, CHECKOUT / "scripts/gpu_day.py", *words],
        env=os.environ | {"PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "speed/train: 0 s, not started, for want of time" in done.stderr
    assert not (tmp_path / "results.jsonl").exists()


def test_the_corpora_of_a_trial_have_no_time_in_them(tmp_path: Path) -> None:
    files = list(write_corpora(tmp_path).rglob("*.gz"))
    assert files
    assert {path.read_bytes()[4:8] for path in files} == {bytes(4)}  # RFC 1952


def test_every_form_on_trial_is_timed() -> None:
    names = {name for names in FULL.trials for name in filter(None, names.split(","))}
    assert names == set(TRIALS)


def test_table_3_has_every_row_and_big_three_times_the_steps(tmp_path: Path) -> None:
    day = imagined(tmp_path, "table3/C_n8")
    commands = {result.part: result.command.split() for result in day.results}
    assert [name for name in commands if name.startswith("table3/")] == [
        f"table3/{row.name}" for row in ROWS
    ]
    assert {"experiment=table3_kftt", "model.d_k=16"} <= set(commands["table3/B_dk16"])
    steps = [word for words in commands.values() for word in words if "max_steps=195" in word]
    assert steps == ["training.max_steps=19500"]
    assert "training.max_steps=19500" in commands["table3/big"]
    write_table3(day, FULL.about_rows)
    page = {row[0]: row for row in rows_of((tmp_path / "table3.md").read_text())}
    assert page["A_h1"][2:5] == ["9.00 (+0.00)", "5.29 (+0.37)", "11.00 (+0.00)"]
    assert page["C_n8"][2:5] == ["not run", "4.88 (-0.04)", "not run"]
    assert page["(C) eight layers are better than six"][2] == "not run"


def test_conclusions_hold_for_the_numbers_from_which_they_were_drawn() -> None:
    """The paper's own numbers contradict it once: eight layers have the lower BLEU."""
    found = rows_of(compare({row.name: row.scores for row in ROWS}))
    verdicts = {row[0]: row[2:] for row in found[-len(CONCLUSIONS) :]}
    assert all(here == papers for here, papers in verdicts.values())
    assert Counter(here for here, _ in verdicts.values()) == {
        "yes": len(CONCLUSIONS) - 1,
        "by perplexity alone": 1,
    }
    worse = {name: Scores(99.0 - row.perplexity, 99.0 - row.bleu) for name, row in _rows.items()}
    verdicts = {row[0]: row[2] for row in rows_of(compare(worse))[-len(CONCLUSIONS) :]}
    assert verdicts["(C) eight layers are better than six"] == "by BLEU alone"
    assert set(verdicts.values()) == {"no", "yes", "by BLEU alone"}
    assert [name for name, verdict in verdicts.items() if verdict == "yes"] == [
        "(E) learned positions: nearly the same"
    ]


_rows = {row.name: row for row in ROWS}


def test_nothing_is_claimed_without_results(tmp_path: Path) -> None:
    write_table3(Measurements(tmp_path, "", "", 1.0), FULL.about_rows)
    assert not (tmp_path / "table3.md").exists()
    verdicts = rows_of(compare({}))[-len(CONCLUSIONS) :]
    assert {row[2] for row in verdicts} == {"not run"}


@pytest.mark.slow
@pytest.mark.integration
def test_all_parts_are_there_at_tiny_sizes(tmp_path: Path) -> None:
    done = subprocess.run(
        ["bash", CHECKOUT / "scripts/gpu_day.sh", "--small", "--seconds", "3000", tmp_path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    _, *rows = rows_of(done.stdout)
    assert {row[3] for row in rows} == {"done"}
    groups = {row[0].partition("/")[0] for row in rows}
    assert groups == {"speed", "tests", "profile", "trial", "quality", "table3"}
    assert {row[0] for row in rows if row[0].startswith("table3/")} == {
        f"table3/{row.name}" for row in SMALL.rows
    }
    assert (tmp_path / "table3.md").exists()
