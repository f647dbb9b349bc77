"""The simulated GPU, switched on for a while."""

import contextlib
import warnings
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import safetensors.torch
import torch
from torch import nn
from torch.library import Library
from torch.utils import _foreach_utils

import seq2seq.fast.attention
import seq2seq.fast.training
from tests.cuda.accelerator import lent
from tests.cuda.device import (
    CudaTensor,
    Event,
    Factories,
    addmm_with_dtype,
    attention,
    flex_attention,
    of_inside,
    pin,
)
from tests.cuda.graph import CUDAGraph, Generator, recording

H100 = SimpleNamespace(shared_memory_per_block_optin=227 * 1024)
# What PyTorch asks CUDA itself, and what must know of the tensors' type.
REPLACED: tuple[tuple[object, str, object], ...] = (
    (torch.cuda, "is_available", lambda: True),
    (torch.cuda, "is_initialized", lambda: True),
    (torch.cuda, "device_count", lambda: 1),
    (torch.cuda, "current_device", lambda: 0),
    (torch.cuda, "set_device", lambda _: None),
    (torch.cuda, "get_device_properties", lambda _: H100),
    (torch.cuda, "get_device_capability", lambda *_: (9, 0)),
    (torch.cuda, "is_bf16_supported", lambda *_, **__: True),
    (torch.cuda, "current_stream", lambda _=None: None),
    (torch.cuda, "default_generators", (Generator(),)),
    (torch.cuda, "Event", Event),
    (torch.cuda, "CUDAGraph", CUDAGraph),
    (torch.cuda, "graph", recording),
    (torch.cuda, "Stream", lambda device: SimpleNamespace(device=device)),
    (torch.cuda, "stream", lambda stream: contextlib.nullcontext()),
    (torch.cuda, "device", lambda device: contextlib.nullcontext()),
    (torch.cuda, "graph_pool_handle", lambda: (0, 1)),
    (torch.cuda, "_lazy_init", lambda: None),
    (torch.cuda, "empty_cache", lambda: None),
    (torch.cuda, "manual_seed_all", lambda _: None),
    (torch.cuda, "get_rng_state", lambda *_: torch.zeros(16, dtype=torch.uint8)),
    (torch.cuda, "set_rng_state", lambda *_: None),
    (torch.cuda.amp.common, "amp_definitely_not_available", lambda: False),
    (torch.Tensor, "pin_memory", pin),
    (_foreach_utils, "_foreach_supported_types", [torch.Tensor, nn.Parameter, CudaTensor]),
    (safetensors.torch, "storage_ptr", of_inside(safetensors.torch.storage_ptr)),
    (safetensors.torch, "storage_size", of_inside(safetensors.torch.storage_size)),
    # PyTorch's compiler, whose programs do what they are made from.
    (seq2seq.fast.training, "can_compile", lambda device: device.type == "cuda"),
    (seq2seq.fast.attention, "flex_attention", flex_attention),
    (nn.Module, "compile", lambda *_, **__: None),
    (torch, "compile", lambda function, **_: function),
)


@contextlib.contextmanager
def simulated() -> Iterator[None]:
    """Let this process have a GPU."""
    operators = Library("aten", "IMPL")
    with contextlib.ExitStack() as stack:
        stack.enter_context(lent())
        for owner, name, value in REPLACED:
            stack.enter_context(mock.patch.object(owner, name, value))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # there is an implementation already, for all devices
            for key in ("AutogradCUDA", "CUDA"):
                operators.impl("scaled_dot_product_attention", attention, key)
            operators.impl("addmm.dtype_out", addmm_with_dtype, "CPU")
        stack.callback(operators._destroy)
        torch.__future__.set_overwrite_module_params_on_conversion(True)
        stack.callback(torch.__future__.set_overwrite_module_params_on_conversion, False)
        lifted: Any = torch._C._only_lift_cpu_tensors()
        stack.callback(torch._C._set_only_lift_cpu_tensors, lifted)
        torch._C._set_only_lift_cpu_tensors(True)
        stack.enter_context(torch.autograd.set_multithreading_enabled(False))
        stack.enter_context(Factories())
        yield
