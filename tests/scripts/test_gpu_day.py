"""The day with a GPU, whose parts fail or take too long."""

import os
import shutil
import subprocess
from pathlib import Path

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


def test_a_part_that_fails_or_takes_too_long_is_a_line_of_the_table(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    for name in ("gpu_day.sh", "environment.sh"):
        shutil.copy(SCRIPTS / name, tmp_path / "scripts")
    for path, text in ((".venv/bin/python", PYTHON), ("bin/nvidia-smi", USE)):
        program = tmp_path / path
        program.parent.mkdir(parents=True)
        program.write_text(text)
        program.chmod(0o755)
    done = subprocess.run(
        ["bash", "scripts/gpu_day.sh", "--seconds", "24", "day"],
        cwd=tmp_path,
        env={"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"},
        capture_output=True,
        check=False,
        timeout=50,
    )
    assert done.returncode == 1
    table = (tmp_path / "day" / "table.md").read_text()
    rows = [line.strip("| ").split(" | ") for line in table.split("\n## ")[0].splitlines()[4:]]
    assert len(rows) == 9
    ends = {row[0]: row[2] for row in rows}
    assert ends.pop("The tests that need a GPU") == "failed: a b / c"
    assert ends.pop("A step of one micro-batch") == "out of time"
    # There is no time left for those after it, and those before it are done.
    assert list(ends.values()) == ["done"] * 2 + ["not started, for want of time"] * 5
    for text in ("no way", "a first row", "rows of scripts/benchmarks/training.py"):
        assert text in table
