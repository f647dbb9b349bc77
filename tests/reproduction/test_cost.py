"""The counts of Table 3, and operations counted by torch."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from seq2seq.model import TransformerConfig
from seq2seq.reproduction.cost import AUTHORS_ROWS, PAPERS_ESTIMATE, count_parameters, step_flops
from seq2seq.reproduction.table3 import ROWS
from seq2seq.storage.checkpoint import new_transformer

EXACT = {
    "base": 65_110_016,
    "B_dk16": 58_018_304,
    "B_dk32": 60_382_208,
    "C_n2": 35_684_352,
    "C_n4": 50_397_184,
    "C_n8": 79_822_848,
    "C_dmodel256": 27_848_704,
    "C_dmodel1024": 167_944_192,
    "C_dff1024": 52_514_816,
    "C_dff4096": 90_300_416,
    "big": 218_300_416,
}


@pytest.mark.parametrize("row", [row for row in ROWS if row.millions], ids=lambda row: row.name)
def test_parameters_of_table_3(row: Any) -> None:
    settings = {k: v for k, v in row.settings.items() if k != "label_smoothing"}
    config = replace(TransformerConfig(attention_bias=True), **settings)
    count = count_parameters(config, AUTHORS_ROWS)
    assert count == EXACT[row.name]
    if row.name == "big":
        # The paper's 213 is not explained by anything known of the code.
        assert round(count / 1e6) == 218
    else:
        assert round(count / 1e6) == row.millions


def test_every_printed_count_is_tested() -> None:
    assert {row.name for row in ROWS if row.millions} == set(EXACT)


def test_biases_are_all_that_the_formulas_lack() -> None:
    with_biases = count_parameters(TransformerConfig(attention_bias=True), AUTHORS_ROWS)
    without = count_parameters(TransformerConfig(), AUTHORS_ROWS)
    # Of three projections and the output, in 6 + 12 attentions.
    assert with_biases - without == 18 * 4 * 512


@pytest.mark.parametrize("changes", [{}, {"d_k": 3, "d_v": 5}, {"num_heads": 2, "num_layers": 3}])
def test_operations_are_those_that_torch_counts(changes: dict[str, Any]) -> None:
    config = TransformerConfig(
        **{"num_layers": 2, "d_model": 16, "d_ff": 24, "num_heads": 4, **changes}
    )
    sentences, source_length, target_length, vocab_size = 3, 7, 5, 50
    with torch.device("meta"):
        model = new_transformer(config, vocab_size).eval()
    model = model.to_empty(device="cpu")
    source = torch.full((sentences, source_length), 5)
    target_input = torch.full((sentences, target_length), 6)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model(source, target_input)
    counted = step_flops(
        config,
        vocab_size,
        source_tokens=sentences * source_length,
        target_tokens=sentences * target_length,
        source_length=source_length,
        target_length=target_length,
    )
    assert counted == 3 * counter.get_total_flops()


def test_the_base_models_training() -> None:
    step = step_flops(
        TransformerConfig(),
        37_000,
        source_tokens=25_000,
        target_tokens=25_000,
        source_length=27,
        target_length=27,
    )
    assert 100_000 * step == pytest.approx(9.5e17, rel=0.01)
    assert PAPERS_ESTIMATE["base"] == pytest.approx(3.3e18, rel=0.01)
    assert PAPERS_ESTIMATE["big"] == pytest.approx(2.3e19, rel=0.01)
