"""`seq2seq rescore`: log-probabilities of given translations."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from seq2seq.decoding.translator import Translator


def test_the_scores_are_those_of_the_translator(trained: Path, corpus, seq2seq: Callable) -> None:
    source, target = (corpus / f"test.{side}" for side in ("source", "target"))
    found = Translator.load(trained).log_probabilities(
        source.read_text().splitlines(), target.read_text().splitlines()
    )
    rescore = ("rescore", "--model", trained, "-s", source, "-i", target)
    result = seq2seq(*rescore, "--per-line")
    assert result.code == 0
    rows = [line.split("\t") for line in result.out.splitlines()]
    assert [int(n) for _, n in rows] == [score.tokens for score in found]
    expected = [score.log_probability for score in found]
    assert [float(p) for p, _ in rows] == pytest.approx(expected, abs=1e-5)
    total, tokens = sum(expected), sum(int(n) for _, n in rows)
    assert f"{tokens} tokens, perplexity {math.exp(-total / tokens):.4f}\n" in result.err

    summary = seq2seq(*rescore)
    assert (summary.out, summary.err) == (result.err, "")

    printed = json.loads(seq2seq(*rescore, "--json", "--per-line").out)
    assert (printed["tokens"], len(printed["lines"])) == (tokens, len(found))
    assert printed["log_probability"] == pytest.approx(total, abs=1e-4)
    assert printed["perplexity"] == pytest.approx(math.exp(-total / tokens), abs=1e-6)
    assert "lines" not in json.loads(seq2seq(*rescore, "--json").out)


def test_a_huge_perplexity_is_short(
    trained: Path, corpus, seq2seq: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seq2seq.decoding.ensemble.TargetScore.perplexity", 3.2e300)
    files = ("-s", corpus / "test.source", "-i", corpus / "test.target")
    result = seq2seq("rescore", "--model", trained, *files)
    assert result.out.endswith("perplexity 3.2e+300\n")
