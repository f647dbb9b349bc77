"""`.venv`: made once, never taken from its owner."""

import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.posix

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


def test_an_environment_of_another_program_is_left_alone_until_its_owner_allows_it(
    checkout: Path,
) -> None:
    """A link to one is the same."""
    others = checkout / "others"
    (others / "bin").mkdir(parents=True)
    shutil.copy(checkout / "python", others / "bin" / "python")
    (checkout / ".venv").symlink_to(others)
    refused = prepare(checkout, "dev")
    assert refused.returncode == 1
    assert refused.stderr.startswith(".venv: this script didn't make it")
    assert refused.stderr.count("\n") == 1
    assert [path.name for path in others.iterdir()] == ["bin"]
    (others / "installed").touch()
    assert prepare(checkout, "dev").returncode == 0


def test_an_environment_of_the_user_is_refused_and_kept(checkout: Path) -> None:
    (checkout / ".venv").mkdir()
    (checkout / ".venv" / "precious").touch()
    done = prepare(checkout)
    assert done.returncode == 1
    assert done.stderr.startswith(".venv: pip can't be imported in it")
    assert done.stderr.count("\n") == 1
    assert (checkout / ".venv" / "precious").exists()
