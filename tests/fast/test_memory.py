"""Memory of a process, by its largest resident size."""

import subprocess
import sys

import pytest
import torch

_PRODUCTS = """
from pathlib import Path
import torch
from seq2seq.fast.process import keep_few_compiled_products

if {few}:
    keep_few_compiled_products()
weight = torch.zeros(256, 16, dtype=torch.bfloat16)
for rows in range(2, 500):
    torch.zeros(rows, 256, dtype=torch.bfloat16) @ weight
# Not of getrusage, which counts the process that started this one.
print(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
"""


@pytest.mark.skipif(
    sys.platform != "linux" or not torch.ops.mkldnn._is_mkldnn_bf16_supported(),
    reason="oneDNN compiles no bf16 products here",
)
def test_products_of_many_shapes_take_less_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "DNNL_PRIMITIVE_CACHE_CAPACITY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("LRU_CACHE_CAPACITY", raising=False)

    def peak(few: bool) -> int:
        code = _PRODUCTS.format(few=few)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
        return int(done.stdout)

    assert peak(few=True) < 0.7 * peak(few=False)
