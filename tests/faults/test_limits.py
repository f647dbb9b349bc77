"""Memory that runs out: one line, in any command."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from seq2seq.errors import OutOfMemoryError, out_of_memory
from seq2seq.tokenizer import Tokenizer
from tests.models import save_untrained


@pytest.fixture
def model(tmp_path: Path, tokenizer: Tokenizer) -> Path:
    (tmp_path / "text").write_text("a man sees the sea.\n" * 50)
    return save_untrained(tmp_path / "model", tokenizer, d_ff=2**20)


def test_a_search_that_is_too_large_is_one_line(model: Path, trial: Callable) -> None:
    resource = pytest.importorskip("resource")
    command = [sys.executable, "-m", "seq2seq", "translate", "--model", model, "--beam", "1000"]
    limit = 4 * 2**30
    with trial("a size beyond the memory"), (model.parent / "text").open() as text:
        result = subprocess.run(
            command,
            stdin=text,
            capture_output=True,
            text=True,
            timeout=120,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
        )
        assert result.returncode == 1
        assert result.stderr.count("\n") == 1, result.stderr
        assert result.stderr.startswith("seq2seq: out of memory: "), result.stderr


def test_what_libraries_say_is_told_apart() -> None:
    assert isinstance(out_of_memory(MemoryError()), OutOfMemoryError)
    assert isinstance(
        out_of_memory(torch.OutOfMemoryError("CUDA out of memory.")), OutOfMemoryError
    )
    with pytest.raises(RuntimeError) as no_memory:
        torch.empty(2**60)
    assert isinstance(out_of_memory(no_memory.value), OutOfMemoryError)
    assert out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied")) is None
    assert out_of_memory(KeyError("out of memory")) is None
