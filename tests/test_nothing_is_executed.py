"""No call in the package can execute the content of a file; the rules are in pyproject.toml."""

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
