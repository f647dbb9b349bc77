"""The server around its routes: its socket and signals, and what every request passes.

Requests are checked for their origin, get security headers, and are counted and logged. No label of
a count holds a text, an address or a key.
"""

import asyncio
import logging
import re
import signal
import socket
import time
import traceback
from collections.abc import Collection
from typing import Any

import uvicorn
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from seq2seq.errors import UsageError, UserError
from seq2seq.system import allow_open_files

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_SENTENCES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class RequestMetrics:
    """The metrics of one server, in a registry of its own; the process's figures are in it too."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        names: dict[str, Any] = {"namespace": "seq2seq", "registry": self.registry}
        self.requests = Counter(
            "requests", "Requests by route and status.", ["route", "status"], **names
        )
        self.request_seconds = Histogram(
            "request_seconds", "Time of a translation request.", buckets=_SECONDS, **names
        )
        self.batch_sentences = Histogram(
            "batch_sentences", "Sentences per batch.", buckets=_SENTENCES, **names
        )
        self.lines = Counter(
            "lines", "Sentences translated, new or from the cache.", ["made"], **names
        )
        self.tokens = Counter("tokens", "Tokens read and written.", ["side"], **names)
        self.suspect = Counter("suspect", "Suspicious translations by kind.", ["kind"], **names)
        self.key_requests = Counter(
            "key_requests", "Requests by the name of their key.", ["name"], **names
        )
        self.queue_tokens = Gauge("queue_tokens", "Tokens queued or being translated.", **names)


logger = logging.getLogger("seq2seq")

_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"
        " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class Guard:
    """Wraps an application, to which pages of `origins` may send requests."""

    def __init__(self, app: ASGIApp, metrics: RequestMetrics, origins: Collection[str]) -> None:
        self._app, self._metrics, self._origins = app, metrics, origin_pattern(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request_headers = Headers(scope=scope)
        if prefix := request_headers.get("x-forwarded-prefix", "").strip("/"):
            scope["root_path"] = f"/{prefix}"  # a part of the path, which a proxy may have removed
            if not scope["path"].startswith(f"/{prefix}/"):
                scope["path"] = f"/{prefix}{scope['path']}"
        start, status = time.monotonic(), 500

        async def send_guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                if "content-length" in request_headers and "transfer-encoding" in request_headers:
                    headers["connection"] = "close"  # where the body ends is a matter of opinion
            await send(message)

        try:
            if self._allows(request_headers.get("origin"), request_headers.get("host", "")):
                await self._app(scope, receive, send_guarded)
            else:
                error = "pages of other origins are refused: start with --allow-origin URL"
                await JSONResponse({"error": error}, 403)(scope, receive, send_guarded)
        except Exception as error:
            # The message of an error may hold text, which no log may have.
            frame = traceback.extract_tb(error.__traceback__)[-1]
            logger.error(
                f"seq2seq: internal error: {type(error).__name__} in {frame.name},"
                f" {frame.filename}:{frame.lineno}"
            )
        # The route has no text, as the path may.
        route = getattr(scope.get("route"), "path", "other")
        self._metrics.requests.labels(route, status).inc()
        now, milliseconds = time.strftime("%Y-%m-%dT%H:%M:%S%z"), 1000 * (time.monotonic() - start)
        logger.info(f"{now} {route} {status} {milliseconds:.0f} ms")

    def _allows(self, origin: str | None, host: str) -> bool:
        allowed = (None, f"http://{host}", f"https://{host}")
        return origin in allowed or bool(self._origins.fullmatch(origin or ""))


def origin_pattern(origins: Collection[str]) -> re.Pattern[str]:
    """Return what matches an origin that is one of these; `*` stands for any characters in them."""
    # As browsers write them: in small letters, and without the port that is usual for the scheme.
    written = (
        re.sub(r"(?<=^http)(://.+):80$|(?<=^https)(://.+):443$", r"\1\2", x.lower())
        for x in origins
    )
    return re.compile("|".join(re.escape(x).replace(r"\*", ".+") for x in written) or r"(?!)")


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
    # Its warnings have bytes of a form in them, and no time.
    logging.getLogger("python_multipart").setLevel(logging.CRITICAL)
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


def heed_signals(server: uvicorn.Server) -> None:
    """Let SIGTERM and Ctrl-C end a server, also before it runs."""
    for number in (signal.SIGTERM, signal.SIGINT):
        # uvicorn sets the same handler when it begins, and sends itself the signal when it ended.
        signal.signal(number, server.handle_exit)


def run(server: uvicorn.Server, opened: socket.socket) -> None:
    """Answer requests until SIGTERM or Ctrl-C, and then finish those that are open.

    Threads of what took longer than the grace may still run afterwards.
    """
    # Each connection is an open file, also one of those that are refused.
    allow_open_files()

    async def serve() -> None:
        await server.serve(sockets=[opened])
        # Requests that were open when the grace was over have been cancelled: their documents go.
        if tasks := server.server_state.tasks:
            await asyncio.wait(tasks, timeout=1)

    # Not asyncio.run, which would wait for these threads.
    asyncio.new_event_loop().run_until_complete(serve())
