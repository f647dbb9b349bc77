"""Text in capitals: which is read in another case, and how its translation is written."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seq2seq.decoding.capitals import Cased, known_case
from seq2seq.decoding.segments import Segment
from seq2seq.decoding.translation import make_candidates
from seq2seq.decoding.translator import Translator
from seq2seq.search import Hypothesis
from seq2seq.tokenizer import Tokenizer, TokenizerConfig
from tests.conftest import MakeTrained
from tests.decoding.translators import new_translator

LINES = [
    "The dogs of Berlin run in the snow. Where is the sea?",
    "I see the dogs in Berlin, and the snow by the sea.",
    "The NATO meets in Berlin, where I see the snow.",
]
USUAL = Tokenizer.train(LINES * 9, TokenizerConfig(vocab_size=80, byte_fallback=False))
BOTH = Tokenizer.train(
    [line for text in LINES * 9 for line in (text, text.upper())], TokenizerConfig(vocab_size=140)
)


def read(text: str, tokenizer: Tokenizer = USUAL, language: str = "en") -> str:
    """The text as a vocabulary knows it."""
    cased = known_case(text, tokenizer.encode, language)
    return text if cased is None else cased.text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("THE DOGS RUN.", "The dogs run."),
        ("DOGS IN BERLIN! WHERE IS THE SEA?", "dogs in Berlin! Where is the sea?"),
        ("THE NATO MEETS IN BERLIN", "The NATO meets in Berlin"),
        ("“THE DOGS, I SEE 1:1”", "“The dogs, I see 1:1”"),
        ("THE {DOGS} %S RUN IN HTTP://THE.SEA %s", "The {DOGS} %S run in HTTP://THE.SEA %s"),
        ("BERLIN", "Berlin"),
        ("BERLIN 1:1", "Berlin 1:1"),
        # Not all in capitals, no words, or a single word that may be an abbreviation
        ("THE dogs RUN", "THE dogs RUN"),
        ("A I", "A I"),
        ("NATO", "NATO"),
        ("WEU", "WEU"),
        ("42, 犬がNATO", "42, 犬がNATO"),
        ("", ""),
    ],
)
def test_a_text_in_capitals_is_read_in_the_case_of_the_fewest_pieces(
    text: str, expected: str
) -> None:
    if text.startswith("DOGS"):  # a first word begins with a capital if that costs nothing
        (small,), (capital,) = USUAL.encode(["dogs"]), USUAL.encode(["Dogs"])
        assert len(small) < len(capital)
    assert read(text) == expected


def test_text_is_left_alone_if_the_vocabulary_knows_capitals() -> None:
    for line in LINES:
        assert read(line.upper()) == line
        assert read(line.upper(), BOTH) == line.upper()


@pytest.mark.parametrize(
    ("language", "small", "capitals"),
    [
        ("tr", "ılık iki deniz", "ILIK İKİ DENİZ"),
        ("az-Latn", "ılık iki deniz", "ILIK İKİ DENİZ"),
        ("de", "die straße im schnee", "DIE STRAßE IM SCHNEE"),
        ("el", "ο σκύλος τρέχει", "Ο ΣΚΎΛΟΣ ΤΡΈΧΕΙ"),
    ],
)
def test_small_letters_are_those_of_the_language(language: str, small: str, capitals: str) -> None:
    tokenizer = Tokenizer.train([small] * 9, TokenizerConfig(vocab_size=30))
    assert read(capitals, tokenizer, language) == small


@given(st.text("aI ßİŉSΣ.ﬁ{}@", max_size=20))
def test_spans_of_any_text_are_those_of_the_same_letters(text: str) -> None:
    written = "".join(map(str.lower, text))
    ends, end = [], 0
    for letter in text:
        end += len(letter.lower())
        ends.append(end)
    starts = [0, *ends]
    spans = [(starts[i], ends[j]) for i in range(len(text)) for j in range(i, len(text))]
    expected = [(i, j + 1) for i in range(len(text)) for j in range(i, len(text))]
    assert Cased(written, ends).original_spans(spans) == expected


@pytest.fixture
def translator(make_trained: MakeTrained) -> Translator:
    return new_translator(make_trained(), beam_size=2, nbest=2, workers=1)


@pytest.mark.parametrize("line", ["a man sees the sea.", "two small dogs", "the {a} sea %s, 42"])
def test_a_translation_of_capitals_is_that_of_small_letters_in_capitals(
    translator: Translator, line: str
) -> None:
    capitals = line.upper().replace("{A}", "{a}").replace("%S", "%s")
    small, large = translator.translate([line, capitals])
    assert [one.text for one in large.candidates] == [one.text.upper() for one in small.candidates]
    assert [one.pieces for one in large.candidates] == [one.pieces for one in small.candidates]
    assert large.unknown == small.unknown


def test_each_column_and_sentence_has_its_own_case(make_trained: MakeTrained) -> None:
    translator = new_translator(make_trained(), sentences=True)
    small = [one.text for one in translator.translate(["nobody sees.", "a man"])]
    (mixed,) = translator.translate(["1) NOBODY SEES. 42\ta man"])
    assert mixed.text == f"1) {small[0].upper()} 42\t{small[1]}"


@pytest.mark.parametrize(
    ("language", "written"),
    [
        ("de", "IKI STRASSE {iki} A@B.DE a@b.de"),
        ("tr", "İKİ STRASSE {iki} A@B.DE a@b.de"),
    ],
)
def test_capitals_are_written_by_the_rules_of_the_language(language: str, written: str) -> None:
    text = "iki straße {iki} A@B.DE a@b.de"
    tokenizer = Tokenizer.train([text] * 9, TokenizerConfig(vocab_size=40))
    (ids,) = tokenizer.encode_target([text])
    segment, hypothesis = Segment([5, 3], 9, capitals=True), Hypothesis(ids, -1.0, False)
    (candidate,) = make_candidates(tokenizer, segment, [hypothesis], language)
    assert candidate.text == written


def test_the_alignment_of_capitals_is_that_of_small_letters(translator: Translator) -> None:
    source = "a man sees the sea."
    (translation,) = translator.translate([source])
    (small,) = translator.alignments([source], [translation])
    (large,) = translator.translate([source.upper()])
    for target in (large, large.text):
        (found,) = translator.alignments([source.upper()], [target])
        assert (found.source, found.target) == (source.upper(), translation.text.upper())
        assert found.source_spans == small.source_spans
        assert (found.pieces, found.target_spans) == (small.pieces, small.target_spans)


def test_spans_stand_where_letters_became_several() -> None:
    tokenizer = Tokenizer.train(["i\u0307ki deniz"] * 9, TokenizerConfig(vocab_size=20))
    cased = known_case("İKİ DENİZ", tokenizer.encode, "en")
    assert cased is not None
    spans = cased.original_spans(tokenizer.source_spans(cased.text))
    words = re.sub(r"\s", "", "".join("İKİ DENİZ"[slice(*span)] for span in spans))
    assert set(words) == set("İKDENZ")
    assert max(end for _, end in spans) == len("İKİ DENİZ")


def test_terms_are_found_and_written_in_capitals(make_trained: MakeTrained) -> None:
    terms = {"sea": "old friends", "Man": "an apple"}
    translator = new_translator(make_trained(), glossary=terms, beam_size=4, max_extra_tokens=20)
    (translation,) = translator.translate(["A MAN SEES THE SEA."])
    assert translation.missing_terms == ()
    assert all(term.upper() in translation.text for term in terms.values())
    source = "A MAN SEES THE SEA."
    (found,) = translator.alignments([source], ["OLD FRIENDS: AN APPLE"])
    linked = {
        (source[slice(*found.source_spans[i])], found.target_spans[j][0] < 11)
        for i, j in found.pieces
        if found.source_spans[i][0] >= source.index("SEA")
    }
    assert linked
    assert all(first for _, first in linked)
