"""Threads and memory of the process: batches in parallel, and oneDNN's compiled matmuls."""

import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch

from seq2seq.fast.process import parallel_map


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("workers", [0, 1, 3])
def test_results_come_in_order_from_operations_of_one_thread(workers: int) -> None:
    with parallel_map(workers) as run:
        found = list(run(lambda number: (number, torch.get_num_threads()), range(20)))
    assert found == [(number, 1) for number in range(20)]
    assert torch.get_num_threads() == 2
    with pytest.raises(ZeroDivisionError), parallel_map(workers) as run:
        list(run(lambda number: 1 / number, [1, 0]))
    assert torch.get_num_threads() == 2


_PRODUCTS = """
from pathlib import Path
import torch
from seq2seq.fast.process import keep_few_compiled_matmuls

if {few}:
    keep_few_compiled_matmuls()
weight = torch.zeros(256, 16, dtype=torch.bfloat16)
peaks = []
for rows in range(2, 500):
    torch.zeros(rows, 256, dtype=torch.bfloat16) @ weight
    # Not of getrusage, which counts the process that started this one.
    peaks.append(int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]))
print(peaks[-1] - peaks[0])
"""


@pytest.mark.skipif(
    sys.platform != "linux" or not torch.ops.mkldnn._is_mkldnn_bf16_supported(),
    reason="oneDNN compiles no bf16 products here",
)
@pytest.mark.slow
def test_products_of_many_shapes_take_less_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "DNNL_PRIMITIVE_CACHE_CAPACITY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("LRU_CACHE_CAPACITY", raising=False)

    def growth(few: bool) -> int:
        code = _PRODUCTS.format(few=few)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
        return int(done.stdout)

    assert growth(few=True) < 0.7 * growth(few=False)
