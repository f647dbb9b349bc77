"""No call in the package can execute the content of a file."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import seq2seq

PACKAGE = Path(seq2seq.__file__).parent
FORBIDDEN_CALLS = {
    "eval", "exec", "compile", "__import__", "os.system", "os.popen",
    "torch.jit.load", "torch.hub.load", "hydra.utils.instantiate",
    "hydra.utils.call", "hydra.utils.get_class", "hydra.utils.get_method", "instantiate",
    "yaml.load", "yaml.load_all", "yaml.unsafe_load", "yaml.full_load",
    "runpy.run_path", "runpy.run_module", "ctypes.cast",
}  # fmt: skip
FORBIDDEN_MODULES = {
    "pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "runpy",
    "code", "imp",
}  # fmt: skip
# Processes of one command exchange objects, as those of torch.distributed do.
EXCHANGES = {("decoding/many.py", "import pickle")}
REQUIRED_KEYWORDS = {
    "torch.load": ("weights_only", True),
    "np.load": ("allow_pickle", False),
    "numpy.load": ("allow_pickle", False),
}
FORBIDDEN_KEYWORDS = {
    "weights_only": False,
    "shell": True,
    "allow_pickle": True,
    "trust_remote_code": True,
}


def dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "?"


def dangers(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] in FORBIDDEN_MODULES:
                    yield f"{node.lineno}: import {alias.name}"
        elif isinstance(node, ast.ImportFrom):
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            if str(node.module).partition(".")[0] in FORBIDDEN_MODULES or names & FORBIDDEN_CALLS:
                yield f"{node.lineno}: from {node.module}"
        elif isinstance(node, ast.Call):
            if dotted(node.func) in FORBIDDEN_CALLS:
                yield f"{node.lineno}: {dotted(node.func)}()"
            values = {
                k.arg: k.value.value for k in node.keywords if isinstance(k.value, ast.Constant)
            }
            name, wanted = REQUIRED_KEYWORDS.get(dotted(node.func), (None, None))
            if name is not None and values.get(name) is not wanted:
                yield f"{node.lineno}: {dotted(node.func)}() without {name}={wanted}"
            for key, value in values.items():
                if value is not None and value is FORBIDDEN_KEYWORDS.get(str(key)):
                    yield f"{node.lineno}: {key}={value}"
        elif isinstance(node, ast.Constant) and node.value == "_target_":
            yield f"{node.lineno}: _target_"


def test_no_module_can_execute_the_content_of_a_file() -> None:
    found = set()
    for file in PACKAGE.rglob("*.py"):
        for danger in dangers(file.read_text()):
            found.add((str(file.relative_to(PACKAGE)), danger.partition(": ")[2]))
    assert found == EXCHANGES


def test_no_configuration_names_code() -> None:
    for folder in (PACKAGE.parent / "conf", PACKAGE / "resources" / "conf"):
        for file in folder.rglob("*.yaml"):
            assert not re.search(r"\b_target_\b|!!python", file.read_text()), file


@pytest.mark.parametrize(
    "source",
    ["eval('1')", "exec('x')", "import pickle", "from pickle import loads", "import torch.x, dill",
     "torch.load(path)", "torch.load(path, weights_only=x)", "f(path, weights_only=False)",
     "subprocess.run(x, shell=True)",
     "from hydra.utils import instantiate", "hydra.utils.instantiate(c)", "yaml.load(text)",
     "np.load(path)", "load(path, allow_pickle=True)", "x = {'_target_': 'os.system'}",
     "load_dataset(name, trust_remote_code=True)"],
)  # fmt: skip
def test_dangerous_code_is_found(source: str) -> None:
    assert len(list(dangers(source))) == 1
