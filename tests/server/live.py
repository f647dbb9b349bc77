"""Servers for tests: in a thread of this process, or as `seq2seq serve`."""

import copy
import http.client
import json
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import NamedTemporaryFile
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from seq2seq.decoding.alignment import Alignment
from seq2seq.decoding.attention import AttentionMaps
from seq2seq.decoding.segments import Segment
from seq2seq.decoding.translation import Candidate, Translation
from seq2seq.search import SearchConfig
from seq2seq.server.app import make_app
from seq2seq.server.guard import listen, make_server
from seq2seq.server.requests import Limits
from seq2seq.server.service import Service

SERVE = ["serve", "--device", "cpu", "--engine", "native", "--port", "0", "--model"]


class Answer(NamedTuple):
    status: int
    headers: http.client.HTTPMessage
    content: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.content)


@dataclass
class Served:
    """A running server."""

    port: int
    service: Any = None
    translator: Any = None
    """The fake, if there is one."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
        timeout: float = 60,
    ) -> Answer:
        """Send a request and read its answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return Answer(response.status, response.headers, response.read())
        finally:
            connection.close()

    def post(self, path: str, **fields: object) -> Answer:
        """Send fields as JSON."""
        body = json.dumps(fields).encode()
        return self.ask("POST", path, body, {"content-type": "application/json"})

    def translate(self, q: str | list[str], **fields: object) -> Answer:
        """Translate from English to German."""
        return self.post("/translate", **({"q": q, "source": "en", "target": "de"} | fields))


class FakeTranslator:
    """Writes in capitals, when it is let; keeps what it was given.

    A word is a token, and what ends with a full stop a sentence. In further candidates the last
    word is another. A line with the word "fault" makes it fail, "endless" is cut off, and the
    letter µ is unknown.
    """

    workers = 1
    nbest = 1

    def __init__(self) -> None:
        self.search = SearchConfig(beam_size=4)
        self.may_go = threading.Event()
        self.may_go.set()
        self.calls: list[list[str]] = []

        def encode(lines: list[str]) -> list[list[str]]:
            return [line.split() for line in lines]

        self.tokenizer = SimpleNamespace(encode=encode, encode_target=encode)

    def with_nbest(self, nbest: int) -> "FakeTranslator":
        fake = copy.copy(self)
        fake.nbest = nbest
        return fake

    def segments(self, lines: list[str]) -> list[list[Segment]]:
        return [
            [
                Segment(
                    [4] * len(text.split()) + [2], 9, space, unknown=text.count("µ"), source=text
                )
                for text, space in re.findall(r"([^.]*\S\.?)(\s*)", line) or [("", line)]
            ]
            for line in lines
        ]

    def translate_batch(self, segments: list[Segment]) -> list[list[Candidate]]:
        self.calls.append([segment.source for segment in segments])
        assert self.may_go.wait(60)
        if any("fault" in segment.source for segment in segments):
            raise RuntimeError(f"can't do {self.calls[-1]}")
        return [self.candidates(text) for text in self.calls[-1]]

    def candidates(self, source: str) -> list[Candidate]:
        text = source.upper()
        texts = [
            text,
            *(re.sub(r"\w+(\W*)$", rf"{word}\1", text) for word in ("ONE", "TWO", "THREE")),
        ]
        return [
            Candidate(text, -0.25 - i, pieces(text), "endless" in source)
            for i, text in enumerate(texts[: self.nbest])
        ]

    def alignments(
        self, lines: Sequence[str], translations: Sequence[Translation | str]
    ) -> list[Alignment]:
        """Link each character of a text with its capital."""
        targets = (getattr(output, "text", output) for output in translations)
        return [
            replace(Alignment.verbatim(line), target=target)
            for line, target in zip(lines, targets, strict=True)
        ]

    def attention(self, source: str, target: str) -> AttentionMaps:
        rows, columns = pieces(target), [*pieces(source), "</s>"]
        read, written = ["<s>", *rows], [*rows, "</s>"]
        return AttentionMaps(
            columns,
            read,
            written,
            encoder=weights(len(columns), len(columns)),
            decoder=weights(len(read), len(read)),
            cross=weights(len(written), len(columns)),
        )


def pieces(text: str) -> list[str]:
    """Split before the last letter of each word, so that some pieces begin no word."""
    return [piece for word in text.split() for piece in ("▁" + word[:-1], word[-1]) if piece != "▁"]


def weights(rows: int, columns: int) -> Tensor:
    """Weights that differ in each layer, head and cell, and of which each row's sum is 1."""
    sizes = map(torch.arange, (2, 3, rows, columns))
    layer, head, i, j = torch.meshgrid(*sizes, indexing="ij")
    raw = 1.0 + (7 * i + 3 * j + 5 * head + 11 * layer) % 13
    return raw / raw.sum(dim=3, keepdim=True)


@contextmanager
def serve_models(translators: Any, limits: Limits | None = None, **options: Any) -> Iterator:
    """Serve translators, by their languages, in a thread."""
    service = Service(translators, limits or Limits())
    app = make_app(service, **options)
    opened = listen("127.0.0.1", 0)
    server = make_server(app, grace=10)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [opened]})
    thread.start()
    try:
        yield Served(opened.getsockname()[1], service)
    finally:
        server.should_exit = True
        thread.join(60)
        service.close()
        assert not thread.is_alive()


@contextmanager
def serve_fake(limits: Limits | None = None, **options: Any) -> Iterator:
    """Serve a translator whose pace the test sets."""
    fake: Any = FakeTranslator()
    with serve_models({("en", "de"): fake}, limits, **options) as served:
        served.translator = fake
        try:
            yield served
        finally:
            fake.may_go.set()


class Command(NamedTuple):
    """A running `seq2seq serve`, and the file of its standard error."""

    process: subprocess.Popen
    served: Served
    log: Path


@contextmanager
def serve_by_command(folder: Path, *words: str) -> Iterator[Command]:
    """Run `seq2seq serve` on a free port until the test ends it."""
    with NamedTemporaryFile() as file:
        log = Path(file.name)
        process = subprocess.Popen(
            [sys.executable, "-m", "seq2seq", *SERVE, str(folder), *words], stderr=file
        )
        try:
            wait_until(lambda: "\n" in log.read_text())
            line = log.read_text().partition("\n")[0]
            port = int(line.partition("http://")[2].partition(" ")[0].rpartition(":")[2])
            yield Command(process, Served(port), log)
        finally:
            process.kill()
            process.wait()


def read_to_the_end(client: socket.socket) -> bytes:
    """Read until the server closes the connection, which it may do with a reset."""
    pieces: list[bytes] = []
    with suppress(ConnectionResetError):
        while piece := client.recv(4096):
            pieces.append(piece)
    return b"".join(pieces)


def wait_until(condition: Any, seconds: float = 60) -> None:
    """Wait for something that another thread or process does."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.01)
