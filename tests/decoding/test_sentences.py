"""Where sentences end: lines split by hand, and properties of any text.

The files in `sentences/` have a line of text each, with `|` where a sentence begins. Lines after
`# Not split so yet:` are known failures.
"""

import time
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seq2seq.decoding.sentences import split_sentences

LANGUAGES = ("en", "de", "fr", "ja")
NOT_YET = "# Not split so yet:"


def by_hand(language: str) -> tuple[list[str], list[str]]:
    """The lines that must be split so, and the known failures."""
    text = (Path(__file__).parent / "sentences" / f"{language}.txt").read_text()
    lines = text.split("\n")[:-1]
    place = lines.index(NOT_YET)
    return lines[:place], lines[place + 1 :]


@pytest.mark.parametrize("language", LANGUAGES)
def test_lines_are_split_as_by_hand(language: str) -> None:
    lines, failures = by_hand(language)
    assert len(lines) + len(failures) >= 200
    for line in lines:
        assert "|".join(split_sentences(line.replace("|", ""), language)) == line
    for line in failures:  # move a line up once it is split as it should be
        assert "|".join(split_sentences(line.replace("|", ""), language)) != line


@pytest.mark.parametrize("language", LANGUAGES)
def test_precision_and_recall_are_above_97_percent(language: str) -> None:
    def ends(parts: list[str], offset: int) -> set[int]:
        return {offset + end for end in accumulate(map(len, parts[:-1]))}

    expected, found, offset = set(), set(), 0
    for line in [line for lines in by_hand(language) for line in lines]:
        text = line.replace("|", "")
        expected |= ends(line.split("|"), offset)
        found |= ends(split_sentences(text, language), offset)
        offset += len(text)
    precision = len(expected & found) / len(found)
    recall = len(expected & found) / len(expected)
    print(f"{language}: precision {precision:.1%}, recall {recall:.1%} of {len(expected)} ends")
    assert min(precision, recall) > 0.97


PIECES = st.sampled_from(
    [*' .!?…。！？．"“”„«»‹›()[]（）「」『』【】\'’-:;)1', "\t", "\u00a0", "\u3000", "\u2028", "\r",
     "Dr.", "z. B.", "3.", "No.", "M.", "etc.", "XIV.", "a.m.", "The", "der", "と", "猫", "b) ",
     " :)", "[1]", "iPhone", "x", "I.", "．１", "😀", "\ud800", "(", ") ", "A.", "1. "]
)  # fmt: skip


@given(st.lists(PIECES, max_size=40).map("".join), st.sampled_from(["", "en", "de", "fr", "ja"]))
def test_the_sentences_together_are_the_line(line: str, language: str) -> None:
    sentences = split_sentences(line, language)
    assert "".join(sentences) == line
    assert all(sentences)


@pytest.mark.parametrize(
    ("language", "expected"),
    [("de", 1), ("de-AT", 1), ("DE_de", 1), ("cs", 1), ("en", 2), ("", 2), ("source", 2)],
)
def test_ordinals_have_a_full_stop_in_some_languages(language: str, expected: int) -> None:
    assert len(split_sentences("Oslo 3. Maj 1990", language)) == expected


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("他说：“你好。”我走了。", 2),
        ("वह आया। वह गया।", 2),
        ("هل جاء؟ نعم.", 2),
        ("¿Vienes? ¡Sí! Voy.", 3),
    ],
)
def test_other_scripts_are_split_without_knowing_the_language(line: str, count: int) -> None:
    assert len(split_sentences(line)) == count


@pytest.mark.parametrize(
    "line",
    [
        "." * 50_000 + "a",
        ".a" * 20_000,
        "." + '"' * 50_000 + "a",
        "(a. " * 20_000 + ")" * 20_000,
        "「" * 20_000 + "あ。」" * 20_000,
        " " * 50_000 + ". B",
        ". " * 20_000 + '."x',
        "Dr. " * 20_000,
        "a.-" * 20_000 + ". B",
    ],
    ids=lambda line: line[:6],
)
def test_time_grows_with_the_length_alone(line: str) -> None:
    started = time.process_time()
    assert "".join(split_sentences(line)) == line
    assert time.process_time() - started < 20  # less than 1 s
