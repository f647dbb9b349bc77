"""The routes: LibreTranslate's interface, our own additions, and the page."""

import asyncio
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from functools import partial
from hmac import compare_digest
from itertools import chain
from operator import attrgetter
from pathlib import Path, PurePath
from typing import Any, TypeAlias, TypeVar

from msgspec import Raw, json
from prometheus_client import generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from seq2seq import __version__
from seq2seq.decoding.attention import AttentionMaps
from seq2seq.documents import SUFFIXES
from seq2seq.documents.document import Document, Languages
from seq2seq.documents.html import read_html
from seq2seq.documents.lines import read_lines
from seq2seq.documents.translate import Plan
from seq2seq.errors import EngineError, UserError
from seq2seq.server import requests
from seq2seq.server.batcher import BusyError, TooLargeError
from seq2seq.server.documents import FaultError
from seq2seq.server.guard import Guard, logger, origin_pattern
from seq2seq.server.service import LANGUAGE_NAMES, Service, Source, max_alternatives, stays

_PAGE = Path(__file__).parent / "page"
_FIELDS: dict[str, type[requests.Fields]] = {
    "/translate": requests.TranslateFields,
    "/translate_file": requests.FileFields,
    "/detect": requests.DetectFields,
    "/attention": requests.AttentionFields,
}
_ENCODINGS = ("application/json", "application/x-www-form-urlencoded", "multipart/form-data")

_SUFFIX = re.compile(r"\.[a-z0-9]{1,20}")  # no `. smith` or `.5? part`, which addresses can't have
_MAX_FILES = 100
_KEPT_SECONDS = 600.0
_MAX_WEIGHTS = 2**20
"""Maximum weights of attention in an answer: a layer of 16 heads, with 256 tokens on each side."""
_RETRY = {"retry-after": "10"}  # seconds

R = TypeVar("R")
Keys: TypeAlias = Callable[[], Mapping[str, str]]
"""Returns the keys that are valid now, with the name under which the requests of each count."""


class App:
    """The handlers of all routes; a request must give one of the keys, if there may be any."""

    def __init__(self, service: Service, keys: Keys | None) -> None:
        self._service, self._limits, self._metrics = service, service.limits, service.metrics
        self._files: OrderedDict[str, bytes] = OrderedDict()  # under names that can't be guessed
        self._keys = keys
        self.routes = [
            Route("/translate", self.translate, methods=["POST"]),
            Route("/translate_file", self.translate_file, methods=["POST"]),
            Route("/download_file/{name}", self.download),
            Route("/detect", self.detect, methods=["POST"]),
            Route("/attention", self.attention, methods=["POST"]),
            Route("/languages", self.languages, methods=["GET", "POST"]),  # libretranslatepy posts
            Route("/frontend/settings", self.settings),
            Route("/health", self.health),
            Route("/metrics", self.metrics),
            Route("/spec", self.spec),
        ]

    async def translate(self, request: Request) -> Response:
        """Translate a text, or an array of texts."""
        start = time.monotonic()
        fields = await self._fields(request, requests.TranslateFields)
        texts = fields.q if isinstance(fields.q, list) else [fields.q]
        requests.check_texts(texts, self._limits)
        read = read_html if fields.format == "html" else read_lines
        readers = [partial(Document.read, read, text) for text in texts]
        work = self._translate(fields, readers)
        sources = await self._finish(request, work)
        answer: dict[str, Any] = {}
        for name, field, asked in (
            ("translatedText", "text", True),
            ("detectedLanguage", "detected", fields.source == "auto"),
            ("alternatives", "alternatives", fields.alternatives),
            ("details", "details", fields.details),
            ("truncated", "truncated", any(source.truncated for source in sources)),
        ):
            if asked:
                answer[name] = list(map(attrgetter(field), sources))
        self._metrics.request_seconds.observe(time.monotonic() - start)
        if not isinstance(fields.q, list):
            answer = {name: value[0] for name, value in answer.items()}
        return JSONResponse(answer)

    async def translate_file(self, request: Request) -> Response:
        """Translate a document."""
        fields = await self._fields(request, requests.FileFields)
        name, content = fields.file
        work = self._service.translate_file(name, content, fields.source, fields.target)
        translated = await self._finish(request, work)
        suffix = _SUFFIX.fullmatch(PurePath(name).suffix.lower())
        name = secrets.token_urlsafe(24) + (suffix[0] if suffix else "")
        self._files[name] = translated
        if len(self._files) > _MAX_FILES:
            self._files.popitem(last=False)
        asyncio.get_running_loop().call_later(_KEPT_SECONDS, self._files.pop, name, None)
        url = request.url_for("download", name=name)
        return JSONResponse({"translatedFileUrl": str(url)})

    async def download(self, request: Request) -> Response:
        """Fetch a translated file."""
        content = self._files.get(request.path_params["name"])
        if content is None:
            raise HTTPException(404, "no such file; it may have expired: send it again")
        return Response(
            content,
            media_type="application/octet-stream",
            headers={"content-disposition": "attachment"},
        )

    async def attention(self, request: Request) -> Response:
        """Compute the attention weights for a source and its translation, or a given target."""
        fields = await self._fields(request, requests.AttentionFields)
        requests.check_texts([fields.source + fields.target], self._limits)
        (source, target), *_ = self._service.translators
        translator = self._service.find(
            fields.source_language or source, fields.target_language or target
        )
        work = self._service.attention(translator, fields.source, fields.target or None)
        maps = await self._finish(request, work)
        content = await asyncio.to_thread(_encode_maps, maps, fields)
        return Response(content, media_type="application/json")

    async def detect(self, request: Request) -> Response:
        """Detect the language of a text."""
        fields = await self._fields(request, requests.DetectFields)
        requests.check_texts([fields.q], self._limits)
        return JSONResponse([await asyncio.to_thread(self._service.detect, fields.q)])

    async def languages(self, _: Request) -> Response:
        """List which languages are translated into which."""
        pairs = self._service.translators
        codes = dict.fromkeys(chain(*zip(*pairs, strict=True)))  # the sources first
        return JSONResponse(
            [_language(code) | {"targets": [t for s, t in pairs if s == code]} for code in codes]
        )

    async def settings(self, _: Request) -> Response:
        """Give the limits and defaults that a page needs."""
        translators = self._service.translators
        source, target = next(iter(translators))
        return JSONResponse(
            {
                "charLimit": self._limits.char_limit,
                "frontendTimeout": 400,
                "maxAlternatives": min(map(max_alternatives, translators.values())),
                "apiKeys": self._keys is not None,
                "keyRequired": self._keys is not None,
                "suggestions": False,
                "filesTranslation": True,
                "supportedFilesFormat": SUFFIXES,
                "language": {"source": _language(source), "target": _language(target)},
            }
        )

    async def health(self, _: Request) -> Response:
        """Say that the server lives, and how much it has to do."""
        queued = self._service.queue_tokens
        return JSONResponse({"status": "ok", "version": __version__, "queue_tokens": queued})

    async def metrics(self, _: Request) -> Response:
        """Give counts to Prometheus, in its text format, which all versions of it read."""
        content = generate_latest(self._metrics.registry)
        return Response(content, media_type="text/plain; version=0.0.4")

    async def spec(self, _: Request) -> Response:
        """Describe this interface, as OpenAPI."""
        shapes, schemas = json.schema_components(
            _FIELDS.values(), ref_template="#/components/schemas/{name}"
        )
        schemas["Upload"] = {"type": "string", "format": "binary"}
        shape_of = dict(zip(_FIELDS, shapes, strict=True))
        paths: dict[str, Any] = {}
        for route in self.routes:
            operation: dict[str, Any] = {"summary": route.endpoint.__doc__}
            if shape := shape_of.get(route.path):
                content = {encoding: {"schema": shape} for encoding in _ENCODINGS}
                operation["requestBody"] = {"content": content}
            methods = (route.methods or set()) - {"HEAD"}
            paths[route.path] = dict.fromkeys(map(str.lower, sorted(methods)), operation)
        return JSONResponse(
            {
                "openapi": "3.1.0",
                "info": {"title": "seq2seq", "version": __version__},
                "paths": paths,
                "components": {"schemas": schemas},
            }
        )

    async def _fields(self, request: Request, schema: type[requests.F]) -> requests.F:
        """Read the fields of a request for work, and check its key."""
        fields = await requests.read_fields(request, schema, self._limits)
        if self._keys:
            given = fields.api_key.encode()
            # All keys are compared, in constant time each.
            names = [name for k, name in self._keys().items() if compare_digest(given, k.encode())]
            if not names:
                raise HTTPException(403, "Invalid API key")
            self._metrics.key_requests.labels(names[0]).inc()
        return fields

    async def _translate(
        self,
        fields: requests.TranslateFields,
        readers: Sequence[Callable[[Languages], Document]],
    ) -> list[Source]:
        """Translate texts.

        They are read and put together in other threads: nobody waits for another client's text.
        """
        sources = await asyncio.to_thread(list, map(partial(self._open, fields), readers))
        for translator in dict.fromkeys(source.translator for source in sources):
            if translator:
                of_translator = [source for source in sources if source.translator is translator]
                await self._service.translate_sources(
                    translator, of_translator, fields.alternatives, fields.details
                )
        return sources

    def _open(
        self, fields: requests.TranslateFields, read: Callable[[Languages], Document]
    ) -> Source:
        """Read a text; with the source `auto`, also detect its language."""
        # LibreTranslate's `text` has no placeholders: each line is translated as it is.
        placeholders = fields.format == "html"
        code, detected = fields.source, {}
        if code == "auto":
            document = read(Languages("", fields.target))
            text = "\n".join(Plan(document.texts, placeholders=placeholders).lines)
            detected = self._service.detect(text)
            code = detected["language"]
            if stays(text, code, fields.target):
                return Source(document, Plan([]), None, detected, text=document.content)
        translator = self._service.find(code, fields.target)
        document = read(Languages(code, fields.target))
        plan = Plan(document.texts, placeholders=placeholders)
        return Source(document, plan, translator, detected)

    async def _finish(self, request: Request, work: Coroutine[Any, Any, R]) -> R:
        """Wait for work, but no longer than the limit or than the client does."""
        task = asyncio.ensure_future(work)
        gone = asyncio.ensure_future(_disconnected(request))
        timeout = self._limits.timeout
        try:
            await asyncio.wait((task, gone), timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            if gone.done():
                raise HTTPException(499, "the client has gone")
            message = f"not done within {timeout} s; what was done is kept: send it again"
            raise HTTPException(503, message, _RETRY)
        except BusyError:
            raise HTTPException(503, "busy: too much work is waiting", _RETRY) from None
        except TooLargeError:
            raise HTTPException(413, "the text has more tokens than this server accepts") from None
        finally:
            task.cancel()
            gone.cancel()


def make_app(
    service: Service,
    *,
    keys: Keys | None = None,
    hosts: Collection[str] = ("*",),
    origins: Collection[str] = (),
    page: bool = True,
) -> ASGIApp:
    """Make the application that a server of ASGI runs.

    A request must give one of the keys that `keys` returns, if it is given, and one of the hosts,
    where `*` means all. Other pages may send requests from `origins`.
    """
    routes: list[BaseRoute] = [*App(service, keys).routes]
    if page:
        routes += [
            Route("/", lambda _: FileResponse(_PAGE / "index.html")),
            Mount("/page", StaticFiles(directory=_PAGE)),
        ]
    app = Starlette(
        routes=routes,
        middleware=[
            Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts), www_redirect=False),
            Middleware(
                CORSMiddleware,
                allow_origins=[origin for origin in origins if origin == "*"],
                allow_origin_regex=origin_pattern(origins).pattern,
                allow_methods=["GET", "POST"],
                allow_headers=["content-type"],
            ),
        ],
        exception_handlers={
            HTTPException: _http_error,
            UserError: lambda _, error: JSONResponse({"error": str(error)}, 400),
            EngineError: _engine_error,
            FaultError: _fault,
            # The error itself is raised again, and logged by the guard.
            Exception: lambda *_: JSONResponse({"error": "internal error"}, 500),
        },
    )
    app.router.redirect_slashes = False
    return Guard(app, service.metrics, origins)


def _encode_maps(maps: AttentionMaps, fields: requests.AttentionFields) -> bytes:
    """Write maps as JSON, head by head: while one is written, no other thread runs."""
    record = maps.record(fields.kind, fields.layer, fields.head, _MAX_WEIGHTS)
    record["weights"] = [[Raw(json.encode(head)) for head in heads] for heads in record["weights"]]
    return json.encode(record)


def _language(code: str) -> dict[str, Any]:
    return {"code": code, "name": LANGUAGE_NAMES.get(code, code)}


async def _disconnected(request: Request) -> None:
    """Return when the client goes; the body has been read before."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)


def _fault(_: Request, error: Exception) -> Response:
    logger.error(f"seq2seq: internal error: {error}")
    return JSONResponse({"error": "internal error"}, 500)


def _engine_error(_: Request, error: Exception) -> Response:
    logger.error(f"seq2seq: {error}")
    return JSONResponse({"error": str(error)}, 500)
