"""Detection of a process that died or stalled, which ends the others with one message.

Collectives don't detect it: gloo reports only that a connection was closed, and nccl waits. So
each process sends a heartbeat every second, in a thread of its own, and checks the others'.
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

# Beats that a process may miss if it is known to be dead, and if something looks wrong.
_MAX_MISSED_IF_DEAD = 2
_MAX_MISSED_IF_SUSPICIOUS = 5
_LEFT = "left"


class Heartbeat:
    """A context in which this process sends heartbeats and checks those of the others.

    Missed beats are counted in this process' own beats, so that a training that was suspended as a
    whole continues.

    Args:
        store: read and written by all processes, through a connection that nothing else uses.
        rank: number of this process.
        size: number of all processes.
        timeout: seconds without a heartbeat after which a process counts as lost.
        suspicious: returns True if something looks wrong, so that fewer seconds are enough.
        interval: seconds between two heartbeats.
    """

    def __init__(
        self,
        store: Store,
        rank: int,
        size: int,
        timeout: float,
        suspicious: Callable[[], bool],
        *,
        interval: float = 1.0,
    ) -> None:
        self.store = store
        self.rank = rank
        self.interval = interval
        self.max_missed = max(_MAX_MISSED_IF_SUSPICIOUS, round(timeout / interval))
        self.suspicious = suspicious
        self.failed = Event()
        self.ended = Event()
        self.keys = [f"seq2seq/beat/{other}" for other in range(size)]
        self.beats = [""] * size
        self.missed = [0] * size
        self.place = _place()
        self.thread = Thread(target=self._run, name="heartbeat", daemon=True)

    def __enter__(self) -> "Heartbeat":
        """Wait for all processes, then start."""
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
        """Stop; after a failed connection, first wait until the lost process is found."""
        if isinstance(error, RuntimeError):
            # torchrun ends all others as soon as one has died, before it is named here.
            before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
            self.failed.set()
            self.thread.join(2 * _MAX_MISSED_IF_SUSPICIOUS * self.interval)
            signal.signal(signal.SIGTERM, before)
        self.ended.set()
        # An interpreter that ends while a thread is within the store aborts the process.
        self.thread.join(_MAX_MISSED_IF_SUSPICIOUS * self.interval)
        if error is not None:
            self._leave()

    def _beat(self, number: int) -> None:
        beat = f"{number} {os.getpid()} {self.place} {socket.gethostname()}"
        self.store.set(self.keys[self.rank], beat)

    def _leave(self) -> None:
        with suppress(RuntimeError):  # there may be no store any more
            self.store.set(self.keys[self.rank], _LEFT)

    def _run(self) -> None:
        number = 0
        while not self.ended.wait(self.interval):
            number += 1
            try:
                self._beat(number)
                beats = [beat.decode() for beat in self.store.multi_get(self.keys)]
            except RuntimeError:
                self._end("torchrun on the first machine is gone")
            self._compare(beats)

    def _compare(self, beats: list[str]) -> None:
        """Count the missed beats of each process, and end if they are too many."""
        suspicious = self.failed.is_set() or self.suspicious() or _LEFT in beats
        max_missed = _MAX_MISSED_IF_SUSPICIOUS if suspicious else self.max_missed
        lost = []
        for other, beat in enumerate(beats):
            self.missed[other] = self.missed[other] + 1 if beat == self.beats[other] else 0
            if self.missed[other] >= (_MAX_MISSED_IF_DEAD if self._is_dead(beat) else max_missed):
                lost.append(other)
        self.beats = beats
        if not lost or self.ended.is_set():
            return
        # One that left has reported why; of those that are still there, the first one reports.
        silent = [other for other in lost if beats[other] != _LEFT]
        reporter = next(other for other in range(len(beats)) if other not in lost)
        reason = ", ".join(map(self._end_lost, silent))
        self._end(reason if silent == lost and self.rank == reporter else "")

    def _is_dead(self, beat: str) -> bool:
        """Return whether a process is known to be dead, which it can be on this machine only."""
        if beat == _LEFT or beat.split()[2] != self.place:
            return False
        try:
            os.kill(int(beat.split()[1]), 0)
        except ProcessLookupError:
            return True
        return False

    def _end_lost(self, other: int) -> str:
        """Kill a process that stalled, and describe what happened to it."""
        _, process, place, host = self.beats[other].split()
        name = f"rank {other} (process {process} on {host})"
        if place == self.place:
            try:
                os.kill(int(process), signal.SIGKILL)
            except ProcessLookupError:
                return f"{name} died"
        return f"{name} sends no heartbeat"

    def _end(self, reason: str) -> NoReturn:
        if reason:
            logger.error(
                f"seq2seq: {reason}: the training ends; continue from its last checkpoint with the"
                " same command, its run_dir=... and resume=true"
            )
        self._leave()
        os._exit(1)


def _place() -> str:
    """Identify the scope of process ids: this machine, or a container on it."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return f"unknown/{socket.gethostname()}/{os.getpid()}"
