"""Benchmarks on models and texts that take no time: each prints a row for what it measured."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from seq2seq.tokenizer import Tokenizer
from tests.models import save_untrained

BENCHMARKS = Path(__file__).parents[2] / "scripts" / "benchmarks"


def rows(script: str, *words: str | Path) -> list[list[str]]:
    """The cells of every row that a benchmark prints."""
    command = [sys.executable, BENCHMARKS / script, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("| ").split("|")] for line in lines]


def test_a_translation_is_measured_for_each_system(
    tokenizer: Tokenizer, sentences: list[str], tmp_path: Path
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
def test_each_form_asks_less_of_a_gpu_than_the_one_before() -> None:
    sizes = ["--layers", "1", "--vocab-size", "1000", "--length", "20", "--sentences", "3"]
    *found, _, update = rows("count.py", *sizes, "--steps", "5", "--tokens", "64")
    launched = [int(row[3]) for row in found[1:]]
    assert launched[1] < launched[0]
    assert found[-1][3:] == ["2", "0"]  # a graph and a mask, no wait
    assert 0 < int(update[1]) < 300
