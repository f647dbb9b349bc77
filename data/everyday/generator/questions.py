"""Questions, commands and what one says to people by name."""

from __future__ import annotations

from dataclasses import replace

import german
import modifiers
import verbs
from clauses import Clause, english_clause, german_clause, german_middle, reflexive
from phrases import (
    WHICH,
    Common,
    Determiner,
    Pronoun,
    Question,
    Text,
)
from sentence import Sentence, pair, simple
from speaker import Speaker


def yes_no(s: Speaker) -> Sentence:
    """Did you close the window?"""
    while True:
        clause = s.action()
        if clause.subject.person not in (0, 1) or (clause.subject.person and clause.tense != "may"):
            return simple(clause, "question", "?")


def ask_object(s: Speaker) -> Sentence:
    """What is your brother reading?"""
    while True:
        clause = s.action(verb=s.pick(verbs.ACCUSATIVE))
        # Without its object "paint" could be "malen" or "streichen".
        if clause.subject.person == 0 or clause.verb.english == "paint":
            continue
        kinds = ("person", "baby", "family", "pet", "animal", "stranger", "place")
        human = "person" in clause.verb.objects
        other = any(kind in clause.verb.objects for kind in kinds)
        if (
            clause.subject.person == 0
            or clause.frequency
            or human != other
            or clause.verb.english in ("like", "have")
        ):
            continue
        question = replace(clause, object=Question(human), front="object")
        return simple(question, "question", "?", german="main")


def ask_subject(s: Speaker) -> Sentence:
    """Who has repaired the old bicycle?"""
    return simple(s.action(Question(human=True), s.human_verb()), "main", "?")


def ask_circumstance(s: Speaker) -> Sentence:
    """When will the guests arrive? Why are you crying?"""
    word = s.pick((("when", "wann"), ("why", "warum"), ("where", "wo")))
    while True:
        clause = replace(s.action(verb=s.human_verb()), frequency=None, manner=None)
        if clause.subject.person == 0:
            continue
        if word[0] == "where":
            clause = replace(clause, place=Text(*word), time=None)
        elif word[0] == "when" and clause.tense not in ("past", "future", "should", "can", "must"):
            continue
        else:
            clause = replace(clause, time=Text(*word))
        front = "place" if word[0] == "where" else "time"
        if clause.tense not in ("perfect", "present"):
            return simple(replace(clause, front=front), "question", "?", german="main")


def ask_destination(s: Speaker) -> Sentence:
    """Where are you travelling next week?"""
    while True:
        clause = s.tensed(s.moving())
        if clause.tense in ("past", "progressive", "future", "want", "must") and (
            clause.verb.english != "come"
        ):
            going = replace(clause, place=Text("where", "wohin"), front="place")
            return simple(going, "question", "?", german="main")


def ask_which(s: Speaker) -> Sentence:
    """Which book is the teacher reading?"""
    while True:
        clause = s.action(verb=s.pick(verbs.ACCUSATIVE))
        item = clause.object
        if not isinstance(item, Common) or item.noun.mass or clause.frequency:
            continue
        if clause.subject.person == 0:
            continue
        if any(k in item.noun.kinds for k in ("family", "instrument", "subject", "person")):
            continue
        adjectives = item.adjectives if s.chance(0.4) else ()
        which = Common(item.noun, WHICH, adjectives, item.plural)
        asked = replace(clause, object=which, front="object")
        return simple(asked, "question", "?", german="main")


def ask_how_many(s: Speaker) -> Sentence:
    """How many eggs do we need?"""
    while True:
        clause = s.action(verb=s.pick(verbs.ACCUSATIVE))
        item = clause.object
        if isinstance(item, Common) and item.plural and not clause.frequency:
            many = Common(item.noun, Determiner("how many", "wie viele"), (), plural=True)
            asked = replace(clause, object=many, front="object")
            return simple(asked, "question", "?", german="main")


def command(s: Speaker) -> Sentence:
    """Please open the window! Mr. Weber, please wait for us! Children, tidy up the kitchen!"""
    address, english_name, german_name = s.pick(
        (
            ("you", "", ""),
            ("you", *named(s.pick(modifiers.MEN + modifiers.WOMEN))),
            ("you_formal", *titled(s)),
            ("you_all", "children,", "Kinder,"),
        )
    )
    clause = order_clause(s, address)
    please = s.chance(0.5)
    english_head = "please " if please else ""
    if clause.negated:
        english = english_clause(replace(clause, negated=False), "bare")
        english = f"{english_name} {english_head}do not {english}"
    else:
        english = f"{english_name} {english_head}{english_clause(clause, 'bare')}"
    spoken = f"{german_name} {german_imperative(clause, address, please)}"
    return pair(english, spoken, clause.facts(), "!")


def named(name: str) -> tuple[str, str]:
    """A first name as an address."""
    return f"{name},", f"{name},"


def titled(s: Speaker) -> tuple[str, str]:
    """A surname as an address."""
    surname = s.pick(modifiers.SURNAMES)
    return s.pick(
        ((f"Mr. {surname},", f"Herr {surname},"), (f"Mrs. {surname},", f"Frau {surname},"))
    )


def order_clause(s: Speaker, address: str) -> Clause:
    """What one can ask somebody to do."""
    while True:
        clause = s.bare(Pronoun(address), s.human_verb(willed=True))
        item = clause.object
        if any(isinstance(x, Pronoun) and x.key == "you" for x in (item, clause.recipient)):
            continue
        if isinstance(item, Common) and item.plural and item.indefinite:
            continue
        if clause.verb.english == "arrive":
            continue
        definite = item is None or not item.indefinite
        definite = definite and clause.recipient is None
        return replace(clause, negated=definite and s.chance(0.2))


def german_imperative(clause: Clause, address: str, please: bool) -> str:
    """The imperative: the verb, "Sie" in formal address, "bitte", and the rest."""
    form = german.imperative(clause.verb, address)
    parts = [form, "Sie" if address == "you_formal" else "", reflexive(clause)]
    middle = german_middle(clause)
    parts += [*middle[:2], "bitte" if please else "", *middle[2:], clause.verb.prefix.strip()]
    return " ".join(filter(None, parts))


def formal_question(s: Speaker) -> Sentence:
    """Mrs. Klein, can you help my brother?"""
    english_name, german_name = titled(s)
    you = Pronoun("you_formal")
    while True:
        clause = s.action(you, s.human_verb())
        if clause.tense == "may":
            continue
        items = (clause.object, clause.recipient)
        if any(isinstance(item, Pronoun) and item.key == "you" for item in items):
            continue
        return pair(
            f"{english_name} {english_clause(clause, 'question')}",
            f"{german_name} {german_clause(clause, 'question')}",
            clause.facts(),
            "?",
        )


PATTERNS = (
    (yes_no, 4),
    (ask_object, 2),
    (ask_subject, 2),
    (ask_circumstance, 3),
    (ask_destination, 1),
    (ask_which, 1),
    (ask_how_many, 1),
    (command, 4),
    (formal_question, 2),
)
