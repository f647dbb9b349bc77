"""Terms: read from a file, found in a source, looked for in an output."""

from pathlib import Path

import pytest

from seq2seq.decoding.glossary import Glossary, Term, read_glossary
from seq2seq.decoding.options import SamplingConfig, TranslationOptions
from seq2seq.decoding.segments import Segment
from seq2seq.decoding.translation import Candidate, OutputWarnings, Translation
from seq2seq.decoding.translator import Translator
from seq2seq.errors import UserError
from seq2seq.tokenizer import Tokenizer
from tests.conftest import MakeTrained
from tests.decoding.translators import new_translator


def test_a_term_is_aligned_with_its_translation(make_trained: MakeTrained) -> None:
    terms = {"man": "eine", "dog": "dog"}
    translator = new_translator(make_trained(), glossary=terms)
    source, target = "A man and a dog", "dog zwei eine zwei"
    (alignment,) = translator.alignments([source], [target])
    for term, translation in terms.items():
        start, target_start = source.index(term), target.index(translation)
        linked = [
            alignment.target_spans[j]
            for i, j in alignment.pieces
            if start <= alignment.source_spans[i][0] < start + len(term)
        ]
        assert linked
        for first, last in linked:
            assert target_start <= first <= last <= target_start + len(translation)


@pytest.mark.parametrize(
    ("source", "target", "pairs"),
    [
        ("Dogs run", "dachse", ["Dogs dachse"]),
        ("the dogs run", "dachse, dachsefell", ["dogs dachse"]),
        ("A man runs", "Eine zwei", ["man Eine"]),
        ("a man, a child", "eine und eine", ["man eine", "child eine"]),
        ("a man, a child", "eine", []),
    ],
)
def test_terms_are_paired_where_they_stand_equally_often(
    make_trained: MakeTrained, source: str, target: str, pairs: list[str]
) -> None:
    terms = {"man": "eine", "child": "eine", "dogs": "dachse"}
    found = new_translator(make_trained(), glossary=terms).glossary.pairs(source, target)
    assert [f"{source[slice(*one)]} {target[slice(*other)]}" for one, other in found] == pairs


def test_a_blank_term_is_refused(tokenizer: Tokenizer) -> None:
    for term in ("", " \t"):
        with pytest.raises(UserError, match=r"^glossary: the term for 'see' is blank; remove it"):
            Glossary({"sea": "see", term: "see"}, tokenizer)


@pytest.mark.parametrize(
    ("content", "terms"),
    [
        ("English\tDeutsch\nsea\tMeer\nGerman\tdeutsch\n", {"sea": "Meer", "German": "deutsch"}),
        ("Term\tTranslation\nsea\tMeer\n", {"sea": "Meer"}),
        ("\ufeff# nautical\r\n\r\n sea \tla  mer\r\nsea\tla mer", {"sea": "la mer"}),
        ('"English"\t"Deutsch"\n# a "b\n"sea"\t"die ""See"""\n', {"sea": 'die "See"'}),
        ('sea\tMeer\n"sea, salt"\tMeersalz\n', {"sea": "Meer", "sea, salt": "Meersalz"}),
        ('"sea"\tMeer\nsalt\tSalz\n', {'"sea"': "Meer", "salt": "Salz"}),
    ],
)
def test_names_of_languages_blank_lines_comments_copies_and_quotes_of_cells_are_no_terms(
    tmp_path: Path, content: str, terms: dict[str, str]
) -> None:
    (tmp_path / "terms.tsv").write_bytes(content.encode())
    assert read_glossary(tmp_path / "terms.tsv") == terms


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("# none\n\n", "no term in it"),
        ("a\tb\nsea mer\n", "line 2: 'sea mer' has one column and not two, a term and its "),
        ("sea\t\n", "line 1: 'sea\\t': the translation is empty"),
        ("\tmer\n", "line 1: '\\tmer': the term is empty"),
        ("sea\tmer\tnoun\n", "line 1: 'sea\\tmer\\tnoun' has 3 columns"),
        ("sea\tmer\n\nsea \tocéan\n", "line 3: 'sea' has another translation above; remove one"),
        (b"\xff\tb\n", ":1: byte 0xff at position 1 of the line is not UTF-8"),
    ],
)
def test_a_file_that_is_no_glossary_is_refused(
    tmp_path: Path, content: str | bytes, message: str
) -> None:
    path = tmp_path / "terms.tsv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError) as error:
        read_glossary(path)
    assert message in str(error.value)
    assert str(path) in str(error.value)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("the sea", ["sea"]),
        ("Sea, SEA; sea's", ["sea", "sea", "sea"]),
        ("seaside oversea sea-lion re-sea sea_1", []),
        ("the red house by the red sea", ["red house", "red", "sea"]),
        ("an Apple", ["Apple"]),
        ("an apple or APPLE", ["apple", "apple"]),
        ("三匹の犬が", ["犬"]),
        ("a  red \t house,  sea", ["red house", "sea"]),
        ("C++ and C", ["C++", "C"]),
        ("", []),
    ],
)
def test_the_longest_term_is_found_and_none_within_a_word(
    tokenizer: Tokenizer, source: str, found: list[str]
) -> None:
    terms = ("sea", "red", "house", "red house", "Apple", "apple", "犬", "C++", "C")
    glossary = Glossary(dict.fromkeys(terms, "old friends"), tokenizer)
    assert [term.source for term in glossary.find(source)] == found


def test_a_term_that_begins_with_a_sign_has_a_space_before_it(tokenizer: Tokenizer) -> None:
    (term,) = Glossary({"sea": ".sea"}, tokenizer).find("sea")
    assert term.sequences == (tuple(tokenizer.encode_target([".sea"])[0]),)


@pytest.mark.parametrize(
    ("target", "text", "times"),
    [
        ("Meer", "das Meer.", 1),
        ("Meer", "Meerblick, das Mittelmeer, Binnen-Meer", 0),
        ("Meer", "Meerblick am Meer", 1),
        ("Meer", "das meer", 0),
        ("Meer", "„Meer“", 1),
        ("Meer", "Meer für Meer", 2),
        ("la mer", "La mer", 1),
        ("la mer", "voilà La mer", 0),
        ("犬", "三匹の犬が", 1),
    ],
)
def test_an_output_has_a_term_as_words_of_their_own(target: str, text: str, times: int) -> None:
    assert len(Term("", target, ()).places_in(text)) == times


def test_outputs_have_the_terms_of_their_sources(
    make_trained: MakeTrained, sentences: list[str], tmp_path: Path
) -> None:
    terms = {"sea": "old friends", "red house": "an apple", "the woman": "two small dogs"}
    path = tmp_path / "terms.tsv"
    path.write_text("".join(f"{source}\t{target}\n" for source, target in terms.items()))
    trained = make_trained()

    def translator(glossary: object, **options: object) -> Translator:
        chosen = {"beam_size": 2, "max_extra_tokens": 25, "batch_tokens": 2048} | options
        return new_translator(trained, glossary=glossary, **chosen)

    lines = [*sentences[:30], "the sea, the sea", ""]
    found = translator(path).translate(lines)
    warnings = OutputWarnings()
    for line, translation in zip(lines, found, strict=True):
        warnings.count(line, translation)
        assert translation.missing_terms == (), translation
        for source, target in terms.items():
            assert line.count(source) <= translation.text.lower().count(target)
    assert "glossary" not in str(warnings)
    # Lines without terms are translated as ever, and together with others.
    plain = translator(None).translate(lines)
    with_terms = [any(term in line for term in terms) for line in lines]
    assert 5 < sum(with_terms) < 25
    for one, other, has in zip(found, plain, with_terms, strict=True):
        assert has or one == other
    one_by_one = translator(terms, batch_tokens=1).translate(lines)
    assert [one.text for one in one_by_one] == [one.text for one in found]
    greedy, four = (
        translator(terms, beam_size=beam).translate(["the sea, the woman"]) for beam in (1, 4)
    )
    assert greedy == four
    # Too short for the term.
    (translation,) = translator(terms, max_extra_tokens=1).translate(["a sea, sea"])
    assert translation.missing_terms == ("sea", "sea")
    warnings.count("a sea, sea", translation)
    assert "; terms not translated as the glossary says: 2" in str(warnings)


def test_what_no_glossary_can_do_is_refused(make_trained: MakeTrained) -> None:
    with pytest.raises(UserError, match="engine ctranslate2 knows no glossary"):
        TranslationOptions(glossary={"a": "b"}, engine="ctranslate2")
    with pytest.raises(UserError, match="a glossary needs beam search"):
        TranslationOptions(glossary={"a": "b"}, search=SamplingConfig())
    with pytest.raises(UserError, match="can't write '犬' for 'a', '' for 'c'; choose"):
        new_translator(make_trained(), glossary={"a": "犬", "b": "dog", "c": " "})


@pytest.mark.parametrize(
    ("target", "text", "is_added"),
    [
        ("parc public", "Un chien au parc public.", False),
        ("parc public", "Un parc public promène son chien dans le parc.", True),
        ("toutou", "Un homme dans le parc. toutou.", True),
        ("toutou", "Un homme au parc promène un toutou.", False),
        ("Toutou", "Il dort. Un homme au parc promène un Toutou.", False),
    ],
)
def test_a_term_beside_the_words_of_the_model_is_counted(
    target: str, text: str, is_added: bool
) -> None:
    term = Term("park", target, ())
    assert term.is_added("A man in the park", text) == is_added
    assert not Term("park", "parc", ()).is_added("the park, the park", "le parc, le parc")
    segment = Segment([2], 9, source="A man in the park", terms=[term])
    translation = Translation.from_segments([segment], [[Candidate(text, 0.0, [], False)]])
    warnings = OutputWarnings()
    warnings.count("A man in the park", translation)
    assert warnings.added_terms == is_added
