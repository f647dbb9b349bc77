"""An event loop whose clock is a number: where nothing is ready, it moves on to the next timer."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

R = TypeVar("R")


class _Selector(selectors.SelectSelector):
    """Waits for nothing; adds the time that it should have waited."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list:
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "nothing will ever happen"
            self.now += timeout
        return ready


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now


def run(main: Coroutine[Any, Any, R]) -> R:
    """Like asyncio.run, in no time."""
    with asyncio.Runner(loop_factory=_Loop) as runner:
        return runner.run(main)
