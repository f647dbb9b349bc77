"""Modern layers against their equations in NumPy, and against those of Hugging Face's Llama."""

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from seq2seq.errors import UserError
from seq2seq.model import IncrementalDecoder, Transformer, TransformerConfig
from seq2seq.model.config import Activation, Norm, NormPosition, Positions
from seq2seq.model.modern import (
    ModernAttention,
    ModernEncoderLayer,
    ModernFeedForward,
    RMSNorm,
)
from seq2seq.model.size import count_parameters
from seq2seq.model.transformer import causal_mask
from tests.model.paper import Array, Paper, sigmoid
from tests.model.test_attention import assert_same, random, randomized
from tests.model.test_transformer import assert_is_the_paper
from tests.models import ALL_MODERN, MODERN

MakeModel = Callable[..., Transformer]
Parameters = dict[str, Array]


class Modern(Paper):
    """The equations of `model/modern.py`, in place of the paper's."""

    def __init__(self, model: Transformer) -> None:
        super().__init__(model)
        self.pre = self.config.norm_position is NormPosition.pre
        self.rotary = self.config.positions is Positions.rotary
        groups, heads = self.config.kv_heads, self.config.num_heads
        for name, value in self.p.items():
            if ".w_k." in name or ".w_v." in name:  # each group serves heads that are neighbours
                blocks = [
                    block for block in np.split(value, groups) for _ in range(heads // groups)
                ]
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
        return self.linear(p, f"{name}.outer", gate * sigmoid(gate) * inner)

    def add_and_norm(self, p: Parameters, name: str, x: Array, sublayer: Array) -> Array:
        return x + sublayer if self.pre else self.norm(p, f"{name}_norm", x + sublayer)

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


# Hugging Face's layers

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    try:
        from transformers import LlamaConfig
        from transformers.models.llama import modeling_llama as llama
    except ImportError:
        llama = None
needs_llama = pytest.mark.skipif(llama is None, reason="needs transformers")
SIZES = {"d_model": 24, "d_ff": 36, "num_heads": 6, "num_kv_heads": 2, "dropout": 0.0}


class InFloat64(TorchFunctionMode):
    """Llama's layers compute parts in float32, whatever the input; here in float64."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def exact(value: Any) -> Any:
            return torch.float64 if value is torch.float32 else value

        named = {name: exact(value) for name, value in (kwargs or {}).items()}
        if func is Tensor.float:
            func = Tensor.double
        return func(*map(exact, args), **named)


def llama_config(config: TransformerConfig) -> Any:
    return LlamaConfig(
        hidden_size=config.d_model,
        intermediate_size=config.inner_width,
        num_attention_heads=config.num_heads,
        num_key_value_heads=config.kv_heads,
        rms_norm_eps=config.layer_norm_epsilon,
        attention_bias=config.attention_bias,
        mlp_bias=config.bias,
        attn_implementation="eager",
    )


def copy_weights(ours: nn.Module, theirs: nn.Module) -> None:
    """Copy the parameters of a module, which has as many as ours, by their names."""
    names = {
        "w_q": "q_proj", "w_k": "k_proj", "w_v": "v_proj", "w_o": "o_proj",
        "inner": "up_proj", "gate": "gate_proj", "outer": "down_proj",
        "self_attention_norm": "input_layernorm", "feed_forward_norm": "post_attention_layernorm",
        "self_attention": "self_attn", "feed_forward": "mlp",
    }  # fmt: skip
    weights = {
        ".".join(names.get(part, part) for part in name.split(".")): value
        for name, value in ours.state_dict().items()
    }
    theirs.double().load_state_dict(weights)


def assert_same_gradients(found: Tensor, expected: Tensor, x: Tensor) -> None:
    assert_same(found, expected)
    direction = random(*found.shape, seed=2)
    pair = [torch.autograd.grad((y * direction).sum(), x)[0] for y in (found, expected)]
    assert_same(*pair)


@needs_llama
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("num_kv_heads", [1, 2, 6])
def test_a_layer_of_all_choices_is_llamas(causal: bool, num_kv_heads: int) -> None:
    """Pre-LN, RMSNorm, rotary positions, grouped queries, SwiGLU, without biases."""
    config = TransformerConfig(**(SIZES | ALL_MODERN | {"num_kv_heads": num_kv_heads}))
    ours = randomized(ModernEncoderLayer(config).double())
    x = (3 * random(2, 7, 24)).requires_grad_()
    allowed = causal_mask(7, x.device) if causal else torch.ones(7, 7, dtype=torch.bool)
    with InFloat64():
        theirs = llama.LlamaDecoderLayer(llama_config(config), 0)
        copy_weights(ours, theirs)
        turns = llama.LlamaRotaryEmbedding(llama_config(config))(x, torch.arange(7)[None])
        mask = torch.zeros(7, 7).double().masked_fill(~allowed, -math.inf)[None, None]
        expected = theirs(x, position_embeddings=turns, attention_mask=mask)
    assert_same_gradients(ours(x, allowed), expected, x)


@needs_llama
def test_each_part_is_llamas() -> None:
    """With an epsilon that matters, and with biases."""
    choices = {"activation": Activation.swiglu, "positions": Positions.rotary}
    config = TransformerConfig(**SIZES, **choices, attention_bias=True, layer_norm_epsilon=0.3)
    x = random(2, 7, 24).requires_grad_()
    with InFloat64():
        norm = randomized(RMSNorm(24, 0.3).double())
        peer_norm = llama.LlamaRMSNorm(24, 0.3)
        copy_weights(norm, peer_norm)
        assert_same_gradients(norm(x), peer_norm(x), x)

        fed = randomized(ModernFeedForward(config).double())
        peer_fed = llama.LlamaMLP(llama_config(config))
        copy_weights(fed, peer_fed)
        assert_same_gradients(fed(x), peer_fed(x), x)

        attention = randomized(ModernAttention(config, is_self=True).double())
        peer_attention = llama.LlamaAttention(llama_config(config), 0)
        copy_weights(attention, peer_attention)
        turns = llama.LlamaRotaryEmbedding(llama_config(config))(x, torch.arange(7)[None])
        expected = peer_attention(x, position_embeddings=turns)[0]
        assert_same_gradients(attention(x, x, torch.ones(1, 1, dtype=torch.bool)), expected, x)


def test_in_low_precision_a_norm_is_as_exact_as_its_input() -> None:
    norm = randomized(RMSNorm(24, 1e-6))
    x = 300 * random(5, 24).float()
    low = norm(x.bfloat16())
    assert low.dtype is torch.bfloat16
    torch.testing.assert_close(low, norm(x.bfloat16().float()).bfloat16(), rtol=0, atol=0)


@pytest.mark.parametrize("d_ff", [512, 1024, 2048, 4096])
def test_parameters_are_those_of_the_sizes_and_swiglus_those_of_the_paper(d_ff: int) -> None:
    d, h, g, n, rows = 256, 4, 2, 3, 8000
    choices = ALL_MODERN | {"num_kv_heads": g}
    config = TransformerConfig(num_layers=n, d_model=d, d_ff=d_ff, num_heads=h, **choices)
    attention = 2 * d * d + 2 * d * d * g // h
    feed_forward = 3 * d * config.inner_width
    encoder_layer = attention + feed_forward + 2 * d
    decoder_layer = 2 * attention + feed_forward + 3 * d
    assert count_parameters(config, rows) == rows * d + n * (encoder_layer + decoder_layer) + 2 * d
    assert feed_forward == pytest.approx(2 * d * d_ff, rel=0.01)
    assert config.inner_width % 8 == 0


@pytest.mark.parametrize(
    ("choices", "complaint"),
    [
        ({"num_kv_heads": 3}, "num_kv_heads=3: must divide model.num_heads=8"),
        ({"num_kv_heads": 0}, "num_kv_heads=0: must be at least 1"),
        ({"positions": Positions.rotary, "d_k": 3, "d_v": 4}, "d_k=3 must be even"),
    ],
    ids=str,
)
def test_an_impossible_choice_is_refused(choices: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        TransformerConfig(**choices)


def test_the_papers_decoder_refuses_a_modern_model(make_model: MakeModel) -> None:
    with pytest.raises(TypeError, match="incremental_decoder"):
        IncrementalDecoder(make_model(norm=Norm.rms))
