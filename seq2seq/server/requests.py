"""The fields of a request, in any of LibreTranslate's encodings, and their limits.

The encodings are JSON, a form, a multipart form, and the query string in addition to any of them.
"""

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeVar
from urllib.parse import parse_qsl

from msgspec import Meta, Struct, ValidationError, convert
from python_multipart.multipart import parse_options_header
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message

from seq2seq.errors import UserError
from seq2seq.files import parse_json

_MAX_FIELDS = 1000
_MISSING = r"Invalid request: missing \1 parameter"  # as LibreTranslate says it

PositiveInt = Annotated[int, Meta(ge=1)]
NonNegativeInt = Annotated[int, Meta(ge=0)]


class Limits(Struct, kw_only=True, frozen=True):
    """The limits of a server."""

    char_limit: PositiveInt = 5000
    """Maximum characters of all texts of a request; of a file, 20 times as many."""
    batch_limit: PositiveInt = 100
    """Maximum texts of a request."""
    queue_tokens: PositiveInt = 100_000
    """Maximum source tokens queued or being translated, of all clients together."""
    batch_tokens: PositiveInt = 2048
    """Maximum source tokens of a batch, padding counted."""
    timeout: PositiveInt = 60
    """Seconds for a request from its last byte to its answer."""
    grace: NonNegativeInt = 30
    """Seconds to finish open requests after the signal to stop."""
    cache: NonNegativeInt = 1000
    """Sentences whose translations are cached."""
    body_bytes: PositiveInt = 2**20
    """Maximum bytes of a request's body."""
    body_seconds: float = 10.0
    """Seconds for a request's body to arrive."""
    files: PositiveInt = 4
    """Maximum documents at a time, each in a process of its own; further ones wait."""
    file_bytes: PositiveInt = 2**29
    """Maximum memory of the process of a document."""
    file_seconds: PositiveInt = 20
    """Maximum processor time to read a document and to put its translation together."""


class Upload(NamedTuple):
    """An uploaded file."""

    name: str
    content: bytes


class Fields(Struct, kw_only=True):
    """The fields of every request for work; fields unknown to its route are ignored."""

    api_key: str = ""


class TranslateFields(Fields):
    """The fields of `/translate`."""

    q: str | list[str]
    source: str
    target: str
    format: Literal["text", "html"] = "text"
    alternatives: NonNegativeInt = 0
    details: bool = False


class FileFields(Fields):
    """The fields of `/translate_file`."""

    file: Upload
    source: str
    target: str


class DetectFields(Fields):
    """The fields of `/detect`."""

    q: str


class AttentionFields(Fields):
    """The fields of `/attention`."""

    source: str
    target: str = ""
    kind: Literal["cross", "encoder", "decoder"] = "cross"
    layer: PositiveInt | Literal["all"] | None = None
    head: PositiveInt | Literal["all"] = "all"
    source_language: str | None = None
    target_language: str | None = None


F = TypeVar("F", bound=Fields)


def describe(error: ValidationError) -> str:
    """Put the name of the wrong field before what is wrong with it."""
    reason, _, field = str(error).partition(" - at `$.")
    reason = re.sub(r"Object missing required field `(\w+)`", _MISSING, reason)
    return f"{field.rstrip('`')}: {reason}" if field else reason


async def read_fields(request: Request, schema: type[F], limits: Limits) -> F:
    """Read and check the fields of a request; the body's take precedence over the query's.

    A field that is null or empty counts as missing, except for the text.
    """
    values = _parse_form(request.scope["query_string"]) | await _read_values(request, limits)
    fields = {k: v for k, v in values.items() if v is not None and (k == "q" or v != "")}
    try:
        # Not strict: numbers and truth values of a form are texts.
        return convert(fields, schema, strict=False)
    except ValidationError as error:
        raise UserError(describe(error)) from None


def check_texts(texts: Sequence[str], limits: Limits) -> None:
    """Check that a request has neither too many texts nor too many characters."""
    for kind, size, limit, option in (
        ("batch", len(texts), limits.batch_limit, "--batch-limit"),
        ("text", sum(map(len, texts)), limits.char_limit, "--char-limit"),
    ):
        if size > limit:
            raise UserError(
                f"request ({size}) exceeds {kind} limit ({limit}), the server's {option}"
            )


async def _read_values(request: Request, limits: Limits) -> dict[str, Any]:
    """Read the fields of the body as its content type says; JSON may come as any type."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    body = await _read_body(request, limits)
    if kind == "application/json" or body.lstrip()[:1] == b"{":
        return await asyncio.to_thread(parse_json, Path("the body"), body, dict[str, Any])
    if kind == "multipart/form-data":
        return await _parse_multipart(request, body)
    is_form = kind == "application/x-www-form-urlencoded"
    return await asyncio.to_thread(_parse_form, body) if is_form else {}


async def _read_body(request: Request, limits: Limits) -> bytes:
    """Read the body and count it as it comes, whatever length the headers announce."""
    body = bytearray()
    try:
        async with asyncio.timeout(limits.body_seconds):
            async for chunk in request.stream():
                body += chunk
                if len(body) > limits.body_bytes:
                    raise HTTPException(
                        413, f"the request is larger than {limits.body_bytes:,} bytes"
                    )
    except TimeoutError:
        raise HTTPException(
            408, f"the request did not arrive within {limits.body_seconds:g} s"
        ) from None
    except ClientDisconnect:
        raise HTTPException(499, "the client has gone") from None
    return bytes(body)


def _parse_form(content: bytes) -> dict[str, Any]:
    try:
        text = content.decode()
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=_MAX_FIELDS)
    except ValueError:
        raise UserError("the form is not URL-encoded UTF-8, or has too many fields") from None
    return _group(pairs)


async def _parse_multipart(request: Request, body: bytes) -> dict[str, Any]:
    # Browsers name none. Others can take time by the square of the text, or hold half characters.
    _, options = parse_options_header(request.headers["content-type"])
    charset = options.get(b"charset", b"utf-8").lower()
    if charset not in (b"utf-8", b"utf8"):
        raise UserError(f"the form is in {charset.decode('latin-1'):.50}: send it in UTF-8")

    async def receive() -> Message:
        return {"type": "http.request", "body": body}

    again = Request(request.scope, receive)
    # A part as large as the body stays in memory: nothing is written to a disk.
    async with again.form(max_files=1, max_fields=_MAX_FIELDS, max_part_size=len(body) + 1) as form:
        pairs: list[tuple[str, Any]] = []
        for name, value in form.multi_items():
            if isinstance(value, UploadFile):
                pairs.append((name, Upload(value.filename or "", await value.read())))
            else:
                pairs.append((name, value))
        return _group(pairs)


def _group(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Make a list of the values of a repeated field."""
    groups: dict[str, list[Any]] = {}
    for name, value in pairs:
        groups.setdefault(name, []).append(value)
    return {name: values if len(values) > 1 else values[0] for name, values in groups.items()}
