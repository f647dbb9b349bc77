"""The day with a GPU, whose parts fail or take too long."""

import shutil
import subprocess
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
# Takes the place of Python: knows a GPU, fails to train, sleeps in a step of base.
PYTHON = """#!/bin/sh
case "$*" in
    -c*) echo "some GPU" ;;
    *"seq2seq train"*) printf 'no way\\n\\n' >&2; echo "a b | c" >&2; exit 3 ;;
    *"--size base"*) echo "a first row"; sleep 60 ;;
    *) echo "rows of $1" ;;
esac
"""


def test_a_part_that_fails_or_takes_too_long_is_a_line_of_the_table(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    for name in ("gpu_day.sh", "environment.sh"):
        shutil.copy(SCRIPTS / name, tmp_path / "scripts")
    program = tmp_path / ".venv/bin/python"
    program.parent.mkdir(parents=True)
    program.write_text(PYTHON)
    program.chmod(0o755)
    done = subprocess.run(
        ["bash", "scripts/gpu_day.sh", "--seconds", "14", "day"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    assert done.returncode == 1
    table = (tmp_path / "day" / "table.md").read_text()
    rows = [line.strip("| ").split(" | ") for line in table.split("\n## ")[0].splitlines()[4:]]
    ends = {row[0]: row[-1] for row in rows}
    assert ends.pop("seq2seq train") == "failed: a b / c"
    assert ends.pop("A step of small") == "done"
    assert ends.pop("A step of base") == "out of time"
    # There is no time left for those after it.
    assert set(ends.values()) == {"not started, for want of time"}
    assert len(ends) == 7
    for text in ("no way", "a first row", "rows of scripts/benchmarks/training.py"):
        assert text in table
    assert done.stdout == table.split("\n## ")[0] + "\n"
