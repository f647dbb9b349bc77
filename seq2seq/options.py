"""The types of options: dataclasses hold only values of the types that they declare."""

from dataclasses import fields
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin, get_type_hints

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


_WIDER: dict[Any, type] = {int: Integral, float: Real}  # NumPy's numbers are numbers


def check_types(options: "DataclassInstance") -> None:
    """Check that each field holds a value of its type; integers may stand for floats."""
    types = get_type_hints(type(options))
    for field in fields(options):
        value, kind = getattr(options, field.name), types[field.name]
        kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
        if not any(_fits(value, kind) for kind in kinds):
            names = " or ".join("None" if kind is NoneType else kind.__name__ for kind in kinds)
            raise TypeError(f"{field.name}={repr(value)[:100]}: must be {names}")


def _fits(value: object, kind: Any) -> bool:
    if isinstance(value, bool):  # an int to isinstance
        return kind is bool
    kind = get_origin(kind) or kind  # list[str] -> list
    return isinstance(value, _WIDER.get(kind, kind))
