"""CUDA graphs of the simulated GPU: a replay repeats the operations that were recorded.

On a GPU nothing is computed while a graph is recorded, so what the operations wrote is restored
when the recording ends. A host that waits or copies meanwhile gets CUDA's error. A replay computes
with the tensors of the recording, and with the numbers that the host had then.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

Operation = Callable[..., Any]


def tensors_in(value: Any) -> Iterator[Tensor]:
    """All tensors among the arguments or results of an operation."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from tensors_in(each)


class CUDAGraph:
    """`torch.cuda.CUDAGraph`."""

    def __init__(self) -> None:
        self.operations: list[tuple[Operation, Any, Any, list[Tensor]]] = []
        self.before: dict[int, tuple[Tensor, Tensor]] = {}

    def do(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Do an operation and note it."""
        schema = func._schema
        for argument, value in zip(schema.arguments, args, strict=False):
            if argument.alias_info is not None and argument.alias_info.is_write:
                for x in tensors_in(value):
                    self._save(x)
        made = func(*args, **kwargs)
        fresh = all(output.alias_info is None for output in schema.returns)
        results = list(tensors_in(made)) if fresh else []
        self.operations.append((func, args, kwargs, results))
        return made

    def _save(self, x: Tensor) -> None:
        whole = x.as_strided((x.untyped_storage().nbytes() // x.element_size(),), (1,), 0)
        self.before.setdefault(whole.data_ptr(), (whole, whole.clone()))

    def end(self) -> None:
        for _, _, _, results in self.operations:
            for x in results:
                x.fill_(
                    torch.nan if x.is_floating_point() else False if x.dtype is torch.bool else -1
                )
        for whole, values in self.before.values():
            whole.copy_(values)

    def replay(self) -> None:
        with torch._C._DisableTorchDispatch():  # all of it is the CPU's
            for func, args, kwargs, results in self.operations:
                made = func(*args, **kwargs)
                if results:
                    for result, x in zip(results, tensors_in(made), strict=True):
                        result.copy_(x)
        recorder.replays += 1


class Recorder:
    """Which graph is being recorded, and how many were replayed."""

    graph: CUDAGraph | None = None
    replays = 0
    generator_is_marked = False
    """Whether a recording that failed has left its mark on the random numbers."""

    def do(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Do an operation, and note it in the graph that is being recorded, if any."""
        if self.generator_is_marked and torch.Tag.nondeterministic_seeded in func.tags:
            raise RuntimeError("Offset increment outside graph capture encountered unexpectedly.")
        return func(*args, **kwargs) if self.graph is None else self.graph.do(func, args, kwargs)

    def refuse(self, what: str) -> None:
        """Complain as CUDA does while a graph is being recorded."""
        if self.graph is not None:
            raise RuntimeError(f"operation not permitted when stream is capturing: {what}")


recorder = Recorder()


class Generator:
    """`torch.cuda.default_generators[0]`, whose numbers come from the CPU's."""

    def clone_state(self) -> "Generator":
        return Generator()

    def graphsafe_set_state(self, state: "Generator") -> None:
        assert state is not self
        recorder.generator_is_marked = False


@contextmanager
def recording(graph: CUDAGraph, **_: object) -> Iterator[None]:
    """`torch.cuda.graph`."""
    random = torch.get_rng_state()
    recorder.graph = graph
    try:
        yield
    except BaseException:
        recorder.generator_is_marked = True
        raise
    finally:
        recorder.graph = None
        graph.end()
        torch.set_rng_state(random)
