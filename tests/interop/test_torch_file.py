"""Files of `torch.save`: every kind that holds weights is read, nothing else is."""

import io
import os
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from seq2seq.errors import UserError
from seq2seq.interop.marian_import import import_marian
from seq2seq.interop.torch_file import read_torch_file
from tests.faults.test_strangers import peak_megabytes
from tests.interop.conftest import MakeFolder

PATH = Path("pytorch_model.bin")


def saved(tensors: object, *, legacy: bool) -> bytes:
    file = io.BytesIO()
    torch.save(tensors, file, _use_new_zipfile_serialization=not legacy)
    return file.getvalue()


def read(content: bytes) -> dict[str, Tensor]:
    return read_torch_file(PATH, content, lambda found: None)


def some_tensors() -> dict[str, Tensor]:
    torch.manual_seed(1)
    matrix = torch.randn(50, 4)
    state = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 3)).state_dict()  # with its metadata
    return OrderedDict(
        {
            **state,
            "tied": matrix,
            "tied again": matrix,
            "transposed": matrix.t(),
            "a part": matrix[1:3, ::2],
            "parameter": nn.Parameter(torch.randn(3)),
            "half": torch.randn(2, 2).half(),
            "bfloat16": torch.randn(2, 2).bfloat16(),
            "number": torch.tensor(3.0),
        }
    )


@pytest.mark.parametrize("legacy", [False, True])
def test_the_tensors_are_those_that_were_saved(legacy: bool) -> None:
    tensors = some_tensors()
    found = read(saved(tensors, legacy=legacy))
    assert list(found) == list(tensors)
    for name, value in tensors.items():
        assert found[name].dtype == value.dtype
        assert torch.equal(found[name], value), name


@pytest.mark.parametrize("legacy", [False, True])
def test_an_old_folder_is_imported_as_a_new_one(make_folder: MakeFolder, legacy: bool) -> None:
    made = make_folder()
    before = import_marian(made.path).model.state_dict()
    (made.path / "model.safetensors").unlink()
    state = made.model.float().state_dict()  # with all copies of the matrix, and the sinusoids
    assert {"lm_head.weight", "model.encoder.embed_positions.weight"} < state.keys()
    (made.path / "pytorch_model.bin").write_bytes(saved(state, legacy=legacy))
    after = import_marian(made.path).model.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())


class Calls:
    def __init__(self, function: Any, *arguments: Any) -> None:
        self.reduced = function, arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return self.reduced


def zipped(
    description: bytes, numbers: bytes = b"", compression: int = zipfile.ZIP_STORED
) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        archive.writestr("archive/data.pkl", description)
        archive.writestr("archive/version", "3\n")
        archive.writestr("archive/data/0", numbers)
    return file.getvalue()


def called(function: Any, *arguments: Any) -> bytes:
    return zipped(pickle.dumps(Calls(function, *arguments), 2))


def tensor(
    *, elements: int = 4, offset: int = 0, stride: int = 1, key: str = "0", legacy: bool = False
) -> bytes:
    """A dictionary with one tensor, as `torch.save` describes it, but for what is asked for."""

    def number(value: int) -> bytes:
        size = (value.bit_length() + 8) // 8
        return b"\x8a" + bytes([size]) + value.to_bytes(size, "little", signed=True)

    def text(value: str) -> bytes:
        return b"X" + len(value).to_bytes(4, "little") + value.encode()

    storage = text("storage") + b"ctorch\nFloatStorage\n" + text(key) + text("cpu")
    return (
        b"\x80\x02}"
        + text("a")
        + b"ctorch._utils\n_rebuild_tensor_v2\n(("
        + storage
        + number(elements)
        + (b"N" if legacy else b"")
        + b"tQ"
        + number(offset)
        + number(4)
        + b"\x85"
        + number(stride)
        + b"\x85\x89ccollections\nOrderedDict\n)RtRs."
    )


NUMBERS = torch.arange(4.0).numpy().tobytes()


def old(elements: int) -> bytes:
    """A legacy file, padded to a size that a real one has."""
    head = pickle.dumps(1001, 2) + pickle.dumps({"little_endian": True}, 2)
    magic = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
    described = tensor(elements=elements, legacy=True) + pickle.dumps(["0"], 2)
    return magic + head + described + elements.to_bytes(8, "little") + NUMBERS + bytes(2000)


def test_the_descriptions_that_the_hostile_ones_change_are_read() -> None:
    for content in (zipped(tensor(), NUMBERS), old(4)):
        assert read(content)["a"].tolist() == [0, 1, 2, 3]


def twice(second: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", tensor())
        archive.writestr("archive/data.pk_", tensor())
    return file.getvalue().replace(b"data.pk_", second)


class Unknown:
    pass


GIGABYTES = 2**33
HOSTILE: dict[str, tuple[Callable[[], bytes], str]] = {
    "os.system": (lambda: called(os.system, "touch canary"), "names posix system"),
    "a stacked name": (lambda: zipped(pickle.dumps(Calls(exec, "1"), 4)), "which no weights need"),
    "torch.load in itself": (lambda: called(torch.load, "other"), "names torch.serialization load"),
    "an object": (lambda: zipped(pickle.dumps({"a": Unknown()}, 2)), "which no weights need"),
    "the opcode INST": (lambda: zipped(b"ios\nsystem\n(S'touch canary'\ntR."), "names os system"),
    "the opcode PERSID": (lambda: zipped(b"Pid\n."), "corrupt"),
    "a bytearray of gigabytes": (lambda: called(bytearray, GIGABYTES), "names __builtin__ bytear"),
    "a tensor without numbers": (
        lambda: zipped(b"\x80\x02ctorch\nFloatTensor\nJ\x00\x00\x00\x40\x85R."),
        "names torch FloatTensor",
    ),
    "a number for a tensor": (lambda: zipped(pickle.dumps({"a": 3}, 2)), "'a' is not the name"),
    "an empty description": (lambda: zipped(b""), "corrupt"),
    "gigabytes": (lambda: zipped(tensor(elements=GIGABYTES), NUMBERS), "can't hold"),
    "gigabytes, legacy": (lambda: old(GIGABYTES), "can't hold"),
    "an end behind the storage": (lambda: zipped(tensor(offset=1), NUMBERS), "corrupt"),
    "strides past the end": (lambda: zipped(tensor(stride=2), NUMBERS), "corrupt"),
    "fewer numbers than described": (lambda: zipped(tensor(), NUMBERS[:8]), "corrupt"),
    "a storage outside the archive": (
        lambda: zipped(tensor(key="../../../../etc/passwd"), NUMBERS), "corrupt"
    ),
    "a compressed archive": (
        lambda: zipped(tensor(elements=10**6), bytes(4 * 10**6), zipfile.ZIP_DEFLATED),
        "a compressed archive",
    ),
    "two descriptions": (lambda: twice(b"data.pkl"), "not one archive"),
    "one in capitals": (lambda: twice(b"DATA.PKL"), "not one archive"),
    "half an archive": (lambda: zipped(tensor(), NUMBERS)[:150], "corrupt"),
    "NaN": (lambda: saved({"a": torch.tensor(torch.nan)}, legacy=False), "a holds values that are"),
    "a plain pickle": (lambda: pickle.dumps(Calls(os.system, "touch canary")), "torch.save wrote"),
}  # fmt: skip


@pytest.mark.parametrize(("content", "complaint"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_files_are_refused_in_one_line_and_in_little_memory(
    content: Callable[[], bytes], complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = content()
    before = peak_megabytes()
    with pytest.raises(UserError, match=complaint) as error:
        read(made)
    assert peak_megabytes() - before < 100
    assert "\n" not in str(error.value)
    assert str(error.value).startswith("pytorch_model.bin: ")
    assert not list(tmp_path.iterdir())


def test_what_is_read_is_what_was_checked() -> None:
    """PyTorch finds the list of entries by its offset, the first one; Python by its size."""
    hostile = pickle.dumps({"a": Calls(bytearray, 10)}, 2)
    first = zipped(hostile, bytes(len(tensor()) + len(NUMBERS) - len(hostile)))
    without_end = first[:-22]
    assert read(without_end + zipped(tensor(), NUMBERS))["a"].tolist() == [0, 1, 2, 3]


def test_the_description_is_checked_before_a_tensor_is_made() -> None:
    def refuse(found: object) -> None:
        raise UserError("another shape")

    content = saved({"a": torch.randn(5, 7).half()}, legacy=False)
    seen: list[Any] = []
    read_torch_file(PATH, content, seen.append)
    assert seen == [{"a": (torch.float16, (5, 7))}]
    with pytest.raises(UserError, match="another shape"):
        read_torch_file(PATH, content, refuse)
