"""The GPU of the tests in this folder, which isn't there."""

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
import safetensors.torch
import torch
from torch import nn
from torch.utils import _foreach_utils

from tests.cuda.accelerator import UnknownPyTorchError, lent
from tests.cuda.device import (
    CudaTensor,
    Event,
    Factories,
    Journal,
    attention,
    journal,
    of_inside,
    pin,
)
from tests.cuda.graph import CUDAGraph, Recording

# What PyTorch asks CUDA itself, and what must know of the tensors' type.
REPLACED: tuple[tuple[object, str, object], ...] = (
    (torch.cuda, "is_available", lambda: True),
    (torch.cuda, "is_initialized", lambda: True),
    (torch.cuda, "device_count", lambda: 1),
    (torch.cuda, "current_device", lambda: 0),
    (torch.cuda, "set_device", lambda _: None),
    (torch.cuda, "get_device_capability", lambda *_: (9, 0)),
    (torch.cuda, "is_bf16_supported", lambda *_, **__: True),
    (torch.cuda, "current_stream", lambda _=None: None),
    (torch.cuda, "Event", Event),
    (torch.cuda, "CUDAGraph", CUDAGraph),
    (torch.cuda, "graph", Recording),
    (torch.cuda, "graph_pool_handle", lambda: (0, 1)),
    (torch.cuda, "_lazy_init", lambda: None),
    (torch.cuda, "manual_seed_all", lambda _: None),
    (torch.cuda, "get_rng_state", lambda *_: torch.zeros(16, dtype=torch.uint8)),
    (torch.cuda, "set_rng_state", lambda *_: None),
    (torch.cuda.amp.common, "amp_definitely_not_available", lambda: False),
    (torch.Tensor, "pin_memory", pin),
    (_foreach_utils, "_foreach_supported_types", [torch.Tensor, nn.Parameter, CudaTensor]),
    (safetensors.torch, "storage_ptr", of_inside(safetensors.torch.storage_ptr)),
    (safetensors.torch, "storage_size", of_inside(safetensors.torch.storage_size)),
)


@pytest.fixture(scope="module", autouse=True)
def gpu() -> Iterator[None]:
    if torch.backends.cuda.is_built():
        pytest.skip("tests/test_cuda.py does it on a real GPU")
    library = torch.library.Library("aten", "IMPL")
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(lent())
        except UnknownPyTorchError as error:
            pytest.skip(f"this PyTorch is not the one that is known: {error}")
        for owner, name, value in REPLACED:
            stack.enter_context(mock.patch.object(owner, name, value))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # there is an implementation already, for all devices
            for key in ("AutogradCUDA", "CUDA"):
                library.impl("scaled_dot_product_attention", attention, key)
        stack.callback(library._destroy)
        _set_for_a_while(stack, torch.__future__, "overwrite_module_params_on_conversion", False)
        lifted: Any = torch._C._only_lift_cpu_tensors()
        stack.callback(torch._C._set_only_lift_cpu_tensors, lifted)
        torch._C._set_only_lift_cpu_tensors(True)
        stack.enter_context(torch.autograd.set_multithreading_enabled(False))
        stack.enter_context(Factories())
        yield


def _set_for_a_while(stack: contextlib.ExitStack, owner: Any, name: str, afterwards: bool) -> None:
    set_value = getattr(owner, f"set_{name}")
    set_value(not afterwards)
    stack.callback(set_value, afterwards)


@pytest.fixture(name="journal")
def cleared_journal() -> Journal:
    journal.clear()
    return journal
