"""Memory at addresses that don't change, in which a CUDA graph finds its tensors again."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor


class Buffers:
    """Blocks of memory by name; each holds tensors of different shapes, one after the other."""

    def __init__(self) -> None:
        self.blocks: dict[str, Tensor] = {}
        self.version = 0
        """Changes when a block has moved."""

    def room(
        self, name: str, shape: Sequence[int], dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        """Return a tensor in the block of a name; its numbers are those that lie there.

        A block that is too small is replaced by a larger one with the same numbers in front.
        """
        count, old = math.prod(shape), self.blocks.get(name)
        if old is None or len(old) < count or old.dtype != dtype or old.device != device:
            # By steps of a quarter at most, so that a block moves rarely.
            step = 1 << max(0, count.bit_length() - 3)
            block = torch.zeros(-(-count // step) * step, dtype=dtype, device=device)
            if old is not None and old.dtype == dtype and old.device == device:
                block[: len(old)] = old
            self.blocks[name] = block
            self.version += 1
        return self.blocks[name][:count].view(*shape)

    def hold(self, name: str, x: Tensor) -> Tensor:
        """Copy a tensor, which lies elsewhere, into the block of a name."""
        return self.room(name, x.shape, x.dtype, x.device).copy_(x)
