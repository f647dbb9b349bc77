"""Imports go downwards only, and no module is a drawer for everything."""

import contextlib
import io
from pathlib import Path

from importlinter.application.use_cases import SUCCESS, lint_imports
from importlinter.configuration import configure

ROOT = Path(__file__).parents[1]
MODULES = sorted((ROOT / "seq2seq").rglob("*.py"))


def test_the_import_contracts_are_kept() -> None:
    configure()
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        result = lint_imports(str(ROOT / "pyproject.toml"), cache_dir=None)
    assert result == SUCCESS, output.getvalue()


def test_no_module_is_a_catch_all() -> None:
    assert len(MODULES) > 20
    drawers = {"utils", "util", "helpers", "helper", "base", "common", "misc"}
    names = {part for path in MODULES for part in path.relative_to(ROOT).with_suffix("").parts}
    assert not names & drawers
