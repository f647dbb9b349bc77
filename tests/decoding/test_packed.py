"""Packed matrices against plain ones."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import nn

from seq2seq.decoding import packed
from seq2seq.model import Transformer

pytestmark = pytest.mark.skipif(
    not torch.backends.mkldnn.is_available(), reason="PyTorch without oneDNN"
)

SOURCE = torch.tensor([[5, 6, 7, 3], [8, 3, 0, 0]])
TARGET = torch.tensor([[2, 9, 4], [2, 5, 5]])


@pytest.fixture(params=[torch.float32, torch.bfloat16], ids=str)
def pair(
    make_model: Callable[..., Transformer], request: pytest.FixtureRequest
) -> tuple[Transformer, Transformer]:
    """A plain model and a packed one of the same weights."""
    plain = make_model(vocab_size=40).to(request.param).eval()
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


def test_without_onednn_the_model_stays_as_it_is(
    make_model: Callable[..., Transformer], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model(vocab_size=40)
    before = [type(module) for module in model.modules()]
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    packed.pack(model)
    assert [type(module) for module in model.modules()] == before
