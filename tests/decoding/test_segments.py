"""Where a line that is too long is split."""

import time

import pytest

from seq2seq.data.tokenizer import Tokenizer
from seq2seq.decoding.segments import split


@pytest.mark.parametrize(
    ("line", "parts"),
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
    tokenizer: Tokenizer, line: str, parts: list[str]
) -> None:
    found = split(line, tokenizer, longest=1)
    assert [part.text for part in found] == parts
    assert "".join(part.text + part.separator for part in found) == " ".join(line.split())


@pytest.mark.parametrize("line", ["." * 100_000 + "a", ".a" * 50_000, "." + '"' * 100_000 + "a"])
def test_time_grows_with_the_length_alone(tokenizer: Tokenizer, line: str) -> None:
    started = time.perf_counter()
    assert len(split(line, tokenizer, longest=10)) == 1
    assert time.perf_counter() - started < 5  # tried at every place, the first took minutes


def test_a_part_holds_as_many_sentences_as_fit(tokenizer: Tokenizer) -> None:
    sentences = ["the sea is long."] * 7
    one = len(tokenizer.encode(sentences[:1])[0])
    found = split(" ".join(sentences), tokenizer, longest=3 * one)
    assert [part.text.count(".") for part in found] == [3, 3, 1]
    assert all(len(part.token_ids) <= 3 * one for part in found)
