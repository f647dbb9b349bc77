"""kill -9 at any moment of the translation of a folder."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from seq2seq.tokenizer import Tokenizer
from tests.models import save_untrained

# Runs a command that is killed when so many files are whole, and the next one is not.
KILLED = """
import os, signal, sys
from seq2seq.cli.main import main
from seq2seq import files as atomic

give_name, left = atomic.give_name, int(sys.argv[1])

def give_name_or_die(*file):
    global left
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
    left -= 1
    give_name(*file)

atomic.give_name = give_name_or_die
sys.exit(main(sys.argv[2:]))
"""


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
        files = (path for path in output.rglob("*") if path.is_file())
        return {str(path.relative_to(output)): path.read_bytes() for path in files}

    assert seq2seq(*words, tmp_path / "whole").code == 0
    for whole_files in range(3):
        output = tmp_path / str(whole_files)
        command = [sys.executable, "-c", KILLED, str(whole_files), *words, output, "--resume"]
        with trial("kill -9 while translating a folder"):
            assert subprocess.run(command, capture_output=True).returncode == -9
            result = seq2seq(*words, output, "--resume")
            assert result.code == 0, result.err
            assert f"{whole_files} kept" in result.err
            assert contents(output) == contents(tmp_path / "whole")
