"""Products of few numbers of rows, for translation on a CPU.

oneDNN compiles a product for each new number of rows, in about a millisecond, and keeps it, in
about a megabyte. A server that sees batches of every size would grow by hundreds of megabytes.
"""

from collections.abc import Callable

from torch import Tensor
from torch.nn import functional as F

_AT_ONCE = 4
"""Rows that take no longer than one."""


def round_batch_size(sentences: int) -> int:
    """Round a number of sentences up to one of few: all to 8, then four to each power of two."""
    multiple = 1 << max(0, (sentences - 1).bit_length() - 3)
    return -(-sentences // multiple) * multiple


def round_rows(rows: int) -> int:
    """Round a number of rows up to 1, 2 or four times a `round_batch_size`."""
    return rows if rows <= 2 else _AT_ONCE * round_batch_size(-(-rows // _AT_ONCE))


def fill_up_rows(product: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Make a product of rows that computes it for rounded numbers of rows, filled up with zeros.

    Args:
        product: (..., K) -> (..., M), each row from its own row alone.
    """

    def filled_up(x: Tensor) -> Tensor:
        count = x.numel() // x.size(-1)
        missing = round_rows(count) - count
        if not missing:
            return product(x)
        y = product(F.pad(x.reshape(count, -1), (0, 0, 0, missing)))
        return y[:count].view(*x.shape[:-1], -1)

    return filled_up
