"""Products of eight-bit integers in place of floating-point ones.

Each row of the input and each row of the matrix has a scale of its own, by which its greatest
magnitude becomes the greatest integer (the vector-wise quantisation of Dettmers et al. 2022): a row
comes out the same whatever other rows are multiplied with it.
"""

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from seq2seq.errors import UserError

_MATRIX_LEVELS = 127
"""Integers from -127 to 127."""


def quantized_product(matrix: Tensor, bias: Tensor | None) -> Callable[[Tensor], Tensor]:
    """The function x (..., K) -> x matrix^T + bias (..., M), both factors rounded to eight bits.

    Args:
        matrix: (M, K), float32 on the CPU, as x must be.
        bias: (M,), which stays as it is, or None.

    Raises:
        UserError: PyTorch has no such products for this processor.
    """
    levels = input_levels()
    matrix_scales = _scales(matrix, _MATRIX_LEVELS)
    integers = _IntegerProduct((matrix / matrix_scales).round().to(torch.int8))
    matrix_scales = matrix_scales.squeeze(1)

    def product(x: Tensor) -> Tensor:
        scales = _scales(x, levels)
        # The cast cuts off what is behind the point: with a half added that is rounding.
        unsigned = (x / scales).add_(levels + 1.5).to(torch.uint8)
        y = integers(unsigned, zero=levels + 1, matrix_scales=matrix_scales)
        return y.mul_(scales) if bias is None else torch.addcmul(bias, y, scales)

    return product


@cache
def input_levels() -> int:
    """The greatest integer that an input may be rounded to so that this processor's sums are exact.

    Those with instructions for such products (VNNI) add up in 32 bits. Others add pairs up in 16
    bits that saturate, which takes half the range to avoid.

    Raises:
        UserError: PyTorch has no such products for this processor.
    """
    for levels in (127, 63):
        if _is_exact(levels):
            return levels
    raise UserError(
        "precision int8 can't be used here: PyTorch has no exact eight-bit products for this"
        " processor; choose fp32, bf16 or auto"
    )


def _is_exact(levels: int) -> bool:
    # The greatest sums there are, of either sign, among others.
    generator = torch.Generator().manual_seed(1)
    matrix = torch.randint(-1, 2, (64, 256), generator=generator) * _MATRIX_LEVELS
    x = torch.randint(-1, 2, (16, 256), generator=generator) * levels
    matrix[0], matrix[1], x[0], x[1] = _MATRIX_LEVELS, -_MATRIX_LEVELS, levels, -levels
    try:
        found = _IntegerProduct(matrix.to(torch.int8))(
            (x + levels + 1).to(torch.uint8), zero=levels + 1, matrix_scales=torch.ones(64)
        )
    except (AttributeError, RuntimeError):  # no such operation, or not for this processor
        return False
    return torch.equal(found.long(), x @ matrix.T)


class _IntegerProduct:
    """Integers (..., K), stored with `zero` added to them, times a matrix (M, K) of integers."""

    def __init__(self, matrix: Tensor) -> None:
        self.packed = torch.ops.onednn.qlinear_prepack(matrix, None)
        self.zeros = torch.zeros(len(matrix), dtype=torch.long)

    def __call__(self, x: Tensor, *, zero: int, matrix_scales: Tensor) -> Tensor:
        """The product with the matrix' rows scaled, (..., M), in float32."""
        y: Tensor = torch.ops.onednn.qlinear_pointwise(
            x.reshape(-1, x.size(-1)),
            1.0,
            zero,
            self.packed,
            matrix_scales,
            self.zeros,
            None,
            1.0,
            0,
            torch.float32,
            "none",
            [],
            "",
        )
        return y.view(*x.shape[:-1], -1)


def _scales(x: Tensor, levels: int) -> Tensor:
    """What one step of each row's integers is worth: (..., K) -> (..., 1)."""
    # A row of zeros has scale 0, by which it comes out as zeros whatever its integers are.
    return x.abs().amax(dim=-1, keepdim=True).div_(levels)
