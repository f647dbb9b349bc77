"""The log of a run, kept in memory until there is a file for it."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from logging.handlers import MemoryHandler
from pathlib import Path

from seq2seq.errors import UserError


class DeferredFileHandler(MemoryHandler):
    """Keeps log records until it has a file, so that a failed start leaves no run folder."""

    def __init__(self) -> None:
        super().__init__(capacity=1, flushLevel=logging.CRITICAL + 1)

    def shouldFlush(self, record: logging.LogRecord) -> bool:  # noqa: N802
        """Return True once there is a file."""
        return self.target is not None

    def write_to(self, path: Path) -> None:
        """Append all records so far to a file, and each one from now on."""
        file = _FileHandler(path)
        file.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
        self.setTarget(file)
        self.flush()


class _FileHandler(logging.FileHandler):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """Ignore errors: on a full disk the training continues without its log."""


@contextmanager
def deferred_log_file(logger: logging.Logger) -> Iterator[DeferredFileHandler]:
    """Attach a `DeferredFileHandler` to a logger; an error that ends the run goes into its file."""
    handler = DeferredFileHandler()
    logger.addHandler(handler)
    try:
        yield handler
    except Exception as error:
        # Not to the logger: the command prints it.
        handler.handle(logging.makeLogRecord({"msg": f"ended by an error: {UserError(error)}"}))
        raise
    finally:
        logger.removeHandler(handler)
        if handler.target is not None:
            handler.target.close()
        handler.close()
