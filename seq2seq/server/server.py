"""Runs the application with uvicorn: its socket, its limits, signals."""

import resource
import signal
import socket
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from seq2seq.errors import UsageError, UserError

MAX_CONNECTIONS = 500
"""With more open, requests are answered with 503."""


def listen(host: str, port: int) -> socket.socket:
    """Open the socket of a server; port 0 is any that is free."""
    if not 0 <= port <= 65535:
        raise UsageError(f"--port {port}: must be from 0 to 65535")
    try:
        family, *_, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        opened = socket.create_server(address, family=family)
    except (OSError, UnicodeError) as error:
        raise UserError(f"--host {host} --port {port}: {error}; choose another one") from None
    # asyncio does this for some sockets only; without it, answers wait 40 ms for the client's ACK.
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return opened


def make_server(app: ASGIApp, *, grace: int) -> uvicorn.Server:
    """Make the server of an application; it may take `grace` seconds to finish open requests."""
    config = uvicorn.Config(
        app,
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        proxy_headers=True,
        forwarded_allow_ips="127.0.0.1,::1",
        limit_concurrency=MAX_CONNECTIONS,
        timeout_keep_alive=10,
        timeout_graceful_shutdown=grace,
        h11_max_incomplete_event_size=64 * 1024,
        loop="asyncio",
    )
    return uvicorn.Server(config)


def run(app: ASGIApp, opened: socket.socket, *, grace: int) -> None:
    """Answer requests until SIGTERM or Ctrl-C, and then finish those that are open."""
    # Each connection is an open file.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    server = make_server(app, grace=grace)

    def ignore(*_: Any) -> None:
        """Do nothing: uvicorn has ended by then, and sends itself the signal again."""

    previous = {number: signal.signal(number, ignore) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        server.run(sockets=[opened])
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
