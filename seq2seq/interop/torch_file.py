"""PyTorch's files of weights, read by `torch.load` as tensors alone.

`torch.save` has written a zip archive since version 1.6, and wrote several pickles one after the
other before. `weights_only=True` executes nothing that either names. It may take memory, though,
that only the file claims, so that names and numbers of the pickles are looked at first.
"""

import io
import pickletools
import zipfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from seq2seq.errors import UserError
from seq2seq.files.tensors import Descriptions, check_finite

# What a dictionary of tensors needs of all that `torch.load` knows, such as bytearray(10**12).
_NAMES = {
    "collections OrderedDict",
    "torch._utils _rebuild_tensor_v2",
    "torch._utils _rebuild_parameter",
    *(f"torch {kind}Storage" for kind in ("Float", "Half", "BFloat16", "Double")),
}
_ZIP_START = b"PK\x03\x04"
_LEGACY_START = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # its magic number, pickled
_LEGACY_PICKLES = 4  # after it: version, system, tensors, and the keys of the storages


def read_torch_file(
    path: Path, content: bytes, check: Callable[[Descriptions], None]
) -> dict[str, Tensor]:
    """Read a dictionary of finite tensors from the content of a file.

    Before any is made, `check` raises an error if types or shapes are not those that are expected.
    """
    try:
        if content.startswith(_ZIP_START):
            content = _checked_archive(content)
        elif content.startswith(_LEGACY_START):
            stream = io.BytesIO(content)
            stream.seek(len(_LEGACY_START))
            for _ in range(_LEGACY_PICKLES):
                _check_pickle(stream, len(content))
        else:
            raise UserError(f"{path}: not a file that torch.save wrote")
        described = _load(content, "meta")
        check({name: (value.dtype, tuple(value.shape)) for name, value in described.items()})
        tensors = _load(content, "cpu")
    except UserError:
        raise
    except Exception as error:  # torch.load has no class of errors of its own
        reason = " ".join(str(error).split())[:100]
        raise UserError(f"{path}: corrupt, not a dictionary of tensors: {reason}") from None
    check_finite(path, tensors)
    return tensors


def _load(content: bytes, device: str) -> dict[str, Tensor]:
    found = torch.load(io.BytesIO(content), map_location=device, weights_only=True, mmap=False)
    if not isinstance(found, dict):
        raise ValueError(f"it holds a {type(found).__name__}")
    for name, value in found.items():
        if type(name) is not str or type(value) not in (Tensor, nn.Parameter):
            raise ValueError(f"{name!r} is not the name of a tensor")
    return {name: value.detach() for name, value in found.items()}


def _checked_archive(content: bytes) -> bytes:
    """Check the pickle of an archive, and copy the entries that were checked into a new one.

    In the original PyTorch could find others: its reader ignores case, and finds the list of
    entries by another rule.
    """
    copy = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as archive, zipfile.ZipFile(copy, "w") as checked:
        entries = archive.infolist()
        if sum(entry.file_size for entry in entries) > len(content):
            raise ValueError("a compressed archive, which torch.save does not write")
        pickles = [entry for entry in entries if entry.filename.lower().endswith("/data.pkl")]
        if len(pickles) != 1:
            raise ValueError("not one archive of torch.save")
        _check_pickle(io.BytesIO(archive.read(pickles[0])), len(content))
        for entry in entries:
            checked.writestr(entry.filename, archive.read(entry))
    return copy.getvalue()


def _check_pickle(stream: io.BytesIO, file_bytes: int) -> None:
    """Check that a pickle names nothing but tensors, and no number larger than the file's size."""
    for opcode, argument, _ in pickletools.genops(stream):
        named = opcode.name in ("GLOBAL", "STACK_GLOBAL", "INST")
        if named and argument not in _NAMES:
            raise ValueError(f"it names {argument}, which no weights need")
        if isinstance(argument, int) and abs(argument) > file_bytes:
            raise ValueError(f"it can't hold {argument:,} numbers")
