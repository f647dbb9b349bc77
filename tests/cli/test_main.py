"""The command itself: help, version, exit codes."""

import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest

from seq2seq.cli.main import main
from seq2seq.cli.train import train


def test_help_needs_no_torch() -> None:
    code = "import sys, seq2seq.cli.main as m\ntry: m.main(['score', '--help'])\n"
    code += "except SystemExit: pass\nassert not {'torch', 'sacrebleu'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


@pytest.mark.parametrize("words", ["", "-i one.en"])
def test_a_line_of_text_is_translated_by_45_modules_or_fewer(
    quick: Path, tmp_path: Path, words: str
) -> None:
    (tmp_path / "one.en").write_text("a man sees the sea.\n")
    code = "import sys; from seq2seq.cli.main import main; code = main(sys.argv[1:]);"
    code += "print(code, *(name for name in sys.modules if name.startswith('seq2seq')))"
    command = [sys.executable, "-c", code, "translate", "--model", quick, *words.split()]
    with (tmp_path / "one.en").open() as text:
        printed = subprocess.check_output(command, stdin=text, cwd=tmp_path, text=True)
    code, *names = printed.splitlines()[-1].split()
    assert (code, len(names) <= 45) == ("0", True), names
    unused = {"alignment", "attention", "ensemble", "glossary", "resume", "sampling"}
    assert not {f"seq2seq.decoding.{name}" for name in unused} & set(names)
    others = ("data", "interop", "report", "run", "server", "zoo")
    assert not [name for name in names if name.split(".")[1:2] and name.split(".")[1] in others]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize(
    ("redirection", "message"),
    [(">/dev/full", b"No space left"), (">&-", b"is closed"), ("<&-", b"is closed")],
)
def test_standard_streams_that_can_t_be_used(
    tmp_path: Path, redirection: str, message: bytes
) -> None:
    (tmp_path / "text").write_text("one\n")
    command = f"'{sys.executable}' -m seq2seq score -i text -r text {redirection}"
    result = subprocess.run(command, shell=True, cwd=tmp_path, stderr=subprocess.PIPE, check=False)
    assert result.returncode == 1
    assert message in result.stderr
    assert result.stderr.count(b"\n") == 1


def test_settings_for_a_reader_who_has_gone_are_no_wrong_usage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Closed(io.StringIO):
        def write(self, _: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr("sys.stdout", Closed())
    with pytest.raises(BrokenPipeError):  # after which `main` returns 0
        train(["--cfg", "job"])


def test_an_internal_error_is_one_line(monkeypatch: pytest.MonkeyPatch, seq2seq: Callable) -> None:
    fail = Mock(side_effect=ZeroDivisionError("two\nlines"))
    monkeypatch.setattr("seq2seq.cli.average.run", fail)
    result = seq2seq("average", "--model", "x")
    assert result.code == 1
    assert result.err.count("\n") == 1
    assert "internal error: ZeroDivisionError: two lines; please report it" in result.err
    with pytest.raises(ZeroDivisionError):
        seq2seq("average", "--model", "x", "--debug")


@pytest.mark.parametrize(
    ("is_terminal", "written"),
    [(False, "Ä→".encode() + b"\xff\n"), (True, b"\xc4\\u2192\\udcff\r\n")],
)
def test_pipes_are_utf8_whatever_the_locale_and_a_terminal_has_its_encoding(
    monkeypatch: pytest.MonkeyPatch, is_terminal: bool, written: bytes
) -> None:
    content = io.BytesIO()
    stream = io.TextIOWrapper(content, encoding="latin-1", newline="\r\n")  # as on Windows
    monkeypatch.setattr(stream, "isatty", lambda: is_terminal, raising=False)
    monkeypatch.setattr(sys, "stdout", stream)
    main(["score", "-i", "nowhere", "-r", "nowhere"])
    print("Ä→\udcff", flush=True)
    assert content.getvalue() == written
