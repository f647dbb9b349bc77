"""The everyday corpus: its files, its held-out combinations, and the grammar behind it."""

import sys
from collections import Counter
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "data" / "everyday"
sys.path.insert(0, str(DATA / "generator"))
try:
    clauses, english, german = map(import_module, ("clauses", "english", "german"))
    generate, modifiers, nouns = map(import_module, ("generate", "modifiers", "nouns"))
    phrases, verbs = map(import_module, ("phrases", "verbs"))
finally:
    sys.path.pop(0)

CASES = ("nom", "acc", "dat", "gen")
SIZES = {"train": 20_000, "valid": 500, "test": 500, "test_unseen": 150}
BLACK = modifiers.ADJECTIVE["black"]


@pytest.fixture(scope="module")
def splits():
    return generate.build()


def lines(name):
    text = (DATA / name).read_text(encoding="utf-8")
    assert text.endswith("\n")
    return text[:-1].split("\n")


def phrase(determiner, noun, plural=False):
    return phrases.Common(nouns.BY_ENGLISH[noun], determiner, ((BLACK, 0),), plural)


def declined(determiner, noun, plural=False):
    return [phrase(determiner, noun, plural).german(case) for case in CASES]


def clause(verb, subject="he", **slots):
    return clauses.Clause(phrases.Pronoun(subject), verbs.named(verb), **slots)


def test_the_committed_files_equal_a_regeneration(splits):
    for name, sentences in splits.items():
        assert lines(f"{name}.en") == [sentence.english for sentence in sentences]
        assert lines(f"{name}.de") == [sentence.german for sentence in sentences]
    assert (DATA / "README.md").read_text(encoding="utf-8") == generate.readme(splits)


@pytest.mark.parametrize("language", ["en", "de"])
def test_the_splits_have_their_sizes_and_share_no_line(language):
    for name, size in SIZES.items():
        assert len(lines(f"{name}.{language}")) == size
    together = [line for name in ("train", "valid", "test") for line in lines(f"{name}.{language}")]
    assert len(set(together)) == len(together)
    assert set(lines(f"test_unseen.{language}")) < set(lines(f"test.{language}"))


def test_lines_look_like_sentences():
    for name in SIZES:
        for language in ("en", "de"):
            for line in lines(f"{name}.{language}"):
                assert line[0].isupper()
                assert line[-1] in ".?!"
                assert "  " not in line
                assert ",," not in line
                assert " ," not in line
    lengths = [len(line.split()) for line in lines("train.en")]
    assert min(lengths) >= 3
    assert max(lengths) <= 25
    assert 9 <= sum(lengths) / len(lengths) <= 11


def test_held_out_pairs_are_only_in_the_unseen_split(splits):
    seen = {fact for name in ("train", "valid") for s in splits[name] for fact in s.facts}
    words = Counter(word for s in splits["train"] for _, *pair in s.facts for word in pair)
    for sentence in splits["test_unseen"]:
        new = [fact for fact in sentence.facts if fact not in seen and generate.held_out(fact)]
        assert new
        assert all(words[word] >= generate.OFTEN for _, *pair in new for word in pair)
    unseen = {sentence.english for sentence in splits["test_unseen"]}
    for sentence in splits["test"]:
        held = any(generate.held_out(fact) for fact in sentence.facts)
        assert held == (sentence.english in unseen)
    assert not any(map(generate.held_out, seen))


def test_a_held_out_adjective_never_stands_before_its_noun_in_the_training_text(splits):
    text = " ".join(lines("train.en") + lines("valid.en")).lower()
    facts = [f for s in splits["test_unseen"] for f in s.facts if generate.held_out(f)]
    adjectives = [fact for fact in facts if fact[0] == "adjective"]
    assert len(adjectives) > 10
    for _, adjective, noun in adjectives:
        assert f" {adjective} {noun} " not in text


def test_there_are_many_patterns_and_sentences(splits):
    assert len(generate.PATTERNS) >= 40
    assert {s.pattern for s in splits["train"]} == {p.__name__ for p, _ in generate.PATTERNS}
    assert generate.possible_sentences() > 10**8
    assert generate.lemmas() >= 500


PARADIGMS = [
    (
        "THE",
        "dog",
        "der schwarze Hund, den schwarzen Hund, dem schwarzen Hund, des schwarzen Hundes",
    ),
    (
        "THE",
        "cat",
        "die schwarze Katze, die schwarze Katze, der schwarzen Katze, der schwarzen Katze",
    ),
    ("THE", "car", "das schwarze Auto, das schwarze Auto, dem schwarzen Auto, des schwarzen Autos"),
    (
        "A",
        "dog",
        "ein schwarzer Hund, einen schwarzen Hund, einem schwarzen Hund, eines schwarzen Hundes",
    ),
    (
        "A",
        "cat",
        "eine schwarze Katze, eine schwarze Katze, einer schwarzen Katze, einer schwarzen Katze",
    ),
    (
        "A",
        "car",
        "ein schwarzes Auto, ein schwarzes Auto, einem schwarzen Auto, eines schwarzen Autos",
    ),
    ("ZERO", "coffee", "schwarzer Kaffee, schwarzen Kaffee, schwarzem Kaffee, schwarzen Kaffees"),
    ("ZERO", "milk", "schwarze Milch, schwarze Milch, schwarzer Milch, schwarzer Milch"),
    ("ZERO", "water", "schwarzes Wasser, schwarzes Wasser, schwarzem Wasser, schwarzen Wassers"),
]


@pytest.mark.parametrize(("determiner", "noun", "forms"), PARADIGMS)
def test_singular_declension(determiner, noun, forms):
    assert declined(getattr(phrases, determiner), noun) == forms.split(", ")


@pytest.mark.parametrize(
    ("verb", "subject", "main", "sub", "zu", "perfect"),
    [
        ("get up", "he", "er steht auf", "er aufsteht", "aufzustehen", "er ist aufgestanden"),
        ("go shopping", "I", "ich kaufe ein", "ich einkaufe", "einzukaufen", "ich habe eingekauft"),
        ("wake up", "you", "du wachst auf", "du aufwachst", "aufzuwachen", "du bist aufgewacht"),
        (
            "go for a walk",
            "they",
            "sie gehen spazieren",
            "sie spazieren gehen",
            "spazieren zu gehen",
            "sie sind spazieren gegangen",
        ),
        ("sleep", "you", "du schläfst", "du schläfst", "zu schlafen", "du hast geschlafen"),
        (
            "rest",
            "we",
            "wir ruhen uns aus",
            "wir uns ausruhen",
            None,
            "wir haben uns ausgeruht",
        ),
    ],
)
def test_verbs_in_every_order(verb, subject, main, sub, zu, perfect):
    present = clause(verb, subject)
    assert clauses.german_clause(present) == main
    assert clauses.german_clause(present, "sub") == sub
    assert clauses.german_clause(present, "zu") == (zu or "uns auszuruhen")
    assert clauses.german_clause(clause(verb, subject, tense="perfect")) == perfect


def test_word_order():
    time = phrases.Text("on Monday", "am Montag")
    place = phrases.Text("at the market", "auf dem Markt")
    egg = phrases.Common(nouns.BY_ENGLISH["egg"], phrases.A)
    buying = clause("buy", object=egg, tense="past", time=time, place=place)
    assert clauses.english_clause(buying) == "he bought an egg at the market on Monday"
    assert clauses.german_clause(buying) == "er hat am Montag auf dem Markt ein Ei gekauft"
    fronted = clause("buy", object=egg, tense="past", time=time, front="time")
    assert clauses.english_clause(fronted) == "on Monday, he bought an egg"
    assert clauses.german_clause(fronted) == "am Montag hat er ein Ei gekauft"
    assert clauses.german_clause(buying, "sub").endswith("ein Ei gekauft hat")


def test_negation():
    egg = phrases.Common(nouns.BY_ENGLISH["egg"], phrases.A)
    key = phrases.Common(nouns.BY_ENGLISH["key"], phrases.THE)
    eggless = clause("buy", object=egg, tense="past", negated=True)
    assert clauses.english_clause(eggless) == "he did not buy an egg"
    assert clauses.german_clause(eggless) == "er hat kein Ei gekauft"
    keyless = clause("find", object=key, tense="past", negated=True)
    assert clauses.german_clause(keyless) == "er hat den Schlüssel nicht gefunden"
    forbidden = clause("work", tense="must", negated=True)
    assert clauses.english_clause(forbidden) == "he must not work"
    assert clauses.german_clause(forbidden) == "er darf nicht arbeiten"


def test_english_questions_take_do():
    assert clauses.english_clause(clause("sleep"), "question") == "does he sleep"
    assert clauses.english_clause(clause("sleep", tense="past"), "question") == "did he sleep"
    assert clauses.english_clause(clause("sleep", tense="can"), "question") == "can he sleep"
    it = phrases.Pronoun("it_f", "lamp")
    assert clauses.english_clause(clause("turn on", object=it)) == "he turns it on"
    assert clauses.german_clause(clause("turn on", object=it)) == "er schaltet sie ein"
