"""What is said, kept until there is a file for it."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from logging.handlers import MemoryHandler
from pathlib import Path


class DeferredFileHandler(MemoryHandler):
    """Keeps what is said until there is a file for it."""

    def __init__(self) -> None:
        super().__init__(capacity=1, flushLevel=logging.CRITICAL + 1)

    def shouldFlush(self, record: logging.LogRecord) -> bool:  # noqa: N802
        """Only a file is ever flushed to."""
        return self.target is not None

    def write_to(self, path: Path) -> None:
        """Write all so far, and from now on each line, at the end of a file."""
        file = _File(path)
        file.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
        self.setTarget(file)
        self.flush()


class _File(logging.FileHandler):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """On a full disk the training goes on without its log; what is saved says so itself."""


@contextmanager
def deferred_file_handler(logger: logging.Logger) -> Iterator[DeferredFileHandler]:
    """Listen to a logger."""
    log = DeferredFileHandler()
    logger.addHandler(log)
    try:
        yield log
    finally:
        logger.removeHandler(log)
        if log.target is not None:
            log.target.close()
        log.close()
