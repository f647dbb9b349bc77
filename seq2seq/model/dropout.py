"""Dropout (section 5.4) with masks that are cheap to draw on a CPU."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_RANDOM_BITS = 16


def random_keep_mask(x: Tensor, rate: float) -> Tensor:
    """Draw a mask of x's shape and type: 0 with probability `rate`, else 1 / (1 - rate).

    torch draws one random number per element; here each 64-bit number serves four elements, which
    is three times as fast on a CPU, dropout being a tenth of a small model's step otherwise. The
    rate is met to 2**-17.
    """
    words = -(-x.numel() // 4)
    random = torch.empty(words, dtype=torch.int64).random_(-(2**63), None)
    bits = random.view(torch.int16)[: x.numel()].view(x.shape)
    threshold = round(rate * 2**_RANDOM_BITS) - 2 ** (_RANDOM_BITS - 1)
    keep: Tensor = bits >= threshold
    return keep.to(x.dtype).mul_(1.0 / (1.0 - rate))


class Dropout(nn.Module):
    """Zero each element with probability `rate` in training and scale the others up."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        """Any shape; itself in evaluation."""
        if not self.training or self.rate == 0.0:
            return x
        if x.device.type == "cpu":
            return x * random_keep_mask(x, self.rate)
        return F.dropout(x, self.rate)
