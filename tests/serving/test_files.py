"""Texts of several lines, files of text and subtitles, and their downloads."""

import re
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.exceptions import HTTPException

from seq2seq.decoding.segments import Segment
from seq2seq.decoding.translation import Candidate, Translation
from seq2seq.serving.requests import Limits
from seq2seq.serving.texts import (
    Downloads,
    Lines,
    Subtitles,
    TranslatedText,
    break_lines,
)
from tests.serving.live import Answer, Served, serve_fake
from tests.serving.test_app import multipart

SRT = """1
00:00:01,000 --> 00:00:02,500
A man sees
the sea.

2
00:00:03,000 --> 00:00:04,000 X1:40 X2:600
<i>Nobody</i>

3
00:00:05,000 --> 00:00:06,000

4
00:00:07,000 --> 00:00:08,000
{\\an8}- Two dogs.
"""


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("arrow", [" --> ", "-->"])
def test_subtitles_keep_everything_but_their_words(newline: str, arrow: str) -> None:
    content = SRT.replace("\n", newline).replace(" --> ", arrow)
    found = Subtitles.of(content)
    assert found.lines == ["A man sees the sea.", "Nobody", "- Two dogs."]
    assert found.join(["Ein Mann sieht die See.", "Niemand", "- Zwei Hunde."]) == content.replace(
        f"A man sees{newline}the sea.", f"Ein Mann sieht{newline}die See."
    ).replace("Nobody", "Niemand").replace("Two dogs", "Zwei Hunde")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("- A dog\nruns.\n- No.\n", ["- A dog runs.", "- No."]),
        ("Well--\n--yes.\n\n\n", ["Well-- --yes."]),
        ("A dog\n \nruns.\n\n", ["A dog", "runs."]),
        ("\n\nA dog.\n\n1971\n\n", ["A dog.", "1971"]),
        ("A <3 dog > {two} <b>runs</b>{y:i}.\n", ["A <3 dog > {two}", "runs", "."]),
    ],
)
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r", "\r\r\n"])
def test_the_text_of_a_subtitle_ends_where_the_next_begins(
    text: str, expected: list[str], newline: str
) -> None:
    """A blank line doesn't end it and need not follow it; speakers stay apart."""
    if newline == "\r\r\n":  # each line end is a blank line, too
        expected = [line.strip() for line in re.split(r"\n|</?b>|{y:i}", text) if line.strip()]
    content = f"1\n0:01 --> 0:02\n{text}2\n0:03 --> 0:04\nYes.".replace("\n", newline)
    found = Subtitles.of(content)
    assert found.lines == [*expected, "Yes."]
    assert found.join(found.lines) == content


@given(st.text(alphabet="ab1 \n\r<>{}:-,\u2028\ufeff", max_size=60))
def test_any_text_is_put_together_as_it_was(content: str) -> None:
    """Below times, so that it is the text of a subtitle; its lines may be broken again."""
    head = "1\n00:00:01,000 --> 00:00:02,500\n"
    found = Subtitles.of(head + content)
    assert found.join(found.lines).split() == (head + content).split()


@given(st.text(alphabet="ab ", max_size=40), st.integers(1, 5))
def test_lines_are_broken_at_spaces_only(text: str, count: int) -> None:
    lines = break_lines(text, count)
    assert " ".join(lines) == text
    assert len(lines) <= count


def upload(served: Served, name: str, content: bytes, **headers: str) -> Answer:
    body, kind = multipart(("source", "en"), ("target", "de"), file=(name, content))
    return served.ask("POST", "/translate_file", body, {"content-type": kind, **headers})


def test_a_file_is_translated_and_fetched() -> None:
    with serve_fake() as (served, _):
        url = upload(served, "../../a.srt", SRT.encode()).json["translatedFileUrl"]
        assert url.startswith(f"{served.url}/download_file/")
        assert url.endswith(".srt")
        answer = served.ask("GET", url.removeprefix(served.url))
        assert answer.content.decode() == SRT.replace("A man sees", "A MAN SEES").replace(
            "the sea", "THE SEA"
        ).replace("Nobody", "NOBODY").replace("Two dogs", "TWO DOGS")
        assert answer.headers["content-type"] == "text/plain; charset=utf-8"
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


def test_what_a_file_had_when_its_time_was_over_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    with serve_fake(Limits(timeout=1, batch_tokens=2)) as (served, translator):
        original, may_go = translator.translate_batch, threading.Event()

        def translate_batch(segments: list[Segment]) -> list:
            assert segments[0].source == "one" or may_go.wait(60)
            return original(segments)

        monkeypatch.setattr(translator, "translate_batch", translate_batch)
        answer = upload(served, "a.txt", b"one\ntwo")
        assert answer.status == 503
        assert answer.json["error"].endswith("is kept: send it again")
        may_go.set()
        assert upload(served, "a.txt", b"one\ntwo").status == 200
        assert translator.calls.count(["one"]) == 1


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.docx", b"x", "not supported"),
        ("a.txt", b"\xff", "not UTF-8"),
        ("a.srt", b"a" * 5001, "exceeds text limit (5000), the server's --char-limit"),
        ("a.srt", b"1\nA dog --> runs.\n", "no subtitle was recognised"),
    ],
)
def test_the_answer_to_a_bad_file_says_what_is_wrong(
    server: Served, name: str, content: bytes, message: str
) -> None:
    answer = upload(server, name, content)
    assert answer.status == 400
    assert message in answer.json["error"]


def test_downloads_are_forgotten_in_time_and_when_they_are_too_many() -> None:
    now = 0.0
    kept = Downloads(lambda: now)
    first = kept.keep(b"x", ".txt")
    now = 599.0
    second = kept.keep(b"y", ".txt")
    assert (kept.find(first), kept.find(second)) == (b"x", b"y")
    now = 601.0
    with pytest.raises(HTTPException):
        kept.find(first)
    names = [kept.keep(b"z", ".txt") for _ in range(100)]
    with pytest.raises(HTTPException):
        kept.find(second)
    assert kept.find(names[0]) == b"z"
    large = [kept.keep(bytes(2**24), ".txt") for _ in range(3)]
    assert len(set(large)) == 3
    with pytest.raises(HTTPException):
        kept.find(large[0])
    assert len(kept.find(large[2])) == 2**24


def translation(*texts: str) -> Translation:
    return Translation([Candidate(text, -1.0, [text], False) for text in texts])


def test_alternatives_take_the_same_rank_of_each_line_and_equal_ones_are_left_out() -> None:
    source = Lines.of("a\n\nb")
    found = TranslatedText.of(
        source, [translation("A", "A", "AA"), Translation([]), translation("B", "B")]
    )
    assert found.text == "A\n\nB"
    assert found.alternatives == ["AA\n\nB"]
