"""Products of eight-bit integers in place of floating-point ones, for translation on a CPU.

Each row of the input and each row of the matrix has its own scale, which maps its largest
magnitude to the largest integer (the vector-wise quantization of Dettmers et al. 2022), so a row's
result does not depend on the other rows of the batch.
"""

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from seq2seq.errors import UserError
from seq2seq.kernels.rows import fill_up_rows

_MATRIX_LEVELS = 127
"""Integers from -127 to 127."""


class IntegerProduct:
    """Integers (..., K), stored with `zero` added to them, times a matrix (M, K) of integers."""

    def __init__(self, matrix: Tensor) -> None:
        self.packed = torch.ops.onednn.qlinear_prepack(matrix, None)
        self.zeros = torch.zeros(len(matrix), dtype=torch.long)

    def __call__(self, x: Tensor, *, zero: int, matrix_scales: Tensor) -> Tensor:
        """Multiply, with each row of the matrix scaled: (..., K) -> (..., M) in float32."""
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


def quantized_product(
    matrix: Tensor,
    bias: Tensor | None,
    product: Callable[[Tensor], IntegerProduct] = IntegerProduct,
) -> Callable[[Tensor], Tensor]:
    """Make the function x (..., K) -> x matrix^T + bias (..., M), both factors in eight bits.

    Args:
        matrix: (M, K), float32 on the CPU, as x must be.
        bias: (M,), not rounded, or None.
        product: multiplies the integers.

    Raises:
        UserError: if PyTorch has no exact eight-bit products for this processor.
    """
    levels = input_levels(product)
    matrix_scales = _scales(matrix, _MATRIX_LEVELS)
    integers = product((matrix / matrix_scales).round().to(torch.int8))
    matrix_scales = matrix_scales.squeeze(1)

    def multiply(x: Tensor) -> Tensor:
        scales = _scales(x, levels)
        # The cast truncates; with 0.5 added, it rounds.
        unsigned = (x / scales).add_(levels + 1.5).to(torch.uint8)
        y = integers(unsigned, zero=levels + 1, matrix_scales=matrix_scales)
        return y.mul_(scales) if bias is None else torch.addcmul(bias, y, scales)

    return fill_up_rows(multiply)


@cache
def input_levels(product: Callable[[Tensor], IntegerProduct] = IntegerProduct) -> int:
    """Find the largest input integer for which this processor's sums are exact.

    Processors with instructions for such products (VNNI) add in 32 bits. Others add pairs in
    16 bits, which saturate unless half of the range is left unused.

    Raises:
        UserError: if PyTorch has no exact eight-bit products for this processor.
    """
    for levels in (127, 63):
        if _is_exact(product, levels):
            return levels
    raise UserError(
        "precision int8 can't be used here: PyTorch has no exact eight-bit products for this"
        " processor; choose fp32, bf16 or auto"
    )


def _is_exact(product: Callable[[Tensor], IntegerProduct], levels: int) -> bool:
    # Rows 0 and 1 have the largest possible sums, of either sign.
    generator = torch.Generator().manual_seed(1)
    matrix = torch.randint(-1, 2, (64, 256), generator=generator) * _MATRIX_LEVELS
    x = torch.randint(-1, 2, (16, 256), generator=generator) * levels
    matrix[0], matrix[1], x[0], x[1] = _MATRIX_LEVELS, -_MATRIX_LEVELS, levels, -levels
    try:
        found = product(matrix.to(torch.int8))(
            (x + levels + 1).to(torch.uint8), zero=levels + 1, matrix_scales=torch.ones(64)
        )
    except (AttributeError, RuntimeError):  # no such operation, or not for this processor
        return False
    return torch.equal(found.long(), x @ matrix.T)


def _scales(x: Tensor, levels: int) -> Tensor:
    """Compute the value of 1 in each row's integers: (..., K) -> (..., 1)."""
    # A row of zeros has scale 0, so its result is 0 whatever its integers are.
    return x.abs().amax(dim=-1, keepdim=True).div_(levels)
