"""Tensors that say `cuda:0` to Python and to C++, computed by the CPU.

Autocast, autograd and composite operations take CUDA's branches for them. Each operation keeps
CUDA's rules (one device, one type for a norm and its weights, no NumPy) and is then done on the CPU
tensor within. A journal notes where the host waits for the GPU, what it copies to it, how many
kernels it starts and in which precision matrices are multiplied.

Kernels, their rounding, memory, streams, speed and NCCL are beyond this: `tests/test_cuda.py`.
"""

import math
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_map

import seq2seq
from tests.cuda.graph import recorder, tensors_in

aten = torch.ops.aten

_PACKAGE = f"{Path(seq2seq.__file__).parent}/"
_PRODUCTS = {"mm", "addmm", "bmm", "baddbmm"}
# Operations whose result, or its shape, the host has to know.
_WAITS = {
    "_local_scalar_dense": "item",
    "nonzero": "nonzero",
    "masked_select": "masked_select",
    "equal": "equal",
    "_unique2": "unique",
}
# They read of their first tensor as much as they write, and write without reading.
_FROM_TABLES = {"embedding", "index_select", "gather"}
_FILLS = ("fill", "zero", "new_full", "new_zeros", "new_ones", "full", "ones", "arange", "normal")
_INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_"}
# They make another view of the same memory, or reserve some, and start nothing on the GPU.
_WITHOUT_KERNEL = {
    *("view", "_unsafe_view", "reshape", "_reshape_alias", "as_strided", "expand", "permute"),
    *("t", "transpose", "select", "slice", "narrow", "split", "split_with_sizes", "unbind"),
    *("squeeze", "unsqueeze", "detach", "alias", "lift_fresh", "diagonal", "unfold"),
    *("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"),
}


class Wait(NamedTuple):
    """A place where the host waits for the GPU."""

    why: str
    function: str
    """The innermost one of the package: `training/trainer.py:update`."""


class Journal:
    """What happened on the device since `clear`."""

    def __init__(self) -> None:
        self.on_the_way: list[tuple[Tensor, Tensor]] = []
        """Copies to the host that no event follows, and what they bring."""
        self.clear()

    def clear(self) -> None:
        self.waits: list[Wait] = []
        self.copies = 0
        """From the host to the GPU."""
        self.products: Counter[torch.dtype] = Counter()
        self.kernels: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        """What the kernels of each name read and write."""
        self.given_meanwhile: list[int] = []
        """The kernels started between each event and the wait for it."""

    def wait(self, why: str) -> None:
        recorder.refuse(why)
        frame = sys._getframe(1)
        while frame is not None and not frame.f_code.co_filename.startswith(_PACKAGE):
            frame = frame.f_back
        function = "a test"
        if frame is not None:
            file = frame.f_code.co_filename.removeprefix(_PACKAGE)
            function = f"{file}:{frame.f_code.co_name}"
        self.waits.append(Wait(why, function))


journal = Journal()


class CudaTensor(torch.Tensor):
    """A tensor on the GPU that isn't there."""

    inner: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, inner: Tensor) -> "CudaTensor":
        with torch._C._InferenceMode(False):  # or a view of a usual tensor would not be one
            made = torch.Tensor._make_wrapper_subclass(
                cls,
                inner.size(),
                strides=inner.stride(),
                storage_offset=inner.storage_offset(),
                dtype=inner.dtype,
                device=torch.device("cuda", 0),
            )
        made.inner = inner
        return made

    def __init__(self, inner: Tensor) -> None: ...

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(func, args, kwargs or {})

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        made: Any = self.detach().clone()
        if isinstance(self, nn.Parameter):
            made = nn.Parameter(made, self.requires_grad)
        memo[id(self)] = made
        return made

    def __repr__(self) -> str:
        return f"CudaTensor({self.inner})"

    def tolist(self) -> Any:
        journal.wait("tolist")
        return self.inner.tolist()

    def numpy(self, *_: Any, **__: Any) -> Any:
        raise TypeError("can't convert cuda:0 device type tensor to numpy")

    __array__ = numpy


def inside(x: Any) -> Any:
    """The CPU's tensor within one on the GPU; anything else as it is."""
    return x.inner if isinstance(x, CudaTensor) else x


def _outside(x: Any) -> Any:
    return CudaTensor(x) if isinstance(x, Tensor) and not isinstance(x, CudaTensor) else x


class Factories(TorchDispatchMode):
    """Makes the tensors that are asked for on the GPU."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Spare each operation a wrapper for PyTorch's compiler, which is replaced."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        # Most operations are the CPU's own, and need no more than this.
        if CudaTensor not in types and _device_type(args, kwargs) != "cuda":
            return func(*args, **kwargs)
        return run(func, args, kwargs)


def _device_type(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    device = kwargs.get("device") or next((a for a in args if isinstance(a, torch.device)), None)
    return None if device is None else torch.device(device).type


def run(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Do one operation of PyTorch's dispatcher on the GPU."""
    name = func._schema.name.removeprefix("aten::")
    tensors = list(tensors_in([*args, *kwargs.values()]))
    to = _device_type(args, kwargs)
    if name != "scaled_dot_product_attention" and torch._C._dispatch_has_kernel_for_dispatch_key(
        func.name(), "CompositeImplicitAutograd"
    ):  # inference mode does not take such an operation apart
        with Factories():
            made = func.decompose(*args, **kwargs)
        if made is not NotImplemented:
            return made
    if func is aten._to_copy.default:
        return _convert(args[0], to, kwargs)
    if func is aten.copy_.default and isinstance(args[0], CudaTensor) != isinstance(
        args[1], CudaTensor
    ):
        return _copy(*args, **kwargs)
    _check_rules(func, name, args, tensors)
    inner_args, inner_kwargs = tree_map(inside, (args, kwargs))
    if to == "cuda":
        inner_kwargs["device"] = "cpu"
    pinned = inner_kwargs.pop("pin_memory", False)
    made = recorder.do(func, inner_args, inner_kwargs)
    if pinned:
        made.fill_(torch.nan if made.is_floating_point() else -1)  # whatever was there
        made.pinned = True
    note(name, args, tensors, made)
    if to not in (None, "cuda"):
        return made
    made = tree_map(_outside, made)
    if any(output.alias_info is not None for output in func._schema.returns):
        return return_and_correct_aliasing(func, args, kwargs, made)
    return made


def _convert(x: Tensor, to: str | None, kwargs: dict[str, Any]) -> Tensor:
    """`Tensor.to`, from or to the GPU or on it."""
    rest = {key: value for key, value in kwargs.items() if key not in ("device", "non_blocking")}
    non_blocking = kwargs.get("non_blocking", False)
    if not isinstance(x, CudaTensor):
        _note_host_copy(x, non_blocking)
        return CudaTensor(aten._to_copy.default(x, device="cpu", **rest))
    if to in (None, "cuda"):
        made = CudaTensor(recorder.do(aten._to_copy.default, (x.inner,), rest))
        note("_to_copy", (x,), [x], made)
        return made
    if to == "cpu" and not non_blocking:
        journal.wait("copy to the host")
    return aten._to_copy.default(x.inner, device=to, **rest)


def _copy(target: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    """`Tensor.copy_` between the host and the GPU."""
    recorder.refuse("a copy between host and GPU")
    if isinstance(target, CudaTensor):
        _note_host_copy(source, non_blocking)
    elif non_blocking and getattr(target, "pinned", False):
        # It is not there before an event says so.
        journal.on_the_way.append((target, inside(source).clone()))
        return target
    else:
        journal.wait("copy to the host")
    inside(target).copy_(inside(source))
    return target


def _note_host_copy(x: Tensor, non_blocking: bool) -> None:
    recorder.refuse("a copy to the GPU")
    journal.copies += 1
    if not (getattr(x, "pinned", False) and non_blocking):
        journal.wait("copy to the GPU")


def _check_rules(func: Any, name: str, args: Any, tensors: list[Tensor]) -> None:
    if func.namespace != "aten":
        raise NotImplementedError(f"Could not run '{func}' with arguments from the 'CUDA' backend.")
    first = func._schema.arguments[0].alias_info if func._schema.arguments else None
    for tensor in tensors:
        # A number on the CPU may stand beside tensors on the GPU, but can't take their result.
        written = first is not None and first.is_write and tensor is args[0]
        number = tensor.dim() == 0 and name not in ("index_select", "gather") and not written
        if not isinstance(tensor, CudaTensor) and not number:
            raise RuntimeError(
                f"{func}: Expected all tensors to be on the same device, but found at least two"
                f" devices, cuda:0 and {tensor.device}!"
            )
    if name == "native_layer_norm" and any(t.dtype != args[0].dtype for t in tensors):
        raise RuntimeError("expected scalar type of weight and bias to be that of the input")


def note(name: str, args: Any, tensors: list[Tensor], made: Any) -> None:
    if name not in _WITHOUT_KERNEL:
        results = list(tensors_in(made))
        if not results:  # they are written in place
            results = tensors
        # Of a table, only the rows that are asked for are read.
        read = [*tensors[1:], *results] if name in _FROM_TABLES else tensors
        read = [] if name.startswith(_FILLS) else read
        journal.kernels[name] += 1
        journal.bytes[name] += sum(map(_bytes, [*{id(x): x for x in read}.values(), *results]))
    if name in _PRODUCTS:
        journal.products[args[1].dtype] += 1
    if name in _WAITS:
        journal.wait(_WAITS[name])
    masks = (torch.bool, torch.uint8)
    if name in _INDEXING and any(t is not None and t.dtype in masks for t in args[1]):
        journal.wait("index by a mask")


def _bytes(x: Tensor) -> int:
    """The bytes of a tensor in memory; one that is expanded holds each element once."""
    sizes = [size for size, stride in zip(x.shape, x.stride(), strict=True) if stride]
    return x.element_size() * math.prod(sizes) if x.numel() else 0


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor,
    dropout_p: float = 0.0,
) -> Tensor:
    """`F.scaled_dot_product_attention`, whose kernels for CUDA are missing, with its complaints.

    Of what it can do it does what this package asks for: with a mask that says where to attend.
    """
    if not all(isinstance(x, CudaTensor) for x in (query, key, value, attn_mask)):
        raise RuntimeError("Expected all tensors to be on the same device")
    if not query.dtype == key.dtype == value.dtype:
        raise RuntimeError("Expected query, key, and value to have the same dtype")
    assert attn_mask.dtype is torch.bool
    attended: Tensor = _Attention.apply(query, key, value, attn_mask, dropout_p)  # type: ignore[no-untyped-call]
    return attended


def _heads_inside(x: Tensor) -> Tensor:
    """Lay (B, H, T, K) out in memory as (B, T, H, K), as CUDA's kernels do."""
    return x.transpose(1, 2).contiguous().transpose(1, 2)


class _Attention(torch.autograd.Function):
    """One kernel forward and one backward."""

    @staticmethod
    def forward(ctx: Any, *args: Any) -> CudaTensor:
        differentiable = any(ctx.needs_input_grad)
        inputs = [inside(x).detach() for x in args[:3]]
        if differentiable:
            inputs = [x.requires_grad_() for x in inputs]
        mask, rate = map(inside, args[3:])
        with torch.set_grad_enabled(differentiable), torch._C._DisableTorchDispatch():
            query, key, value = inputs
            scores = query @ key.transpose(-2, -1) * query.size(-1) ** -0.5
            scores = scores.masked_fill(~mask, -torch.inf)
            result = nn.functional.dropout(scores.softmax(-1), rate) @ value
        ctx.computed = inputs, result
        made = CudaTensor(_heads_inside(result.detach()))
        note("scaled_dot_product_attention", args, [*args[:3]], made)
        return made

    @staticmethod
    def backward(ctx: Any, gradient: CudaTensor) -> tuple[Any, ...]:
        inputs, result = ctx.computed
        with torch._C._DisableTorchDispatch():
            gradients = torch.autograd.grad(result, inputs, inside(gradient))
        made = [CudaTensor(_heads_inside(x)) for x in gradients]
        note("attention_backward", (), [*inputs, result, gradient], made)
        return *made, None, None


def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    block_mask: BlockMask,
    kernel_options: object = None,
) -> Tensor:
    """`flex_attention` in operations that a graph records."""
    rows, keys = (torch.arange(x.size(2), device="cuda") for x in (query, key))
    first = torch.zeros((), dtype=torch.long, device="cuda")
    allowed = block_mask.mask_mod(first, first, rows[:, None], keys)
    scores = query.float() @ key.float().transpose(2, 3) * query.size(3) ** -0.5  # (1, H, N, M)
    return (scores.masked_fill(~allowed, -1e9).softmax(-1) @ value.float()).to(query.dtype)


def addmm_with_dtype(
    x: Tensor, left: Tensor, right: Tensor, dtype: torch.dtype, *, out: Tensor, **_: Any
) -> Tensor:
    """`torch.addmm` with `out_dtype`, which the CPU lacks."""
    return out.copy_(x + left.to(dtype) @ right.to(dtype))


class Event:
    """`torch.cuda.Event`: a place in the work of the GPU."""

    def record(self, stream: object) -> None:
        self.kernels = journal.kernels.total()
        self.copies, journal.on_the_way = journal.on_the_way, []

    def synchronize(self) -> None:
        journal.given_meanwhile.append(journal.kernels.total() - self.kernels)
        for target, values in self.copies:
            target.copy_(values)


def pin(x: Tensor, *_: Any) -> Tensor:
    """`Tensor.pin_memory`."""
    if x.device.type != "cpu":
        raise RuntimeError("only dense CPU tensors can be pinned")
    pinned = x.clone()
    pinned.pinned = True
    return pinned


def of_inside(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: function(inside(x))
