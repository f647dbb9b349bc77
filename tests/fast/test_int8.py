"""Eight-bit products against exact integers and the same rounding in NumPy."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import Tensor

from seq2seq.device import choose_precision
from seq2seq.errors import UserError
from seq2seq.fast.packed import IntegerProduct, input_levels, quantized_product


@pytest.fixture
def levels() -> int:
    try:
        return input_levels()
    except UserError:
        pytest.skip("no eight-bit products here")


def draw(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def rounded(x: Tensor, levels: int) -> np.ndarray:
    rows = x.double().numpy()
    scales = np.abs(rows).max(axis=-1, keepdims=True) / levels
    return np.asarray(np.floor(rows / scales + 0.5) * scales)


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("shape", [(1, 64), (5, 256), (3, 4, 1024)], ids=str)
def test_the_product_is_that_of_the_rounded_factors(
    levels: int, shape: tuple[int, ...], biased: bool
) -> None:
    x, matrix = draw(*shape) * 3, draw(48, shape[-1], seed=2)
    bias = draw(48, seed=3) if biased else None
    found = quantized_product(matrix, bias)(x)
    expected = rounded(x, levels) @ rounded(matrix, 127).T
    if bias is not None:
        expected = expected + bias.numpy()
    assert found.dtype is torch.float32
    # One element in thousands may fall on the other side of a half.
    step = (x.abs().max() / levels * matrix.abs().max()).item()
    assert np.abs(found.numpy() - expected).max() < 1.01 * step
    assert np.median(np.abs(found.numpy() - expected)) < 1e-4
    exact = x @ matrix.T if bias is None else x @ matrix.T + bias
    assert 1e-4 < ((found - exact).norm() / exact.norm()).item() < 2 / levels


def assert_exact(levels: int, product: type[IntegerProduct]) -> None:
    generator = torch.Generator().manual_seed(4)
    x = torch.randint(-levels, levels + 1, (40, 512), generator=generator).float()
    matrix = torch.randint(-127, 128, (96, 512), generator=generator).float()
    x[:, 0], matrix[:, 0] = levels, -127
    x[0], x[1], matrix[0] = levels, -levels, -127  # the greatest possible sums
    assert torch.equal(quantized_product(matrix, None, product)(x), x @ matrix.T)


def test_integers_come_out_exactly(levels: int) -> None:
    assert_exact(levels, IntegerProduct)


def test_a_row_does_not_depend_on_its_batch_mates(levels: int) -> None:
    x = draw(33, 256) * torch.logspace(-3, 3, 33).unsqueeze(1)
    product = quantized_product(draw(100, 256, seed=2), draw(100, seed=3))
    together = product(x)
    for row, expected in zip(x, together, strict=True):
        assert torch.equal(product(row.unsqueeze(0))[0], expected)


def test_rows_of_zeros_and_of_nan_stay_so(levels: int) -> None:
    x, matrix = draw(4, 64), draw(8, 64, seed=2)
    matrix[3] = 0
    x[1], x[2, 5], x[3, 5] = 0, torch.nan, torch.inf
    y = quantized_product(matrix, None)(x)
    assert torch.isfinite(y[0]).all()
    assert not y[1].any()
    assert not y[:2, 3].any()
    assert not torch.isfinite(y[2:, :3]).any()


class Saturating(IntegerProduct):
    """Adds pairs up in 16 bits that saturate, as processors without VNNI do."""

    def __init__(self, matrix: Tensor) -> None:
        self.matrix = matrix.long()

    def __call__(self, x: Tensor, *, zero: int, matrix_scales: Tensor) -> Tensor:
        products = x.long().unsqueeze(-2) * self.matrix  # (N, M, K)
        pairs = products.unflatten(-1, (-1, 2)).sum(-1).clamp(-(2**15), 2**15 - 1)
        return (pairs.sum(-1) - zero * self.matrix.sum(-1)).float() * matrix_scales


def test_half_the_range_is_used_where_sums_saturate() -> None:
    assert input_levels(Saturating) == 63
    assert_exact(63, Saturating)


class Wrong(Saturating):
    def __call__(self, x: Tensor, *, zero: int, matrix_scales: Tensor) -> Tensor:
        return super().__call__(x, zero=zero, matrix_scales=matrix_scales) + 1


class Missing(Saturating):
    def __init__(self, matrix: Tensor) -> None:
        torch.ops.onednn.no_such_product(matrix)


@pytest.mark.parametrize("product", [Wrong, Missing])
def test_products_that_are_wrong_or_missing_are_refused(product: type[Saturating]) -> None:
    with pytest.raises(UserError, match=r"int8 can't be used here.*choose fp32, bf16 or auto"):
        quantized_product(torch.ones(2, 64), None, product)


@pytest.mark.integration
def test_an_older_processor_computes_as_exactly(levels: int) -> None:
    """oneDNN can be restricted to the instructions of an older processor."""
    tests = [f"{__file__}::test_integers_come_out_exactly"]
    tests += [f"{__file__}::test_the_product_is_that_of_the_rounded_factors"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests],
        env={**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "7 passed" in done.stdout, done.stdout


def test_eight_bits_are_for_translation_on_the_cpu() -> None:
    cpu = torch.device("cpu")
    assert choose_precision("int8", cpu, for_translation=True) is torch.int8
    with pytest.raises(UserError, match="int8 is for the CPU: choose bf16 on cuda:0"):
        choose_precision("int8", torch.device("cuda:0"), for_translation=True)
    with pytest.raises(UserError, match="'int8' is unknown: choose fp32, bf16 or auto"):
        choose_precision("int8", cpu)
