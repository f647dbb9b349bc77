"""The day with a GPU, whose parts fail, or take too long, or both."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
# Takes the place of Python: knows a GPU, fails in the tests, sleeps in a step of one micro-batch.
PYTHON = """#!/bin/sh
case "$*" in
    -c*) echo "some GPU" ;;
    *test_cuda*) printf 'no way\\n\\n' >&2; echo "a b | c" >&2; exit 3 ;;
    *"--only ours"*) echo "a first row"; sleep 60 ;;
    *) echo "rows of $1" ;;
esac
"""
USE = """#!/bin/sh
echo "40, 1000"; echo "60, 3000"
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "scripts").mkdir()
    for name in ("gpu_day.sh", "environment.sh"):
        shutil.copy(SCRIPTS / name, tmp_path / "scripts")
    for path, text in ((".venv/bin/python", PYTHON), ("bin/nvidia-smi", USE)):
        program = tmp_path / path
        program.parent.mkdir(parents=True)
        program.write_text(text)
        program.chmod(0o755)
    return tmp_path


def run(checkout: Path, *words: str) -> tuple[int, dict[str, list[str]], str]:
    """Return the code, the other cells of each line of the table by its first, and all of it."""
    done = subprocess.run(
        ["bash", "scripts/gpu_day.sh", *words, "day"],
        cwd=checkout,
        env={"PATH": f"{checkout / 'bin'}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    table = (checkout / "day" / "table.md").read_text()
    rows = [line.strip("| ").split(" | ") for line in table.split("\n## ")[0].splitlines()[4:]]
    return done.returncode, {row[0]: row[1:] for row in rows}, table


def test_a_part_that_fails_or_takes_too_long_is_a_line_of_the_table(checkout: Path) -> None:
    code, rows, table = run(checkout, "--seconds", "24")
    assert code == 1
    assert len(rows) == 9
    ends = {name: cells[1] for name, cells in rows.items()}
    assert ends.pop("The tests that need a GPU") == "failed: a b / c"
    assert ends.pop("A step of one micro-batch") == "out of time"
    # There is no time left for those after it, and those before it are done.
    assert list(ends.values()) == ["done"] * 2 + ["not started, for want of time"] * 5
    for text in ("no way", "a first row", "rows of scripts/benchmarks/training.py"):
        assert text in table
