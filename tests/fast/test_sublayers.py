"""The ends of sublayers in one function, compiled or not, against the plain layers."""

import shutil
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from seq2seq.fast import replace_modules
from seq2seq.fast.training import (
    AddAndNorm,
    add_and_norm,
    compiled_add_and_norm,
    fuse_sublayer_ends,
    keep_mask,
)
from seq2seq.model import Transformer
from seq2seq.model.transformer import DecoderLayer, EncoderLayer
from tests.fast.gradients import SOURCE, TARGET, values_and_gradients

MakeModel = Callable[..., Transformer]
KEY = torch.tensor([-123456789, 987654321], dtype=torch.int32)


def plain(rate: float, epsilon: float) -> AddAndNorm:
    return partial(add_and_norm, rate=rate, epsilon=epsilon)


class HashedDropout(nn.Dropout):
    """Dropout as its definition says, with the masks of the fast form."""

    def forward(self, x: Tensor) -> Tensor:
        limits = torch.iinfo(torch.int32)
        key = torch.randint(limits.min, limits.max, (2,), dtype=torch.int32)
        return x.masked_fill(~keep_mask(x.shape, self.p, key), 0.0) / (1.0 - self.p)


def in_training(model: Transformer) -> dict[str, Tensor]:
    torch.manual_seed(7)
    return values_and_gradients(model.train())


def test_the_mask_is_that_of_the_hash_in_numpy() -> None:
    x = np.arange(30, dtype=np.uint32)
    for part in KEY.numpy().view(np.uint32):
        x = x ^ part
        x = (x ^ (x >> 16)) * np.uint32(0x7FEB352D)
        x = (x ^ (x >> 15)) * np.uint32(0x846CA68B)
        x ^= x >> 16
    expected = x.view(np.int32) / 2**32 + 0.5 >= 0.3
    assert 15 < expected.sum() < 28
    assert keep_mask(torch.Size([5, 6]), 0.3, KEY).flatten().tolist() == expected.tolist()


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_masks_keep_their_share_and_do_not_depend_on_each_other(rate: float) -> None:
    shape, kept = torch.Size([300, 512]), 1.0 - rate
    keys = [KEY, KEY + torch.tensor([1, 0]), KEY + torch.tensor([0, 1]), KEY.flip(0)]
    masks = [keep_mask(shape, rate, key.int()).double() for key in keys]
    deviation = (kept * rate / shape.numel()) ** 0.5
    for i, mask in enumerate(masks):
        assert abs(mask.mean().item() - kept) < 5 * deviation
        assert (mask.mean(dim=0) - kept).abs().max() < 6 * (kept * rate / 300) ** 0.5
        neighbours = (mask[:, 1:] * mask[:, :-1]).mean().item()
        for both in (neighbours, *((mask * other).mean().item() for other in masks[:i])):
            assert both == pytest.approx(kept**2, abs=5 * deviation)


@pytest.mark.parametrize("choices", [{}, {"attention_bias": True, "relu_dropout": 0.0}], ids=str)
def test_layers_are_the_plain_ones_with_the_same_masks(
    make_model: MakeModel, choices: dict[str, Any]
) -> None:
    expected, found = (make_model(dropout=0.3, **choices) for _ in "12")
    for kind in (EncoderLayer, DecoderLayer):
        for layer in filter(lambda module: isinstance(module, kind), expected.modules()):
            replace_modules(layer, nn.Dropout, lambda d: HashedDropout(d.p) if d.p else d)
    fuse_sublayer_ends(found, plain)
    assert list(found.state_dict()) == list(expected.state_dict())
    theirs = in_training(expected)
    for name, value in in_training(found).items():
        torch.testing.assert_close(value, theirs[name], rtol=1e-9, atol=1e-11)


def test_nothing_is_drawn_without_dropout(make_model: MakeModel) -> None:
    for rate in (0.0, 0.3):
        model, fused = make_model(dropout=rate), make_model(dropout=rate)
        fuse_sublayer_ends(fused, plain)
        if rate == 0.0:
            fused.train()
        state = torch.get_rng_state()
        torch.testing.assert_close(fused(SOURCE, TARGET), model(SOURCE, TARGET), rtol=0, atol=0)
        assert torch.equal(torch.get_rng_state(), state)


def values_of(function: AddAndNorm, tokens: int, dtype: torch.dtype) -> list[Tensor]:
    generator = torch.Generator().manual_seed(tokens)
    x, y, gradient = (torch.randn(1, tokens, 24, generator=generator).to(dtype) for _ in "123")
    weight, bias = (torch.randn(24, generator=generator) for _ in "12")
    inputs = [tensor.requires_grad_() for tensor in (x, y, weight, bias)]
    result = function(*inputs, KEY)
    result.backward(gradient)
    return [result.detach(), *(tensor.grad for tensor in inputs)]


# In bf16 only the results are rounded: a rounded sum would cost 0.3 of bf16's steps.
@pytest.mark.parametrize(("dtype", "steps"), [(torch.float32, 4), (torch.bfloat16, 0.2)], ids=str)
def test_the_precision_is_that_of_float32_within(dtype: torch.dtype, steps: float) -> None:
    """Against the same in float64, from the same inputs."""

    def exact(*inputs: Tensor) -> Tensor:
        *tensors, key = inputs
        return plain(0.1, 1e-6)(*(tensor.double() for tensor in tensors), key).to(dtype)

    bound = steps * torch.finfo(dtype).eps
    for one, other in zip(
        values_of(plain(0.1, 1e-6), 9, dtype), values_of(exact, 9, dtype), strict=True
    ):
        assert one.dtype == other.dtype
        assert (one - other).norm() <= bound * other.norm()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
@pytest.mark.filterwarnings("ignore")
def test_what_is_compiled_computes_the_same_with_the_same_zeros() -> None:
    for dtype in (torch.float32, torch.bfloat16):
        for tokens in (7, 9, 33):
            found = values_of(compiled_add_and_norm(0.3, 1e-6), tokens, dtype)
            expected = values_of(plain(0.3, 1e-6), tokens, dtype)
            # The gradient of y is zero where y is left out.
            assert torch.equal(found[2] == 0, expected[2] == 0)
            for one, other in zip(found, expected, strict=True):
                assert (one - other).norm() <= 2 * torch.finfo(dtype).eps * other.norm()
