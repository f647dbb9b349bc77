"""What the server accepts from clients, and the errors that it answers with."""

from dataclasses import dataclass

from seq2seq.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits of a server.

    Raises:
        UsageError: if a number is below 1, or `grace` or `cache` below 0.
    """

    char_limit: int = 5000
    """Most characters of all texts of a request."""
    batch_limit: int = 100
    """Most texts of a request."""
    queue_tokens: int = 100_000
    """Most source tokens that wait or run, of all clients together."""
    batch_tokens: int = 2048
    """Most source tokens of a batch, padding counted."""
    timeout: int = 60
    """Seconds for a request from its last byte to its answer."""
    grace: int = 30
    """Seconds to finish, at the end, what has come before."""
    cache: int = 1000
    """Lines whose translations are kept, to be given again."""
    body_bytes: int = 2**20
    """Most bytes of a request's body."""
    body_seconds: float = 10.0
    """Seconds for a request's body to arrive."""

    def __post_init__(self) -> None:
        for name, least in (
            ("char_limit", 1),
            ("batch_limit", 1),
            ("queue_tokens", 1),
            ("batch_tokens", 1),
            ("timeout", 1),
            ("grace", 0),
            ("cache", 0),
        ):
            if getattr(self, name) < least:
                raise UsageError(f"{name}={getattr(self, name)}: must be at least {least}")


class RequestError(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: int, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        """The HTTP status."""
        self.retry_after = retry_after
        """Seconds after which the same request may succeed; None if it never will."""


def invalid(reason: str) -> RequestError:
    """Make the error of a malformed request."""
    return RequestError(400, f"Invalid request: {reason}")
