"""PyTorch's files of weights, read without unpickling: a few opcodes, interpreted by themselves."""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from seq2seq.errors import UserError


def read_torch_file(
    path: Path,
    content: bytes,
    check: Callable[[str, torch.dtype | None, tuple[int, ...]], None],
) -> dict[str, Tensor]:
    raise UserError(f"{path}: can't be read yet")
