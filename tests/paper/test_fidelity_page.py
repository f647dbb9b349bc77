"""`FIDELITY.md` has each detail, with code and a test that exist."""

import ast
import re
from pathlib import Path

from seq2seq.paper.details import DETAILS

ROOT = Path(__file__).resolve().parents[2]
ROW = re.compile(
    r"\| (\d+) \| ([^|]+) \| [^|]+ \| [^|]+ \| `([^`]+)`: `(\w+)` \| `([^`]+)`: `(\w+)` \|"
)


def names_in(path: Path) -> set[str]:
    nodes = ast.walk(ast.parse(path.read_text()))
    return {node.name for node in nodes if isinstance(node, ast.ClassDef | ast.FunctionDef)}


def test_each_detail_has_its_code_and_its_test() -> None:
    rows = ROW.findall((ROOT / "seq2seq" / "paper" / "FIDELITY.md").read_text())
    assert [name for _, name, *_ in rows] == [detail.name for detail in DETAILS]
    assert [int(number) for number, *_ in rows] == list(range(1, len(DETAILS) + 1))
    for _, _, file, name, test_file, test in rows:
        assert name in names_in(ROOT / "seq2seq" / file), (file, name)
        assert test in names_in(ROOT / test_file), (test_file, test)
