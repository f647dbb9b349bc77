"""The plans of PyTorch's compiler for the ends of sublayers and for whole layers."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
@pytest.mark.skipif(torch.backends.cuda.is_built(), reason="needs a PyTorch without CUDA")
def test_an_end_is_one_kernel_forward_and_three_backward() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/count_compiled.py", "--tokens", "256"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    rows = [line.strip("| ").split(" | ") for line in done.stdout.splitlines()[2:]]
    kernels = {(row[0], row[1]): int(row[2]) for row in rows}
    beside = 4  # ReLU, its gradient, and those of two biases
    sums = {"of the encoder": 4, "of the decoder": 6}  # of gradients
    for (layer, form), count in kernels.items():
        ends = 2 if layer == "of the encoder" else 3
        with_ends = 4 * ends + beside + sums[layer]
        assert count == with_ends if form == "its ends" else count <= with_ends
