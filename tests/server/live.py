"""Servers for tests: in a thread of this process, or as `seq2seq serve`."""

import http.client
import json
import queue
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import NamedTemporaryFile
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import uvicorn

from seq2seq.cli.main import main
from seq2seq.decoding.alignment import Alignment
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

    A word is a token. A line with the word "fault" makes it fail, "endless" is cut off.
    """

    workers = 1

    def __init__(self) -> None:
        self.search = SearchConfig(beam_size=4)
        self.may_go = threading.Event()
        self.may_go.set()
        self.calls: list[list[str]] = []
        self.tokenizer = SimpleNamespace(encode=lambda lines: [line.split() for line in lines])

    def with_nbest(self, nbest: int) -> "FakeTranslator":
        return self

    def segments(self, lines: list[str]) -> list[list[Segment]]:
        return [[Segment([1] * len(line.split()) + [2], 9, source=line)] for line in lines]

    def translate_batch(self, segments: list[Segment]) -> list[list[Candidate]]:
        self.calls.append([segment.source for segment in segments])
        assert self.may_go.wait(60)
        if any("fault" in segment.source for segment in segments):
            raise RuntimeError(f"can't do {self.calls[-1]}")
        return [
            [Candidate(text.upper(), -1.0, ["x"], "endless" in text)] for text in self.calls[-1]
        ]

    def alignments(
        self, lines: Sequence[str], translations: Sequence[Translation | str]
    ) -> list[Alignment]:
        """Link each character with its capital."""
        return [
            replace(Alignment.verbatim(line), target=line.upper())
            for line, _ in zip(lines, translations, strict=True)
        ]


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


@contextmanager
def serve_by_main(patch: pytest.MonkeyPatch, folder: Path, *words: str) -> Iterator[Served]:
    """Run the command in a thread of this process; without its signals."""
    started: queue.Queue[tuple[uvicorn.Server, int]] = queue.Queue()

    def run(app: Any, opened: socket.socket, *, grace: int) -> None:
        server = make_server(app, grace=grace)
        started.put((server, opened.getsockname()[1]))
        server.run(sockets=[opened])

    patch.setattr("seq2seq.server.guard.run", run)
    thread = threading.Thread(target=main, args=[[*SERVE, str(folder), *words]])
    thread.start()
    server, port = started.get(timeout=60)
    try:
        yield Served(port)
    finally:
        server.should_exit = True
        thread.join(60)
        assert not thread.is_alive()


def wait_until(condition: Any, seconds: float = 60) -> None:
    """Wait for something that another thread or process does."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.01)
