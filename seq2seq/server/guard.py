"""What every request passes: the check of its origin, security headers, counts, logs."""

import logging
import time
import traceback
from collections.abc import Collection

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from seq2seq.server.metrics import Metrics

logger = logging.getLogger("seq2seq")

_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"
        " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}


class Guard:
    """Wraps an application, to which pages of `origins` may send requests; `*` means all."""

    def __init__(self, app: ASGIApp, metrics: Metrics, origins: Collection[str]) -> None:
        self._app, self._metrics, self._origins = app, metrics, frozenset(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        asked = Headers(scope=scope)
        # What a proxy takes away from the beginning of paths.
        prefix = asked.get("x-forwarded-prefix", "").strip("/")
        scope["root_path"] = prefix and f"/{prefix}"
        start, status = time.monotonic(), 500

        async def send_guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                # Only pages of an allowed origin may show what an answer holds.
                foreign = "access-control-allow-origin" in headers
                headers["cross-origin-resource-policy"] = (
                    "cross-origin" if foreign else "same-origin"
                )
                if "content-length" in asked and "transfer-encoding" in asked:
                    headers["connection"] = "close"  # where the body ends is a matter of opinion
            await send(message)

        try:
            if self._allows(asked.get("origin"), asked.get("host", "")):
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
        own = (None, f"http://{host}", f"https://{host}")
        return origin in own or bool({"*", origin} & self._origins)
