"""kill -9 at any moment of the translation of a folder."""

import os
import signal
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from seq2seq import files
from seq2seq.tokenizer import Tokenizer
from tests.forked import PIPE, Forked
from tests.models import save_untrained


def die_after(whole_files: int) -> None:
    """Let this process be killed when so many files are whole, and the next one is not."""
    give_name, written = files.give_name, count()

    def give_name_or_die(*file: Any) -> None:
        if next(written) == whole_files:
            os.kill(os.getpid(), signal.SIGKILL)
        give_name(*file)

    files.give_name = give_name_or_die


@pytest.mark.posix
@pytest.mark.integration
def test_a_folder_is_whole_after_a_kill_at_any_moment(
    tokenizer: Tokenizer, seq2seq: Callable, tmp_path: Path, trial
) -> None:
    model, folder = save_untrained(tmp_path / "model", tokenizer), tmp_path / "site"
    (folder / "sub").mkdir(parents=True)
    for name in ("a.txt", "sub/b.txt"):
        (folder / name).write_text(f"A man sees {name}.\n")
    words = ["translate", "--model", str(model), "-i", str(folder), "-o"]

    def contents(output: Path) -> dict[str, bytes]:
        paths = (path for path in output.rglob("*") if path.is_file())
        return {str(path.relative_to(output)): path.read_bytes() for path in paths}

    assert seq2seq(*words, tmp_path / "whole").code == 0
    for whole_files in range(3):
        output = tmp_path / str(whole_files)
        resumable, first = [*words, output, "--resume"], partial(die_after, whole_files)
        with trial("kill -9 while translating a folder"):
            with Forked(resumable, stdout=PIPE, stderr=PIPE, first=first) as killed:
                assert killed.wait() == -signal.SIGKILL
            result = seq2seq(*resumable)
            assert result.code == 0, result.err
            assert f"{whole_files} kept" in result.err
            assert contents(output) == contents(tmp_path / "whole")
