"""What every request passes: checks of host and origin, headers, errors as JSON, counts."""

import ipaddress
import logging
import re
import traceback
from collections.abc import Callable, Collection

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from seq2seq.serving.metrics import Metrics
from seq2seq.serving.requests import RequestError

logger = logging.getLogger("seq2seq")

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[0-9]{1,5})?", re.IGNORECASE)
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


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def error_response(error: RequestError) -> JSONResponse:
    """Answer a request with an error."""
    headers = {}
    if error.retry_after is not None:
        headers["retry-after"] = str(max(1, round(error.retry_after)))
    return JSONResponse({"error": str(error)}, error.status, headers)


class Guard:
    """Wraps an application.

    Args:
        app: the application.
        metrics: counts the requests.
        route: the name under which to count a path; paths that are not of this program share one.
        hosts: the names that a request may give as its host; None if any may.
        origins: the origins of other pages that may send requests; `*` means all.
    """

    def __init__(
        self,
        app: ASGIApp,
        metrics: Metrics,
        route: Callable[[str], str],
        hosts: Collection[str] | None,
        origins: Collection[str],
    ) -> None:
        self._app, self._metrics, self._route = app, metrics, route
        self._hosts, self._origins = hosts, frozenset(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        route = self._route(scope["path"])
        headers = Headers(scope=scope)

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._add_headers(MutableHeaders(scope=message), headers.get("origin"))
                self._metrics.requests.add(route=route, status=str(message["status"]))
            await send(message)

        try:
            response = self._check(scope["method"], headers)
            if response is None:
                await self._app(scope, receive, send_guarded)
            else:
                await response(scope, receive, send_guarded)
        except Exception as error:
            # The message of an error may hold text, which no log may have.
            place = traceback.extract_tb(error.__traceback__)[-1]
            logger.error(
                f"seq2seq: a fault of this program: {type(error).__name__} in {place.name},"
                f" {place.filename}:{place.lineno}"
            )

    def _check(self, method: str, headers: Headers) -> Response | None:
        """Return the answer to a request that is not let through."""
        host = headers.get("host", "")
        found = _HOST.fullmatch(host)
        if not found or len(headers.getlist("host")) > 1:
            return error_response(RequestError(400, "Invalid request: no valid Host header"))
        name = found[1].lower().rstrip(".")
        if self._hosts is not None and name not in self._hosts:
            return error_response(
                RequestError(421, "this host name is not served: start with --allow-host NAME")
            )
        origin = headers.get("origin")
        if origin is None or origin.lower() in (
            f"http://{host.lower()}",
            f"https://{host.lower()}",
        ):
            return None
        if not self._allows(origin):
            return error_response(
                RequestError(403, "other pages may not ask: start with --allow-origin URL")
            )
        if method == "OPTIONS" and "access-control-request-method" in headers:
            return Response(
                status_code=204,
                headers={
                    "access-control-allow-methods": "GET, POST",
                    "access-control-allow-headers": "content-type",
                    "access-control-max-age": "600",
                },
            )
        return None

    def _allows(self, origin: str) -> bool:
        return "*" in self._origins or origin in self._origins

    def _add_headers(self, headers: MutableHeaders, origin: str | None) -> None:
        for name, value in _HEADERS.items():
            headers.setdefault(name, value)
        if origin is not None and self._allows(origin):
            headers["access-control-allow-origin"] = origin
            headers["cross-origin-resource-policy"] = "cross-origin"
            headers.add_vary_header("Origin")
