"""`seq2seq translate` line by line, at a terminal."""

import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from seq2seq.decoding.translator import Translator
from tests.cli.conftest import SECONDS, Terminal


@pytest.fixture
def terminal(trained: Path) -> Iterator[Terminal]:
    opened = Terminal("translate", "--model", trained)
    yield opened
    opened.close()


def answers(trained: Path, *lines: str) -> list[str]:
    return [translation.text for translation in Translator.load(trained).translate(lines)]


def test_a_terminal_is_answered_line_by_line_until_ctrl_d(
    trained: Path, terminal: Terminal
) -> None:
    terminal.read_until("> $")
    lines = ("one two", "", "three")
    for line, answer in zip(lines, answers(trained, *lines), strict=True):
        terminal.type(f"{line}\n")
        assert terminal.read_until("\n> $") == f"{line}\r\n{answer}\r\n> "
    terminal.type("\x04")
    terminal.read_until("^\r\nseq2seq: lines: 3; .*\r\n")
    assert terminal.process.wait(SECONDS) == 0


def test_ctrl_c_ends_it_in_one_line(terminal: Terminal) -> None:
    terminal.read_until("> $")
    terminal.type("one\n")
    terminal.read_until("> $")
    # Python would keep a signal that comes just before the system call for the next line.
    status = Path(f"/proc/{terminal.process.pid}/stat")
    while status.read_text().rpartition(") ")[2][0] != "S":
        time.sleep(0.01)
    terminal.type("tw\x03")
    assert terminal.read_until("interrupted\r\n").endswith("\r\nseq2seq: interrupted\r\n")
    assert terminal.process.wait(SECONDS) == 128 + signal.SIGINT


def test_lines_that_are_typed_are_not_resumed(
    seq2seq: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    result = seq2seq("translate", "--model", "none", "--resume", "-o", "out")
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("seq2seq: --resume continues the translation of a file: give -i")
