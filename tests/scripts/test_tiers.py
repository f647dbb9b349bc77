"""The tiers of `scripts/test.sh`, and its further arguments for pytest."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
TOOLS = ("python", "ruff", "mypy", "lint-imports")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout whose tools only note that they were called."""
    (tmp_path / "scripts").mkdir()
    for name in ("environment.sh", "test.sh"):
        shutil.copy(SCRIPTS / name, tmp_path / "scripts")
    for name in ("pyproject.toml", "constraints.txt"):
        (tmp_path / name).touch()
    tools = tmp_path / ".venv" / "bin"
    tools.mkdir(parents=True)
    for name in TOOLS:
        (tools / name).write_text(f'#!/bin/sh\necho {name} "$*" >>calls\n')
        (tools / name).chmod(0o755)
    return tmp_path


def calls(checkout: Path, *words: str) -> list[str]:
    command = ["bash", checkout / "scripts" / "test.sh", *words]
    subprocess.run(command, check=True, capture_output=True, env={"PATH": os.environ["PATH"]})
    lines = (checkout / "calls").read_text().splitlines()
    return [line for line in lines if "import pip" not in line and "-m pip" not in line]


def test_the_whole_checks_everything(checkout: Path) -> None:
    *checks, pytest_call = calls(checkout, "-k", "beam")
    assert [check.split()[0] for check in checks] == ["ruff", "ruff", "mypy", "lint-imports"]
    assert "-m not slow --" in pytest_call
    assert pytest_call.endswith("-k beam")


def test_fast_runs_lint_and_the_unit_tests_alone(checkout: Path) -> None:
    *checks, pytest_call = calls(checkout, "--fast", "-k", "beam")
    assert [check.split()[0] for check in checks] == ["ruff", "ruff"]
    assert "-m not slow and not integration" in pytest_call
    assert pytest_call.endswith("-k beam")
