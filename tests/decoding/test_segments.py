"""The split of a line that is too long, and its segments."""

import time

import pytest

from seq2seq.data.tokenizer import END_ID, Tokenizer
from seq2seq.decoding.segments import Segment, make_segments, split_line


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("One two. Three four! Five?", ["One two.", "Three four!", "Five?"]),
        ('He said "no." Then he left.', ['He said "no."', "Then he left."]),
        ("Version 2.13 of it… came.  Later", ["Version 2.13 of it…", "came.", "Later"]),
        (
            "これは本です。あれも。「そうだ。」はい",
            ["これは本です。", "あれも。", "「そうだ。」", "はい"],
        ),
        ("no end at all", ["no end at all"]),
        (
            "dots ... and .hidden files. Then?! So",
            ["dots ...", "and .hidden files.", "Then?!", "So"],
        ),
    ],
)
def test_sentences_end_where_readers_see_them_end(
    tokenizer: Tokenizer, line: str, expected: list[str]
) -> None:
    texts = [text for text, _ in split_line(line, tokenizer, max_tokens=1)]
    assert [text.rstrip() for text in texts] == expected
    assert "".join(texts) == line


@pytest.mark.parametrize("line", ["." * 100_000 + "a", ".a" * 50_000, "." + '"' * 100_000 + "a"])
def test_time_grows_with_the_length_alone(tokenizer: Tokenizer, line: str) -> None:
    started = time.perf_counter()
    assert len(split_line(line, tokenizer, max_tokens=10)) == 1
    assert time.perf_counter() - started < 5  # tried at every place, the first took minutes


def segments_of(tokenizer: Tokenizer, line: str, max_tokens: int, prefix: str) -> list[Segment]:
    (segments,) = make_segments(
        [line], [prefix], tokenizer, max_tokens=max_tokens, max_output=lambda tokens: tokens + 4
    )
    return segments


def test_a_segment_holds_as_many_sentences_as_fit(tokenizer: Tokenizer) -> None:
    sentence = "the sea is long."
    ids = tokenizer.encode([sentence])[0]
    segments = segments_of(tokenizer, " ".join([sentence] * 7), 3 * len(ids), prefix="a")
    (prefix_ids,) = tokenizer.encode(["a"])
    for segment, count in zip(segments, (3, 3, 1), strict=True):
        is_first, is_last = segment is segments[0], segment is segments[-1]
        assert segment == Segment(
            source_ids=[*ids * count, END_ID],
            max_length=count * len(ids) + 4,
            separator="" if is_last else " ",
            prefix="a" if is_first else "",
            prefix_ids=prefix_ids if is_first else (),
        )


def test_a_sentence_that_is_too_long_is_truncated(tokenizer: Tokenizer) -> None:
    long, short = "the long road home ☃.", "a child."
    (ids,) = tokenizer.encode([long])
    segments = segments_of(tokenizer, f"{long} {short}", 8, prefix="")
    assert [segment.truncated for segment in segments] == [True, False]
    assert segments[0].source_ids == [*ids[:8], END_ID]
    assert segments[0].max_length == 12
    assert [segment.unknown for segment in segments] == [1, 0]
