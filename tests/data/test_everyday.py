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


def test_check_notices_a_changed_and_a_missing_file(tmp_path):
    (tmp_path / "same").write_bytes(b"a\n")
    (tmp_path / "changed").write_bytes(b"a\r\n")
    files = dict.fromkeys(("same", "changed", "missing"), "a\n")
    assert generate.differing(tmp_path, files) == ["changed", "missing"]


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
PLURALS = [
    (
        "THE",
        "dog",
        "die schwarzen Hunde, die schwarzen Hunde, den schwarzen Hunden, der schwarzen Hunde",
    ),
    ("ZERO", "dog", "schwarze Hunde, schwarze Hunde, schwarzen Hunden, schwarzer Hunde"),
    (
        "MANY",
        "car",
        "viele schwarze Autos, viele schwarze Autos, "
        "vielen schwarzen Autos, vieler schwarzer Autos",
    ),
]


@pytest.mark.parametrize(("determiner", "noun", "forms"), PARADIGMS)
def test_singular_declension(determiner, noun, forms):
    assert declined(getattr(phrases, determiner), noun) == forms.split(", ")


@pytest.mark.parametrize(("determiner", "noun", "forms"), PLURALS)
def test_plural_declension(determiner, noun, forms):
    assert declined(getattr(phrases, determiner), noun, plural=True) == forms.split(", ")


@pytest.mark.parametrize(
    ("noun", "forms"),
    [
        ("boy", "Junge Jungen Jungen Jungen"),
        ("student", "Student Studenten Studenten Studenten"),
        ("neighbour", "Nachbar Nachbarn Nachbarn Nachbarn"),
        ("farmer", "Bauer Bauern Bauern Bauern"),
        ("house", "Haus Haus Haus Hauses"),
        ("teacher", "Lehrer Lehrer Lehrer Lehrers"),
        ("aunt", "Tante Tante Tante Tante"),
    ],
)
def test_weak_and_strong_nouns(noun, forms):
    word = nouns.BY_ENGLISH[noun]
    assert [german.noun_form(word, case, False) for case in CASES] == forms.split()


def test_titles_and_owners():
    weber = phrases.Name("Weber", "Mr.")
    assert [weber.german(case) for case in CASES[:3]] == [
        "Herr Weber",
        "Herrn Weber",
        "Herrn Weber",
    ]
    car = nouns.BY_ENGLISH["car"]
    anna = phrases.Common(car, phrases.THE, ((BLACK, 0),), owner=phrases.Name("Anna"))
    assert (anna.english(True), anna.german("dat")) == ("Anna's black car", "Annas schwarzem Auto")
    mine = phrases.Common(nouns.BY_ENGLISH["brother"], phrases.possessive("you_all"))
    assert mine.german("acc") == "euren Bruder"
    his = phrases.Common(car, phrases.THE, owner=mine)
    assert his.german("nom") == "das Auto eures Bruders"


@pytest.mark.parametrize(
    ("adjective", "attributive", "comparative", "superlative"),
    [
        ("expensive", "teuren", "teurer", "am teuersten"),
        ("high", "hohen", "höher", "am höchsten"),
        ("good", "guten", "besser", "am besten"),
        ("old", "alten", "älter", "am ältesten"),
        ("big", "großen", "größer", "am größten"),
    ],
)
def test_comparison(adjective, attributive, comparative, superlative):
    word = modifiers.ADJECTIVE[adjective]
    assert german.adjective_form(word, 0, "en") == attributive
    assert german.predicate_form(word, 1) == comparative
    assert german.predicate_form(word, 2) == superlative


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


@pytest.mark.parametrize(
    ("infinitive", "third", "forms"),
    [
        ("lesen", "liest", "lese liest liest lesen lest lesen"),
        ("arbeiten", "arbeitet", "arbeite arbeitest arbeitet arbeiten arbeitet arbeiten"),
        ("essen", "isst", "esse isst isst essen esst essen"),
        ("laden", "lädt", "lade lädst lädt laden ladet laden"),
        ("sammeln", "sammelt", "sammle sammelst sammelt sammeln sammelt sammeln"),
        ("tanzen", "tanzt", "tanze tanzt tanzt tanzen tanzt tanzen"),
        ("sein", "ist", "bin bist ist sind seid sind"),
    ],
)
def test_present(infinitive, third, forms):
    assert [german.present(infinitive, third, person) for person in range(6)] == forms.split()


@pytest.mark.parametrize(
    ("verb", "du", "ihr"),
    [
        ("give", "gib", "gebt"),
        ("read", "lies", "lest"),
        ("forget", "vergiss", "vergesst"),
        ("wait for", "warte", "wartet"),
        ("sleep", "schlaf", "schlaft"),
        ("open", "öffne", "öffnet"),
    ],
)
def test_imperative(verb, du, ihr):
    word = verbs.named(verb)
    assert german.imperative(word, "you") == du
    assert german.imperative(word, "you_all") == ihr


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


@pytest.mark.parametrize(
    ("preposition", "noun", "case", "expected"),
    [
        ("in", "house", "dat", "im Haus"),
        ("in", "house", "acc", "ins Haus"),
        ("zu", "aunt", "dat", "zur Tante"),
        ("zu", "doctor", "dat", "zum Arzt"),
        ("auf", "table", "acc", "auf den Tisch"),
        ("wegen", "rain", "gen", "wegen des Regens"),
    ],
)
def test_contractions(preposition, noun, case, expected):
    the = phrases.Common(nouns.BY_ENGLISH[noun], phrases.THE)
    assert german.contract(preposition, the.german(case)) == expected


@pytest.mark.parametrize(
    ("hour", "step", "expected"),
    [
        (6, -2, ("half past seven", "halb acht")),
        (11, -2, ("half past twelve", "halb eins")),
        (0, -1, ("one o'clock", "ein Uhr")),
        (2, 2, ("a quarter past three", "Viertel nach drei")),
        (4, 7, ("five to six", "fünf vor sechs")),
    ],
)
def test_times_of_day(hour, step, expected):
    assert modifiers.clock(hour, step) == expected


def test_numbers_and_days():
    assert dict(modifiers.NUMBERS)["seven"] == "sieben"
    assert ("on Fridays", "freitags") in modifiers.habitual_times()
    assert ("two days ago", "vor zwei Tagen") in modifiers.past_times()
    days = modifiers.dated_times()[1]
    assert ("on Sunday morning", "am Sonntagmorgen") in days


@pytest.mark.parametrize(
    ("following", "article"),
    [("apple", "an"), ("university", "a"), ("honest man", "an"), ("boat", "a"), ("old bus", "an")],
)
def test_a_and_an(following, article):
    assert english.article(following) == article


@pytest.mark.parametrize(
    ("base", "third", "ing"),
    [
        ("go", "goes", "going"),
        ("watch", "watches", "watching"),
        ("carry", "carries", "carrying"),
        ("play", "plays", "playing"),
        ("lie", "lies", "lying"),
        ("put", "puts", "putting"),
        ("write", "writes", "writing"),
        ("have", "has", "having"),
        ("see", "sees", "seeing"),
    ],
)
def test_english_verb_endings(base, third, ing):
    assert english.third_person(base) == third
    assert english.progressive(base) == ing


@pytest.mark.parametrize(
    ("verb", "past", "participle"),
    [
        ("buy", "bought", "bought"),
        ("drink", "drank", "drunk"),
        ("carry", "carried", "carried"),
        ("plan", "planned", "planned"),
        ("hug", "hugged", "hugged"),
        ("forget", "forgot", "forgotten"),
        ("play", "played", "played"),
    ],
)
def test_english_past(verb, past, participle):
    word = verbs.named(verb)
    assert (word.english_past, word.english_participle) == (past, participle)


def test_english_questions_take_do():
    assert clauses.english_clause(clause("sleep"), "question") == "does he sleep"
    assert clauses.english_clause(clause("sleep", tense="past"), "question") == "did he sleep"
    assert clauses.english_clause(clause("sleep", tense="can"), "question") == "can he sleep"
    it = phrases.Pronoun("it_f", "lamp")
    assert clauses.english_clause(clause("turn on", object=it)) == "he turns it on"
    assert clauses.german_clause(clause("turn on", object=it)) == "er schaltet sie ein"
