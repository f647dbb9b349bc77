"""The routes: LibreTranslate's interface, our own additions, and the files of the page."""

import asyncio
import hmac
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from seq2seq.errors import UserError
from seq2seq.serving.batcher import BusyError, TooLargeError
from seq2seq.serving.guard import Guard, error_response
from seq2seq.serving.html import Document
from seq2seq.serving.metrics import CONTENT_TYPE, Metrics
from seq2seq.serving.requests import (
    Fields,
    Limits,
    RequestError,
    check_texts,
    count,
    invalid,
    read_fields,
    translation_request,
    uploaded,
    word,
)
from seq2seq.serving.service import Model, Service, language_name
from seq2seq.serving.texts import (
    SUFFIXES,
    Downloads,
    Lines,
    Source,
    Subtitles,
    TranslatedText,
    decode_file,
)

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


R = TypeVar("R")

DOWNLOADS = "/download_file/"


class App:
    """The handlers of all routes.

    Args:
        service: translates.
        limits: the limits.
        metrics: what is counted.
        keys: the keys of which a request must give one; empty if none is needed.
        page: whether to show the page.
    """

    def __init__(
        self,
        service: Service,
        limits: Limits,
        metrics: Metrics,
        *,
        keys: Sequence[str] = (),
        page: bool = True,
    ) -> None:
        self._service, self._limits, self._metrics = service, limits, metrics
        self._downloads = Downloads()
        self._keys = [key.encode() for key in keys]
        routes: dict[str, tuple[Handler, list[str]]] = {
            "/translate": (self.translate, ["POST"]),
            "/translate_file": (self.translate_file, ["POST"]),
            f"{DOWNLOADS}{{name}}": (self.download, ["GET"]),
            "/attention": (self.attention, ["POST"]),
            "/detect": (self.detect, ["POST"]),
            "/languages": (self.languages, ["GET", "POST"]),
            "/frontend/settings": (self.settings, ["GET"]),
            "/health": (self.health, ["GET"]),
            "/metrics": (self.metrics, ["GET"]),
        }
        if page:
            routes |= {path: (handler, ["GET"]) for path, handler in page_files().items()}
        self._paths = frozenset(routes)
        self.starlette = Starlette(
            routes=[
                Route(path, _answering_errors(handler), methods=methods)
                for path, (handler, methods) in routes.items()
            ],
            exception_handlers={HTTPException: _http_error, Exception: _fault},
        )
        self.starlette.router.redirect_slashes = False

    def route(self, path: str) -> str:
        """Name the route of a path, for counting."""
        if path.startswith(DOWNLOADS):
            return DOWNLOADS
        return path if path in self._paths else "other"

    async def translate(self, request: Request) -> Response:
        """`POST /translate`: translate a text, or an array of them."""
        start = time.monotonic()
        fields = await self._fields(request)
        asked = translation_request(fields, self._limits)
        model = self._service.find(asked.source, asked.target, asked.texts)
        sources = [(Document if asked.html else Lines).of(text) for text in asked.texts]
        done = await self._translate(request, model, sources, asked.alternatives)
        answer: dict[str, Any] = {"translatedText": [text.text for text in done]}
        if asked.source == "auto":
            answer["detectedLanguage"] = [self._detected(text) for text in asked.texts]
        if asked.alternatives:
            answer["alternatives"] = [text.alternatives for text in done]
        if asked.details:
            answer["details"] = [text.details for text in done]
        self._metrics.request_seconds.observe(time.monotonic() - start)
        if not asked.is_array:
            answer = {name: value[0] for name, value in answer.items()}
        return JSONResponse(answer)

    async def translate_file(self, request: Request) -> Response:
        """`POST /translate_file`: translate a file of text or subtitles."""
        fields = await self._fields(request)
        file = uploaded(fields, "file")
        suffix, content = decode_file(file.name, file.content)
        model = self._service.find(word(fields, "source"), word(fields, "target"), [content])
        source = Subtitles.of(content) if suffix == ".srt" else Lines.of(content)
        (done,) = await self._translate(request, model, [source], 0)
        name = self._downloads.keep(done.text.encode(), suffix)
        url = request.url.replace(path=f"{DOWNLOADS}{name}", query="")
        return JSONResponse({"translatedFileUrl": str(url)})

    async def download(self, request: Request) -> Response:
        """`GET /download_file/NAME`: a translated file."""
        return Response(
            self._downloads.find(request.path_params["name"]),
            media_type="text/plain",
            headers={"content-disposition": "attachment"},
        )

    async def attention(self, request: Request) -> Response:
        """`POST /attention`: the weights for a source and its translation, or a given target."""
        fields = await self._fields(request)
        texts = [word(fields, "source"), word(fields, "target", "")]
        check_texts(texts, self._limits)
        kind = word(fields, "kind", "cross")
        if kind not in ("cross", "encoder", "decoder"):
            raise invalid("kind must be cross, encoder or decoder")
        first, *_ = self._service.models
        model = self._service.find(
            word(fields, "source_language", first[0]), word(fields, "target_language", first[1])
        )
        config = model.translator.models[0].config
        depth = config.num_layers if kind == "encoder" else config.decoder_depth
        layers = _choose(fields, "layer", depth, str(depth))
        heads = _choose(fields, "head", config.num_heads, "all")
        maps = await self._finish(
            request, self._service.attention(model, texts[0], texts[1] or None)
        )
        return JSONResponse(maps.record(kind, layers, heads))

    async def detect(self, request: Request) -> Response:
        """`POST /detect`: the language of a text."""
        fields = await self._fields(request)
        text = word(fields, "q")
        check_texts([text], self._limits)
        return JSONResponse([self._detected(text)])

    async def languages(self, _: Request) -> Response:
        """`GET /languages`: which languages are translated into which."""
        pairs = list(self._service.models)
        codes = dict.fromkeys([source for source, _ in pairs] + [target for _, target in pairs])
        return JSONResponse(
            [
                {
                    "code": code,
                    "name": language_name(code),
                    "targets": [target for source, target in pairs if source == code],
                }
                for code in codes
            ]
        )

    async def settings(self, _: Request) -> Response:
        """`GET /frontend/settings`: what a page must know."""
        source, target = next(iter(self._service.models))
        return JSONResponse(
            {
                "charLimit": self._limits.char_limit,
                "frontendTimeout": 400,
                "maxAlternatives": min(m.max_alternatives for m in self._service.models.values()),
                "apiKeys": bool(self._keys),
                "keyRequired": bool(self._keys),
                "suggestions": False,
                "filesTranslation": True,
                "supportedFilesFormat": list(SUFFIXES),
                "language": {
                    "source": {"code": source, "name": language_name(source)},
                    "target": {"code": target, "name": language_name(target)},
                },
            }
        )

    async def health(self, _: Request) -> Response:
        """`GET /health`: whether the server accepts work."""
        status, code = ("stopping", 503) if self._service.is_stopping else ("ok", 200)
        return JSONResponse({"status": status, "queue_tokens": self._service.queue_tokens}, code)

    async def metrics(self, _: Request) -> Response:
        """`GET /metrics`: counts in the format of Prometheus."""
        text = self._metrics.render(self._service.queue_tokens)
        return Response(text, headers={"content-type": CONTENT_TYPE})

    async def _fields(self, request: Request) -> Fields:
        """Read the fields of a request for work, and check its key."""
        if self._service.is_stopping:
            raise RequestError(503, "the server is stopping", retry_after=self._limits.grace)
        fields = await read_fields(request, self._limits)
        if self._keys:
            given = fields.get("api_key")
            given = given.encode(errors="replace") if isinstance(given, str) else b""
            # All keys are compared, in constant time each.
            if not sum(hmac.compare_digest(given, key) for key in self._keys):
                raise RequestError(403, "Invalid API key")
        return fields

    async def _translate(
        self, request: Request, model: Model, sources: Sequence[Source], alternatives: int
    ) -> list[TranslatedText]:
        """Translate the lines of some sources, all together."""
        lines = [line for source in sources for line in source.lines]
        work = self._service.translate(model, lines, alternatives)
        found = iter(await self._finish(request, work))
        return [
            TranslatedText.of(source, [next(found) for _ in source.lines]) for source in sources
        ]

    def _detected(self, text: str) -> dict[str, Any]:
        language, confidence = self._service.detector.detect(text)
        return {"confidence": confidence, "language": language}

    async def _finish(self, request: Request, work: Coroutine[Any, Any, R]) -> R:
        """Wait for work, but no longer than the limit or than the client does.

        Raises:
            RequestError: if it does not end in time, or there is too much to do.
        """
        task = asyncio.ensure_future(work)
        gone = asyncio.ensure_future(_disconnected(request))
        try:
            await asyncio.wait(
                (task, gone), timeout=self._limits.timeout, return_when=asyncio.FIRST_COMPLETED
            )
            if task.done():
                return task.result()
            if gone.done():
                raise RequestError(499, "the client has gone")
            raise RequestError(
                503, f"not done within {self._limits.timeout} s", retry_after=self._limits.timeout
            )
        except BusyError as error:
            raise RequestError(503, str(error), retry_after=error.seconds) from None
        except TooLargeError:
            raise RequestError(413, "the text has more tokens than this server accepts") from None
        finally:
            task.cancel()
            gone.cancel()


def make_app(
    service: Service,
    limits: Limits,
    metrics: Metrics,
    *,
    keys: Sequence[str] = (),
    hosts: Collection[str] | None = None,
    origins: Collection[str] = (),
    page: bool = True,
) -> ASGIApp:
    """Make the application that a server of ASGI runs.

    Args:
        service: translates.
        limits: the limits.
        metrics: what is counted.
        keys: the keys of which a request must give one; empty if none is needed.
        hosts: the names that a request may give as its host; None if any may.
        origins: the origins of other pages that may send requests; `*` means all.
        page: whether to show the page.
    """
    app = App(service, limits, metrics, keys=keys, page=page)
    return Guard(
        app.starlette,
        metrics,
        app.route,
        hosts,
        origins,
    )


async def _disconnected(request: Request) -> None:
    """Return when the client goes; the body has been read before."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _answering_errors(handler: Handler) -> Handler:
    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except RequestError as error:
            return error_response(error)
        except UserError as error:
            return error_response(RequestError(500, str(error)))

    return answer


async def _http_error(_: Request, error: Exception) -> Response:
    """Answer an unknown path or method."""
    assert isinstance(error, HTTPException)
    hints = {404: "no such path: POST to /translate", 405: "another method is needed"}
    message = hints.get(error.status_code, error.detail)
    response = error_response(RequestError(error.status_code, message))
    for name, value in (error.headers or {}).items():
        response.headers[name] = value
    return response


async def _fault(_: Request, error: Exception) -> Response:
    """Answer a request that a fault of this program ended; the error itself is raised again."""
    return error_response(RequestError(500, "a fault of this program"))


def _choose(fields: Fields, name: str, most: int, default: str) -> list[int]:
    """Read the number of a layer or head, counted from 1, or `all`."""
    value = fields.get(name)
    if (default if value is None else value) == "all":
        return list(range(1, most + 1))
    chosen = int(default) if value is None else count(fields, name)
    if not 1 <= chosen <= most:
        raise invalid(f"{name} must be from 1 to {most}, or all")
    return [chosen]
