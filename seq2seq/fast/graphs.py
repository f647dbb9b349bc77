"""CUDA graphs: the kernels of a function, recorded once and then started all together.

A search step is some 200 kernels. With few sentences, a GPU does each in less time than the host
takes to start it.
"""

import logging
import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

logger = logging.getLogger("seq2seq")

Call: TypeAlias = Callable[[], None]


class Graphs:
    """The graphs of functions without arguments or results, by key.

    A function must find and leave all its tensors at the same addresses in every call with its key,
    and copy none of their values to the host. Its first call with a key runs as usual, so that
    everything is compiled and loaded; the second is recorded. If that fails, all calls run as usual
    from then on. Of more than `most` graphs, the least recently used one is dropped.
    """

    def __init__(self, device: torch.device, most: int = 128) -> None:
        self.device, self.most = device, most
        self.replays: dict[Hashable, Call] = {}
        """The most recently used one last."""
        self.met: set[Hashable] = set()
        self.memory: tuple[Any, torch.cuda.Stream] | None = None
        self.works = True

    def run(self, key: Hashable, function: Call) -> None:
        """Do what `function()` does."""
        if not self.works or key not in self.met:
            self.met.add(key)
            function()
            return
        replay = self.replays.pop(key, None) or self._record(function)
        if replay is None:
            function()
            return
        self.replays[key] = replay
        replay()
        if len(self.replays) > self.most:
            del self.replays[next(iter(self.replays))]

    def _record(self, function: Call) -> Call | None:
        """Record the kernels that a function starts, and return what starts them again."""
        try:
            # They run one after the other and leave nothing in it, so they share their memory.
            if self.memory is None:
                stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
                self.memory = torch.cuda.graph_pool_handle(), stream
            (pool, stream), graph = self.memory, torch.cuda.CUDAGraph()
            # A recording that fails leaves its stream as the current one.
            before = torch.cuda.stream(torch.cuda.current_stream(stream.device))
            # Other threads may use the GPU meanwhile: a server pins memory.
            recording = torch.cuda.graph(
                graph, pool=pool, stream=stream, capture_error_mode="thread_local"
            )
            with torch.cuda.device(stream.device), before, recording:
                function()
            return graph.replay
        except RuntimeError as error:
            self.works = False
            self.replays.clear()
            reason = str(error).splitlines()[0]
            logger.warning(f"CUDA graphs don't work here, so it takes longer: {reason}")
            self._renew_generator()  # if the GPU can't be used any more, this raises an error
            return None

    def _renew_generator(self) -> None:
        """Give the random numbers a state that does not belong to a recording that has failed.

        Before PyTorch 2.13, the end of such a recording left the state marked, and the next random
        numbers outside of a graph were an error.
        """
        index = torch.cuda.current_device() if self.device.index is None else self.device.index
        generator = torch.cuda.default_generators[index]
        generator.graphsafe_set_state(generator.clone_state())


class Buffers:
    """Blocks of memory by name; each holds tensors of different shapes, one after the other."""

    def __init__(self) -> None:
        self.blocks: dict[str, Tensor] = {}
        self.version = 0
        """Changes when a block has moved."""

    def reserve(
        self, name: str, shape: Sequence[int], dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        """Return a tensor in the block of a name, with the numbers that the block has there.

        A block that is too small is replaced by a larger one with the same numbers in front.
        """
        count, old = math.prod(shape), self.blocks.get(name)
        if old is None or len(old) < count:
            # By steps of a quarter at most, so that a block moves rarely.
            step = 1 << max(0, count.bit_length() - 3)
            block = torch.zeros(-(-count // step) * step, dtype=dtype, device=device)
            if old is not None:
                block[: len(old)] = old
            self.blocks[name] = block
            self.version += 1
        return self.view(name, shape)

    def view(self, name: str, shape: Sequence[int]) -> Tensor:
        """Return the beginning of the block of a name, in a shape."""
        return self.blocks[name][: math.prod(shape)].view(*shape)

    def store(self, name: str, x: Tensor) -> Tensor:
        """Copy a tensor from elsewhere into the block of a name."""
        return self.reserve(name, x.shape, x.dtype, x.device).copy_(x)
