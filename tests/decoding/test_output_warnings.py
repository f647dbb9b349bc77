"""The counts of the warnings line."""

import pytest

from seq2seq.decoding.translation import Candidate, OutputWarnings, Translation, repeats


def translation(text: str, truncated: bool = False, **about: object) -> Translation:
    return Translation([Candidate(text, -1.0, text.split(), truncated)], **about)


@pytest.mark.parametrize(
    ("text", "looping"),
    [
        ("a a a a", True),
        ("x a a a y", False),
        ("the the dog the the dog the the dog the the dog", True),
        ("a b a b a b a c", False),
        ("z a b a b a b a b y", True),
        (" ".join("abcdefgh" * 4), True),
        (" ".join("abcdefghi" * 4), False),
        ("", False),
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
    warnings.count("five", translation("f", source_segments=2, source_truncated=True, unknown=3))
    assert warnings == OutputWarnings(
        lines=6,
        empty=1,
        copied=1,
        repeating=1,
        output_truncated=1,
        source_split=1,
        source_truncated=1,
        unknown=3,
    )
    assert str(warnings) == (
        "lines: 6; outputs: 1 empty, 1 equal to their source, 1 repeating, 1 cut off at the maximum"
        " length; sources: 1 split at sentence ends, 1 too long (their ends were skipped),"
        " 3 unknown pieces"
    )
