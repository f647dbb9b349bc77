"""Modern layers against their equations in NumPy."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from seq2seq.config import Activation, Norm, NormPosition, Positions
from seq2seq.fast import replace_modules
from seq2seq.transformer import Transformer
from seq2seq.zoo.modern import RMSNorm
from tests.conftest import MakeModel
from tests.core.paper import Array, Paper, sigmoid
from tests.core.test_transformer import Halves, assert_is_the_paper
from tests.models import ALL_MODERN, MODERN

Parameters = dict[str, Array]


class Modern(Paper):
    """The equations of `zoo/modern.py`, in place of the paper's."""

    def __init__(self, model: Transformer, **kept: float) -> None:
        super().__init__(model, **kept)
        self.kept_relu = kept.get("kept_relu", 1.0)
        self.pre = self.config.norm_position is NormPosition.pre
        self.rotary = self.config.positions is Positions.rotary
        groups, heads = self.config.kv_heads, self.config.num_heads
        for name, value in self.p.items():
            if ".w_k." in name or ".w_v." in name:  # each group serves heads that are neighbours
                blocks = np.repeat(np.split(value, groups), heads // groups, axis=0)
                self.p[name] = np.concatenate(blocks)
        self.paper = dict(self.page)
        for name in ("linear", "multi_head", "feed_forward", "add_and_norm", "stack"):
            self.page[name] = getattr(self, name)
        if self.rotary:
            self.page["positions"] = lambda length, d_model: np.zeros((length, d_model))

    def norm(self, p: Parameters, name: str, x: Array) -> Array:
        if self.config.norm is Norm.layer:
            x = x - x.mean(axis=1, keepdims=True)
        root = np.sqrt((x**2).mean(axis=1, keepdims=True) + self.config.layer_norm_epsilon)
        return x / root * p[f"{name}.weight"] + p.get(f"{name}.bias", 0.0)

    def linear(self, p: Parameters, name: str, x: Array) -> Array:
        y = self.paper["linear"](p, name, x)
        if self.rotary and name.endswith(("self_attention.w_q", "self_attention.w_k")):
            y = np.concatenate([*map(turned, np.split(y, self.config.num_heads, axis=1))], axis=1)
        return y

    def multi_head(
        self, p: Parameters, name: str, heads: int, x: Array, memory: Array, mask: Any = True
    ) -> Array:
        y = self.norm(p, f"{name}_norm", x) if self.pre else x
        return self.paper["multi_head"](p, name, heads, y, y if memory is x else memory, mask)

    def feed_forward(self, p: Parameters, name: str, x: Array) -> Array:
        y = self.norm(p, f"{name}_norm", x) if self.pre else x
        if self.config.activation is not Activation.swiglu:
            return self.paper["feed_forward"](p, name, y)
        gate, inner = (self.linear(p, f"{name}.{part}", y) for part in ("gate", "inner"))
        return self.linear(p, f"{name}.outer", self.kept_relu * gate * sigmoid(gate) * inner)

    def add_and_norm(self, p: Parameters, name: str, x: Array, sublayer: Array) -> Array:
        x = x + self.page["dropout"](sublayer)
        return x if self.pre else self.norm(p, f"{name}_norm", x)

    def stack(
        self, p: Parameters, side: str, heads: int, x: Array, memory: Array | None = None
    ) -> Array:
        x = self.paper["stack"](p, side, heads, x, memory)
        return self.norm(p, f"{side}_norm", x) if self.pre else x


def turned(head: Array) -> Array:
    """Each pair of features (T, K) as a complex number, turned by pos / 10000^(2i/K)."""
    pos, half = np.arange(len(head))[:, None], head.shape[1] // 2
    angle = pos / 10000 ** (2 * np.arange(half) / head.shape[1])
    pairs = (head[:, :half] + 1j * head[:, half:]) * np.exp(1j * angle)
    return np.concatenate((pairs.real, pairs.imag), axis=1)


@pytest.mark.parametrize(
    "choices",
    [
        *MODERN,
        ALL_MODERN,
        ALL_MODERN | {"norm": Norm.layer, "bias": True, "attention_bias": True, "num_layers": 3},
        ALL_MODERN | {"num_heads": 6, "num_kv_heads": 2, "d_k": 6, "d_v": 5},
        ALL_MODERN | {"activation": Activation.gelu, "layer_norm_epsilon": 0.1, "d_ff": 24},
    ],
    ids=str,
)
def test_forward_is_the_equations(make_model: MakeModel, choices: dict[str, Any]) -> None:
    model = make_model(**choices)
    assert_is_the_paper(model, Modern(model))


def test_dropout_is_where_the_paper_has_it(make_model: MakeModel) -> None:
    rates = {"dropout": 0.1, "attention_dropout": 0.1, "relu_dropout": 0.1}
    model = make_model(**ALL_MODERN, **rates).train()
    replace_modules(model, nn.Dropout, Halves)
    assert_is_the_paper(model, Modern(model, kept=0.5, kept_weights=0.5, kept_relu=0.5))


def test_in_low_precision_a_norm_is_as_exact_as_its_input() -> None:
    norm, x = RMSNorm(24, 1e-6), torch.randn(5, 24).bfloat16()
    nn.init.normal_(norm.weight)
    assert torch.equal(norm(x), norm(x.float()).bfloat16())


@pytest.mark.parametrize("d_ff", [512, 1024, 2048, 4096])
def test_swiglu_has_the_parameters_of_the_paper_s_layer(make_model: MakeModel, d_ff: int) -> None:
    layer = make_model(activation=Activation.swiglu, d_ff=d_ff).encoder.layers[0].feed_forward
    found = sum(p.numel() for p in layer.parameters() if p.dim() == 2)
    assert found == pytest.approx(2 * 8 * d_ff, rel=0.01)
    assert layer.inner.out_features % 8 == 0


def test_without_biases_there_are_none(make_model: MakeModel) -> None:
    model = make_model(bias=False)
    assert not [name for name in model.state_dict() if "bias" in name]
