"""Packed matrices against plain ones."""

import copy
from collections.abc import Callable
from typing import cast

import pytest
import torch
from torch import nn

from seq2seq.data.tokenizer import Tokenizer
from seq2seq.decoding import packed
from seq2seq.decoding.translator import Translator
from seq2seq.errors import UserError
from seq2seq.model import Transformer
from seq2seq.model.config import Positions, Start
from seq2seq.storage.checkpoint import TrainedModel

SOURCE = torch.tensor([[5, 6, 7, 3], [8, 3, 0, 0]])
TARGET = torch.tensor([[2, 9, 4], [2, 5, 5]])


@pytest.fixture(params=[torch.float32, torch.bfloat16], ids=str)
def precision(request: pytest.FixtureRequest) -> torch.dtype:
    if not packed.can_pack(request.param):
        pytest.skip(f"no oneDNN here for {request.param}")
    return cast(torch.dtype, request.param)


@pytest.fixture(
    params=[
        {},
        {"attention_bias": True, "start": Start.zero},
        {"d_k": 3, "d_v": 5, "positions": Positions.learned},
    ],
    ids=str,
)
def pair(
    make_model: Callable[..., Transformer], request: pytest.FixtureRequest, precision: torch.dtype
) -> tuple[Transformer, Transformer]:
    """A plain model and a packed one of the same weights."""
    plain = make_model(vocab_size=40, **request.param).to(precision).eval()
    with torch.no_grad():
        for name, parameter in plain.named_parameters():
            if name.endswith("bias"):
                parameter.normal_()
    fast = copy.deepcopy(plain)
    packed.pack(fast)
    return plain, fast


def tolerance(model: Transformer) -> dict[str, float]:
    low = model.embedding.weight.dtype is torch.bfloat16
    return {"rtol": 2e-2, "atol": 2e-2} if low else {"rtol": 1e-5, "atol": 1e-5}


@torch.inference_mode()
def test_the_logits_are_those_of_the_plain_model(pair: tuple[Transformer, Transformer]) -> None:
    plain, fast = pair
    assert not [module for module in fast.modules() if isinstance(module, nn.Linear)]
    expected = plain(SOURCE, TARGET)
    torch.testing.assert_close(fast(SOURCE, TARGET), expected, **tolerance(plain))


@torch.inference_mode()
def test_each_step_is_that_of_the_plain_model(pair: tuple[Transformer, Transformer]) -> None:
    caches = [model.start(model.encode(SOURCE)) for model in pair]
    for tokens in TARGET.T:
        expected, found = (
            model.step(tokens, cache) for model, cache in zip(pair, caches, strict=True)
        )
        torch.testing.assert_close(found, expected, **tolerance(pair[0]))


@torch.inference_mode()
def test_a_copy_of_a_packed_model_packs_its_own_weights(
    pair: tuple[Transformer, Transformer],
) -> None:
    plain, fast = pair
    fast(SOURCE, TARGET)
    doubled, expected = copy.deepcopy(fast).float(), copy.deepcopy(plain).float()
    for model in (doubled, expected):
        for parameter in model.parameters():
            parameter.mul_(2)
    torch.testing.assert_close(
        doubled(SOURCE, TARGET), expected(SOURCE, TARGET), rtol=1e-4, atol=1e-4
    )


@torch.inference_mode()
def test_a_model_in_eight_bits_comes_close(make_model: Callable[..., Transformer]) -> None:
    plain = make_model(vocab_size=40).float().eval()
    fast = copy.deepcopy(plain)
    try:
        packed.quantize(fast)
    except UserError:
        pytest.skip("no eight-bit products here")
    found = fast(SOURCE, TARGET)
    assert not [module for module in fast.modules() if isinstance(module, nn.Linear)]
    expected = plain(SOURCE, TARGET)
    assert 1e-4 < ((found - expected).norm() / expected.norm()).item() < 0.03
    cache = fast.start(fast.encode(SOURCE))
    steps = torch.stack([fast.step(tokens, cache) for tokens in TARGET.T], dim=1)
    torch.testing.assert_close(steps, found, rtol=0.03, atol=0.03)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_translator_on_the_cpu_packs_where_it_can(
    make_model: Callable[..., Transformer], tokenizer: Tokenizer, precision: str
) -> None:
    trained = TrainedModel(make_model(vocab_size=tokenizer.vocab_size).float(), tokenizer, "a", "b")
    model = Translator(trained, device="cpu", precision=precision).model
    plain = any(isinstance(module, nn.Linear) for module in model.modules())
    assert plain != packed.can_pack(torch.float32 if precision == "fp32" else torch.bfloat16)


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16], ids=str)
def test_without_onednn_the_model_stays_as_it_is(
    make_model: Callable[..., Transformer],
    monkeypatch: pytest.MonkeyPatch,
    precision: torch.dtype,
) -> None:
    model = make_model(vocab_size=40).to(precision)
    before = [type(module) for module in model.modules()]
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", False)
    assert not packed.can_pack(precision)
    packed.pack(model)
    assert [type(module) for module in model.modules()] == before


def test_other_precisions_are_not_packed() -> None:
    assert not packed.can_pack(torch.float64)


def test_without_the_operations_nothing_is_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "_OPERATIONS", ("_linear_pointwise", "nonesuch"))
    assert not packed.can_pack(torch.float32)
