"""JSON from a file that may come from anybody: what it plainly says, or a refusal."""

import json
import math
from pathlib import Path
from typing import Any

from seq2seq.errors import UserError

MAX_BYTES = 64 * 1024
"""Of a file of settings; far more than any of this program's."""

_MAX_DIGITS = 19


def parse_json(path: Path, content: bytes) -> Any:
    """Parse UTF-8 JSON strictly.

    Raises:
        UserError: it is malformed or nested too deeply, names a key twice, or holds NaN, an
            infinity or a whole number of more than 19 digits.
    """
    try:
        return json.loads(
            content.decode(),
            object_pairs_hook=_reject_duplicate_keys,
            parse_constant=_refuse,
            parse_float=_parse_float,
            parse_int=_parse_int,
        )
    except RecursionError:
        raise UserError(f"{path}: damaged, nested too deeply") from None
    except ValueError as error:
        raise UserError(f"{path}: damaged, not the JSON that was written: {error}") from None


def check_schema(path: Path, found: object, expected: object, where: str = "the file") -> None:
    """Refuse what has other keys, or values of other types, than an example.

    Raises:
        UserError: it has.
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


def _reject_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key[:100]!r} stands twice")
        found[key] = value
    return found


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is no number")


def _parse_float(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"{digits[:30]} is too large a number")
    return value


def _parse_int(digits: str) -> int:
    if len(digits.lstrip("-")) > _MAX_DIGITS:
        raise ValueError(f"{digits[:30]} is too large a number")
    return int(digits)
