"""The whole model against the paper's equations in NumPy, and its incremental form against it."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from seq2seq.config import Activation, Positions, Start, TransformerConfig
from seq2seq.decoder import IncrementalDecoder, incremental_decoder
from seq2seq.errors import UserError
from seq2seq.fast import replace_modules
from seq2seq.model_folder import make_transformer
from seq2seq.transformer import Transformer
from tests.conftest import MakeModel
from tests.core.paper import Paper
from tests.models import ALL_MODERN, MODERN

START, END = 2, 3

SOURCE = torch.tensor([[4, 5, 6, 7, END], [8, 9, END, 0, 0], [END, 0, 0, 0, 0]])
TARGET = torch.tensor([[START, 9, 8, 7], [START, 10, 2, 0], [START, 1, 4, 4]])


def assert_is_the_paper(model: Transformer, paper: Paper) -> None:
    with torch.no_grad():
        logits = model(SOURCE, TARGET).numpy()
    for row, source, target in zip(logits, SOURCE.tolist(), TARGET.tolist(), strict=True):
        expected = paper.logits([t for t in source if t], [t for t in target if t])
        np.testing.assert_allclose(row[: len(expected)], expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    "choices",
    [
        {},
        {"attention_bias": True, "num_layers": 3},
        {"d_k": 3, "d_v": 5, "attention_bias": True},
        {"num_heads": 1, "layer_norm_epsilon": 0.1},
        {"positions": Positions.concatenated, "start": Start.zero},
        {"positions": Positions.learned, "max_learned_positions": 5},
        {"activation": Activation.swish, "output_bias": True, "num_decoder_layers": 1},
        {"activation": Activation.gelu, "shared_embedding": False, "start": Start.zero},
        {"activation": Activation.quick_gelu, "tied_output": False, "num_decoder_layers": 3},
        {"shared_embedding": False, "tied_output": False, "output_bias": True},
    ],
    ids=str,
)
def test_forward_is_the_papers_equations(make_model: MakeModel, choices: dict[str, Any]) -> None:
    model = make_model(**choices)
    assert_is_the_paper(model, Paper(model))


class Halves(nn.Module):
    """In place of dropout."""

    def __init__(self, plain: nn.Dropout) -> None:
        super().__init__()
        self.p = plain.p

    def forward(self, x: Tensor) -> Tensor:
        return 0.5 * x if self.training and self.p else x


@pytest.mark.parametrize(
    ("choices", "factors"),
    [
        ({"dropout": 0.1}, {"kept": 0.5}),
        ({"attention_dropout": 0.1}, {"kept_weights": 0.5}),
        ({"relu_dropout": 0.1, "activation": Activation.gelu}, {"kept_relu": 0.5}),
        ({"dropout": 0.1, "attention_dropout": 0.1, "relu_dropout": 0.1},
         {"kept": 0.5, "kept_weights": 0.5, "kept_relu": 0.5}),
    ],
    ids=str,
)  # fmt: skip
def test_dropout_is_where_section_5_4_puts_it_and_nowhere_else(
    make_model: MakeModel, choices: dict[str, Any], factors: dict[str, float]
) -> None:
    model = make_model(**choices)
    replace_modules(model, nn.Dropout, Halves)
    assert_is_the_paper(model, Paper(model))
    assert_is_the_paper(model.train(), Paper(model, **factors))


@torch.no_grad()
@pytest.mark.parametrize(
    "choices",
    [
        {},
        {"d_k": 3, "d_v": 5, "attention_bias": True, "start": Start.zero},
        {"positions": Positions.learned, "max_learned_positions": 40},
        {"shared_embedding": False, "tied_output": False, "output_bias": True},
        {"activation": Activation.swish, "num_decoder_layers": 1},
        *MODERN,
        ALL_MODERN,
        {"num_heads": 6, "num_kv_heads": 2, "d_k": 4, "d_v": 3, "positions": Positions.rotary},
    ],
    ids=str,
)
def test_incremental_decoding_equals_all_positions_at_once(
    make_model: MakeModel, choices: dict[str, Any]
) -> None:
    """With beams, reordered parents, sentences that leave, and more steps than the cache holds."""
    model, random = make_model(**choices), np.random.default_rng(1)
    beam, sources = 3, SOURCE
    decoder = incremental_decoder(model)
    assert isinstance(decoder, IncrementalDecoder)
    cache = decoder.begin(sources)
    cache.reorder(torch.arange(len(sources)).repeat_interleave(beam))
    rows = [[START] for _ in range(len(sources) * beam)]  # what each row has read
    for length in range(1, 24):
        stepped = decoder.step(torch.tensor([row[-1] for row in rows]), cache)
        whole = model(sources.repeat_interleave(beam, dim=0), torch.tensor(rows))[:, -1]
        torch.testing.assert_close(stepped, whole, rtol=0, atol=1e-10)
        first_rows = beam * np.arange(len(sources))[:, None]  # of each sentence
        parents = torch.from_numpy(first_rows + random.integers(beam, size=(len(sources), beam)))
        if length in (7, 20):  # the second, then the first sentence is done
            stay = torch.tensor([0, 2] if length == 7 else [1])
            sources, parents = sources[stay], parents[stay]
            cache.keep(stay, parents.flatten())
        else:
            cache.reorder(parents.flatten())
        rows = [[*rows[i], int(random.integers(1, 11))] for i in parents.flatten()]


def test_the_paper_s_model_has_the_tensors_that_it_always_had(make_model: MakeModel) -> None:
    assert "output_bias" in make_model(output_bias=True).state_dict()
    outside = [n for n in make_model().state_dict() if not n.startswith(("encoder.", "decoder."))]
    assert outside == ["embedding.weight"]


def fresh(*, init_std: float | None = None, **choices: Any) -> Transformer:
    torch.manual_seed(1)
    sizes = {"num_layers": 2, "d_model": 64, "d_ff": 160, "num_heads": 4, "d_k": 24, "d_v": 8}
    return make_transformer(TransformerConfig(**(sizes | choices)), 300, init_std=init_std)


def assert_drawn(matrix: Tensor, deviation: float, *, uniform: bool = False) -> None:
    """Whether entries are normal or uniform, with mean 0."""
    assert matrix.std().item() == pytest.approx(deviation, rel=0.05)
    assert abs(matrix.mean().item()) < 5 * deviation / math.sqrt(matrix.numel())
    largest = matrix.abs().max().item() / deviation
    assert 0.98 < largest / math.sqrt(3) <= 1 + 1e-6 if uniform else largest > 3


def test_each_matrix_starts_glorot_uniform() -> None:
    model = fresh()
    widths = {"w_q": 96, "w_k": 96, "w_v": 32, "w_o": 32, "inner": 160, "outer": 160}
    for name, matrix in model.named_parameters():
        if matrix.dim() == 2 and name != "embedding.weight":
            assert sorted(matrix.shape) == sorted((64, widths[name.split(".")[-2]]))
            assert_drawn(matrix, math.sqrt(2 / sum(matrix.shape)), uniform=True)


def test_embeddings_biases_and_norms_start_as_in_tensor2tensor() -> None:
    model = fresh(attention_bias=True, positions=Positions.learned)
    for matrix in (model.embedding.weight, model.positions.weight):
        assert_drawn(matrix, 64**-0.5)
    biases = {n: p for n, p in model.named_parameters() if n.endswith("bias")}
    assert len(biases) == 2 * (4 + 2 + 2) + 2 * (8 + 2 + 3)
    assert all((bias == 0).all() for bias in biases.values())
    norms = [module for module in model.modules() if isinstance(module, nn.LayerNorm)]
    assert len(norms) == 2 * (2 + 3)
    assert all((norm.weight == 1).all() and norm.eps == 1e-6 for norm in norms)


def test_with_init_std_every_matrix_starts_normal_and_the_rest_as_without() -> None:
    choices = {"attention_bias": True, "positions": Positions.learned, "output_bias": True}
    own = {"shared_embedding": False, "tied_output": False}
    model, usual = fresh(init_std=0.03, **choices, **own), fresh(**choices, **own)
    for (name, weight), other in zip(model.named_parameters(), usual.parameters(), strict=True):
        if weight.dim() == 2:
            assert_drawn(weight, 0.03)
        else:
            assert torch.equal(weight, other), name


@pytest.mark.parametrize(
    ("choices", "complaint"),
    [
        ({"num_layers": 0}, "num_layers=0"),
        ({"num_decoder_layers": 1001}, "num_decoder_layers=1001: must be at least 1 and"),
        ({"d_model": 7, "num_heads": 7}, "d_model=7: must be even"),
        ({"num_heads": 5}, "512 does not divide into 5 heads"),
        ({"relu_dropout": math.nan}, "relu_dropout=nan"),
        ({"num_kv_heads": 3}, "num_kv_heads=3: must divide model.num_heads=8"),
        ({"positions": Positions.rotary, "d_k": 3, "d_v": 4}, "d_k=3 must be even"),
    ],
    ids=str,
)
def test_an_impossible_configuration_is_refused(choices: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        TransformerConfig(**choices)
