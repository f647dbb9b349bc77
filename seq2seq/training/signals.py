"""Signals that end a run: exit at once if there is nothing to save, else save first.

They are Ctrl-C and SIGTERM; SIGHUP, from a terminal that closes; SIGUSR1 and SIGUSR2, which
schedulers send before a job ends.
"""

import logging
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")

logger = logging.getLogger("seq2seq")

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def _install(handler: Callable[[int, FrameType | None], None]) -> dict[int, Any]:
    """Handle the signals, but not those that are ignored, as under nohup; return the old ones.

    Ctrl-C is always handled: a shell ignores it in its background jobs, where `kill -INT` is meant.
    """
    handled = [
        number
        for number in _SIGNALS
        if number == signal.SIGINT or signal.getsignal(number) is not signal.SIG_IGN
    ]
    return {number: signal.signal(number, handler) for number in handled}


@contextmanager
def exit_on_signals() -> Iterator[list[int]]:
    """Make signals raise SystemExit while there is nothing to save, so that all is cleaned up.

    Yields the signals received so far. If a library swallows the exception, it is raised again at
    the end of the block.
    """
    received: list[int] = []

    def leave(number: int, _: FrameType | None) -> None:
        if not received:
            logger.info(f"seq2seq: stopped at once by {signal.Signals(number).name}")
        received.append(number)
        raise SystemExit(128 + number)

    handlers = _install(leave)
    try:
        yield received
    except Exception:
        if not received:
            raise
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if received:
        raise SystemExit(128 + received[0])


def call_handler(number: int) -> None:
    """Call a signal's handler, such as that of a scheduler's plugin, which queues the job again."""
    handler = signal.getsignal(number) if number in _SIGNALS else None
    if callable(handler) and handler is not signal.default_int_handler:
        handler(number, None)


class _Interrupted(BaseException):
    """Raised by the handler inside `StopSignals.interruptible`."""


class StopSignals:
    """A context that records signals, so that the trainer can save and end.

    If `second_ends`, Ctrl-C after a first signal has its previous effect; with several processes,
    one Ctrl-C arrives several times. The other signals may always arrive twice: SIGHUP comes from
    the terminal that closes and from its shell.
    """

    def __init__(self, *, second_ends: bool) -> None:
        self.second_ends = second_ends
        self.received: int | None = None
        self._interruptible = False
        self._handlers: dict[int, Any] = {}

    def __enter__(self) -> "StopSignals":
        """Start recording signals."""
        self._handlers = _install(self._note)
        return self

    def __exit__(self, *error: object) -> None:
        """Restore the previous handlers."""
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

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
        self.received = self.received or number
        if self.second_ends:
            signal.signal(signal.SIGINT, self._handlers[signal.SIGINT])
        if self._interruptible:
            raise _Interrupted
