"""PyTorch's files of weights, read without unpickling.

`torch.save` has written a zip archive since version 1.6, and wrote several pickles one after the
other before. Either describes a dictionary of tensors. Each description is compared with the
configuration before any tensor is made.
"""

import io
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from seq2seq.errors import UserError
from seq2seq.importing.tensor_pickle import Described, RefusedError, Storage, interpret

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
