"""The comparison of modern models: which runs it makes, and its tables."""

import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "modern.py"


def test_the_better_rate_is_taken_and_what_diverged_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script, done = runpy.run_path(str(SCRIPT)), []

    def outcome(run: Any, **_: Any) -> Any:
        done.append(run)
        best = {"paper": 0.25, "all": 1.0}.get(run.model, 0.5)
        bleu = 30 + (run.model == "all") - abs(run.scale - best) + run.seed
        diverged = run.warm_up == 3 and run.model == "paper"
        return script["Outcome"](*([] if diverged else [bleu, 2.5, 5000.0, 7_000_000, bleu + 1]))

    monkeypatch.setitem(script["main"].__globals__, "outcome", outcome)
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), "corpora", "--runs", str(tmp_path)])
    script["main"]()
    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == "| paper | 0.25 | 32.50 (32.00, 33.00) | 31.50 | 2.500 | 5,000 | 7,000,000 |"
    assert lines[3].startswith("| norm_position | 1 | 32.00 (31.50, 32.50)")
    assert lines[-1] == "| 3 | diverged | 2.500 |"
    assert len(done) == 6 + 8 * 2 + 2 * 5
