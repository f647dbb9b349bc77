"""The command itself: help, version, exit codes."""

import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from seq2seq import __version__


def test_help_names_every_command_and_shows_an_example(seq2seq: Callable) -> None:
    result = seq2seq("--help")
    assert result.code == 0
    for name in ("train", "translate", "score", "average", "examples:"):
        assert name in result.out


def test_help_needs_no_torch() -> None:
    code = "import sys, seq2seq.cli.main as m\ntry: m.main(['translate', '--help'])\n"
    code += "except SystemExit: pass\nassert 'torch' not in sys.modules"
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    assert time.perf_counter() - started < 5.0  # 0.1 s on an idle machine


def test_version(seq2seq: Callable) -> None:
    assert seq2seq("--version").out == f"seq2seq {__version__}\n"


@pytest.mark.parametrize("words", [[], ["trian"], ["translate", "--modle", "x"], ["average"]])
def test_bad_usage_is_exit_code_2(seq2seq: Callable, words: list[str]) -> None:
    result = seq2seq(*words)
    assert result.code == 2
    assert result.out == ""
    assert "Traceback" not in result.err
