"""A pickle that describes tensors, read without unpickling.

`pickletools` parses the opcodes and executes nothing. The interpreter here knows the opcodes that a
dictionary of tensors needs, and no names but those of tensors.
"""

import io
import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

_MAX_OPCODES = 500_000  # a model of 12 + 12 layers needs some 10,000
_DTYPES = {
    "FloatStorage": torch.float32,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "DoubleStorage": torch.float64,
}


class RefusedError(Exception):
    """A reason not to read the file."""


@dataclass(frozen=True)
class _Name:
    """A class or a function that the file names; it is never looked up."""

    name: str


@dataclass(frozen=True)
class Storage:
    """Numbers that are somewhere in the file."""

    key: str
    dtype: torch.dtype
    elements: int


@dataclass(frozen=True)
class Described:
    """A tensor: a view of a storage."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def last(self) -> int:
        """The number of elements that the storage must have."""
        if 0 in self.shape:
            return self.offset
        reach = (s * (n - 1) for n, s in zip(self.shape, self.strides, strict=True))
        return self.offset + sum(reach) + 1


def interpret(stream: io.BytesIO) -> object:
    """Interpret one pickle of the opcodes that a dictionary of tensors needs.

    Raises:
        RefusedError: if it is damaged, or has an opcode or a name that no such dictionary needs.
    """
    machine = _Machine()
    try:
        for count, (opcode, argument, _) in enumerate(pickletools.genops(stream)):
            if count > _MAX_OPCODES:
                raise RefusedError("too long a description of tensors")
            if opcode.name == "STOP":
                return machine.pop()
            machine.execute(opcode.name, argument)
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise RefusedError(f"damaged, not a description of tensors: {error!s:.100}") from None
    raise RefusedError("damaged, it is cut short")


_MARK = object()
_CONSTANTS: dict[str, object] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_VALUES = (
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "UNICODE", "BINUNICODE",
    "SHORT_BINUNICODE",
)  # fmt: skip
_EMPTY: dict[str, Callable[[], object]] = {
    "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
    "MARK": lambda: _MARK,
}


class _Machine:
    """A stack and a memo of descriptions: numbers, texts, tuples, lists, dictionaries, tensors."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def pop(self) -> Any:
        """Take the uppermost value."""
        if self.stack[-1] is _MARK:
            raise IndexError("no value")
        return self.stack.pop()

    def pop_to_mark(self) -> list[Any]:
        """Take the values above the uppermost mark, and the mark."""
        values = []
        while self.stack[-1] is not _MARK:
            values.append(self.stack.pop())
        self.stack.pop()
        return values[::-1]

    def execute(self, opcode: str, argument: Any) -> None:
        """Execute one opcode.

        Raises:
            RefusedError: if no description of tensors needs it.
        """
        if opcode in ("PROTO", "FRAME"):
            return
        if opcode in _CONSTANTS:
            self.stack.append(_CONSTANTS[opcode])
        elif opcode in _VALUES:
            self.stack.append(argument)
        elif opcode in _EMPTY:
            self.stack.append(_EMPTY[opcode]())
        elif opcode in ("BINPUT", "LONG_BINPUT"):
            self.memo[argument] = self.stack[-1]
        elif opcode == "MEMOIZE":
            self.memo[len(self.memo)] = self.stack[-1]
        elif opcode in ("BINGET", "LONG_BINGET"):
            self.stack.append(self.memo[argument])
        else:
            self.combine(opcode, argument)

    def combine(self, opcode: str, argument: Any) -> None:
        """Execute one of the opcodes that make a value of others."""
        match opcode:
            case "TUPLE":
                self.stack.append(tuple(self.pop_to_mark()))
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                values = [self.pop() for _ in range(int(opcode[-1]))]
                self.stack.append(tuple(values[::-1]))
            case "APPEND":
                self.extend([self.pop()])
            case "APPENDS":
                self.extend(self.pop_to_mark())
            case "SETITEM":
                self.update([self.pop(), self.pop()][::-1])
            case "SETITEMS":
                self.update(self.pop_to_mark())
            case "GLOBAL":
                self.stack.append(_Name(argument.replace(" ", ".")))
            case "STACK_GLOBAL":
                name, module = self.pop(), self.pop()
                self.stack.append(_Name(f"{_text(module)}.{_text(name)}"))
            case "REDUCE":
                arguments, function = self.pop(), self.pop()
                self.stack.append(_call(function, arguments))
            case "BINPERSID":
                self.stack.append(_storage(self.pop()))
            case "BUILD":
                # Only the versions of the modules, beside the weights.
                if not (isinstance(self.pop(), dict) and isinstance(self.stack[-1], dict)):
                    raise RefusedError(
                        "sets the state of an object, which no weights need: not read"
                    )
            case _:
                raise RefusedError(f"has the opcode {opcode}, which no weights need: not read")

    def extend(self, values: list[Any]) -> None:
        """Extend the uppermost list."""
        if not isinstance(self.stack[-1], list):
            raise TypeError("no list")
        self.stack[-1].extend(values)

    def update(self, items: list[Any]) -> None:
        """Add keys and values, which take turns, to the uppermost dictionary."""
        if not isinstance(self.stack[-1], dict) or len(items) % 2:
            raise TypeError("no dictionary")
        for key, value in zip(items[::2], items[1::2], strict=True):
            self.stack[-1][_text(key)] = value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("a key or a name that is no text")
    return value


def _whole(*values: object) -> tuple[int, ...]:
    if not all(type(value) is int and 0 <= value < 2**63 for value in values):
        raise TypeError("a size that is no number")
    return values  # type: ignore[return-value]


def _call(function: object, arguments: object) -> object:
    """Describe what a function of PyTorch's would make; no function is called."""
    if not isinstance(function, _Name) or not isinstance(arguments, tuple):
        raise TypeError("a call of no function")
    match function.name, arguments:
        case "collections.OrderedDict", ():
            return {}
        case "torch._utils._rebuild_parameter", (Described() as tensor, *_):
            return tensor
        case (
            "torch._utils._rebuild_tensor_v2",
            (Storage() as storage, offset, tuple() as shape, tuple() as strides, *_),
        ) if len(shape) == len(strides):
            (start,) = _whole(offset)
            return Described(storage, start, _whole(*shape), _whole(*strides))
    raise RefusedError(f"names {function.name[:100]}, which no weights need: not read")


def _storage(found: object) -> Storage:
    match found:
        case ("storage", _Name(name), str() as key, str(), elements, *_):
            module, _, kind = name.rpartition(".")
            if module == "torch" and kind in _DTYPES:
                return Storage(key, _DTYPES[kind], _whole(elements)[0])
            raise RefusedError(f"names {name[:100]}, which no weights need: not read")
    raise RefusedError("damaged, a reference to something other than a storage")
