"""The row of a run is found by what it changes, and set beside the paper's scores."""

import json
from typing import Any

import pytest

from seq2seq.reproduction.table3 import BASE, ROWS, TableRun, as_json, as_text, compare

SMALL_BASE = {**BASE, "num_layers": 3, "d_model": 256, "d_ff": 1024, "num_heads": 4, "dropout": 0.2}


def table_run(
    name: str, base: Any = BASE, perplexity: float = 6.0, bleu: float = 20.0, **changes: Any
) -> TableRun:
    return TableRun(name, {**base, **changes}, 100, perplexity, bleu, 5_000_000)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row_is_found(row: Any) -> None:
    runs = [table_run("x", **row.settings), table_run("base"), table_run("y", d_v=5)]
    found = {line.run.name: line.row.name for line in compare(runs) if line.row}
    assert found["x"] == row.name
    assert found["base"] == "base"


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"num_heads": 1}, "A_h1"),
        ({"d_k": 16}, "B_dk16"),
        ({"d_k": 32}, "B_dk32"),
        ({"num_layers": 2}, "C_n2"),
        ({"num_layers": 4}, "C_n4"),
        ({"d_model": 128}, "C_dmodel256"),
        ({"d_model": 512}, "C_dmodel1024"),
        ({"d_ff": 512}, "C_dff1024"),
        ({"d_ff": 2048}, "C_dff4096"),
        ({"dropout": 0.0}, "D_dropout0"),
        ({"label_smoothing": 0.2}, "D_eps02"),
        ({"positions": "learned"}, "E_learned_positions"),
        ({"d_ff": 100}, None),
        ({"num_heads": 1, "d_ff": 512}, None),
    ],
)
def test_a_row_is_found_for_a_smaller_base(changes: Any, name: str | None) -> None:
    runs = [
        table_run("one", SMALL_BASE, **changes),
        table_run("base", SMALL_BASE),
        table_run("other", SMALL_BASE, label_smoothing=0.0),
    ]
    row = next(line.row for line in compare(runs) if line.run.name == "one")
    assert (row.name if row else None) == name


def test_differences_from_base_and_their_signs() -> None:
    runs = [
        table_run("a", num_heads=1, perplexity=6.5, bleu=21.0),
        table_run("b", perplexity=6.0, bleu=20.0),
        table_run("c", label_smoothing=0.0, perplexity=5.5, bleu=19.0),
        table_run("d", d_ff=100, perplexity=9.0, bleu=10.0),
    ]
    lines = compare(runs)
    assert [line.run.name for line in lines] == ["b", "a", "c", "d"]
    assert [line.perplexity_minus_base for line in lines] == [0.0, 0.5, -0.5, 3.0]
    assert [line.bleu_minus_base for line in lines] == [0.0, 1.0, -1.0, -10.0]
    text = as_text(lines)
    assert max(map(len, text.splitlines())) <= 120
    assert "| 6.50 (+0.50)  | 5.29 (+0.37) | 21.00 (+1.00) | 24.9 (-0.9)" in text
    assert "not in the table" in text
    assert "perplexity: 2 of 2 rows are on the same side of base as in the paper" in text
    assert "BLEU: 1 of 2 rows are on the same side of base as in the paper; not A_h1" in text
    assert [entry["row"] and entry["row"]["name"] for entry in json.loads(as_json(lines))] == [
        "base",
        "A_h1",
        "D_eps0",
        None,
    ]


def test_base_is_the_run_from_which_the_others_differ_least() -> None:
    runs = [
        table_run("h", SMALL_BASE, num_heads=8),
        table_run("n", SMALL_BASE, num_layers=1),
        table_run("base", SMALL_BASE),
    ]
    assert next(line.change for line in compare(runs) if line.run.name == "base") == "base"
