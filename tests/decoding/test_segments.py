"""The split of a line that is too long, and its segments."""

import time

import pytest

from seq2seq.decoding.segments import LengthLimits, Segment, make_segments, split_text
from seq2seq.tokenizer import END_ID, Tokenizer, TokenizerConfig


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('He said "no." Then he left.', ['He said "no." ', "Then he left."]),
        ("これは本です。「そうだ。」", ["これは本です。", "「そうだ。」"]),
        ("One, two, three; four, five", ["One, two, three; ", "four, five"]),
        ("一匹狗，两只猫；三个男人", ["一匹狗，两只猫；", "三个男人"]),
        ("one two, three four", ["one two, ", "three four"]),
        ("eins zwei drei vier", ["eins zwei ", "drei vier"]),
        ("abcdefghabcdefgh", ["abcdefgh", "abcdefgh"]),
    ],
)
def test_a_text_that_is_too_long_is_split_at_the_best_place(
    sentences: list[str], text: str, expected: list[str]
) -> None:
    config = TokenizerConfig(vocab_size=320, byte_fallback=True)
    tokenizer = Tokenizer.train(sentences, config)
    tokens = [len(ids) for ids in tokenizer.encode(expected)]
    assert split_text(text, tokenizer, max(tokens), "en") == expected
    assert split_text(text, tokenizer, 1000, "en") == [text]
    for limit in (1, 2, 5):
        parts = split_text(text, tokenizer, limit, "en")
        assert "".join(parts) == text
        assert all(
            len(ids) <= limit
            for part, ids in zip(parts, tokenizer.encode(parts), strict=True)
            if len(part) > 1
        )


def segments_of(
    tokenizer: Tokenizer, line: str, max_tokens: int, **choices: object
) -> list[Segment]:
    (segments,) = make_segments(
        [line], tokenizer, limits=LengthLimits(max_tokens, max_tokens + 4, extra=4), **choices
    )
    return segments


def test_the_white_space_between_sentences_is_kept_without_ends_of_lines(
    tokenizer: Tokenizer,
) -> None:
    line = "A child. \t The sea.\r\n\u2028A man.\u3000The road. "
    segments = segments_of(tokenizer, line, 1000, by_sentence=True)
    separators = [segment.separator for segment in segments]
    assert separators == [" \t ", "   ", "\u3000", " "]


WORDS = "⟨A dog, 42.⟩ ⟨-A dog⟩ ⟨七⟩ ⟨α⟩ ⟨https://example.comを見る⟩ ⟨¡Amig@s!⟩ ⟨42 a⟩"
LABELS = "1.1 2.3.1 1.1. IV. iv. a. [1] 1:30 [00:12] §3 Q: A2: 1: A. A.1 (1.1) (iv) 3a) ① 1:30-2:00"
WHOLE = """1.5 million|12:30 is noon|12:30 Uhr|1:30 PM|I. Newton|A. Smith|M. Li|Note: a dog|§ 3 of
z. B. ein Hund|p. 12 is|1.000 Hunde|2.5 °C more|J. R. R. Tolkien|7 dogs"""
NONE = "42 ... ----- ーーー ٤٢% 🐕 (https://a.com/b) www.example.com a.b@example.com: -@-"


@pytest.mark.parametrize(
    "expected",
    [
        *WORDS.replace("⟩ ", "⟩\n").split("\n"),
        *("", " ", "\t", "- 7", *NONE.split()),
        *(
            " \u3000 ⟨A dog.⟩ \t",
            "  - ⟨A dog.⟩",
            "> * 3) ⟨A dog - a cat⟩",
            "1. (b) ⟨A dog⟩",
            "a)\t⟨A dog⟩",
        ),
        *(f"{label} ⟨A dog.⟩" for label in LABELS.split()),
        *(f"{label}\t⟨a dog.⟩" for label in (*LABELS.split(), "I.", "M.")),
        *(f"⟨{line}⟩" for line in WHOLE.replace("\n", "|").split("|")),
        *("12.5 kg", "20 °C", "-5 km/h", "5-10 km", "12 cm x 30 cm", "1\u00a0234,5 m²", " 3mm "),
        *("⟨A dog weighs 12.5 kg⟩", "⟨7 dogs⟩", "⟨12 am⟩", "⟨5 kgs⟩"),
        "\t7\t⟨A dog⟩ \t\t⟨犬⟩\t",
        *("⟨A dog.⟩ 🐕 👍🏽\u200d☀️", "⟨A dog⟩🐕", "🐕 ⟨A dog 🐕 and a cat⟩  🐕 ", "🐕 a) 🐕"),
        *("☐ 1. ⟨A dog⟩\t✓ ⟨犬⟩", "- 🚀 b) ⭐⟨Dogs⟩ ♪ →", "1️⃣ ⟨Dog 2 ©️⟩ 3️⃣#⃣", "⟨7 dogs\u200d⟩"),
    ],
)
def test_what_has_no_words_is_copied(tokenizer: Tokenizer, expected: str) -> None:
    line = expected.replace("⟨", "").replace("⟩", "")
    for by_sentence in (False, True):
        segments = segments_of(tokenizer, line + "\r\n", 1000, by_sentence=by_sentence)
        shown = [f"⟨{one.source}⟩" * (one.source_ids != [END_ID]) for one in segments]
        pairs = zip(segments, shown, strict=True)
        assert "".join(one.copied + text + one.separator for one, text in pairs) == expected


@pytest.mark.parametrize(("unit", "end", "count"), [("3 – ", "6 months", 4), (" ", "a 3", 4000)])
def test_the_time_of_numbers_and_blanks_grows_with_their_count(
    tokenizer: Tokenizer, unit: str, end: str, count: int
) -> None:
    def seconds(count: int) -> float:
        start = time.thread_time()
        segments_of(tokenizer, unit * count + end, 10**6)
        return time.thread_time() - start

    # The square of four times the count takes 16 times as long.
    assert any(seconds(4 * count) < 9 * seconds(count) for _ in range(3))


def test_signs_that_the_vocabulary_has_are_translated(sentences: list[str]) -> None:
    texts = [f"{sentence} 🐕" for sentence in sentences]
    for byte_fallback in (False, True):
        config = TokenizerConfig(vocab_size=70 + 256 * byte_fallback, byte_fallback=byte_fallback)
        tokenizer = Tokenizer.train(texts, config)
        for line, source, separator in (
            ("a man 🐕", "a man 🐕", ""),
            ("a man 🐈", "a man", " 🐈"),
        ):
            (segment,) = segments_of(tokenizer, line, 1000)
            assert (segment.source, segment.separator) == (source, separator)


def test_digits_may_be_words_and_ordinals_are_in_some_languages(tokenizer: Tokenizer) -> None:
    digits = Tokenizer.train(["1 2 3 4 5"] * 9, TokenizerConfig(vocab_size=12), controls=["<bt>"])
    for line, parts in {
        "1": ("", "1", ""),
        "  12 7 ": ("  ", "12 7", " "),
        "1) 2\t": ("", "1) 2", "\t"),
        "🐕 +- 20 °C 🐕": ("🐕 ", "+- 20 °C", " 🐕"),
    }.items():
        (segment,) = segments_of(digits, line, 1000)
        assert (segment.copied, segment.source, segment.separator) == parts
    for language, copied in (("de_AT", "1) "), ("fil", "1) 3. ")):
        (segment,) = segments_of(tokenizer, "1) 3. Oktober", 1000, language=language)
        assert (segment.copied, segment.copied + segment.source) == (copied, "1) 3. Oktober")


def test_a_segment_holds_as_many_sentences_as_fit(tokenizer: Tokenizer) -> None:
    sentence = "the sea is long."
    ids = tokenizer.encode([sentence])[0]
    segments = segments_of(tokenizer, " ".join([sentence] * 7) + " 🐕", 3 * len(ids))
    for segment, count in zip(segments, (3, 3, 1), strict=True):
        assert segment == Segment(
            source_ids=[*ids * count, END_ID],
            max_length=count * len(ids) + 4,
            separator=" 🐕" if segment is segments[-1] else " ",
            source=" ".join([sentence] * count),
        )


class Characters(Tokenizer):
    """Each character is a token, and white space at both ends is none."""

    def __init__(self) -> None:
        self.controls = {}
        self.source_vocab_size = 2**22

    def encode_target(self, texts: list[str]) -> list[list[int]]:
        return [[4 + ord(character) for character in text.strip()] for text in texts]

    def source_pieces(self, token_ids: list[int]) -> list[str]:
        return [chr(i - 4) for i in token_ids]


def test_parts_that_have_more_tokens_when_they_are_joined_fit_all_the_same() -> None:
    text = "One. Two. Dos. Six. Ten."
    assert split_text(text, Characters(), 8) == ["One. ", "Two. ", "Dos. ", "Six. ", "Ten."]
    assert split_text(text, Characters(), 9) == ["One. Two. ", "Dos. Six. ", "Ten."]
    sources = [one.source for one in segments_of(Characters(), text, 8)]
    assert sources == text.split()


def test_a_text_that_no_split_makes_short_enough_is_truncated(tokenizer: Tokenizer) -> None:
    segments = segments_of(tokenizer, "雪 a child", 1)
    assert max(len(segment.source_ids) for segment in segments) == 2
    assert sum(segment.unknown for segment in segments) == 1
