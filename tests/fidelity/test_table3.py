"""The row of a run is found by what it changes, and compared with the paper's scores."""

from typing import Any

import pytest

from seq2seq.errors import UserError
from seq2seq.fidelity.table3 import BASE, ROWS, TableRun, as_text, compare


def table_run(
    name: str,
    base: Any = BASE,
    perplexity: float = 6.0,
    bleu: float = 20.0,
    seed: int = 1,
    step: int = 100,
    **changes: Any,
) -> TableRun:
    return TableRun(name, {**base, **changes}, seed, step, perplexity, bleu, 5_000_000)


def test_differences_from_base_and_their_signs() -> None:
    runs = [
        table_run("a", num_heads=1, perplexity=6.5, bleu=21.0),
        table_run("b", perplexity=6.0, bleu=20.0),
        table_run("c", label_smoothing=0.0, perplexity=5.5, bleu=19.0),
        table_run("d", d_ff=100, perplexity=9.0, bleu=10.0),
    ]
    lines = compare(runs)
    assert [line.runs[0].name for line in lines] == ["b", "a", "c", "d"]
    assert [line.perplexity_minus_base for line in lines] == [0.0, 0.5, -0.5, 3.0]
    assert [line.bleu_minus_base for line in lines] == [0.0, 1.0, -1.0, -10.0]
    text = as_text(lines)
    assert max(map(len, text.splitlines())) <= 100
    assert "6.50 (+0.50)  5.29 (+0.37)  21.00 (+1.00)  24.9 (-0.9)" in text
    assert "not in the table: d_ff" in text
    assert "perplexity: 2 of 2 rows are on the same side of base as in the paper" in text
    assert "BLEU: 1 of 2 rows are on the same side of base as in the paper; not A_h1" in text


@pytest.mark.parametrize("divisor", [1, 4])
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row_is_found_at_any_width(row: Any, divisor: int) -> None:
    base = {**BASE, "d_model": 512 // divisor, "d_ff": 2048 // divisor}
    widths = {n: v // divisor for n, v in row.settings.items() if n in ("d_model", "d_ff", "d_k")}
    runs = [
        table_run("base", base),
        table_run("x", base, seed=2, **{**row.settings, **widths}),
        table_run("y", base, d_v=5),
        table_run("z", base, num_heads=1, d_ff=256),
    ]
    found = {run.name: line.row and line.row.name for line in compare(runs) for run in line.runs}
    assert found == {"base": "base", "x": row.name, "y": None, "z": None}


def seeds() -> list[TableRun]:
    return [
        table_run("base-1", perplexity=6.0, bleu=20.0),
        table_run("h1-1", num_heads=1, perplexity=6.2, bleu=21.0),
        table_run("n2-1", num_layers=2, perplexity=7.0, bleu=19.9),
        table_run("base-2", perplexity=6.4, bleu=20.5, seed=2),
        table_run("h1-2", num_heads=1, perplexity=6.4, bleu=22.0, seed=2),
        table_run("n2-2", num_layers=2, perplexity=7.3, bleu=19.5, seed=2),
    ]


def test_runs_with_the_same_settings_are_seeds_of_a_row() -> None:
    base, one_head, two_layers = lines = compare(seeds())
    assert [[run.name for run in line.runs] for line in lines] == [
        ["base-1", "base-2"],
        ["h1-1", "h1-2"],
        ["n2-1", "n2-2"],
    ]
    assert (base.perplexity, base.bleu) == pytest.approx((6.2, 20.25))
    assert (base.perplexity_spread, base.bleu_spread) == pytest.approx((0.4, 0.5))
    assert one_head.perplexity_minus_base == pytest.approx(0.1)
    assert one_head.bleu_minus_base == pytest.approx(1.25)
    assert two_layers.perplexity_minus_base == pytest.approx(0.95)
    assert two_layers.bleu_minus_base == pytest.approx(-0.55)
    text = " ".join(as_text(lines).split())
    assert "6.20 (+0.00) 4.92 (+0.00) 20.25 (+0.00)" in text
    differ = "0.30 in perplexity (at most 0.40) and 0.63 in BLEU (at most 1.00)"
    seeds_differ = f"A row is the mean of 2 seeds, which differ on average by {differ}."
    assert f"{seeds_differ} perplexity: 2 of 2 rows" in text
    # The spread of n2, 0.4, is below 0.55.
    assert "No farther from base than seeds are from one another: A_h1 BLEU: 1 of 2 rows" in text


@pytest.mark.parametrize("facts", [{"seed": 2}, {"seed": 3, "step": 99}], ids=str)
def test_runs_that_are_not_seeds_of_one_row_are_refused(facts: Any) -> None:
    with pytest.raises(UserError, match=r"again \(.*\) has the settings of base-.*: runs of a row"):
        compare([*seeds(), table_run("again", **facts)])
