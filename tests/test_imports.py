"""Who may import whom, and what the package keeps away from."""

import contextlib
import io
import re
from pathlib import Path

from importlinter.application.use_cases import SUCCESS, lint_imports
from importlinter.configuration import configure

ROOT = Path(__file__).parents[1]
MODULES = sorted((ROOT / "seq2seq").rglob("*.py"))


def test_the_import_contracts_are_kept() -> None:
    configure()
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        result = lint_imports(str(ROOT / "pyproject.toml"), cache_dir=None)
    assert result == SUCCESS, said.getvalue()


def test_no_module_is_a_drawer_for_everything() -> None:
    assert len(MODULES) > 20
    drawers = {"utils", "util", "helpers", "helper", "base", "common", "misc"}
    names = {part for path in MODULES for part in path.relative_to(ROOT).with_suffix("").parts}
    assert not names & drawers


def test_nothing_on_disk_is_ever_executed() -> None:
    executes = re.compile(
        r"\b(eval|exec)\(|\bpickle\b|\b_target_\b|\binstantiate\b|weights_only=False"
        r"|(?<!\.)\btorch\.load\((?!.*weights_only=True)|shell=True|trust_remote_code=True"
    )
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in MODULES
        for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), start=1)
        # `model.eval()` is PyTorch's, and prose may name what it warns of.
        if executes.search(line.replace(".eval()", "")) and not line.lstrip().startswith("#")
    ]
    assert not found, "\n".join(found)
