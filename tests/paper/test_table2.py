"""The paper's BLEU: each stage equals an independent computation, the whole BLEU's definition."""

import math
import re

import pytest

from seq2seq.paper.table2 import NAME, paper_bleu, prepare, split_compounds, tokenize

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


@pytest.mark.parametrize(
    ("tokens", "hyphens"),
    [("ab-ü3 .", "ab@ü3 ."), ("A-B-Waffen", "A@B-Waffen"), ("- a -b c- .-", "- a -b c- .-"),
     ("a--b", "a@-b"), ("3-4-.", "3@4-."), ("ab-cd-ef", "ab@cd@ef")],
)  # fmt: skip
def test_compounds_are_split_at_hyphens_between_characters(tokens: str, hyphens: str) -> None:
    assert split_compounds(tokens) == hyphens.replace("@", " ##AT##-##AT## ")


def test_compounds_are_split_in_german_alone() -> None:
    assert prepare("Nord-Süd", "de") == "Nord ##AT##-##AT## Süd"
    assert prepare("Nord-Sud", "fr") == "Nord-Sud"


# The counting


def test_it_is_bleu_by_its_definition_without_smoothing() -> None:
    references = [["a b c d y e f"], ["z z z z z z z z z"]]  # the first is closer in length
    found = paper_bleu(["a b c d x e"], references).value
    product = 5 / 6 * 3 / 5 * 2 / 4 * 1 / 3  # one to four tokens
    assert found == pytest.approx(100 * math.exp(1 - 7 / 6) * product**0.25)
    assert paper_bleu(["a b c x"], [["a b c y"]]).value == 0.0  # no four tokens are right


# The whole


def test_the_signature_names_every_choice() -> None:
    score = paper_bleu(["a"], [["a"]])
    assert score.name == NAME != "BLEU"
    assert re.fullmatch(
        r"nrefs:1\|case:mixed\|punct:ascii\|tok:moses-[\d.]+"
        r"\|lang:de\|hyphens:split\|smooth:none",
        score.signature,
    )
    french = paper_bleu(["a"], [["a"]], "fr").signature
    assert "hyphens:kept" in french
