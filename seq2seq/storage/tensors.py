"""Tensors from a safetensors file that may come from anybody: those expected, or a refusal."""

from collections.abc import Mapping
from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from seq2seq.errors import UserError
from seq2seq.storage.strict import parse_json

_DTYPES = {
    torch.float32: "F32",
    torch.float64: "F64",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
}
_LENGTH_BYTES = 8  # of the header's length, which comes first


def max_bytes(expected: Mapping[str, Tensor]) -> int:
    """The size that a file of these tensors can't exceed; meta tensors will do."""
    data = sum(value.numel() * value.element_size() for value in expected.values())
    return _LENGTH_BYTES + _max_header_bytes(expected) + data


def parse_tensors(
    path: Path, content: bytes, expected: Mapping[str, Tensor], what: str = "weights"
) -> dict[str, Tensor]:
    """The tensors of a safetensors file, once its header has told of exactly those expected.

    Args:
        path: for messages.
        content: the file's.
        expected: names, shapes and types; meta tensors will do.
        what: for messages.

    Raises:
        UserError: it is no safetensors file, names, shapes or types differ, or a value is not
            finite.
    """
    header = _read_header(path, content, _max_header_bytes(expected))
    found = {name: _describe(path, name, entry) for name, entry in header.items()}
    wanted = {name: f"{_DTYPES[t.dtype]} {list(t.shape)}" for name, t in expected.items()}
    odd = [name for name in {**wanted, **found} if found.get(name) != wanted.get(name)]
    if odd:
        is_, should = (names.get(odd[0], "absent") for names in (found, wanted))
        raise UserError(
            f"{path}: not the {what} of its configuration: {odd[0][:100]!r} is {is_[:100]},"
            f" should be {should}; {len(odd)} differ in all"
        )
    try:
        tensors = safetensors.torch.load(content)
    except (SafetensorError, ValueError) as error:
        raise UserError(f"{path}: not a safetensors file: {error}") from None
    for name, value in tensors.items():
        if not value.isfinite().all():
            raise UserError(f"{path}: {name} holds values that are not finite (NaN or infinity)")
    return tensors


def _max_header_bytes(expected: Mapping[str, Tensor]) -> int:
    # Type, shape and offsets are some 100 bytes of JSON beside the name.
    return 1024 + sum(256 + len(name) for name in expected)


def _read_header(path: Path, content: bytes, most: int) -> dict[str, object]:
    length = int.from_bytes(content[:_LENGTH_BYTES], "little")
    if len(content) < _LENGTH_BYTES or length > len(content) - _LENGTH_BYTES:
        raise UserError(f"{path}: not a safetensors file: its header is longer than the file")
    if length > most:
        raise UserError(f"{path}: not a safetensors file of this model: a header of {length} bytes")
    try:
        header = parse_json(path, content[_LENGTH_BYTES : _LENGTH_BYTES + length])
    except UserError as error:
        reason = str(error).removeprefix(f"{path}: ")
        raise UserError(f"{path}: not a safetensors file: its header is {reason}") from None
    if not isinstance(header, dict):
        raise UserError(f"{path}: not a safetensors file: its header names no tensors")
    return header


def _describe(path: Path, name: str, entry: object) -> str:
    if isinstance(entry, dict) and entry.keys() == {"dtype", "shape", "data_offsets"}:
        return f"{entry['dtype']} {entry['shape']}"
    raise UserError(
        f"{path}: not a safetensors file of this program: {name[:100]!r} is no tensor's entry"
    )
