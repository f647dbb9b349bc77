"""The reader of the output stops in the middle of it."""

import subprocess
import sys
from pathlib import Path

import pytest

from seq2seq.tokenizer import Tokenizer
from tests.faults.conftest import Trial, Trials
from tests.models import save_untrained


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> Path:
    """An untrained model and a text long enough to fill any pipe."""
    folder = tmp_path_factory.mktemp("pipe")
    save_untrained(folder / "model", tokenizer)
    (folder / "text").write_text("a man sees the sea.\n" * 2000)
    return folder


def test_a_closed_pipe_ends_every_command_quietly(
    folder: Path, trial: Trial, trials: Trials
) -> None:
    commands = [
        ["translate", "--model", folder / "model", "-i", folder / "text", "--beam", "1"],
        ["train", "--cfg", "job"],
        ["score", "-i", folder / "text", "-r", folder / "text", "--json"],
        ["fidelity", "model=tiny"],
        ["--help"],
    ]
    for number in range(trials(2, 20)):
        command = [sys.executable, "-m", "seq2seq", *map(str, commands[number % len(commands)])]
        with trial("a closed pipe"):
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            assert process.stdout
            assert process.stderr
            process.stdout.readline()
            process.stdout.close()
            err = process.stderr.read().decode()
            process.stderr.close()
            assert process.wait(60) == 0, err
            assert err == ""
