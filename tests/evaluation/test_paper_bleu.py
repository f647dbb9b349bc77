"""The paper's BLEU: each stage equals an independent computation, the whole equals sacreBLEU."""

import math
import re
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu import BLEU

from seq2seq.errors import UsageError, UserError
from seq2seq.evaluation.paper_bleu import (
    NAME,
    WHY_IT_DIFFERS,
    NgramCounts,
    closest_length,
    count_ngrams,
    paper_bleu,
    prepare,
    replace_punctuation,
    split_compounds,
    tokenize,
)
from seq2seq.evaluation.scores import bleu

REFERENCES = [
    "Er sagte: „Der Nord-Süd-Dialog kostet 3-4 Mio. Euro.“",
    "Ein Hund läuft durch den tiefen Schnee, sagte Peters Schwester.",
    "Das E-Mail-Programm von z.B. O'Neill [Version 2.0] ist gut & billig!",
]
HYPOTHESES = [
    'Er sagt: "Der Nord-Süd Dialog kostet 3-4 Mio. Euro."',
    "Ein Hund rennt durch den tiefen Schnee, sagte Peters Schwester.",
    "Das E-Mail-Programm von O’Neill [Version 2.0] ist gut & billig...",
]
WORDS = st.lists(st.sampled_from(["a", "b", "c", "d-e", "„f“", "g."]), max_size=8).map(" ".join)


def corpora(references: int) -> Any:
    """Hypotheses and reference lists of one length."""
    return st.integers(1, 5).flatmap(
        lambda n: st.lists(
            st.lists(WORDS, min_size=n, max_size=n),
            min_size=references + 1,
            max_size=references + 1,
        )
    )


# The stages


def test_quotation_marks_become_ascii() -> None:
    assert replace_punctuation("„Gut“, “fine” – O’Neill…") == '"Gut", "fine" – O\'Neill...'
    assert replace_punctuation('"Gut", O\'Neill') == '"Gut", O\'Neill'


@pytest.mark.parametrize(
    ("raw", "tokens"),
    [
        # The tokens that Moses' own tokenizer.perl gives.
        ('Er rief: "Halt!"', "Er rief : &quot; Halt ! &quot;"),
        ("O'Neill geht's gut.", "O &apos; Neill geht &apos; s gut ."),
        ("Er zahlt 3-4 Mio. Euro, d.h. 5,3 %.", "Er zahlt 3-4 Mio. Euro , d.h. 5,3 % ."),
        ("Am 3. Mai [1999] & später...", "Am 3. Mai &#91; 1999 &#93; &amp; später ..."),
        ("Der Nord-Süd-Dialog  – ja", "Der Nord-Süd-Dialog – ja"),
    ],
)
def test_tokens_are_moses(raw: str, tokens: str) -> None:
    assert tokenize(raw) == tokens


def test_apostrophes_follow_the_language() -> None:
    assert tokenize("l'eau", "fr") == "l&apos; eau"
    assert tokenize("it's", "en") == "it &apos;s"
    assert tokenize("geht's", "de") == "geht &apos; s"


def test_a_language_without_rules_is_refused() -> None:
    with pytest.raises(UsageError, match=r"--language xx: .*cs, de"):
        paper_bleu(HYPOTHESES, [REFERENCES], "xx")


def split_by_scanning(tokens: str) -> str:
    """The hyphens of `split_compounds`, found from left to right without a regular expression."""
    pieces, used = [], -1
    for i, character in enumerate(tokens):
        inside = 0 < i < len(tokens) - 1
        free = inside and i - 1 > used and not (tokens[i - 1] + tokens[i + 1]).count(" ")
        if character == "-" and free:
            pieces.append(" ##AT##-##AT## ")
            used = i + 1
        else:
            pieces.append(character)
    return "".join(pieces)


@given(st.text(alphabet="aü3- .", max_size=30))
def test_compounds_are_split_at_hyphens_between_characters(tokens: str) -> None:
    assert split_compounds(tokens) == split_by_scanning(tokens)


def test_compounds_by_hand() -> None:
    at = "##AT##-##AT##"
    assert split_compounds("Nord-Süd-Dialog") == f"Nord {at} Süd {at} Dialog"
    assert split_compounds("3-4 Euro - viel") == f"3 {at} 4 Euro - viel"
    assert split_compounds("A-B-Waffen") == f"A {at} B-Waffen"
    assert split_compounds("-x x- -") == "-x x- -"


def test_only_german_is_split() -> None:
    assert prepare("Nord-Süd", "de") == "Nord ##AT##-##AT## Süd"
    assert prepare("nord-sud", "fr") == "nord-sud"


@given(st.text(max_size=40))
def test_prepared_text_is_tokens_between_single_spaces(line: str) -> None:
    prepared = prepare(line)
    assert prepared == " ".join(re.split(r"\s+", prepared.strip()))


# The counting


def brute_force(hypotheses: list[list[str]], references: list[list[list[str]]]) -> float:
    """BLEU from its definition: look for each n-gram of a line in each reference."""
    lengths = [0, 0]
    product = 1.0
    for n in (1, 2, 3, 4):
        hits = shots = 0
        for k, hypothesis in enumerate(hypotheses):
            starts = range(max(len(hypothesis) - n + 1, 0))
            grams = [tuple(hypothesis[i : i + n]) for i in starts]
            shots += len(grams)
            for gram in set(grams):
                in_references = [
                    sum(tuple(lines[k][i : i + n]) == gram for i in range(len(lines[k])))
                    for lines in references
                ]
                hits += min(grams.count(gram), max(in_references))
        product *= hits / shots if shots else 0.0
    for k, hypothesis in enumerate(hypotheses):
        by_distance = sorted(
            (abs(len(lines[k]) - len(hypothesis)), len(lines[k])) for lines in references
        )
        lengths[0] += len(hypothesis)
        lengths[1] += by_distance[0][1]
    if product == 0.0:
        return 0.0
    return 100 * math.sqrt(math.sqrt(product)) * min(1.0, math.exp(1 - lengths[1] / lengths[0]))


TOKENS = st.lists(st.sampled_from("aab"), max_size=8)


@settings(deadline=None, max_examples=50)
@given(
    st.integers(1, 4).flatmap(
        lambda n: st.lists(st.lists(TOKENS, min_size=n, max_size=n), min_size=2, max_size=4)
    )
)
def test_the_counts_give_bleu_by_its_definition(texts: list[list[list[str]]]) -> None:
    hypotheses, *references = texts
    found = count_ngrams(hypotheses, references).bleu
    assert found == pytest.approx(brute_force(hypotheses, references), abs=1e-9)


def test_matches_are_clipped_and_lengths_are_the_closest() -> None:
    # Papineni et al.'s own example: seven times "the", of which a reference has two.
    lines = ["the cat is on the mat", "there is a cat on the mat today , yes"]
    counts = count_ngrams([["the"] * 7], [[line.split()] for line in lines])
    assert (counts.matched[0], counts.total) == (2, (7, 6, 5, 4))
    assert (counts.hypothesis_tokens, counts.reference_tokens) == (7, 6)
    assert counts.bleu == 0.0
    assert closest_length(5, [7, 4, 6]) == 4


def test_the_brevity_penalty_applies_to_short_hypotheses_alone() -> None:
    penalties = [NgramCounts((), (), tokens, 10).brevity_penalty for tokens in (0, 5, 10, 20)]
    assert penalties == pytest.approx([0.0, math.exp(-1.0), 1.0, 1.0])
    assert all(low <= high for low, high in pairwise(penalties))


# The whole


def sacrebleu_of_prepared(hypotheses: list[str], references: list[list[str]]) -> float:
    metric = BLEU(tokenize="none", smooth_method="none", force=True)
    prepared = [[prepare(line) for line in lines] for lines in references]
    return float(metric.corpus_score([prepare(line) for line in hypotheses], prepared).score)


@settings(deadline=None, max_examples=50)
@given(corpora(references=1) | corpora(references=2))
def test_it_equals_sacrebleu_on_the_prepared_text(texts: list[list[str]]) -> None:
    hypotheses, *references = texts
    found = paper_bleu(hypotheses, references).value
    assert found == pytest.approx(sacrebleu_of_prepared(hypotheses, references), abs=1e-9)


def test_realistic_sentences() -> None:
    score = paper_bleu(HYPOTHESES, [REFERENCES])
    assert 30 < score.value < 90
    assert score.value == pytest.approx(sacrebleu_of_prepared(HYPOTHESES, [REFERENCES]), abs=1e-9)
    # Hyphens and quotation marks make the two differ.
    assert abs(score.value - bleu(HYPOTHESES, [REFERENCES]).value) > 1


def test_typographic_and_ascii_quotes_are_equal() -> None:
    ascii_quotes = [re.sub("[„“]", '"', line) for line in REFERENCES]
    assert ascii_quotes != REFERENCES
    assert paper_bleu(ascii_quotes, [REFERENCES]).value == pytest.approx(100.0)


def test_case_counts() -> None:
    assert paper_bleu([line.lower() for line in REFERENCES], [REFERENCES]).value < 90


@settings(deadline=None, max_examples=30)
@given(corpora(references=1), st.randoms())
def test_the_order_of_the_lines_does_not_matter(texts: list[list[str]], random: Any) -> None:
    hypotheses, references = texts
    order = random.sample(range(len(hypotheses)), len(hypotheses))
    shuffled = paper_bleu([hypotheses[i] for i in order], [[references[i] for i in order]])
    assert shuffled == paper_bleu(hypotheses, [references])


def test_the_name_the_signature_and_the_explanation() -> None:
    score = paper_bleu(HYPOTHESES, [REFERENCES], test_set="wmt14/full")
    assert score.name == NAME != "BLEU"
    assert re.fullmatch(
        r"BLEU-paper\|nrefs:1\|test:wmt14/full\|case:mixed\|punct:ascii\|tok:moses-[\d.]+"
        r"\|lang:de\|hyphens:split\|smooth:none",
        score.signature,
    )
    assert "hyphens:kept" in paper_bleu(["a"], [["a"]], "fr").signature
    assert all(number in WHY_IT_DIFFERS for number in ("29.02", "27.52", "27.3"))
    assert "\n" not in WHY_IT_DIFFERS


def test_texts_that_are_not_parallel_are_refused() -> None:
    with pytest.raises(UserError, match="hypotheses has 2 lines, references 1 has 3"):
        paper_bleu(HYPOTHESES[:2], [REFERENCES])
