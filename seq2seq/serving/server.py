"""Runs the application: sockets, time limits of connections, signals."""

import asyncio
import resource
import signal
import socket
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from seq2seq.errors import UsageError, UserError

MAX_CONNECTIONS = 500
"""Further ones are closed at once; each costs a file descriptor and some 50 KB."""

_IDLE_SECONDS = 10.0
_LEAST_BYTES = 64 * 1024  # that a client must read in that time
_BACKLOG = 1024
_LAST_PORT = 65535


class BoundedProtocol(H11Protocol):
    """uvicorn's protocol with the limits that it lacks.

    There are at most MAX_CONNECTIONS connections, and one is ended if it has had no request being
    answered for ten seconds: whether the head of a request comes slowly or never, or its answer is
    not read.
    """

    _timer: asyncio.TimerHandle | None = None
    _unread = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS:
            transport.abort()
        else:
            self._await_request()

    def data_received(self, data: bytes) -> None:
        """Read a part of a request; no time runs while it is answered."""
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_timer()

    def on_response_complete(self) -> None:
        """Begin to wait for the next request."""
        super().on_response_complete()
        self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_timer()
        super().connection_lost(exc)

    def _await_request(self) -> None:
        self._stop_timer()
        self._unread = self.transport.get_write_buffer_size()
        self._timer = self.loop.call_later(_IDLE_SECONDS, self._end)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end(self) -> None:
        unread = self.transport.get_write_buffer_size()
        if unread and unread <= self._unread - _LEAST_BYTES:
            self._await_request()
        else:
            self.transport.abort()


def listen(host: str, port: int) -> socket.socket:
    """Open the socket of a server; port 0 is any that is free.

    Raises:
        UsageError: if the port is out of range.
        UserError: if the address is unknown, taken or not allowed.
    """
    if not 0 <= port <= _LAST_PORT:
        raise UsageError(f"--port {port}: must be from 0 to {_LAST_PORT}")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        opened = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        raise UserError(f"--host {host} --port {port}: {error}; choose another one") from None
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind(address)
        opened.listen(_BACKLOG)
    except OSError as error:
        opened.close()
        raise UserError(
            f"--host {host} --port {port}: {error.strerror}; choose another one"
        ) from None
    return opened


def make_server(app: ASGIApp, *, grace: int) -> uvicorn.Server:
    """Make the server of an application, to be run on a socket.

    Args:
        app: the application.
        grace: the most seconds to finish what has come before the end.
    """
    config = uvicorn.Config(
        app,
        http=BoundedProtocol,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        proxy_headers=True,
        forwarded_allow_ips="127.0.0.1,::1",
        timeout_keep_alive=int(_IDLE_SECONDS),
        timeout_graceful_shutdown=grace,
        backlog=_BACKLOG,
        loop="asyncio",
    )
    return uvicorn.Server(config)


def run(app: ASGIApp, opened: socket.socket, *, grace: int) -> None:
    """Answer requests until SIGTERM or Ctrl-C, and then finish those that have come.

    Args:
        app: the application.
        opened: a socket that listens.
        grace: the most seconds to finish.
    """
    _raise_file_limit()
    server = make_server(app, grace=grace)

    def ignore(*_: Any) -> None:
        """Do nothing: uvicorn has ended by then, and sends itself the signal again."""

    previous = {number: signal.signal(number, ignore) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        server.run(sockets=[opened])
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _raise_file_limit() -> None:
    """Allow as many open files as the system does: a connection is one."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
