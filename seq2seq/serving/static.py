"""The files of the page, each with a route of its own: no request ever names a file."""

from collections.abc import Awaitable, Callable
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

Handler = Callable[[Request], Awaitable[Response]]

_PAGE = Path(__file__).parent / "page"
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}


def page_files() -> dict[str, Handler]:
    """Read the files, and return the handler of each path."""
    files = {
        f"/page/{file.name}": _static(file.read_bytes(), _TYPES[file.suffix])
        for file in sorted(_PAGE.iterdir())
        if file.suffix in _TYPES
    }
    return {**files, "/": files.pop("/page/index.html")}


def _static(content: bytes, kind: str) -> Handler:
    async def answer(_: Request) -> Response:
        return Response(content, media_type=kind, headers={"cache-control": "no-cache"})

    return answer
