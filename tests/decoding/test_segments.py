"""The split of a line that is too long, and its segments."""

import pytest

from seq2seq.data.tokenizer import END_ID, Tokenizer
from seq2seq.decoding.segments import Segment, make_segments, split_line


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('He said "no." Then he left.', ['He said "no."', "Then he left."]),
        (
            "これは本です。あれも。「そうだ。」はい",
            ["これは本です。", "あれも。", "「そうだ。」", "はい"],
        ),
    ],
)
def test_a_sentence_that_is_too_long_is_split_wherever_one_could_end(
    tokenizer: Tokenizer, line: str, expected: list[str]
) -> None:
    texts = [text for text, _ in split_line(line, tokenizer, max_tokens=1)]
    assert [text.rstrip() for text in texts] == expected
    assert "".join(texts) == line


def test_by_sentence_each_text_is_a_sentence_and_nothing_is_lost(tokenizer: Tokenizer) -> None:
    line = "  Dr. Lee came. Nobody (a child. A man.)  likes\tit! \u3000Why?"
    texts = [text for text, _ in split_line(line, tokenizer, 1000, "en", by_sentence=True)]
    assert texts == ["  Dr. Lee came. ", "Nobody (a child. A man.)  likes\tit! \u3000", "Why?"]
    short = [text for text, _ in split_line(line, tokenizer, 12, "en", by_sentence=True)]
    assert "".join(short) == line
    assert len(short) > len(texts)
    assert [text for text, _ in split_line(line, tokenizer, 1000, "en")] == [line]


def segments_of(
    tokenizer: Tokenizer, line: str, max_tokens: int, prefix: str = "", **choices: object
) -> list[Segment]:
    (segments,) = make_segments(
        [line],
        [prefix],
        tokenizer,
        max_tokens=max_tokens,
        max_output=lambda tokens: tokens + 4,
        **choices,
    )
    return segments


def test_the_white_space_between_sentences_is_kept_without_ends_of_lines(
    tokenizer: Tokenizer,
) -> None:
    line = "A child. \t The sea.\r\n\u2028A man.\u3000The road. "
    segments = segments_of(tokenizer, line, 1000, by_sentence=True)
    separators = [segment.separator for segment in segments]
    assert separators == [" \t ", "   ", "\u3000", " "]


@pytest.mark.parametrize("line", ["", " ", "\t \u3000"])
def test_a_blank_line_is_one_blank_segment(tokenizer: Tokenizer, line: str) -> None:
    (segment,) = segments_of(tokenizer, line, 1000, by_sentence=True)
    assert segment.source_ids == [END_ID]


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
            source=" ".join([sentence] * count),
        )


def test_a_sentence_that_is_too_long_is_truncated(tokenizer: Tokenizer) -> None:
    long, short = "the long road home ☃.", "a child."
    (ids,) = tokenizer.encode([long])
    segments = segments_of(tokenizer, f"{long} {short}", 8, prefix="")
    assert [segment.truncated for segment in segments] == [True, False]
    assert segments[0].source_ids == [*ids[:8], END_ID]
    assert segments[0].max_length == 12
    assert [segment.unknown for segment in segments] == [1, 0]
