"""`seq2seq translate` line by line: at a terminal, and in a pipe with --interactive."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import Result

SECONDS = 120  # far more than an answer takes


class Terminal:
    """The command at a terminal of its own, as a user starts it."""

    def __init__(self, *words: str | Path) -> None:
        self.master, slave = pty.openpty()
        termios.tcsetwinsize(slave, (24, 100))
        command = [sys.executable, "-m", "seq2seq", "translate", *map(str, words)]
        self.process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            # The terminal sends Ctrl-C to the process whose terminal it is.
            preexec_fn=lambda: os.login_tty(slave),
        )
        os.close(slave)
        self.shown = ""

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def read_until(self, pattern: str) -> str:
        """Return what was shown up to a pattern, and forget it."""
        end = time.monotonic() + SECONDS
        while not (found := re.search(pattern, self.shown)):
            if not select.select([self.master], [], [], end - time.monotonic())[0]:
                raise AssertionError(f"{pattern!r} is not in {self.shown!r}")
            try:
                more = os.read(self.master, 1 << 16)
            except OSError:  # the process has ended
                more = b""
            if not more:
                raise AssertionError(f"{pattern!r} is not in {self.shown!r}, and it ended")
            self.shown += more.decode()
        text, self.shown = self.shown[: found.end()], self.shown[found.end() :]
        return text

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.master)


@pytest.fixture
def terminal(trained: Path) -> Iterator[Terminal]:
    opened = Terminal("--model", trained)
    yield opened
    opened.close()


Answers = Callable[..., list[str]]


@pytest.fixture
def answers(trained: Path, seq2seq: Callable[..., Result], tmp_path: Path) -> Answers:
    """What `translate` writes for the lines of a file."""

    def translate(*lines: str) -> list[str]:
        (tmp_path / "in").write_text("".join(f"{line}\n" for line in lines))
        result = seq2seq("translate", "--model", trained, "-i", tmp_path / "in")
        return result.out.split("\n")[:-1]

    return translate


def test_a_terminal_is_answered_line_by_line_until_ctrl_d(
    terminal: Terminal, answers: Answers
) -> None:
    terminal.read_until("> $")
    lines = ("one two", "", "three")
    for line, answer in zip(lines, answers(*lines), strict=True):
        terminal.type(f"{line}\n")
        assert terminal.read_until("\n> $") == f"{line}\r\n{answer}\r\n> "
    terminal.type("\x04")
    warnings = terminal.read_until("pieces\r\n")
    assert warnings.startswith("\r\nseq2seq: lines: 3; outputs: ")
    assert terminal.process.wait(SECONDS) == 0


def test_ctrl_c_ends_it_in_one_line(terminal: Terminal) -> None:
    terminal.read_until("> $")
    terminal.type("one\n")
    terminal.read_until("> $")
    terminal.type("tw\x03")
    assert terminal.read_until("interrupted\r\n").endswith("\r\nseq2seq: interrupted\r\n")
    assert terminal.process.wait(SECONDS) == 128 + signal.SIGINT


def test_a_pipe_is_answered_line_by_line(trained: Path, tmp_path: Path, answers: Answers) -> None:
    # A prefix that is too long fails with its line alone.
    (tmp_path / "prefixes").write_text("\n" + "one two three " * 99 + "\n\n")
    command = [sys.executable, "-m", "seq2seq", "translate", "--model", str(trained)]
    command += ["--interactive", "--prefix", str(tmp_path / "prefixes")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        first, last = answers("one two", "six")
        for line, answer in (("one two", first), ("one", ""), ("six", last)):
            process.stdin.write(f"{line}\n".encode())
            process.stdin.flush()
            assert process.stdout.readline() == f"{answer}\n".encode()
        process.stdin.close()
        assert process.stdout.read() == b""
        failed, warnings = process.stderr.read().decode().splitlines()
        assert failed.startswith("seq2seq: line 2: the prefix has ")
        assert warnings.startswith("seq2seq: lines: 3; ")
    assert process.returncode == 0
