"""Subtitles: what is translated, what stays, and other programs that read them afterwards."""

import re

import pysubs2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seq2seq.documents.document import Mark
from seq2seq.documents.spans import break_lines
from seq2seq.errors import UserError
from tests.documents.hostile import TEXTS, assert_unchanged, join_words, read, strings, upper

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
{\\an8}- Two <b>dogs</b>.
"""
VTT = """WEBVTT - a film
Language: en

NOTE
This stays.

STYLE
::cue(b) { color: red; }

first
00:01.000 --> 00:02.000 align:start position:0%
<v Ann>When the <00:01.500>moon &amp; the <c.red>sea</c>
meet</v>

00:03.000 --> 00:04.000
- Yes&nbsp;&lt;3
00:05.000 --> 00:06.000
- No.
- <i>Why?</i>
<v Ann>Look.</v>

This is not a cue.
"""
ASS = """[Script Info]
Title: Dialogue: 1,2

[Events]
Format: Layer, Start, End, Style, Name, MarginL, MarginR, MarginV, Effect, Text
Comment: 0,0:00:01.00,0:00:02.00,Default,,0,0,0,,This stays
Dialogue: 0,0:00:01.00,0:00:02.00,Default,Ann, 0,0,0,,{\\an8}A man, {\\i1}who{\\i0} sees\\Nthe\\hsea
Dialogue: 0,0:00:02.00,0:00:03.00,Default,,0,0,0,,{\\p1}m 0 0 l 100 100{\\p0}
Dialogue: 0,0:00:03.00,0:00:04.00,Default,,0,0,0,,- Yes.\\N- No.
"""


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("arrow", [" --> ", "-->"])
def test_subrip_keeps_everything_but_its_words(newline: str, arrow: str) -> None:
    document = read("srt", SRT.replace("\n", newline).replace(" --> ", arrow))
    assert strings(document) == ["A man sees the sea.", "Nobody", "Two <b>dogs</b>."]
    assert document.texts[2][1] == Mark("<b>", "open")
    assert_unchanged(document)
    translated = document.content
    for words in ("A man sees", "the sea", "Nobody", "Two", "dogs"):
        translated = translated.replace(words, words.upper())
    assert upper(document) == translated


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("- A dog\nruns.\n- No.\n", ["A dog runs.", "No."]),
        ("<i>- A dog</i>\n<i>- No</i>\n", ["A dog", "No"]),
        ("Well--\n--yes.\n\n\n", ["Well-- --yes."]),
        ("A dog\n \nruns.\n\n", ["A dog", "runs."]),
        ("\n\nA dog.\n\n1971\n\n", ["A dog."]),
        ("A <3 dog > {two} <b>runs</b>{y:i}.\n", ["A <3 dog > {two} <b>runs</b>{y:i}."]),
        ("♪ A dog\nruns ♪\n♪ too ♪\n", ["A dog runs", "too"]),
        (">> A DOG: It\nruns.\nMR. B: No.\n‐ No.\n", ["It runs.", "No.", "No."]),
    ],
)
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_the_text_of_a_subtitle_ends_where_the_next_begins(
    text: str, expected: list[str], newline: str
) -> None:
    """A blank line doesn't end it and need not follow it; speakers stay apart."""
    document = read("srt", f"0\n0:01 --> 0:02\n{text}2\n0:03 --> 0:04\nYes.".replace("\n", newline))
    assert strings(document) == [*expected, "Yes."]
    assert_unchanged(document)


@given(st.text(alphabet="ab1 \n\r<>/{}:-,&;\u2028\ufeff", max_size=60))
def test_any_text_is_put_together_as_it_was(content: str) -> None:
    assert_unchanged(read("srt", f"1\n00:00:01,000 --> 00:00:02,500\n{content}"))
    assert_unchanged(read("vtt", f"WEBVTT\n\n00:01.000 --> 00:02.500\n{content}"))
    assert_unchanged(read("ass", f"[Events]\nDialogue: 0,0,1,,,0,0,0,,{content}"))


@given(st.text(alphabet="ab ", max_size=40), st.integers(1, 5))
def test_lines_are_broken_at_spaces_only(text: str, count: int) -> None:
    broken = "".join(part for part in break_lines((text,), count) if isinstance(part, str))
    assert broken.replace("\n", " ") == re.sub(" +", " ", text)
    assert broken.count("\n") < count


def test_webvtt_keeps_blocks_settings_names_and_time_stamps() -> None:
    document = read("vtt", VTT)
    assert strings(document) == [
        "When the <00:01.500>moon & the <c.red>sea</c> meet",
        "Yes\xa0<3",
        "No.",
        "Why?",
        "Look.",
    ]
    assert_unchanged(document)
    assert "- A &lt;b&gt; &amp; --&gt; c\n00:05" in join_words(document, "A <b> & --> c")


def test_substation_alpha_keeps_all_but_the_words_of_its_dialogue() -> None:
    document = read("ass", ASS)
    assert strings(document) == ["A man, {\\i1}who{\\i0} sees the\xa0sea", "Yes.", "No."]
    assert document.texts[0][1] == Mark("{\\i1}", "open")
    assert_unchanged(document)


@pytest.mark.parametrize(("suffix", "content"), [("srt", SRT), ("vtt", VTT), ("ass", ASS)])
@given(words=TEXTS)
def test_no_translation_breaks_out_of_its_cue(suffix: str, content: str, words: str) -> None:
    """As pysubs2 finds the cues."""
    before, after = (
        pysubs2.SSAFile.from_string(text, format_=suffix)
        for text in (content, join_words(read(suffix, content), words))
    )
    assert [(e.start, e.end, e.type) for e in before] == [(e.start, e.end, e.type) for e in after]


@pytest.mark.parametrize(
    "time",
    [
        "00:00:02,000 -> 00:00:03,000",
        "-00:00:02,000 --> 00:00:03,000",
        "00: 00:02,000 -- > 00:00:03 ,000",
        "00:00:02,000 → 00:00:03,000 X1:40",
    ],
)
def test_a_damaged_time_is_read_as_a_time(time: str) -> None:
    content = f"1\n00:00:01,000 --> 00:00:02,000\nA dog.\n\n2\n{time}\nA cat.\n"
    assert strings(read("srt", content)) == ["A dog.", "A cat."]
    assert upper(read("srt", content)) == content.replace("A dog", "A DOG").replace(
        "A cat", "A CAT"
    )


@pytest.mark.parametrize("time", ["a 00:00:02 --> 00:00:03", "00:00:02,000 00:00:03,000"])
def test_a_time_that_is_not_understood_is_refused_with_its_line(time: str) -> None:
    content = f"1\r\n00:00:01,000 --> 00:00:02,000\r\nA dog.\r\n\r\n2\r\n{time}\r\nA cat.\r\n"
    with pytest.raises(UserError, match=r"line 6: .* is no time of a subtitle"):
        read("srt", content)
    assert strings(read("srt", SRT.replace("Nobody", "At 10:30:00 --&gt; no")))


def test_names_of_speakers_stay_and_sounds_are_texts_of_their_own() -> None:
    content = (
        "1\n00:00:01,000 --> 00:00:02,000\nJOHN: Two men talk.\n- MAN 2: (sighs) Yes.\n\n"
        "2\n00:00:03,000 --> 00:00:04,000\n[music playing]\n\n"
        "3\n00:00:05,000 --> 00:00:06,000\n<i>[door opens] Note: a [dog] is here.</i>\n"
    )
    document = read("srt", content)
    assert strings(document) == [
        "Two men talk.", "sighs", "Yes.", "music playing", "door opens", "Note: a [dog] is here.",
    ]  # fmt: skip
    expected = content.upper().replace("<I>", "<i>").replace("</I>", "</i>")
    assert upper(document) == expected


@pytest.mark.parametrize(("label", "texts"), [("JOHN: ", 1), ("[door] ", 2001)])
def test_labels_are_taken_away_however_many_they_are(label: str, texts: int) -> None:
    found = strings(read("srt", f"1\n00:00:01,000 --> 00:00:02,500\n{label * 2000}Hello"))
    assert (found[-1], len(found)) == ("Hello", texts)
