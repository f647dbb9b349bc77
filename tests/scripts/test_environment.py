"""`.venv`: made once, never taken from its owner."""

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
# Does nothing, successfully, and makes an environment of copies of itself.
PYTHON = """#!/bin/sh
if [ "$2" = venv ]; then mkdir -p .venv/bin; cp "$0" .venv/bin/python; fi
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "scripts").mkdir()
    shutil.copy(SCRIPTS / "environment.sh", tmp_path / "scripts")
    for name in ("pyproject.toml", "constraints.txt"):
        (tmp_path / name).touch()
    python = tmp_path / "python"
    python.write_text(PYTHON)
    python.chmod(0o755)
    return tmp_path


def prepare(checkout: Path, extra: str = "") -> subprocess.CompletedProcess[str]:
    script = f"set -euo pipefail; source scripts/environment.sh; prepare_environment {extra}"
    return subprocess.run(
        ["bash", "-c", script],
        cwd=checkout,
        env={"PATH": "/usr/bin:/bin", "PYTHON": str(checkout / "python")},
        capture_output=True,
        text=True,
        check=False,
    )


def test_it_is_made_once_and_with_an_extra_serves_without_it(checkout: Path) -> None:
    for _ in range(2):  # the extra is installed once
        installed = prepare(checkout, "dev")
    assert (installed.returncode, installed.stderr) == (0, "")
    assert prepare(checkout).stderr == ""
    (checkout / "constraints.txt").write_text("torch==9\n")
    assert "installing" in prepare(checkout).stderr


def test_an_environment_of_the_user_is_refused_and_kept(checkout: Path) -> None:
    (checkout / ".venv").mkdir()
    (checkout / ".venv" / "precious").touch()
    done = prepare(checkout)
    assert done.returncode == 1
    assert done.stderr.startswith(".venv: pip can't be imported in it")
    assert done.stderr.count("\n") == 1
    assert (checkout / ".venv" / "precious").exists()


# Trains until its time is over, to the BLEU of a file.
SEQ2SEQ = """#!/bin/sh
[ "$1" = train ] || exit 0
mkdir -p run
echo "$@" >>run/calls
echo "finished: 30.0 of 30 minutes are over" >>run/train.log
echo "{\\"step\\": 9, \\"valid/bleu\\": $(cat bleu)}" >>run/metrics.jsonl
"""


def test_a_quickstart_that_has_not_learned_fails_and_goes_on(checkout: Path) -> None:
    shutil.copy(SCRIPTS / "quickstart.sh", checkout / "scripts")
    (checkout / ".venv" / "bin").mkdir(parents=True)
    for name, content in (("python", PYTHON), ("seq2seq", SEQ2SEQ)):
        path = checkout / ".venv" / "bin" / name
        path.write_text(content)
        path.chmod(0o755)
    ended = []
    for bleu in ("3.2", "9.5e-05", "92.8"):
        (checkout / "bleu").write_text(bleu)
        words = ["bash", "scripts/quickstart.sh", "run"]
        ended.append(subprocess.run(words, cwd=checkout, capture_output=True, text=True))
    assert [done.returncode for done in ended] == [1, 1, 0]
    assert "not learned to translate yet (validation BLEU 3)" in ended[0].stderr
    assert "and the training goes on" in ended[1].stderr
    limits = [call.split()[-1] for call in (checkout / "run" / "calls").read_text().splitlines()]
    assert limits == [f"training.max_minutes={minutes}" for minutes in (30, 60, 90)]
