"""Strict reading of untrusted files, JSON and tensors: anything unexpected is an error.

PyTorch is imported only where tensors are read: commands that need no model start without it.
"""

import errno
import json
import math
import os
import stat
import typing
from collections.abc import Mapping
from dataclasses import fields
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, TypeVar, Union

from seq2seq.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor


MAX_BYTES = 64 * 1024
"""The largest file of settings that is read; this program's are far smaller."""

_MAX_DIGITS = 19
DTYPES = {
    "torch.float32": "F32",
    "torch.float64": "F64",
    "torch.float16": "F16",
    "torch.bfloat16": "BF16",
}
LENGTH_BYTES = 8  # a safetensors file begins with the length of its header

S = TypeVar("S")


def read_regular_file(path: Path, max_bytes: int) -> bytes:
    """Read a regular file, not a link, pipe or device, of at most `max_bytes` bytes.

    Raises:
        UserError: if it is missing, unreadable, too large or not a regular file.
    """
    try:
        # A pipe would wait here for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise UserError(f"{path}: not a regular file")
            if status.st_size > max_bytes:
                raise UserError(
                    f"{path}: damaged, {status.st_size:,} bytes; it can't hold more than"
                    f" {max_bytes:,}"
                )
            with open(descriptor, "rb", closefd=False) as file:
                return file.read(status.st_size)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise UserError(f"{path}: a link, not a regular file; copy the file itself") from None
        raise UserError(f"{path}: {error.strerror}") from error
    except MemoryError:
        raise UserError(f"{path}: too large for this machine's memory") from None


def parse_json(path: Path, content: bytes) -> Any:
    """Parse UTF-8 JSON strictly.

    Raises:
        UserError: if it is malformed or nested too deeply, has a key twice, or holds NaN, an
            infinity, an integer of more than 19 digits or half a surrogate pair.
    """
    try:
        found = json.loads(
            content.decode(),
            object_pairs_hook=_reject_duplicate_keys,
            parse_constant=_reject_constant,
            parse_float=_parse_float,
            parse_int=_parse_int,
        )
        _reject_half_pairs(found)
        return found
    except RecursionError:
        raise UserError(f"{path}: damaged, nested too deeply") from None
    except ValueError as error:
        raise UserError(f"{path}: damaged, not valid JSON: {error}") from None


def check_schema(path: Path, found: object, expected: object, where: str = "the file") -> None:
    """Compare keys and the types of values with those of an example.

    Raises:
        UserError: if they differ.
    """
    if isinstance(expected, dict) and isinstance(found, dict):
        if odd := sorted(map(repr, found.keys() ^ expected.keys())):
            raise UserError(f"{path}: unknown or missing keys in {where}: {', '.join(odd)[:200]}")
        for key, value in expected.items():
            check_schema(path, found[key], value, key)
        return
    accepted = (int, float) if type(expected) is float else (type(expected),)
    if type(found) not in accepted:
        kind = type(expected).__name__
        raise UserError(f"{path}: {where} is {repr(found)[:100]}, not of type {kind}")


def parse_settings(path: Path, saved: dict[str, Any], schema: type[S]) -> S:
    """Make a dataclass from JSON keys and values; enumerations are saved by value.

    Raises:
        UserError: if a key is unknown or missing, a value has another type or is not one of the
            choices, or the dataclass refuses it.
    """
    types = typing.get_type_hints(schema)
    names = {field.name for field in fields(schema)}  # type: ignore[arg-type]
    if odd := sorted(map(repr, saved.keys() ^ names)):
        raise UserError(f"{path}: unknown or missing keys: {', '.join(odd)[:200]}")
    values = {name: _parse_value(path, name, types[name], saved[name]) for name in names}
    try:
        return schema(**values)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def max_bytes(expected: Mapping[str, "Tensor"]) -> int:
    """Return the largest size of a safetensors file of these tensors (meta tensors suffice)."""
    data = sum(value.numel() * value.element_size() for value in expected.values())
    return LENGTH_BYTES + _max_header_bytes(expected) + data


def parse_tensors(
    path: Path, content: bytes, expected: Mapping[str, "Tensor"], what: str = "weights"
) -> dict[str, "Tensor"]:
    """Read the tensors of a safetensors file whose header lists exactly those expected.

    Args:
        path: the path of the file, for messages.
        content: the content of the file.
        expected: names, shapes and types, as tensors on any device, the meta device included.
        what: the name of the tensors, for messages.

    Raises:
        UserError: if it is not a safetensors file, names, shapes or types differ, or a value is not
            finite.
    """
    import safetensors.torch

    header = read_header(path, content, _max_header_bytes(expected))
    found = {name: describe_tensor(path, name, entry) for name, entry in header.items()}
    wanted = {name: f"{DTYPES[str(t.dtype)]} {list(t.shape)}" for name, t in expected.items()}
    odd = [name for name in {**wanted, **found} if found.get(name) != wanted.get(name)]
    if odd:
        is_, should = (names.get(odd[0], "absent") for names in (found, wanted))
        raise UserError(
            f"{path}: not the {what} of its configuration: {odd[0][:100]!r} is {is_[:100]},"
            f" should be {should}; {len(odd)} differ in all"
        )
    try:
        tensors = safetensors.torch.load(content)
    except (safetensors.SafetensorError, ValueError) as error:
        raise UserError(f"{path}: not a safetensors file: {error}") from None
    for name, value in tensors.items():
        if not value.isfinite().all():
            raise UserError(f"{path}: {name} holds values that are not finite (NaN or infinity)")
    return tensors


def _reject_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key[:100]!r} occurs twice")
        found[key] = value
    return found


def _reject_half_pairs(found: object) -> None:
    """Refuse texts that could be written nowhere: those with half a surrogate pair."""
    try:
        json.dumps(found, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ValueError("half a surrogate pair in a text") from None


def _reject_constant(constant: str) -> float:
    raise ValueError(f"{constant} is not a number")


def _parse_float(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"{digits[:30]} is too large a number")
    return value


def _parse_int(digits: str) -> int:
    if len(digits.lstrip("-")) > _MAX_DIGITS:
        raise ValueError(f"{digits[:30]} is too large a number")
    return int(digits)


def _parse_value(path: Path, name: str, kind: Any, value: object) -> object:
    if typing.get_origin(kind) in (Union, UnionType):
        if value is None:
            return None
        kind = next(option for option in typing.get_args(kind) if option is not type(None))
    if isinstance(kind, type) and issubclass(kind, Enum):
        if value not in (choices := [choice.value for choice in kind]):
            raise UserError(f"{path}: {name} is {repr(value)[:100]}; choose {', '.join(choices)}")
        return kind(value)
    check_schema(path, value, kind(), name)
    return value


def _max_header_bytes(expected: Mapping[str, "Tensor"]) -> int:
    # Type, shape and offsets are about 100 bytes of JSON beside the name.
    return 1024 + sum(256 + len(name) for name in expected)


def read_header(path: Path, content: bytes, max_length: int) -> dict[str, object]:
    """Read the header of a safetensors file: an entry for each name.

    Raises:
        UserError: if it is not a safetensors file, or its header is longer than `max_length`.
    """
    length = int.from_bytes(content[:LENGTH_BYTES], "little")
    if len(content) < LENGTH_BYTES or length > len(content) - LENGTH_BYTES:
        raise UserError(f"{path}: not a safetensors file: its header is longer than the file")
    if length > max_length:
        raise UserError(f"{path}: not a safetensors file of this model: a header of {length} bytes")
    try:
        header = parse_json(path, content[LENGTH_BYTES : LENGTH_BYTES + length])
    except UserError as error:
        reason = str(error).removeprefix(f"{path}: ")
        raise UserError(f"{path}: not a safetensors file: its header is {reason}") from None
    if not isinstance(header, dict):
        raise UserError(f"{path}: not a safetensors file: its header names no tensors")
    return header


def describe_tensor(path: Path, name: str, entry: object) -> str:
    """Return type and shape of an entry, such as `F32 [2, 3]`.

    Raises:
        UserError: if it is not the entry of a tensor.
    """
    if isinstance(entry, dict) and entry.keys() == {"dtype", "shape", "data_offsets"}:
        return f"{entry['dtype']} {entry['shape']}"
    raise UserError(
        f"{path}: not a safetensors file of this program: {name[:100]!r} is not a tensor's entry"
    )
