"""Paired tests equal sacreBLEU's own command, and order systems whose order is known."""

import json
import random
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

import numpy as np
import pytest

from seq2seq.errors import UsageError
from seq2seq.report.significance import Comparison, bleu_interval, compare
from seq2seq.score import bleu


def damaged(lines: list[str], share: float, seed: int) -> list[str]:
    """The lines with some of their words replaced."""
    generator = random.Random(seed)
    return [
        " ".join("falsch" if generator.random() < share else word for word in line.split())
        for line in lines
    ]


GENERATOR = random.Random(1)
WORDS = [f"wort{i}" for i in range(50)]
REFERENCES = [" ".join(GENERATOR.choices(WORDS, k=8)) for _ in range(40)]
SYSTEMS = {
    "baseline": damaged(REFERENCES, 0.2, seed=2),
    "worse": damaged(REFERENCES, 0.4, seed=3),
    "similar": damaged(REFERENCES, 0.2, seed=4),
}


def test_equal_scores_and_single_lines_prove_nothing() -> None:
    one = {"a": ["The dog runs ."], "b": ["A cat sits ."]}
    spaced = {"a": ["The dog runs ."] * 20, "b": ["The dog runs."] * 20}  # 13a splits both alike
    for systems, metrics in ((one, {"BLEU", "chrF2", "TER"}), (spaced, {"BLEU"})):
        references = [["The dog sleeps ."] * len(systems["a"])]
        for found in compare(systems, references):
            assert found.differing_lines > 0
            if found.metric in metrics:
                assert found.p_value == 1.0


def test_comparisons_equal_those_of_sacrebleu_s_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SACREBLEU_SEED", "7")
    for name, lines in {**SYSTEMS, "references": REFERENCES}.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    command = [sys.executable, "-m", "sacrebleu", "references", "-i", *SYSTEMS, "--paired-bs"]
    # The command fails to write a bootstrap of chrF or TER as JSON.
    command += ["-m", "bleu", "--format", "json"]
    output = subprocess.run(command, check=True, stdout=PIPE, cwd=tmp_path).stdout
    baseline, *expected = json.loads(output)
    compared = compare(SYSTEMS, [REFERENCES])
    assert len(compared) == 8
    ours = [comparison for comparison in compared if comparison.metric == "BLEU"]
    for row, comparison in zip(expected, ours, strict=True):
        theirs = row["BLEU"]
        assert comparison.value == pytest.approx(theirs["score"], abs=1e-9)
        assert comparison.p_value == pytest.approx(theirs["p_value"], abs=1e-12)
        difference = theirs["score"] - baseline["BLEU"]["score"]
        assert comparison.difference == pytest.approx(difference, abs=1e-9)
        bounds = theirs["mean"] - theirs["ci"], theirs["mean"] + theirs["ci"]
        assert comparison.interval == pytest.approx(bounds, abs=1e-9)


@pytest.mark.parametrize("seed", ["abc", "-1", "1.5", "٣"])
def test_a_seed_that_sacrebleu_would_fail_on_is_refused(
    seed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SACREBLEU_SEED", seed)
    with pytest.raises(UsageError, match=f"^SACREBLEU_SEED={seed}: must be a whole number"):
        compare(SYSTEMS, [REFERENCES])
    with pytest.raises(UsageError, match=f"^SACREBLEU_SEED={seed}: must be a whole number"):
        bleu_interval(REFERENCES, REFERENCES)


def test_an_interval_is_that_of_resampled_texts() -> None:
    outputs, references = SYSTEMS["baseline"] * 3, REFERENCES * 3
    chance, count = random.Random(1), len(references)
    values = []
    for _ in range(150):
        lines = chance.choices(list(zip(outputs, references, strict=True)), k=count)
        drawn_outputs, drawn_references = zip(*lines, strict=True)
        values.append(bleu(drawn_outputs, [drawn_references]).value)
    expected = np.percentile(values, [2.5, 97.5])
    assert bleu_interval(outputs, references) == pytest.approx(expected, abs=2)


def test_no_interval_is_wider_than_the_range_of_its_score() -> None:
    references = ["the cat sat on the mat", "the dog barks", "hello world again"]
    better = [references[0], "a dog barks", references[2]]
    intervals = {x.metric: x.interval for x in compare({"a": ["a"] * 3, "b": better}, [references])}
    assert intervals.pop("TER")[0] == 0.0
    assert {bounds[1] for bounds in intervals.values()} == {100.0}
    worse = compare({"a": better, "b": ["many words that nobody said here"] * 3}, [references])
    assert worse[-1].metric == "TER"
    assert worse[-1].interval[1] > 100.0


@pytest.mark.parametrize(
    ("metric", "difference", "p_value", "better"),
    [
        ("BLEU", 1.0, 0.01, "new"),
        ("BLEU", -1.0, 0.01, "old"),
        ("TER", 1.0, 0.01, "old"),
        ("TER", -1.0, 0.01, "new"),
        ("TER", -1.0, 0.05, ""),
    ],
)
def test_a_lower_ter_is_better_and_a_higher_score_of_the_others(
    metric: str, difference: float, p_value: float, better: str
) -> None:
    found = Comparison("new", "old", metric, 50.0, difference, p_value, (40.0, 60.0), 9, "")
    assert found.better == better
