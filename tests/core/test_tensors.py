"""Safetensors files: as the library writes them, and read only if they are what is expected."""

import os
import struct
from pathlib import Path

import pytest
import torch

from seq2seq.errors import UserError
from seq2seq.model_folder import check_expected, max_bytes, read_tensors, save_tensors

TENSORS = {
    "transposed": torch.randn(4, 2).t(),
    "step": torch.tensor(7.0),
    "empty": torch.zeros(0, 4),
    "parameter": torch.nn.Parameter(torch.randn(3)),
    "bfloat16": torch.randn(3).bfloat16(),
    "float64": torch.randn(1, dtype=torch.float64),
    "float16": torch.randn(5).half(),
}


def read(path: Path) -> dict[str, torch.Tensor]:
    return read_tensors(path, lambda found: check_expected(path, found, TENSORS, "weights"))


def test_tensors_come_back_to_the_bit_and_keep_their_values_if_the_file_changes(
    tmp_path: Path,
) -> None:
    path = tmp_path / os.fsdecode(b"not UTF-8 \xff") / "tensors"
    path.parent.mkdir()
    save_tensors(TENSORS, path)
    assert path.stat().st_size <= max_bytes(TENSORS)
    found = read(path)
    with path.open("r+b") as file:  # in place, as `cp` does
        file.seek(-8, 2)
        file.write(bytes(8))
    assert found.keys() == TENSORS.keys()
    for name, value in TENSORS.items():
        assert found[name].dtype == value.dtype
        assert torch.equal(found[name], value)


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_who_may_read_tensors_is_a_matter_of_the_umask(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        save_tensors(TENSORS, tmp_path / "tensors")
    finally:
        os.umask(before)
    assert (tmp_path / "tensors").stat().st_mode & 0o777 == 0o666 & ~mask


def with_header(length: int, header: bytes, data: bytes = b"") -> bytes:
    return struct.pack("<Q", length) + header + data


EXABYTES = b'{"a":{"dtype":"F32","shape":[1000000000,1000000000],"data_offsets":[0,4]}}'


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"x" * 100,
        b"\x80\x04K\x01.",
        with_header(2**62, b"{}"),
        with_header(3 * 10**4, b"[" * 30_000),
        with_header(len(EXABYTES), EXABYTES, b"1234"),
    ],
    ids=["empty", "text", "a pickle", "a header of exabytes", "nested", "a tensor of exabytes"],
)
def test_an_invalid_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "tensors").write_bytes(content)
    with pytest.raises(UserError, match="tensors: not a safetensors file"):
        read(tmp_path / "tensors")
