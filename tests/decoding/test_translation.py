"""The translation of a line from its segments, and the counts of suspicious outputs."""

import pytest

from seq2seq.decoding.segments import Segment
from seq2seq.decoding.translation import (
    Candidate,
    OutputWarnings,
    Translation,
    make_candidates,
    repeats,
)
from seq2seq.search import Hypothesis
from seq2seq.tokenizer import END_ID, START_ID, Tokenizer, TokenizerConfig


def segment(separator: str = "", **about: object) -> Segment:
    return Segment([5, 3], 9, separator=separator, **about)


def test_a_line_has_the_best_of_each_segment_then_the_second_best_and_the_parts() -> None:
    one = [Candidate("One.", -1.0, ["One", "."], False), Candidate("A.", -2.0, ["A."], False)]
    two = [Candidate("二。", -0.5, ["二。"], True), Candidate("B。", -4.0, ["B。"], False)]
    three = [Candidate("three", -0.25, ["three"], False), Candidate("c", -8.0, ["c"], False)]
    segments = [
        segment(" ", unknown=1, source="Eins."),
        segment(),  # a blank one
        segment(unknown=2, source="Zwei."),
        segment(source="drei"),
    ]
    translation = Translation.from_segments(segments, [one, [], two, three])
    assert translation.candidates == [
        Candidate("One. 二。three", -1.75, ["One", ".", "二。", "three"], True),
        Candidate("A. B。c", -14.0, ["A.", "B。", "c"], False),
    ]
    assert (translation.text, translation.score) == ("One. 二。three", -1.75)
    assert translation.unknown == 3
    assert translation.parts == (
        ("", "Eins.", Translation(one, unknown=1)),
        (" ", "", Translation([])),
        ("", "Zwei.", Translation(two, unknown=2)),
        ("", "drei", Translation(three)),
    )


def test_texts_are_separated_as_their_sources_were_and_by_a_space_where_they_need_one() -> None:
    def joined(*texts_and_separators: str) -> str:
        texts, separators = texts_and_separators[::2], texts_and_separators[1::2]
        return Translation.from_segments(
            [segment(separator) for separator in separators],
            [[Candidate(text, -1.0, [text], False)] for text in texts],
        ).text

    assert joined("One.", " \t ", "Two.", "  ") == "One. \t Two.  "
    assert joined("One.", "", "Two.", "", "Three.", "") == "One. Two. Three."  # from Japanese
    assert joined("一。", "", "二。", "") == "一。二。"
    assert joined("一。", " ", "二。", "") == "一。 二。"
    assert joined("", "", "Two.", "") == "Two."
    assert joined("하나.", "", "둘.", "") == "하나. 둘."


def test_what_is_copied_stands_around_the_translations() -> None:
    found = [Candidate("Eins", -1.0, ["Eins"], False), Candidate("Ein", -2.0, ["Ein"], False)]
    marked, number = segment(" \t", copied="  - "), segment(copied="42\t")
    translation = Translation.from_segments([number, marked, number], [[], found, []])
    assert translation.candidates == [
        Candidate("42\t  - Eins \t42\t", -1.0, ["Eins"], False),
        Candidate("42\t  - Ein \t42\t", -2.0, ["Ein"], False),
    ]
    parts = [(before, its.text) for before, _, its in translation.parts]
    assert parts == [("42\t", ""), ("  - ", "Eins"), (" \t42\t", "")]
    (part,) = Translation.from_segments([marked], [found]).parts
    assert part == ("  - ", "", Translation(found))
    (part,) = Translation.from_segments([segment(" 🐕")], [found]).parts
    assert part == ("", "", Translation(found))
    assert Translation.from_segments([segment(" ")], [found]).parts == ()
    copied = Translation.from_segments([number, number], [[], []])
    assert copied.candidates == [Candidate("42\t42\t", 0.0, [], False)]
    assert Translation.from_segments([segment()], [[]]).candidates == []
    warnings = OutputWarnings()
    warnings.count("42\t42\t", copied)
    assert warnings == OutputWarnings(lines=1)


@pytest.mark.parametrize(
    ("source", "output", "short"),
    [(19, 6, True), (18, 6, False), (12, 4, False), (12, 3, True), (11, 1, False)],
)
def test_an_output_of_less_than_a_third_of_the_pieces_is_too_short(
    tokenizer: Tokenizer, source: int, output: int, short: bool
) -> None:
    one, space = Segment([5] * source + [END_ID], 99), tokenizer.pieces([*range(60)]).index("▁")
    ids = [*[5] * (output - 1), space]
    (found,) = make_candidates(tokenizer, one, [Hypothesis(ids, -1.0, False)])
    assert found.too_short == short
    assert found.text == found.text.strip()
    fine = Candidate("a", -1.0, ["a"] * 9, False)
    warnings = OutputWarnings()
    warnings.count("a", Translation.from_segments([one, one], [[fine], [found]]))
    assert warnings.too_short == short


def test_control_symbols_are_no_pieces_of_a_source() -> None:
    config = TokenizerConfig(vocab_size=14)
    tokenizer = Tokenizer.train(["1 2 3 4 5"] * 9, config, controls=["<bt>", ">>de<<"])
    source = [*tokenizer.controls.values(), *[START_ID + 4] * 10, END_ID]
    output = Hypothesis([START_ID + 4] * 3, -1.0, False)
    (found,) = make_candidates(tokenizer, Segment(source, 99), [output])
    assert not found.too_short


def translation(text: str, truncated: bool = False, **about: object) -> Translation:
    return Translation([Candidate(text, -1.0, text.split(), truncated)], **about)


@pytest.mark.parametrize(
    ("text", "looping"),
    [
        ("a a a a", True),
        ("a b a b a b a c", False),
        ("z a b a b a b a b y", True),
        (" ".join("abcdefgh" * 4), True),
        (" ".join("abcdefghi" * 4), False),
    ],
)
def test_four_turns_of_up_to_eight_pieces_are_a_loop(text: str, looping: bool) -> None:
    assert repeats(text.split()) == looping


def test_each_fault_is_counted_where_it_belongs() -> None:
    warnings = OutputWarnings()
    warnings.count("", Translation([]))
    warnings.count("one", translation("eins"))
    warnings.count("two", translation(""))
    warnings.count(" three ", translation("three"))
    warnings.count("four", translation("vier vier vier vier", truncated=True))
    warnings.count("five", translation("f", unknown=3))
    warnings.count("1,250.5 or ٣", translation("3 oder 1.250,5"))
    warnings.count("at 7 and 10", translation("um 7 und 11"))
    warnings.count("{a} at https://a.org/b.", translation("Auf https://a.org/b, {a}"))
    warnings.count("{a} of %s at https://a.org", translation("{a} auf https://a.org"))
    assert str(warnings) == (
        "lines: 10; empty outputs: 1; outputs equal to their sources: 1; outputs that repeat"
        " themselves: 1; outputs with other numbers or placeholders than their sources: 2; outputs"
        " cut off at the maximum length: 1; source pieces unknown to the tokenizer: 3"
    )
    assert str(OutputWarnings(lines=1000)) == "lines: 1,000; nothing suspicious"
    for number in (3, 4):
        warnings.count("two", translation(""), f"line {number}")
    later = OutputWarnings()
    later.count("six", translation(""), "line 1,025")
    assert "empty outputs: 4 (first: line 3); outputs equal" in str(warnings + later)
