"""The body of a request, in any of LibreTranslate's encodings, as one dataclass.

The encodings are JSON, a form, a multipart form, and the query string beside any of them.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from starlette.datastructures import Headers
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request

from seq2seq.errors import UsageError, UserError
from seq2seq.files.strict import parse_json


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


Fields = Mapping[str, Any]
"""The fields of a request: strings, what JSON has, lists of repeated fields, uploaded files."""

_MAX_FIELDS = 1000
_MAX_DIGITS = 9


@dataclass(frozen=True)
class TranslationRequest:
    """A request to translate."""

    texts: list[str]
    is_array: bool
    """Whether the texts came as an array, and are answered as one."""
    source: str
    """A language's code, or `auto`."""
    target: str
    html: bool = False
    alternatives: int = 0
    details: bool = False


@dataclass(frozen=True)
class Upload:
    """An uploaded file."""

    name: str
    content: bytes


async def read_fields(request: Request, limits: Limits) -> Fields:
    """Read the fields of a request; those of the body go before those of the query.

    Raises:
        RequestError: if the body is too large or too slow, or not what its content type says.
    """
    kind, _, _ = request.headers.get("content-type", "").partition(";")
    kind = kind.strip().lower()
    if request.headers.get("content-encoding", "identity") != "identity":
        raise RequestError(415, "compressed requests are not read: send the body as it is")
    body = await _read_body(request, limits)
    query = _parse_form(request.scope["query_string"])
    if kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json")):
        return {**query, **_parse_json(body)}
    if body.lstrip()[:1] == b"{":
        raise invalid("the body is JSON, but its content type is not application/json")
    if kind == "multipart/form-data":
        return {**query, **await _parse_multipart(request.headers, body)}
    if kind == "application/x-www-form-urlencoded":
        return {**query, **_parse_form(body)}
    return query


async def _read_body(request: Request, limits: Limits) -> bytes:
    """Read the body, and count it as it comes: no header is believed."""
    too_large = RequestError(413, f"the request is larger than {limits.body_bytes:,} bytes")
    length = request.headers.get("content-length", "0")
    if len(length) > _MAX_DIGITS or int(length) > limits.body_bytes:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(limits.body_seconds):
            async for chunk in request.stream():
                body += chunk
                if len(body) > limits.body_bytes:
                    raise too_large
    except TimeoutError:
        raise RequestError(
            408, f"the request did not arrive within {limits.body_seconds:g} s"
        ) from None
    except ClientDisconnect:
        raise RequestError(499, "the client has gone") from None
    return bytes(body)


def _parse_json(body: bytes) -> dict[str, Any]:
    try:
        found = parse_json(Path("the body"), body)
    except UserError as error:
        raise invalid(str(error)) from None
    if not isinstance(found, dict):
        raise invalid("the body is no JSON object")
    return found


def _parse_form(content: bytes) -> dict[str, Any]:
    try:
        pairs = parse_qsl(
            content.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=_MAX_FIELDS,
        )
    except ValueError:
        raise invalid("the form is not URL-encoded UTF-8, or has too many fields") from None
    return _group(pairs)


async def _parse_multipart(headers: Headers, body: bytes) -> dict[str, Any]:
    async def stream() -> AsyncGenerator[bytes, None]:
        yield body

    # The body is in memory already: nothing of it is written to a disk.
    parser = MultiPartParser(
        headers, stream(), max_files=1, max_fields=_MAX_FIELDS, max_part_size=len(body) + 1
    )
    parser.spool_max_size = len(body) + 1
    try:
        form = await parser.parse()
    except MultiPartException as error:
        raise invalid(error.message) from None
    except (KeyError, ValueError):  # no boundary, or a charset that isn't known
        raise invalid("the form is not multipart/form-data in UTF-8") from None
    fields: list[tuple[str, str | Upload]] = []
    for name, value in form.multi_items():
        if isinstance(value, str):
            fields.append((name, value))
        else:
            fields.append((name, Upload(value.filename or "", await value.read())))
    await form.close()
    return _group(fields)


def _group(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Make a list of the values of a repeated field."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name not in found:
            found[name] = value
        elif isinstance(found[name], list):
            found[name].append(value)
        else:
            found[name] = [found[name], value]
    return found


def translation_request(fields: Fields, limits: Limits) -> TranslationRequest:
    """Check the fields of a request to translate.

    Raises:
        RequestError: if one is missing, is of another type, or is too long.
    """
    for name in ("q", "source", "target"):
        if fields.get(name) is None:
            raise invalid(f"missing {name} parameter")
    q = fields["q"]
    texts = q if isinstance(q, list) else [q]
    check_texts(texts, limits)
    kind = fields.get("format", "text")
    if kind not in ("text", "html"):
        raise invalid("format must be text or html")
    return TranslationRequest(
        texts,
        isinstance(q, list),
        word(fields, "source"),
        word(fields, "target"),
        html=kind == "html",
        alternatives=count(fields, "alternatives"),
        details=flag(fields, "details"),
    )


def check_texts(texts: list[Any], limits: Limits) -> None:
    """Check that texts are strings of Unicode, and not too many.

    Raises:
        RequestError: if they are not.
    """
    if len(texts) > limits.batch_limit:
        raise invalid(f"request ({len(texts)}) exceeds batch limit ({limits.batch_limit})")
    if not all(isinstance(text, str) for text in texts):
        raise invalid("q must be a string or an array of strings")
    characters = sum(map(len, texts))
    if characters > limits.char_limit:
        raise invalid(f"request ({characters}) exceeds text limit ({limits.char_limit})")
    for text in texts:
        check_unicode(text)


def check_unicode(text: str) -> None:
    """Refuse half a surrogate pair, which JSON can spell.

    Raises:
        RequestError: if the text has one.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        raise invalid("half a surrogate pair is no text") from None


def word(fields: Fields, name: str, default: str | None = None) -> str:
    """Return a field that must be a string.

    Raises:
        RequestError: if it is not, or is missing and has no default.
    """
    value = fields.get(name)
    if value is None:
        value = default
    if value is None:
        raise invalid(f"missing {name} parameter")
    if not isinstance(value, str):
        raise invalid(f"{name} must be a string")
    check_unicode(value)
    return value


def count(fields: Fields, name: str) -> int:
    """Return a field that must be a whole number, 0 if it is missing.

    Raises:
        RequestError: if it is not one.
    """
    value = fields.get(name)
    if value is None or value == "":
        return 0
    if (
        isinstance(value, str)
        and len(value) <= _MAX_DIGITS
        and value.isascii()
        and value.isdecimal()
    ):
        value = int(value)
    if type(value) is not int or value < 0:
        raise invalid(f"{name} must be a whole number")
    return value


def flag(fields: Fields, name: str) -> bool:
    """Return a field that must be true or false, false if it is missing.

    Raises:
        RequestError: if it is neither.
    """
    value = fields.get(name)
    known = {"true": True, "1": True, "false": False, "0": False, "": False}
    if isinstance(value, str):
        value = known.get(value.lower(), value)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise invalid(f"{name} must be true or false")
    return value


def uploaded(fields: Fields, name: str) -> Upload:
    """Return a field that must be an uploaded file.

    Raises:
        RequestError: if it is not.
    """
    file = fields.get(name)
    if not isinstance(file, Upload):
        raise invalid(f"missing {name} parameter")
    return file
