"""The count of a step's kernels, on a model of one layer."""

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(torch.backends.cuda.is_built(), reason="needs a PyTorch without CUDA")
def test_each_form_asks_less_of_a_gpu_than_the_one_before() -> None:
    words = ["scripts/count_kernels.py", "--layers", "1", "--vocab-size", "1000", "--length", "20"]
    done = subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    rows = [line.strip("| ").split(" | ") for line in done.stdout.splitlines()[2:]]
    counts = [[float(cell.replace(",", "")) for cell in row[1:]] for row in rows]
    assert len(counts) == 4
    for before, after in pairwise(counts):
        assert all(one >= other for one, other in zip(before, after, strict=True))
        assert after[0] < before[0]
    # A joined step takes one copy to the GPU, and no look at it.
    assert counts[-1][2:] == [1, 0]
