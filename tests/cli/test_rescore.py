"""`seq2seq rescore`: log-probabilities of given translations."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest


def test_the_model_s_own_output_has_the_scores_of_its_search(
    trained: Path, corpus, seq2seq: Callable, tmp_path: Path
) -> None:
    source, output = corpus.folder / "test.source", tmp_path / "out"
    words = ("--model", trained, "-i", source, "--scores", "--alpha", "0")
    found = [line.split("\t") for line in seq2seq("translate", *words).out.splitlines()]
    output.write_text("".join(text + "\n" for _, text in found))

    rescore = ("rescore", "--model", trained, "-s", source, "-i", output)
    result = seq2seq(*rescore, "--per-line")
    assert result.code == 0
    rows = [line.split("\t") for line in result.out.splitlines()]
    assert [float(p) for p, _ in rows] == pytest.approx([float(p) for p, _ in found], abs=1e-4)
    total, tokens = sum(float(p) for p, _ in rows), sum(int(n) for _, n in rows)
    assert f"{tokens} tokens, perplexity {math.exp(-total / tokens):.4f}\n" in result.err

    summary = seq2seq(*rescore)
    assert (summary.out, summary.err) == (result.err, "")

    printed = json.loads(seq2seq(*rescore, "--json", "--per-line").out)
    assert (printed["tokens"], len(printed["lines"])) == (tokens, len(found))
    assert printed["log_probability"] == pytest.approx(total, abs=1e-4)
    assert printed["perplexity"] == pytest.approx(math.exp(-total / tokens), abs=1e-6)
    assert "lines" not in json.loads(seq2seq(*rescore, "--json").out)
