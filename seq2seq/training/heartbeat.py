"""Notices a process of a training that died or stalled, and ends the others with one message.

A collective operation alone doesn't: gloo says only that a connection was closed, nccl waits. So
each process gives a sign of life every second, in a thread of its own, and looks for the others'.
"""

import logging
import os
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from types import TracebackType
from typing import NoReturn

from torch.distributed.distributed_c10d import Store

logger = logging.getLogger("seq2seq")

_BEAT_SECONDS = 1.0
# Beats that a process may miss when there is a reason to suspect it.
_FEW_BEATS = 5
_LEFT = "left"


class Heartbeat:
    """As a context: the signs of life of this process, and the watch over the others'.

    Missed beats are counted in beats of this process' own, so that a training that was suspended as
    a whole goes on.

    Args:
        store: that all processes read and write, by a connection that nobody else uses.
        rank: number of this process.
        size: number of all processes.
        seconds: without a sign of life after which a process counts as lost.
        alarmed: whether something looks wrong, so that fewer seconds are enough.
    """

    def __init__(
        self, store: Store, rank: int, size: int, seconds: float, alarmed: Callable[[], bool]
    ) -> None:
        self.rank = rank
        self.most_beats = max(_FEW_BEATS, round(seconds / _BEAT_SECONDS))
        self.alarmed = alarmed
        self.failed = Event()
        self.ended = Event()
        self.host = socket.gethostname()
        self.keys = [f"seq2seq/beat/{other}" for other in range(size)]
        self.signs = [""] * size
        self.missed = [0] * size
        self.store = store
        self.thread = Thread(target=self._watch, name="heartbeat", daemon=True)

    def __enter__(self) -> "Heartbeat":
        """Start; waits for all processes."""
        self._beat(0)
        self.store.wait(self.keys)
        self.thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop; after an error of the connection, wait for the watch to find out whose it is."""
        if isinstance(error, RuntimeError):
            self.failed.set()
            self.thread.join(2 * _FEW_BEATS * _BEAT_SECONDS)
        self.ended.set()
        if error is not None:
            self.store.set(self.keys[self.rank], _LEFT)

    def _beat(self, number: int) -> None:
        self.store.set(self.keys[self.rank], f"{number} {self.host} {os.getpid()}")

    def _watch(self) -> None:
        number = 0
        while not self.ended.wait(_BEAT_SECONDS):
            number += 1
            try:
                self._beat(number)
                signs = [sign.decode() for sign in self.store.multi_get(self.keys)]
            except RuntimeError:
                self._end("the machine of the first process is gone")
            self._compare(signs)

    def _compare(self, signs: list[str]) -> None:
        """Count the beats missed since the last look, and end if they are too many."""
        suspicious = self.failed.is_set() or self.alarmed() or _LEFT in signs
        limit = _FEW_BEATS if suspicious else self.most_beats
        for other, sign in enumerate(signs):
            self.missed[other] = self.missed[other] + 1 if sign == self.signs[other] else 0
        self.signs = signs
        lost = [other for other, missed in enumerate(self.missed) if missed >= limit]
        if not lost or self.ended.is_set():
            return
        living = [other for other in range(len(signs)) if other not in lost]
        silent = [other for other in lost if signs[other] != _LEFT]
        # One that left has said why; of those that are still there, one speaks.
        reason = ""
        if silent == lost and self.rank == living[0]:
            reason = ", ".join(map(self._describe, silent))
        for other in silent:
            _kill_sibling(int(signs[other].split()[-1]))
        self._end(reason)

    def _describe(self, other: int) -> str:
        _, host, process = self.signs[other].split()
        return f"rank {other} (process {process} on {host}) died or stalled"

    def _end(self, reason: str) -> NoReturn:
        if reason:
            logger.error(
                f"seq2seq: {reason}: the training ends here; go on from its last checkpoint with"
                " the same command, its run_dir=... and resume=true"
            )
        with suppress(RuntimeError):  # there may be no store any more
            self.store.set(self.keys[self.rank], _LEFT)
        os._exit(1)


def _kill_sibling(process: int) -> None:
    """End a process that can't be asked to, if it is of this training and on this machine."""
    try:
        state = Path(f"/proc/{process}/stat").read_text()
        parent = int(state.rpartition(") ")[2].split()[1])
        if parent == os.getppid():
            os.kill(process, signal.SIGKILL)
    except (OSError, IndexError):
        return  # gone, or another machine's: torchrun ends it there
