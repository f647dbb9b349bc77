"""No call in the package can execute the content of a file; the rules are in pyproject.toml."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import seq2seq

PACKAGE = Path(seq2seq.__file__).parent
NAMES_CODE = re.compile(
    r"_target_\b|!!python|allow_pickle=(?!False)|weights_only=(?!True)|trust_remote_code"
)


def test_nothing_names_code_or_allows_it_in_a_file() -> None:
    files = [*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.yaml")]
    files += (PACKAGE.parent / "conf").rglob("*.yaml")
    for file in files:
        assert not NAMES_CODE.search(file.read_text()), file


IMPORTS = ("import_module", "importlib.import_module", "__import__")
FROM_THE_COMMAND_LINE = ("import_class", "choose_classes", "load_models")


def test_no_name_is_imported_but_the_package_s_own_and_one_of_the_command_line() -> None:
    import_any, call_them = set(), set()
    for file in PACKAGE.rglob("*.py"):
        path = str(file.relative_to(PACKAGE))
        calls = [
            node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call)
        ]
        for called, *arguments in ([node.func, *node.args] for node in calls):
            name = ast.unparse(called)
            if name in IMPORTS and not re.match(r"f?'seq2seq\.", ast.unparse(arguments[0])):
                import_any.add(path)
            if name.rpartition(".")[2] in FROM_THE_COMMAND_LINE:
                call_them.add(path.partition("/")[0])
    assert import_any == {"cli/model_class.py"}
    assert call_them == {"cli"}  # which alone knows what a user has typed


@pytest.mark.parametrize(
    "source",
    ["eval('1')", "exec('x')", "import pickle", "from pickle import loads", "import torch.x, dill",
     "subprocess.run(x, shell=True)", "import os\nos.system(x)", "import yaml\nyaml.load(text)",
     "from hydra.utils import instantiate", "import hydra\nhydra.utils.instantiate(c)"],
)  # fmt: skip
def test_ruff_finds_dangerous_code(source: str) -> None:
    file = PACKAGE / "example.py"
    command = [sys.executable, "-m", "ruff", "check", "--stdin-filename", file, "-"]
    found = subprocess.run(command, input=source, capture_output=True, text=True)
    assert re.search(r"\b(S\d{3}|TID251)\b", found.stdout)
