"""Paired tests equal sacreBLEU's own command, and order systems whose order is known."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE
from typing import get_args

import numpy as np
import pytest

from seq2seq.report.significance import Resampling, bleu_interval, compare
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


@pytest.mark.parametrize("resampling", get_args(Resampling))
def test_equal_scores_and_single_lines_prove_nothing(resampling: Resampling) -> None:
    one = {"a": ["The dog runs ."], "b": ["A cat sits ."]}
    spaced = {"a": ["The dog runs ."] * 20, "b": ["The dog runs."] * 20}  # 13a splits both alike
    for systems, metrics in ((one, {"BLEU", "chrF2", "TER"}), (spaced, {"BLEU"})):
        references = [["The dog sleeps ."] * len(systems["a"])]
        for found in compare(systems, references, resampling=resampling, samples=50):
            assert found.differing_lines > 0
            if found.metric in metrics:
                assert found.p_value == 1.0


@pytest.mark.parametrize(
    ("resampling", "options", "metrics"),
    [
        # The command fails to write a bootstrap of chrF or TER as JSON.
        ("bootstrap", ["--paired-bs", "--paired-bs-n", "100"], ["BLEU"]),
        ("randomization", ["--paired-ar", "--paired-ar-n", "100"], ["BLEU", "chrF2", "TER"]),
    ],
)
def test_comparisons_equal_those_of_sacrebleu_s_command(
    tmp_path: Path, resampling: Resampling, options: list[str], metrics: list[str]
) -> None:
    for name, lines in {**SYSTEMS, "references": REFERENCES}.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    command = [sys.executable, "-m", "sacrebleu", "references", "-i", *SYSTEMS, *options]
    command += ["-m", *(name.lower().rstrip("2") for name in metrics), "--format", "json"]
    environment = {**os.environ, "SACREBLEU_SEED": "7"}
    output = subprocess.run(command, check=True, stdout=PIPE, cwd=tmp_path, env=environment).stdout
    expected = json.loads(output)
    compared = compare(SYSTEMS, [REFERENCES], resampling=resampling, samples=100, seed=7)
    found = {(comparison.system, comparison.metric): comparison for comparison in compared}
    assert len(found) == 8
    for row, name in zip(expected[1:], ["worse", "similar"], strict=True):
        for metric in metrics:
            ours, theirs = found[name, metric], row[metric]
            assert ours.value == pytest.approx(theirs["score"], abs=1e-9)
            assert ours.p_value == pytest.approx(theirs["p_value"], abs=1e-12)
            baseline = expected[0][metric]["score"]
            assert ours.difference == pytest.approx(theirs["score"] - baseline, abs=1e-9)
            if resampling == "bootstrap":
                low, high = theirs["mean"] - theirs["ci"], theirs["mean"] + theirs["ci"]
                assert ours.interval == pytest.approx((low, high), abs=1e-9)
            else:
                assert ours.interval is None


def test_the_seed_alone_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    one, again, other = (compare(SYSTEMS, [REFERENCES], samples=20, seed=s) for s in (3, 3, 4))
    assert one == again
    assert [c.interval for c in one] != [c.interval for c in other]
    assert "SACREBLEU_SEED" not in os.environ
    monkeypatch.setenv("SACREBLEU_SEED", "99")
    assert compare(SYSTEMS, [REFERENCES], samples=20, seed=3) == one
    assert os.environ["SACREBLEU_SEED"] == "99"


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
