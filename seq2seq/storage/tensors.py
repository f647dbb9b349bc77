"""A safetensors file, one tensor after the other: it needs no second copy of all of them."""

import json
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from seq2seq.storage.strict import DTYPES, LENGTH_BYTES


def safetensors_pieces(tensors: Mapping[str, Tensor]) -> Iterator[bytes | memoryview]:
    """The bytes that `safetensors.torch.save` returns at once: the header, then each tensor.

    `save` holds all of them twice, and where memory runs out it aborts the process.
    """
    # Sorted like the library's own files, so that each tensor is aligned.
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0]))
    header, end = {}, 0
    for name, tensor in ordered:
        start, end = end, end + tensor.numel() * tensor.element_size()
        dtype = DTYPES[str(tensor.dtype)]
        header[name] = {"dtype": dtype, "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % LENGTH_BYTES)
    yield len(text).to_bytes(LENGTH_BYTES, "little") + text
    for _, tensor in ordered:
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        yield flat.view(torch.uint8).numpy().data
