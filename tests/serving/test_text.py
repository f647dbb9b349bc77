"""Texts of several lines, put together from the candidates of each."""

from seq2seq.decoding.translation import Candidate, Translation
from seq2seq.serving.texts import Lines, TranslatedText


def translation(*texts: str) -> Translation:
    return Translation([Candidate(text, -1.0, [text], False) for text in texts])


def test_alternatives_take_the_same_rank_of_each_line_and_equal_ones_are_left_out() -> None:
    source = Lines.of("a\n\nb")
    found = TranslatedText.of(
        source, [translation("A", "A", "AA"), Translation([]), translation("B", "B")]
    )
    assert found.text == "A\n\nB"
    assert found.alternatives == ["AA\n\nB"]


def test_a_text_without_lines_or_words_stays() -> None:
    for text in ("", "\n", "\r\n\r\n"):
        source = Lines.of(text)
        assert source.join(source.lines) == text
        found = TranslatedText.of(source, [Translation([]) for _ in source.lines])
        assert (found.text, found.alternatives, found.details) == (text, [], [])
