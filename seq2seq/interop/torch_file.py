"""PyTorch's files of weights, read without unpickling.

`torch.save` has written a zip archive since version 1.6, and wrote several pickles one after the
other before. Either describes a dictionary of tensors. Each description is compared with the
configuration before any tensor is made.
"""

import io
import pickletools
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from seq2seq.errors import UserError

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


Check = Callable[[str, torch.dtype | None, tuple[int, ...]], None]

_MAX_PICKLE_BYTES = 8 * 2**20
_LEGACY_START = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # its magic number, pickled
_ZIP_START = b"PK\x03\x04"
_LEGACY_PROTOCOL = 1001


def read_torch_file(path: Path, content: bytes, check: Check) -> dict[str, Tensor]:
    """Read a dictionary of tensors.

    Args:
        path: the path of the file, for messages.
        content: the content of the file.
        check: called with name, type and shape of each tensor, before any is made.

    Raises:
        UserError: if the file is damaged, or holds something other than a dictionary of tensors.
    """
    try:
        if content.startswith(_ZIP_START):
            return _read_zip(content, check)
        if content.startswith(_LEGACY_START):
            return _read_legacy(content, check)
    except RefusedError as error:
        raise UserError(f"{path}: {error}") from None
    except TypeError:
        raise UserError(f"{path}: damaged, not a description of tensors") from None
    raise UserError(f"{path}: not a file that torch.save wrote")


def _read_zip(content: bytes, check: Check) -> dict[str, Tensor]:
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            entries = {entry.filename: entry for entry in archive.infolist()}
            pickles = [
                name for name in entries if name.count("/") == 1 and name.endswith("/data.pkl")
            ]
            if len(pickles) != 1 or len(entries) < len(archive.infolist()):
                raise RefusedError("damaged, not one archive of torch.save")
            folder = pickles[0].partition("/")[0]
            if any(e.compress_type != zipfile.ZIP_STORED for e in entries.values()):
                raise RefusedError("a compressed archive, which torch.save does not write")
            order = entries.get(f"{folder}/byteorder")
            if order is not None and _stored(archive, order, 16) != b"little":
                raise RefusedError("written by a machine of another byte order")
            text = _stored(archive, entries[pickles[0]], _MAX_PICKLE_BYTES)
            tensors = _describe(interpret(io.BytesIO(text)), check, len(content))

            def content_of(storage: Storage) -> bytes:
                entry = entries.get(f"{folder}/data/{storage.key}")
                size = storage.elements * storage.dtype.itemsize
                if entry is None or entry.file_size != size:
                    raise RefusedError(
                        f"damaged, the storage {storage.key[:100]!r} has another size"
                    )
                return _stored(archive, entry, size)

            return _make(tensors, content_of)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, ValueError, OSError):
        raise RefusedError("damaged, not an archive of torch.save") from None


def _stored(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, max_bytes: int) -> bytes:
    if entry.file_size > max_bytes or entry.compress_size != entry.file_size:
        raise RefusedError(f"damaged, {entry.filename[:100]!r} has {entry.file_size:,} bytes")
    return archive.read(entry)


def _read_legacy(content: bytes, check: Check) -> dict[str, Tensor]:
    """Read the format before version 1.6: five pickles, then each storage after its length."""
    stream = io.BytesIO(content)
    stream.seek(len(_LEGACY_START))
    if interpret(stream) != _LEGACY_PROTOCOL:
        raise RefusedError("written by another version of torch.save")
    system = interpret(stream)
    if not isinstance(system, dict) or system.get("little_endian") is not True:
        raise RefusedError("written by a machine of another byte order")
    tensors = _describe(interpret(stream), check, len(content))
    keys = interpret(stream)
    storages = {described.storage.key: described.storage for described in tensors.values()}
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise RefusedError("damaged, not a list of its storages")
    if sorted(keys) != sorted(storages):
        raise RefusedError("damaged, its storages are not those of its tensors")
    found = {}
    for key in keys:
        storage = storages[key]
        size = storage.elements * storage.dtype.itemsize
        if int.from_bytes(stream.read(8), "little") != storage.elements:
            raise RefusedError(f"damaged, the storage {key[:100]!r} has another size")
        start = stream.tell()
        if start + size > len(content):
            raise RefusedError("damaged, it is cut short")
        found[key] = slice(start, start + size)
        stream.seek(size, io.SEEK_CUR)
    return _make(tensors, lambda storage: content[found[storage.key]])


def _describe(found: object, check: Check, file_bytes: int) -> dict[str, Described]:
    """Check that it is a dictionary of tensors that lie within their storages."""
    if not isinstance(found, dict):
        raise RefusedError("not a dictionary of weights")
    sizes: dict[str, Storage] = {}
    for name, value in found.items():
        if not isinstance(name, str) or not isinstance(value, Described):
            raise RefusedError(f"not a dictionary of weights: {str(name)[:100]!r} is no tensor")
        check(name, value.storage.dtype, value.shape)
        if value.offset < 0 or min(value.strides, default=0) < 0:
            raise RefusedError(f"damaged, {name} begins before its storage")
        if value.last() > value.storage.elements:
            raise RefusedError(f"damaged, {name} ends behind its storage")
        if sizes.setdefault(value.storage.key, value.storage) != value.storage:
            raise RefusedError(f"damaged, the storage of {name} has two sizes")
    if sum(s.elements * s.dtype.itemsize for s in sizes.values()) > file_bytes:
        raise RefusedError("damaged, its tensors are larger than the file")
    return found


def _make(
    tensors: Mapping[str, Described], content_of: Callable[[Storage], bytes]
) -> dict[str, Tensor]:
    storages: dict[str, Tensor] = {}
    made = {}
    for name, described in tensors.items():
        storage = described.storage
        if storage.key not in storages:
            content = bytearray(content_of(storage))
            storages[storage.key] = torch.frombuffer(content, dtype=storage.dtype)
        made[name] = storages[storage.key].as_strided(
            described.shape, described.strides, described.offset
        )
    return made
