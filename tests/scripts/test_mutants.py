"""`scripts/mutants.py`: changes that tests see, that they don't see, and that have no effect."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "mutants.py"
CODE = "def larger(a, b):\n    return a if a > b else b\n"
TEST = "from seq2seq.code import larger\n\n\ndef test_it():\n    assert larger(2, 1) == 2\n"


def change(name: str, old: str, new: str, more: str = "") -> str:
    words = {"name": name, "file": "seq2seq/code.py", "old": old, "new": new}
    lines = [f"{key} = {value!r}" for key, value in words.items()]
    return "\n".join(["[[group]]", *lines, "tests = 'tests/test_code.py'", more, ""])


SEEN = change("smaller", "a > b", "a < b")
UNSEEN = change("always-a", "a if a > b else b", "a")
WITHOUT_EFFECT = change("or-equal", "a > b", "a >= b", "equivalent = 'equal numbers are equal'")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in ("scripts", "seq2seq", "tests"):
        (tmp_path / name).mkdir()
    shutil.copy(SCRIPT, tmp_path / "scripts")
    (tmp_path / "seq2seq" / "__init__.py").touch()
    (tmp_path / "seq2seq" / "code.py").write_text(CODE)
    (tmp_path / "tests" / "test_code.py").write_text(TEST)
    return tmp_path


def run(checkout: Path, changes: str, *words: str) -> subprocess.CompletedProcess[str]:
    (checkout / "scripts" / "mutants.toml").write_text(changes)
    command = [sys.executable, str(checkout / "scripts" / "mutants.py"), *words]
    return subprocess.run(command, capture_output=True, text=True)


def test_every_change_with_an_effect_has_to_be_seen(checkout: Path) -> None:
    done = run(checkout, SEEN + UNSEEN + WITHOUT_EFFECT, "--jobs", "2")
    assert done.returncode == 1, done.stderr
    assert "always-a: survived\n" in done.stdout
    assert "without effect: or-equal: equal numbers are equal" in done.stdout
    counts = [line.split() for line in done.stdout.splitlines() if line.startswith("all ")]
    assert counts == [["all", "3", "1", "1", "1"]]
    assert (checkout / "seq2seq" / "code.py").read_text() == CODE


def test_a_change_that_is_seen_is_not_without_effect(checkout: Path) -> None:
    done = run(checkout, change("smaller", "a > b", "a < b", "equivalent = 'so I thought'"))
    assert done.returncode == 1
    assert "smaller: killed, though listed as without effect" in done.stdout


def test_tests_that_fail_anyway_prove_nothing(checkout: Path) -> None:
    (checkout / "tests" / "test_code.py").write_text(TEST.replace("== 2", "== 1"))
    done = run(checkout, SEEN)
    assert done.returncode == 1
    assert "its tests fail without it" in done.stdout


def test_a_place_that_is_not_found_or_not_the_only_one_is_named(checkout: Path) -> None:
    done = run(checkout, change("gone", "a >> b", "b") + change("which", "b", "a"))
    assert done.returncode == 1
    assert "gone: its old text stands 0 times in seq2seq/code.py" in done.stderr
    assert "which: its old text stands 3 times" in done.stderr


def test_changes_are_chosen_and_listed_by_name_or_group(checkout: Path) -> None:
    done = run(checkout, SEEN + UNSEEN, "--list")
    assert [line.split() for line in done.stdout.splitlines()] == [
        ["group", "smaller"],
        ["group", "always-a"],
    ]
    assert run(checkout, SEEN + UNSEEN, "smaller").returncode == 0
    assert run(checkout, SEEN + UNSEEN, "nonesuch").returncode == 2
