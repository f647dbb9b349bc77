"""Makes a PyTorch without CUDA believe that it has an accelerator of that type.

Two things are missing in it. `.to("cuda")` and autograd ask a device guard, which is registered for
each type of device and null for CUDA. They also ask the CUDA hooks whether CUDA was built in, and
these say no. Both are reached by their addresses in PyTorch's libraries: the guard is one that
PyTorch lets Python make for devices of its own ("private use one"), the hooks are the ones that are
there with three answers changed.

Where an address or an answer is not as known, `lent` raises `UnknownPyTorchError`.
"""

import contextlib
import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

# Of c10::DeviceType.
_CPU, _CUDA, _PRIVATE_USE_ONE, _TYPES = 0, 1, 20, 21
# A table of virtual functions begins with two words that its users don't point at, then come two
# destructors.
_HEAD = 2
_EXCHANGE_STREAM = _HEAD + 9
_IS_BUILT, _IS_AVAILABLE, _HAS_CONTEXT = _HEAD + 2, _HEAD + 3, _HEAD + 4

_Functions = ctypes.c_void_p * 128
_WORD = ctypes.sizeof(ctypes.c_void_p)


class UnknownPyTorchError(Exception):
    """This PyTorch is not laid out as the one for which the module was written."""


class _Guard(torch._C._acc.DeviceGuard):
    def type_(self) -> Any:
        return torch._C._autograd.DeviceType.CUDA


class _Table:
    """The virtual functions of a C++ object, which can be replaced by others and put back."""

    def __init__(self, address: int) -> None:
        self.pointer = ctypes.c_void_p.from_address(address)
        self.before = self.pointer.value
        assert self.before is not None
        self.functions = _Functions(*_Functions.from_address(self.before - _HEAD * _WORD))

    def install(self) -> None:
        self.pointer.value = ctypes.addressof(self.functions) + _HEAD * _WORD

    def restore(self) -> None:
        self.pointer.value = self.before


@contextlib.contextmanager
def lent() -> Iterator[None]:
    """Lend PyTorch a device guard for CUDA, and hooks that say that CUDA is there."""
    libraries = Path(torch.__file__).parent / "lib"
    try:
        core = ctypes.CDLL(str(libraries / "libc10.so"))
        guards = (ctypes.c_void_p * _TYPES).in_dll(
            core, "_ZN3c104impl26device_guard_impl_registryE"
        )
        get_hooks = ctypes.CDLL(str(libraries / "libtorch_cpu.so"))._ZN2at6detail12getCUDAHooksEv
    except (OSError, AttributeError, ValueError) as error:
        raise UnknownPyTorchError(str(error)) from error
    if guards[_CUDA] is not None:
        raise UnknownPyTorchError("it has a guard for CUDA")

    guard = _Guard()
    torch._C._acc.register_python_privateuseone_device_guard(guard)
    address = guards[_PRIVATE_USE_ONE]
    guard_table = _Table(address)
    # Python's answer can't be asked for while a C++ exception passes; the CPU's does nothing.
    guard_table.functions[_EXCHANGE_STREAM] = _Table(guards[_CPU]).functions[_EXCHANGE_STREAM]

    get_hooks.restype = ctypes.c_void_p
    hooks_table = _Table(get_hooks())
    yes = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p)(lambda _: True)
    for place in (_IS_BUILT, _IS_AVAILABLE, _HAS_CONTEXT):
        hooks_table.functions[place] = ctypes.cast(yes, ctypes.c_void_p).value

    guard_table.install()
    hooks_table.install()
    guards[_PRIVATE_USE_ONE], guards[_CUDA] = None, address
    try:
        accelerator = torch._C._accelerator_getAccelerator()
        if accelerator is None or accelerator.type != "cuda":
            raise UnknownPyTorchError("its hooks are not the ones that are known")
        yield
    finally:
        guards[_CUDA] = None
        hooks_table.restore()
        guard_table.restore()
