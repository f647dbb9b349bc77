"""`FIDELITY.md` has each detail, with code and a test that exist."""

import ast
import re
from dataclasses import fields
from pathlib import Path

from seq2seq.config import TrainingConfig, TransformerConfig
from seq2seq.paper.details import DETAILS
from seq2seq.search import SearchConfig

NO_DETAIL = {
    "model.max_learned_positions",
    "training.micro_batch_tokens",
    "training.select",
    "training.select_by",
    "training.keep_checkpoints",
    "training.log_steps",
    "search.nbest",
}
"""Settings on which no detail depends."""
ROOT = Path(__file__).resolve().parents[2]
ROW = re.compile(
    r"\| (\d+) \| ([^|]+) \| [^|]+ \| [^|]+ \| `([^`]+)`: `(\w+)` \| `([^`]+)`: `(\w+)` \|"
)


def names_in(path: Path) -> set[str]:
    """The functions and classes that a module defines."""
    nodes = ast.walk(ast.parse(path.read_text()))
    return {node.name for node in nodes if isinstance(node, ast.ClassDef | ast.FunctionDef)}


def test_each_detail_has_its_code_and_its_test() -> None:
    rows = ROW.findall((ROOT / "seq2seq" / "paper" / "FIDELITY.md").read_text())
    assert [name for _, name, *_ in rows] == [detail.name for detail in DETAILS]
    assert [int(number) for number, *_ in rows] == list(range(1, len(DETAILS) + 1))
    for _, _, file, name, test_file, test in rows:
        assert name in names_in(ROOT / "seq2seq" / file), (file, name)
        assert test in names_in(ROOT / test_file), (test_file, test)


def test_every_setting_of_model_training_and_search_is_in_a_detail() -> None:
    sections = {"model": TransformerConfig, "training": TrainingConfig, "search": SearchConfig}
    every = {f"{name}.{f.name}" for name, kind in sections.items() for f in fields(kind)}
    named = {name for detail in DETAILS for name in detail.settings}
    assert every - named == NO_DETAIL
    assert {name for name in named - every if not name.startswith("data.")} == set()
