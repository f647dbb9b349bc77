"""Files of `torch.save`: dictionaries of tensors are read, nothing else is, or is executed."""

import os
import pickle
from collections import OrderedDict
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from seq2seq.errors import UserError
from seq2seq.interop.marian_import import import_marian
from seq2seq.interop.transformers_folder import read_torch_file
from tests.faults.test_strangers import Executed
from tests.interop.conftest import MakeFolder


def save(path: Path, content: object, *, legacy: bool) -> None:
    with path.open("wb") as file:  # PyTorch opens no path that is not UTF-8
        torch.save(content, file, _use_new_zipfile_serialization=not legacy)


def read(path: Path) -> dict[str, Tensor]:
    return read_torch_file(path, lambda descriptions: None)


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
def test_the_tensors_are_those_that_were_saved(legacy: bool, tmp_path: Path) -> None:
    tensors, path = some_tensors(), tmp_path / os.fsdecode(b"not UTF-8 \xff")
    save(path, tensors, legacy=legacy)
    loaded = read(path)
    assert list(loaded) == list(tensors)
    for name, value in tensors.items():
        assert loaded[name].dtype == value.dtype
        assert torch.equal(loaded[name], value), name


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.filterwarnings("ignore")  # the libraries' own
def test_an_old_folder_is_imported_as_a_new_one(make_folder: MakeFolder, legacy: bool) -> None:
    made = make_folder()
    before = import_marian(made.path).model.state_dict()
    (made.path / "model.safetensors").unlink()
    state = made.model.float().state_dict()  # with all copies of the matrix, and the sinusoids
    assert {"lm_head.weight", "model.encoder.embed_positions.weight"} < state.keys()
    save(made.path / "pytorch_model.bin", state, legacy=legacy)
    after = import_marian(made.path).model.state_dict()
    path = made.path / "pytorch_model.bin"
    path.write_bytes(bytes(path.stat().st_size))  # in place, as `cp` does
    assert all(torch.equal(after[name], value) for name, value in before.items())
    save(made.path / "pytorch_model.bin", state | {"x": torch.ones(2)}, legacy=legacy)
    with pytest.raises(UserError, match="'x' is not a parameter of such a model"):
        import_marian(made.path)


class Unknown:
    pass


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize(
    "content",
    [Executed(), {"a": Executed()}, {"a": Unknown()}, {"a": 3}, [torch.ones(2)], torch.ones(2),
     {"a": torch.tensor(torch.nan)}, {"a": torch.eye(3).to_sparse()}],
    ids=["a call", "a call in it", "an object", "a number", "a list", "a tensor", "NaN", "sparse"],
)  # fmt: skip
def test_anything_else_is_refused_in_one_line_and_not_executed(
    content: object, legacy: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    save(Path("weights.bin"), content, legacy=legacy)
    with pytest.raises(UserError, match=r"^weights.bin: .*(torch.save wrote|not finite)") as error:
        read(Path("weights.bin"))
    assert "\n" not in str(error.value)
    assert os.listdir() == ["weights.bin"]


@pytest.mark.parametrize("legacy", [False, True])
def test_corrupt_files_are_refused(legacy: bool, tmp_path: Path) -> None:
    path = tmp_path / "weights.bin"
    save(path, some_tensors(), legacy=legacy)
    whole = path.read_bytes()
    for content in (whole[:400], whole[:-100], b"", pickle.dumps({"a": 1})):
        path.write_bytes(content)
        with pytest.raises(UserError, match=r"weights.bin: .*torch.save wrote"):
            read(path)
