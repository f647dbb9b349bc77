"""SIGTERM and Ctrl-C: exit at once if there is nothing to save, else save first."""

import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType
from typing import TypeVar

T = TypeVar("T")

logger = logging.getLogger("seq2seq")

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def exit_on_signals() -> Iterator[list[int]]:
    """Make signals raise SystemExit while there is nothing to save, so that all is cleaned up.

    Yields:
        The signals received so far, in case a library swallows the exception.
    """
    received: list[int] = []

    def leave(number: int, _: FrameType | None) -> None:
        if not received:
            logger.info(f"seq2seq: stopped at once by {signal.Signals(number).name}")
        received.append(number)
        raise SystemExit(128 + number)

    handlers = {number: signal.signal(number, leave) for number in _SIGNALS}
    try:
        yield received
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


class _Interrupted(BaseException):
    """Raised by the handler inside `StopSignals.interruptible`."""


class StopSignals:
    """A context that records signals, so that the training can save and end.

    Args:
        second_ends: whether a second signal has its previous effect; with several
            processes, one signal may arrive several times: from torchrun, from the scheduler.
    """

    def __init__(self, *, second_ends: bool) -> None:
        self.second_ends = second_ends
        self.received: int | None = None
        self._interruptible = False
        self._handlers = {number: signal.getsignal(number) for number in _SIGNALS}

    def __enter__(self) -> "StopSignals":
        """Start recording signals."""
        self._handlers = {number: signal.signal(number, self._note) for number in _SIGNALS}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Restore the previous handlers."""
        self._restore()

    def interruptible(self, act: Callable[[], T]) -> T | None:
        """Return `act()`, or None if a signal has come or comes before it returns."""
        result = None
        with suppress(_Interrupted):
            self._interruptible = True
            try:
                if self.received is None:
                    result = act()
            finally:
                self._interruptible = False
        return result

    def _note(self, number: int, _: FrameType | None) -> None:
        self.received = number
        if self.second_ends:
            self._restore()
        if self._interruptible:
            raise _Interrupted

    def _restore(self) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
