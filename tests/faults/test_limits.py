"""Memory that runs out and numbers that are too large: one line, in any command."""

import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from seq2seq.data.tokenizer import Tokenizer
from seq2seq.errors import OutOfMemoryError, limit_reached
from tests.models import save_untrained


@pytest.fixture
def model(tmp_path: Path, tokenizer: Tokenizer) -> Path:
    (tmp_path / "text").write_text("a man sees the sea.\n" * 50)
    return save_untrained(tmp_path / "model", tokenizer)


OUT_OF_MEMORY, TOO_LARGE = "out of memory: ", "a number is too large to compute with: "


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("--beam 1000000", OUT_OF_MEMORY),
        ("--beam 100000000000000000000", TOO_LARGE),
        ("--sample --nbest 100000000", OUT_OF_MEMORY),
    ],
)
def test_a_search_that_is_too_large_is_one_line(
    model: Path, options: str, says: str, trial: Callable
) -> None:
    command = [sys.executable, "-m", "seq2seq", "translate", "--model", model, *options.split()]
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
        assert result.stderr.removeprefix("seq2seq: ").startswith(says), result.stderr


def test_what_libraries_say_is_told_apart() -> None:
    assert isinstance(limit_reached(MemoryError()), OutOfMemoryError)
    assert isinstance(
        limit_reached(torch.OutOfMemoryError("CUDA out of memory.")), OutOfMemoryError
    )
    with pytest.raises(RuntimeError) as no_memory:
        torch.empty(2**60)
    assert isinstance(limit_reached(no_memory.value), OutOfMemoryError)
    for wrong in (lambda: torch.empty(2**62, 4), lambda: torch.empty(10**30), lambda: 2.0**10**6):
        with pytest.raises((RuntimeError, TypeError, OverflowError)) as caught:
            wrong()
        found = limit_reached(caught.value)
        assert found is not None
        assert not isinstance(found, OutOfMemoryError)
    assert limit_reached(RuntimeError("mat1 and mat2 shapes cannot be multiplied")) is None
    assert limit_reached(KeyError("overflow")) is None
