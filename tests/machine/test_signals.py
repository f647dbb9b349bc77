"""A signal ends the command with its own exit code, whatever becomes of its exception."""

import signal
from collections.abc import Callable
from contextlib import suppress

import pytest

from seq2seq.errors import UserError
from seq2seq.machine.processes import exit_on_signals


def _swallowed() -> None:
    with suppress(SystemExit):
        signal.raise_signal(signal.SIGUSR1)


def _replaced() -> None:
    try:
        signal.raise_signal(signal.SIGUSR1)
    except SystemExit:
        raise UserError("its model could not be downloaded") from None


@pytest.mark.posix
@pytest.mark.parametrize("act", [_swallowed, _replaced])
def test_the_exit_code_is_that_of_the_signal(act: Callable[[], None]) -> None:
    before = signal.getsignal(signal.SIGUSR1)
    with pytest.raises(SystemExit) as left, exit_on_signals():
        act()
    assert left.value.code == 128 + signal.SIGUSR1
    assert signal.getsignal(signal.SIGUSR1) is before
