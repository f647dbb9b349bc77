"""The paper's BLEU: each stage equals an independent computation, the whole BLEU's definition."""

import math
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seq2seq.evaluation.paper_bleu import (
    NAME,
    WHY_IT_DIFFERS,
    paper_bleu,
    split_compounds,
    tokenize,
)

# The stages


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


LINES = st.lists(st.sampled_from("aab"), max_size=8).map(" ".join)


@settings(deadline=None, max_examples=50)
@given(
    st.integers(1, 4).flatmap(
        lambda n: st.lists(st.lists(LINES, min_size=n, max_size=n), min_size=2, max_size=4)
    )
)
def test_it_is_bleu_by_its_definition(texts: list[list[str]]) -> None:
    hypotheses, *references = texts
    split = [[line.split() for line in lines] for lines in texts]
    found = paper_bleu(hypotheses, references).value
    assert found == pytest.approx(brute_force(split[0], split[1:]), abs=1e-9)


# The whole


def test_the_name_the_signature_and_the_explanation() -> None:
    score = paper_bleu(["a"], [["a"]], test_set="wmt14/full")
    assert score.name == NAME != "BLEU"
    assert re.fullmatch(
        r"nrefs:1\|test:wmt14/full\|case:mixed\|punct:ascii\|tok:moses-[\d.]+"
        r"\|lang:de\|hyphens:split\|smooth:none",
        score.signature,
    )
    french = paper_bleu(["a"], [["a"]], "fr").signature
    assert "hyphens:kept" in french
    assert "test:" not in french
    assert all(number in WHY_IT_DIFFERS for number in ("29.02", "27.52", "27.3"))
    assert "\n" not in WHY_IT_DIFFERS
