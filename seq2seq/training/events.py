"""TensorBoard's event files.

TensorBoard's own writer writes in a thread, whose errors reach no caller.
"""

import os
import secrets
import socket
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class EventFile:
    """A file of scalars for TensorBoard; each training has a file of its own.

    Args:
        folder: made if need be.
        first_step: what earlier files hold from this step on is not shown.

    Raises:
        OSError: if it can't be written, also from the other methods.
    """

    def __init__(self, folder: Path, first_step: int) -> None:
        with warnings.catch_warnings():
            # TensorBoard imports what it doesn't need, some of it deprecated.
            warnings.simplefilter("ignore")
            from tensorboard.compat.proto.event_pb2 import Event, SessionLog
            from tensorboard.compat.proto.summary_pb2 import Summary
            from tensorboard.summary.writer.record_writer import RecordWriter
        self._event, self._summary = Event, Summary
        folder.mkdir(parents=True, exist_ok=True)
        # TensorBoard reads the files in the order of their names.
        name = f"{time.time():.9f}.{socket.gethostname()}.{os.getpid()}"
        path = folder / f"events.out.tfevents.{name}.{secrets.token_hex(4)}"
        self._records = RecordWriter(path.open("xb"))
        self._write(file_version="brain.Event:2")
        self._write(step=first_step, session_log=SessionLog(status=SessionLog.START))

    def add(self, step: int, scalars: Mapping[str, float]) -> None:
        """Add scalars by name."""
        values = [
            self._summary.Value(tag=name, simple_value=value) for name, value in scalars.items()
        ]
        self._write(step=step, summary=self._summary(value=values))

    def close(self) -> None:
        """Close the file."""
        self._records.close()

    def _write(self, **content: Any) -> None:
        event = self._event(wall_time=time.time(), **content)
        self._records.write(event.SerializeToString())
        self._records.flush()
