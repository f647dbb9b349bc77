"""Files of safetensors, whose names, shapes and types are checked before a tensor is read."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from seq2seq.errors import UserError

_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
}

Descriptions: TypeAlias = Mapping[str, tuple[torch.dtype | None, tuple[int, ...]]]
"""The type and the shape of each tensor by its name; None is a type that no weights have."""


def save_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write tensors, on any device, with the mode that the user's umask gives to new files."""
    path.touch()
    mode = path.stat().st_mode
    try:
        save_file(
            {name: value.detach().cpu().contiguous() for name, value in tensors.items()}, path
        )
    except SafetensorError as error:  # such as a full disk
        raise OSError(str(error)) from None
    path.chmod(mode)  # the library lets only the user read it


def max_bytes(expected: Mapping[str, Tensor]) -> int:
    """Return the largest size of a file of these tensors (meta tensors suffice)."""
    # Type, shape and offsets are about 100 bytes of JSON in addition to the name.
    header = 1024 + sum(256 + len(name) for name in expected)
    return header + sum(value.numel() * value.element_size() for value in expected.values())


def read_tensors(path: Path, check: Callable[[Descriptions], None]) -> dict[str, Tensor]:
    """Read the finite tensors of a safetensors file on the CPU.

    `check` raises an error if types or shapes are not those that are expected.
    """
    try:
        # By its descriptor, because the library opens no path that is not UTF-8.
        with path.open("rb") as opened, safe_open(f"/dev/fd/{opened.fileno()}", "pt") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            check(
                {
                    name: (_DTYPES.get(tensor.get_dtype()), tuple(tensor.get_shape()))
                    for name, tensor in slices.items()
                }
            )
            # A copy: the file may be changed while the model is in use.
            tensors = {name: file.get_tensor(name).clone() for name in slices}
    except (SafetensorError, OSError, ValueError) as error:
        raise UserError(f"{path}: not a safetensors file: {error}") from None
    check_finite(path, tensors)
    return tensors


def check_expected(
    path: Path, descriptions: Descriptions, tensors: Mapping[str, Tensor], what: str
) -> None:
    """Check that a file has exactly the tensors that are expected, maybe on the meta device."""
    expected: Descriptions = {n: (value.dtype, tuple(value.shape)) for n, value in tensors.items()}
    names = {**expected, **descriptions}
    if odd := [name for name in names if descriptions.get(name) != expected.get(name)]:
        is_, should = (table.get(odd[0], "absent") for table in (descriptions, expected))
        raise UserError(
            f"{path}: not the {what} of its configuration: {odd[0][:100]!r} is {str(is_)[:100]},"
            f" should be {should}; {len(odd)} differ in all"
        )


def check_finite(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Check that no value is NaN or infinite."""
    for name, value in tensors.items():
        if not value.isfinite().all():
            raise UserError(f"{path}: {name} holds values that are not finite (NaN or infinity)")
