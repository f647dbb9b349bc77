"""A safetensors file in pieces: the library's own bytes, without a copy of them."""

import numpy as np
import safetensors.torch
import torch

from seq2seq.storage.model_folder import safetensors_pieces

TENSORS = {
    "layers.10.weight": torch.randn(3, 5),
    "layers.9.weight": torch.randn(4, 2).t().contiguous(),
    "step": torch.tensor(7.0),
    "empty": torch.zeros(0, 4),
    "half": torch.randn(3).bfloat16(),
    "double": torch.randn(1, dtype=torch.float64),
    "half.again": torch.randn(5).half(),
}


def test_the_pieces_are_the_file_that_the_library_writes() -> None:
    pieces = b"".join(map(bytes, safetensors_pieces(TENSORS)))
    loaded = safetensors.torch.load(pieces)
    assert loaded.keys() == TENSORS.keys()
    for name, value in TENSORS.items():
        assert loaded[name].dtype == value.dtype
        assert torch.equal(loaded[name], value)
    single = {name: value for name, value in TENSORS.items() if value.dtype == torch.float32}
    assert b"".join(map(bytes, safetensors_pieces(single))) == safetensors.torch.save(single)


def test_a_transposed_tensor_is_written_by_its_values() -> None:
    values = torch.arange(6.0).view(2, 3)
    pieces = b"".join(map(bytes, safetensors_pieces({"a": values.t()})))
    assert torch.equal(safetensors.torch.load(pieces)["a"], values.t())


def test_no_piece_is_a_copy() -> None:
    weight = torch.nn.Parameter(torch.randn(100, 100))
    _, piece = safetensors_pieces({"weight": weight})
    assert np.frombuffer(piece, np.uint8).ctypes.data == weight.data_ptr()
