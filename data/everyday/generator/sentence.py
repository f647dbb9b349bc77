"""A finished sentence pair and how it is punctuated."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from clauses import Clause, english_clause, german_clause
from phrases import Fact


@dataclass(frozen=True)
class Sentence:
    """One pair with the lemma pairs that meet in it and the name of its pattern."""

    english: str
    german: str
    facts: tuple[Fact, ...]
    pattern: str = ""


def polish(text: str, end: str) -> str:
    """Capital letter, single commas, final mark."""
    text = re.sub(r"\s+", " ", text).strip().replace(" ,", ",")
    text = re.sub(r",(\s*,)+", ",", text)
    text = text.rstrip(", ")
    return text[0].upper() + text[1:] + end


def pair(english: str, german: str, facts: Iterable[Fact], end: str = ".") -> Sentence:
    """A sentence from its two halves."""
    return Sentence(polish(english, end), polish(german, end), tuple(facts))


def simple(clause: Clause, order: str = "main", end: str = ".", german: str = "") -> Sentence:
    """A sentence of one clause."""
    return pair(
        english_clause(clause, order),
        german_clause(clause, german or order),
        clause.facts(),
        end,
    )


def joined(
    first: Clause, english: str, german: str, second: Clause, order: str = "sub"
) -> Sentence:
    """Two clauses around a conjunction; German puts a comma before all but "und"."""
    comma = "," if english in ("but", "and") else ""
    german_comma = "" if english == "and" else ","
    return pair(
        f"{english_clause(first)}{comma} {english} {english_clause(second)}",
        f"{german_clause(first)}{german_comma} {german} {german_clause(second, order)}",
        (*first.facts(), *second.facts()),
    )


def opened(english: str, german: str, first: Clause, second: Clause) -> Sentence:
    """A subordinate clause first, then the main clause, whose verb German puts at its head."""
    return pair(
        f"{english} {english_clause(first)}, {english_clause(second)}",
        f"{german} {german_clause(first, 'sub')}, {german_clause(second, 'question')}",
        (*first.facts(), *second.facts()),
    )
