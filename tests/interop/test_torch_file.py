"""Files of `torch.save`, read without unpickling, against `torch.load`."""

import io
import os
import pickle
import subprocess
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
from tests.interop.conftest import MakeFolder

PATH = Path("pytorch_model.bin")


def saved(tensors: object, *, legacy: bool, protocol: int = 2) -> bytes:
    file = io.BytesIO()
    torch.save(tensors, file, _use_new_zipfile_serialization=not legacy, pickle_protocol=protocol)
    return file.getvalue()


def read(content: bytes) -> dict[str, Tensor]:
    return read_torch_file(PATH, content, lambda name, dtype, shape: None)


def some_tensors() -> dict[str, Tensor]:
    torch.manual_seed(1)
    matrix = torch.randn(5, 4)
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
def test_the_tensors_are_those_of_torch_load(legacy: bool) -> None:
    content = saved(some_tensors(), legacy=legacy)
    assert_equal(read(content), torch.load(io.BytesIO(content), weights_only=True))


@pytest.mark.parametrize("protocol", [3, 4])
def test_the_tensors_are_those_that_were_saved_in_other_protocols(protocol: int) -> None:
    tensors = some_tensors()
    assert_equal(read(saved(tensors, legacy=False, protocol=protocol)), tensors)


def assert_equal(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert list(found) == list(expected)
    for name, value in expected.items():
        assert found[name].dtype == value.dtype
        assert torch.equal(found[name], value), name


def test_a_module_s_own_state_has_what_the_interpreter_knows() -> None:
    module = nn.TransformerEncoderLayer(8, 2, 16)
    for legacy in (False, True):
        found = read(saved(module.state_dict(), legacy=legacy))
        assert all(torch.equal(found[n], v) for n, v in module.state_dict().items())


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


def zipped(description: bytes, storages: dict[str, bytes] | None = None) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", description)
        for key, content in (storages or {}).items():
            archive.writestr(f"archive/data/{key}", content)
    return file.getvalue()


def tensor(
    *,
    key: str = "0",
    elements: int = 4,
    offset: int = 0,
    shape: str = "K\x04\x85",
    stride: str = "K\x01\x85",
    kind: str = "FloatStorage",
) -> bytes:
    """A dictionary with one tensor, as `torch.save` describes it, but for what is asked for."""

    def number(value: int) -> bytes:
        size = (value.bit_length() + 8) // 8
        return b"\x8a" + bytes([size]) + value.to_bytes(size, "little", signed=True)

    def text(value: str) -> bytes:
        return b"X" + len(value).to_bytes(4, "little") + value.encode()

    return (
        b"\x80\x02}"
        + text("a")
        + b"ctorch._utils\n_rebuild_tensor_v2\n(("
        + text("storage")
        + b"ctorch\n"
        + kind.encode()
        + b"\n"
        + text(key)
        + text("cpu")
        + number(elements)
        + b"tQ"
        + number(offset)
        + shape.encode("latin-1")
        + stride.encode("latin-1")
        + b"\x89N"
        + b"tRs."
    )


NUMBERS = torch.arange(4.0).numpy().tobytes()


def test_the_description_that_the_hostile_ones_change_is_read() -> None:
    assert read(zipped(tensor(), {"0": NUMBERS}))["a"].tolist() == [0, 1, 2, 3]


LEGACY_HEAD = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19." + pickle.dumps(1001, 2)
LEGACY_SYSTEM = pickle.dumps({"protocol_version": 1001, "little_endian": True}, 2)


def bomb() -> bytes:
    """Lists of lists of lists: 2^60 of them, by reference."""
    return b"\x80\x02]q\x00" + b"".join(
        b"]q" + bytes([i]) + b"(h" + bytes([i - 1]) + b"h" + bytes([i - 1]) + b"e"
        for i in range(1, 60)
    )


def compressed() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", tensor(elements=10**6))
        archive.writestr("archive/data/0", bytes(4 * 10**6))
    return file.getvalue()


def twice() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", tensor())
        archive.writestr("archive/data.pk_", tensor())
    return file.getvalue().replace(b"data.pk_", b"data.pkl")


class Unknown:
    pass


HOSTILE: dict[str, tuple[Callable[[], bytes], str]] = {
    "os.system": (
        lambda: zipped(pickle.dumps(Calls(os.system, "touch canary"), 2)),
        "names posix.system",
    ),
    "os.system, legacy": (
        lambda: LEGACY_HEAD + LEGACY_SYSTEM + pickle.dumps(Calls(os.system, "touch canary"), 2),
        "names posix.system",
    ),
    "os.system in the first pickle of a legacy file": (
        lambda: LEGACY_HEAD[:15] + pickle.dumps(Calls(os.system, "touch canary"), 2),
        "names posix.system",
    ),
    "eval": (lambda: zipped(pickle.dumps(Calls(eval, "1"), 2)), "names __builtin__.eval"),
    "exec by a stacked name": (
        lambda: zipped(pickle.dumps(Calls(exec, "1"), 4)),
        "names builtins.exec",
    ),
    "getattr": (
        lambda: zipped(pickle.dumps(Calls(getattr, "a", "upper"), 4)),
        "names builtins.getattr",
    ),
    "a chain of calls": (
        lambda: zipped(pickle.dumps(Calls(map, Calls(eval, "1"), Calls(os.getcwd)), 4)),
        "names builtins.eval",
    ),
    "subprocess": (
        lambda: zipped(pickle.dumps(Calls(subprocess.Popen, ("touch", "canary")), 4)),
        "names subprocess.Popen",
    ),
    "torch.load in itself": (
        lambda: zipped(pickle.dumps(Calls(torch.load, "other"), 4)),
        "names torch.serialization.load",
    ),
    "an object": (
        lambda: zipped(pickle.dumps({"a": Unknown()}, 2)),
        "names copy_reg._reconstructor|NEWOBJ",
    ),
    "an object, protocol 0": (
        lambda: zipped(b"ios\nsystem\n(S'touch canary'\ntR."),
        "opcode INST|damaged",
    ),
    "the opcode OBJ": (lambda: zipped(b"(cos\nsystem\nX\x01\x00\x00\x00ao."), "opcode OBJ"),
    "the opcode EXT1": (lambda: zipped(b"\x80\x02\x82\x01."), "opcode EXT1"),
    "the opcode PERSID": (lambda: zipped(b"Pid\n."), "opcode PERSID"),
    "bytes": (lambda: zipped(pickle.dumps({"a": b"1" * 10}, 4)), "BINBYTES"),
    "a state for a tensor": (lambda: zipped(tensor()[:-2] + b"}bs."), "sets the state"),
    "a list": (lambda: zipped(pickle.dumps([1, 2], 2)), "not a dictionary of weights"),
    "a number for a tensor": (lambda: zipped(pickle.dumps({"a": 3}, 2)), "'a' is no tensor"),
    "a dictionary within": (lambda: zipped(pickle.dumps({"model": {}}, 2)), "'model' is no tensor"),
    "a number for a name": (lambda: zipped(pickle.dumps({3: 3}, 2)), "damaged"),
    "lists by the billion": (lambda: zipped(bomb() + b"."), "not a dictionary"),
    "lists by the billion for a name": (
        lambda: zipped(b"\x80\x02}" + bomb()[2:] + b"Ns."),
        "damaged",
    ),
    "a million opcodes": (lambda: zipped(b"N" * 10**6 + b"."), "too long a description"),
    "no end": (lambda: zipped(tensor()[:-1]), "damaged"),
    "an empty description": (lambda: zipped(b""), "damaged"),
    "a stack without values": (lambda: zipped(b"\x80\x02\x86."), "damaged"),
    "a memo without values": (lambda: zipped(b"\x80\x02h\x07."), "damaged"),
    "an integer of 10,000 digits": (lambda: zipped(b"I" + b"9" * 10000 + b"\n."), "damaged"),
    "a terabyte": (
        lambda: zipped(tensor(elements=10**12), {"0": NUMBERS}),
        "another size|larger than",
    ),
    "an end behind the storage": (
        lambda: zipped(tensor(offset=1), {"0": NUMBERS}),
        "ends behind its storage",
    ),
    "strides past the end": (
        lambda: zipped(tensor(stride="K\x02\x85"), {"0": NUMBERS}),
        "ends behind its storage",
    ),
    "a negative offset": (lambda: zipped(tensor(offset=-1), {"0": NUMBERS}), "damaged"),
    "a shape with more places than strides": (
        lambda: zipped(tensor(shape="K\x02K\x02\x86"), {"0": NUMBERS}),
        "_rebuild_tensor_v2",
    ),
    "a storage of another size": (lambda: zipped(tensor(), {"0": NUMBERS + b"1"}), "another size"),
    "a storage that is missing": (lambda: zipped(tensor(key="1"), {"0": NUMBERS}), "another size"),
    "a storage outside the archive": (
        lambda: zipped(tensor(key="../../../../etc/passwd"), {"0": NUMBERS}),
        "another size",
    ),
    "an unknown type of numbers": (
        lambda: zipped(tensor(kind="LongStorage"), {"0": NUMBERS}),
        "names torch.LongStorage",
    ),
    "a module in place of a storage": (
        lambda: zipped(tensor().replace(b"storage", b"module_")),
        "something other than a storage",
    ),
    "a compressed archive": (compressed, "a compressed archive"),
    "two descriptions": (twice, "damaged"),
    "no description": (lambda: zipped(b"").replace(b"data.pkl", b"data.pk_"), "damaged"),
    "half an archive": (lambda: zipped(tensor(), {"0": NUMBERS})[:150], "damaged"),
    "a legacy file that is cut short": (
        lambda: saved(some_tensors(), legacy=True)[:-3],
        "cut short",
    ),
    "a legacy file of big-endian numbers": (
        lambda: LEGACY_HEAD + pickle.dumps({"little_endian": False}, 2),
        "byte order",
    ),
    "a legacy file of another protocol": (
        lambda: LEGACY_HEAD[:15] + pickle.dumps(1002, 2),
        "another version",
    ),
    "a plain pickle": (
        lambda: pickle.dumps(Calls(os.system, "touch canary")),
        "not a file that torch.save wrote",
    ),
    "text": (lambda: b"weights", "not a file that torch.save wrote"),
    "nothing": (lambda: b"", "not a file that torch.save wrote"),
}


@pytest.mark.parametrize(("content", "complaint"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_files_are_refused_in_one_line(
    content: Callable[[], bytes],
    complaint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    made = content()

    def never(*arguments: object) -> None:
        raise AssertionError("unpickled")

    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, never)
    with pytest.raises(UserError, match=complaint) as error:
        read(made)
    assert "\n" not in str(error.value)
    assert str(error.value).startswith("pytorch_model.bin: ")
    assert not list(tmp_path.iterdir())
