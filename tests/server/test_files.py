"""Texts of several lines, files of text and subtitles, and their downloads."""

import errno
import http.client
import logging
import signal
import subprocess
import threading
from typing import Any
from unittest.mock import create_autospec

import pytest

from seq2seq.decoding.segments import Segment
from seq2seq.decoding.translation import Candidate, Translation
from seq2seq.decoding.translator import Translator
from seq2seq.documents.document import Document, Languages
from seq2seq.documents.lines import read_lines
from seq2seq.documents.translate import Plan
from seq2seq.server.documents import Reader
from seq2seq.server.requests import Limits
from seq2seq.server.service import Source
from tests.documents.hostile import fill_place
from tests.documents.test_formats import SMALL
from tests.server.live import (
    Answer,
    FakeTranslator,
    Served,
    serve_fake,
    serve_models,
    wait_until,
)
from tests.server.test_app import multipart


def upload(
    served: Served, name: str, content: bytes, pair: tuple = ("en", "de"), **headers: str
) -> Answer:
    body, kind = multipart(("source", pair[0]), ("target", pair[1]), file=(name, content))
    return served.ask("POST", "/translate_file", body, {"content-type": kind, **headers})


def test_a_file_is_translated_and_fetched() -> None:
    with serve_fake() as served:
        url = upload(served, "../../a.srt", SMALL["srt"].encode()).json["translatedFileUrl"]
        assert url.startswith(f"{served.url}/download_file/")
        assert url.endswith(".srt")
        answer = served.ask("GET", url.removeprefix(served.url))
        assert answer.content.decode() == SMALL["srt"].replace("dog", "DOG")
        assert answer.headers["content-type"] == "application/octet-stream"
        assert answer.headers["content-disposition"] == "attachment"
        prefix = {"x-forwarded-prefix": "/mt/"}
        answer = upload(served, "a.txt", "one\r\n\r\ntwo µ".encode(), **prefix)
        url = answer.json["translatedFileUrl"]
        assert url.startswith(f"{served.url}/mt/download_file/")
        # as a proxy passes it on that takes the prefix away, or one that doesn't
        for path, headers in (
            (url.removeprefix(f"{served.url}/mt"), {}),
            (url.removeprefix(served.url), prefix),
        ):
            answer = served.ask("GET", path, headers=headers)
            assert answer.content.decode() == "ONE\r\n\r\nTWO Μ"


def test_a_file_of_lines_is_translated_whatever_its_name() -> None:
    with serve_fake() as served:
        for name in ("captions.en", "captions"):
            url = upload(served, name, b"one\ntwo\n").json["translatedFileUrl"]
            answer = served.ask("GET", url.removeprefix(served.url))
            assert answer.content == b"ONE\nTWO\n"


@pytest.mark.parametrize("name", ["Mr. Smith", "notes v1.2 #3", "Is it 1.5? part", "a.x%41", "a.ü"])
def test_a_file_is_fetched_from_its_address_whatever_its_name(name: str) -> None:
    with serve_fake() as served:
        url = upload(served, name, b"one").json["translatedFileUrl"]
        assert served.ask("GET", url.removeprefix(served.url)).content == b"ONE"


def test_what_a_text_had_when_its_time_was_over_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    with serve_fake(Limits(timeout=2, batch_tokens=2)) as served:
        original, may_go = served.translator.translate_batch, threading.Event()

        def translate_batch(segments: list[Segment]) -> list:
            assert segments[0].source == "one" or may_go.wait(60)
            return original(segments)

        monkeypatch.setattr(served.translator, "translate_batch", translate_batch)
        answer = served.translate("one\ntwo")
        assert answer.status == 503
        assert answer.json["error"].endswith("is kept: send it again")
        may_go.set()
        wait_until(lambda: served.translate("one\ntwo").status == 200)
        assert served.translator.calls.count(["one"]) == 1


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("captions.en", b"\x89PNG\r\n\x1a\n", "captions.en: binary, not text"),
        ("a.pdf", b"x", "a.pdf: format is not supported: choose .arb, "),
        ("a.docx", b"x", "a.docx: not a ZIP archive"),
        ("a.txt", b"\xff", "a.txt: the file is not utf-8"),
        ("a.md", b"a" * 100_001, "file (100001) exceeds file limit (100000), 20 times"),
        ("a.srt", b"1\nA dog --> runs.\n", "no subtitle was recognised"),
    ],
)
def test_the_answer_to_a_bad_file_says_what_is_wrong(
    server: Served, name: str, content: bytes, message: str
) -> None:
    answer = upload(server, name, content)
    assert answer.status == 400
    assert message in answer.json["error"]


@pytest.mark.parametrize("source", ["source", "auto"])
def test_a_file_of_named_languages_needs_a_model_that_names_its_own(source: str) -> None:
    arb = b'{"@@locale": "en", "a": "A dog"}'
    with serve_models({("source", "target"): FakeTranslator()}) as served:
        answer = upload(served, "a.arb", arb, (source, "target"))
        assert answer.status == 400
        assert "names languages, but the model" in answer.json["error"]
        assert upload(served, "a.json", b'{"a": "A dog"}', (source, "target")).status == 200


def test_files_are_forgotten_in_time_and_when_they_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("seq2seq.server.app._MAX_FILES", 2)
    with serve_fake() as served:

        def status(answer: Answer) -> int:
            path = answer.json["translatedFileUrl"].removeprefix(served.url)
            return served.ask("GET", path).status

        answers = [upload(served, "a.txt", b"one") for _ in range(3)]
        assert list(map(status, answers)) == [404, 200, 200]
        monkeypatch.setattr("seq2seq.server.app._KEPT_SECONDS", 0.0)
        answer = upload(served, "a.txt", b"two")
        wait_until(lambda: status(answer) == 404)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen]:
    """The processes that read documents."""
    processes: list[subprocess.Popen] = []

    class Recorded(subprocess.Popen):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            processes.append(self)

    monkeypatch.setattr(subprocess, "Popen", Recorded)
    return processes


PARAGRAPHS = fill_place("docx", "@", "<w:p/>" * 500_000)  # 100 bytes of memory each


@pytest.mark.posix
@pytest.mark.parametrize(
    "limits", [Limits(file_bytes=2**26, timeout=600), Limits(file_seconds=1, timeout=600)]
)
def test_a_document_that_takes_too_much_is_refused(limits: Limits, started: list) -> None:
    with serve_fake(limits) as served:
        answer = upload(served, "a.docx", PARAGRAPHS)
        assert answer.status == 400
        limit = (
            f"{limits.file_seconds} s of processor time, or {limits.file_bytes >> 20} MB, to read"
        )
        assert answer.json["error"] == f"a.docx: takes more than {limit}: divide it"
        assert upload(served, "a.txt", b"one").status == 200
    assert None not in [process.returncode for process in started]


def test_a_document_for_which_nobody_waits_is_dropped(started: list) -> None:
    with serve_fake(Limits(files=1)) as served:
        body, kind = multipart(("source", "en"), ("target", "de"), file=("a.docx", PARAGRAPHS))
        leaving = http.client.HTTPConnection("127.0.0.1", served.port)
        leaving.request("POST", "/translate_file", body, {"content-type": kind})
        wait_until(lambda: started)
        leaving.close()
        # Another one is read when it has gone.
        assert upload(served, "a.txt", b"one").status == 200
        assert started[0].returncode == -signal.SIGKILL


def test_a_server_that_has_ended_leaves_no_threads() -> None:
    before = set(threading.enumerate())
    with serve_fake() as served:
        assert upload(served, "a.txt", b"one").status == 200
        assert set(threading.enumerate()) - before
    wait_until(lambda: not set(threading.enumerate()) - before)
    assert served.service.queue_tokens == 0  # nobody has forgotten the service, whose they were


def test_a_fault_in_reading_a_document_shows_nothing_of_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def join(reader: Reader, *_: object) -> bytes:
        return await reader.join([])

    monkeypatch.setattr(logging.getLogger("seq2seq"), "propagate", True)
    monkeypatch.setattr("seq2seq.server.documents.Reader.open", join)  # nothing to join yet
    with serve_fake() as served:
        answer = upload(served, "a.txt", b"mine")
        assert (answer.status, answer.json) == (500, {"error": "internal error"})
    assert "internal error: AttributeError in join, " in caplog.text
    assert "mine" not in caplog.text


@pytest.mark.parametrize("is_busy", [False, True])
def test_a_process_that_does_not_begin_is_no_fault_of_the_document(
    is_busy: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(logging.getLogger("seq2seq"), "propagate", True)
    if is_busy:
        monkeypatch.setattr(subprocess, "Popen", refuse)
    else:
        monkeypatch.setattr("seq2seq.server.documents._CALL", "import nothing_of_this_name")
    with serve_fake() as served:
        answer = upload(served, "a.txt", b"one")
    assert answer.status == (503 if is_busy else 500)
    reason = "no process for a document: Resource" if is_busy else "document ended with code 1"
    assert reason in caplog.text


def translation(*texts: str) -> Translation:
    return Translation([Candidate(text, -1.0, [text], False) for text in texts])


def test_alternatives_take_the_same_rank_of_each_line_and_equal_ones_are_left_out() -> None:
    document = Document.read(read_lines, "a\n\nb", Languages("en", "de"))
    plan = Plan(document.texts, placeholders=False)
    assert plan.take([translation("A", "A", "AA"), translation("B", "B")]) == []
    source = Source(document, plan, create_autospec(Translator), alignments=[[]] * 3)
    source.join()
    assert (source.text, source.alternatives) == ("A\n\nB", ["AA\n\nB"])


def test_the_server_translates_html() -> None:
    with serve_fake() as served:
        answer = served.translate(["<p>a <b>b</b></p>", "c\nd"], format="html")
        assert answer.json == {"translatedText": ["<p>A <b>B</b></p>", "C D"]}
        calls = sorted(line for call in served.translator.calls for line in call)
        assert calls == ["a b", "c d"]
