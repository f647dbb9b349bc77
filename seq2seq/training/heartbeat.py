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
# Beats that a process may miss if it is known to be dead, and if something looks wrong.
_BEATS_OF_THE_DEAD = 2
_BEATS_OF_A_SUSPECT = 5
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
        self.store = store
        self.rank = rank
        self.most_beats = max(_BEATS_OF_A_SUSPECT, round(seconds / _BEAT_SECONDS))
        self.alarmed = alarmed
        self.failed = Event()
        self.ended = Event()
        self.keys = [f"seq2seq/beat/{other}" for other in range(size)]
        self.signs = [""] * size
        self.missed = [0] * size
        self.place = _place()
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
        """Stop; after an error of a connection, wait for the watch to find out whose it is."""
        if isinstance(error, RuntimeError):
            # torchrun tells all others to leave as soon as one has died, before it is named here.
            before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
            self.failed.set()
            self.thread.join(2 * _BEATS_OF_A_SUSPECT * _BEAT_SECONDS)
            signal.signal(signal.SIGTERM, before)
        self.ended.set()
        # An interpreter that ends while a thread is within the store aborts the process.
        self.thread.join(_BEATS_OF_A_SUSPECT * _BEAT_SECONDS)
        if error is not None:
            self._leave()

    def _beat(self, number: int) -> None:
        sign = f"{number} {os.getpid()} {self.place} {socket.gethostname()}"
        self.store.set(self.keys[self.rank], sign)

    def _leave(self) -> None:
        with suppress(RuntimeError):  # there may be no store any more
            self.store.set(self.keys[self.rank], _LEFT)

    def _watch(self) -> None:
        number = 0
        while not self.ended.wait(_BEAT_SECONDS):
            number += 1
            try:
                self._beat(number)
                signs = [sign.decode() for sign in self.store.multi_get(self.keys)]
            except RuntimeError:
                self._end("torchrun on the first machine is gone")
            self._compare(signs)

    def _compare(self, signs: list[str]) -> None:
        """Count the beats missed since the last look, and end if they are too many."""
        suspicious = self.failed.is_set() or self.alarmed() or _LEFT in signs
        most_beats = _BEATS_OF_A_SUSPECT if suspicious else self.most_beats
        lost = []
        for other, sign in enumerate(signs):
            self.missed[other] = self.missed[other] + 1 if sign == self.signs[other] else 0
            if self.missed[other] >= (_BEATS_OF_THE_DEAD if self._dead(sign) else most_beats):
                lost.append(other)
        self.signs = signs
        if not lost or self.ended.is_set():
            return
        # One that left has said why; of those that are still there, one speaks.
        silent = [other for other in lost if signs[other] != _LEFT]
        speaker = next(other for other in range(len(signs)) if other not in lost)
        reason = ", ".join(map(self._end_lost, silent))
        self._end(reason if silent == lost and self.rank == speaker else "")

    def _dead(self, sign: str) -> bool:
        """Whether it is known, which it can be of this machine's processes alone."""
        if sign == _LEFT or sign.split()[2] != self.place:
            return False
        try:
            os.kill(int(sign.split()[1]), 0)
        except ProcessLookupError:
            return True
        return False

    def _end_lost(self, other: int) -> str:
        """What became of it; a stalled process can't be asked to leave."""
        _, process, place, host = self.signs[other].split()
        name = f"rank {other} (process {process} on {host})"
        if place == self.place:
            try:
                os.kill(int(process), signal.SIGKILL)
            except ProcessLookupError:
                return f"{name} died"
        return f"{name} gives no sign of life"

    def _end(self, reason: str) -> NoReturn:
        if reason:
            logger.error(
                f"seq2seq: {reason}: the training ends; go on from its last checkpoint with the"
                " same command, its run_dir=... and resume=true"
            )
        self._leave()
        os._exit(1)


def _place() -> str:
    """Names where process numbers mean the same: this machine, or a container on it."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return f"unknown/{socket.gethostname()}/{os.getpid()}"
