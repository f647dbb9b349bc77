"""Benchmarks on models and texts that take no time: each prints a row for what it measured."""

import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from seq2seq.tokenizer import Tokenizer
from tests.models import save_untrained

BENCHMARKS = Path(__file__).parents[2] / "scripts" / "benchmarks"


@pytest.fixture
def rows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., list[list[str]]]:
    """Run a benchmark in this process, and return the cells of every row that it prints."""

    def run(script: str, *words: str | Path) -> list[list[str]]:
        monkeypatch.setattr(sys, "argv", [script, *map(str, words)])
        monkeypatch.setattr(sys, "path", [*sys.path])
        runpy.run_path(str(BENCHMARKS / script), run_name="__main__")
        lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
        return [[cell.strip() for cell in line.strip("| ").split("|")] for line in lines]

    return run


def test_a_translation_is_measured_for_each_system(
    tokenizer: Tokenizer,
    sentences: list[str],
    tmp_path: Path,
    rows: Callable[..., list[list[str]]],
) -> None:
    save_untrained(tmp_path / "model", tokenizer)
    (tmp_path / "text").write_text("\n".join(sentences[:4]))
    words = ["--model", tmp_path / "model", "--source", tmp_path / "text", "--reference"]
    words += [tmp_path / "text", "--rounds", "1", "--single", "2", "--beam", "2", "--only"]
    systems = ["ours, fp32, 1 worker", "CTranslate2, int8, 2 x 1, 32 a batch"]
    _, *found = rows("decoding.py", *words, *systems)
    assert [row[0] for row in found] == systems
    for _, speed, spread, *_ in found:
        low, _, high = spread.split()
        assert 0 < float(low) <= float(speed) <= float(high)


@pytest.mark.skipif(torch.backends.cuda.is_built(), reason="needs a PyTorch without CUDA")
def test_each_form_asks_less_of_a_gpu_than_the_one_before(
    rows: Callable[..., list[list[str]]],
) -> None:
    sizes = ["--layers", "1", "--vocab-size", "1000", "--length", "20", "--sentences", "3"]
    *found, _, update = rows("count.py", *sizes, "--steps", "5", "--tokens", "64")
    launched = [int(row[3]) for row in found[1:]]
    assert launched[1] < launched[0]
    assert found[-1][3:] == ["2", "0"]  # a graph and a mask, no wait
    assert 0 < int(update[1]) < 300
