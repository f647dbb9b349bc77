"""Statements of one clause: actions, journeys, the clock, the weather, the passive."""

from __future__ import annotations

from dataclasses import replace

import modifiers
import nouns
import places
import verbs
from clauses import Clause, english_clause, german_clause
from phrases import (
    THE,
    Common,
    Pronoun,
    Text,
    possessive,
    prepositional,
)
from sentence import Sentence, pair, simple
from speaker import Speaker


def statement(s: Speaker) -> Sentence:
    """My aunt is baking a cake."""
    return simple(s.action())


def fronted_time(s: Speaker) -> Sentence:
    """On Monday, Paul visited the zoo."""
    while True:
        clause = s.action()
        if clause.time:
            return simple(replace(clause, front="time"))


INSTRUMENTS = tuple(noun.english for noun in nouns.of_kinds(("instrument",)))


def negation(s: Speaker) -> Sentence:
    """We do not have a dog."""
    while True:
        clause = s.action()
        instrument = clause.object and clause.object.lemma in INSTRUMENTS
        counted = isinstance(clause.object, Common) and clause.object.indefinite
        plain = not counted or countable_negation(clause)
        if clause.time and clause.time.english.startswith("every"):
            continue
        if not clause.frequency and not instrument and plain and clause.tense != "may":
            return simple(replace(clause, negated=True))


def countable_negation(clause: Clause) -> bool:
    """Whether "kein" can negate the object: "a", a bare plural or a mass noun."""
    item = clause.object
    bare = isinstance(item, Common) and item.determiner.english in ("", "a")
    other_case = clause.verb.frame == "prep" or clause.verb.case == "dat"
    subject = clause.subject.determiner if isinstance(clause.subject, Common) else THE
    return bare and not other_case and subject.english != "every"


def placing(s: Speaker) -> Sentence:
    """She put the vase on the table: upright things are "gestellt", flat ones "gelegt"."""
    upright = s.chance(0.5)
    verb = verbs.special("put", "stellen" if upright else "legen")
    subject = s.speaker_or(("person",))
    item = s.common(s.pick(nouns.of_kinds(verb.objects)), s.owner(subject))
    clause = s.tensed(Clause(subject, verb, object=item, place=s.position("acc")))
    return simple(clause) if clause.tense != "present" else placing(s)


def sitting(s: Speaker) -> Sentence:
    """The cat is sleeping under the bed."""
    verb = s.pick((verbs.PLAIN[0], verbs.special("lie", "liegen"), verbs.special("sit", "sitzen")))
    pet = Common(s.pick(nouns.of_kinds(("pet",))), s.pick((THE, possessive("I"))), ())
    pet = replace(pet, adjectives=s.adjectives(pet.noun, 0.4))
    english, german, kind = s.pick(places.POSITIONS[1:2] + places.POSITIONS[3:])
    furniture = s.known((kind,), 0.4)
    where = prepositional(english, german, "dat", furniture)
    tense = s.pick(("progressive", "past"))
    clause = s.when(Clause(pet, verb, tense, place=where), 0.4)
    return simple(clause)


def residence(s: Speaker) -> Sentence:
    """We have lived in Vienna for six years."""
    subject = s.speaker_or(("adult",))
    working = s.chance(0.5)
    verb = verbs.PLAIN[1] if working else verbs.special("live", "wohnen")
    town, stadt = s.pick(places.TOWNS)
    where = Text(f"in {town}", f"in {stadt}")
    if s.chance(0.4):
        where = s.at("work") if working else s.at("live", "hotel")
    number = s.pick(modifiers.NUMBERS)
    unit = s.pick((("years", "Jahren"), ("weeks", "Wochen"), ("months", "Monaten")))
    span = Text(f"for {number[0]} {unit[0]}", f"seit {number[1]} {unit[1]}")
    if s.chance(0.3):
        clause = Clause(subject, verb, "past" if s.chance(0.4) else "present", place=where)
        return simple(clause)
    clause = Clause(subject, verb, "perfect", time=span, place=where)
    # German has the present here: what began in the past still lasts.
    german = german_clause(replace(clause, tense="present"))
    return pair(english_clause(clause), german, clause.facts())


BY = (
    ("by train", "mit dem Zug"),
    ("by bus", "mit dem Bus"),
    ("by car", "mit dem Auto"),
    ("by bicycle", "mit dem Fahrrad"),
    ("by tram", "mit der Straßenbahn"),
    ("by taxi", "mit dem Taxi"),
    ("by ship", "mit dem Schiff"),
    ("by plane", "mit dem Flugzeug"),
)


def transport(s: Speaker) -> Sentence:
    """Tomorrow we will go to Rome by train: by vehicle, "go" is "fahren"."""
    english, german = s.pick(BY)
    local = english in ("by taxi", "by tram", "by bicycle")
    verb = replace(verbs.special("drive", "fahren"), english="go", english_past="went")
    verb = replace(verb, english_participle="gone")
    if english == "by plane":
        verb = replace(verb, german="fliegen", third="fliegt", participle="geflogen")
    if not local and (s.chance(0.5) or english in ("by plane", "by ship")):
        town, stadt = s.pick(places.TOWNS)
        goal = Text(f"to {town}", f"nach {stadt}")
    else:
        goal = s.to("work", "zoo", "water", "shop")
    where = Text(f"{goal.english} {english}", f"{german} {goal.german}", goal.facts)
    return simple(s.tensed(Clause(s.speaker_or(("person",)), verb, place=where)))


def clock_time(s: Speaker) -> Sentence:
    """It is half past seven."""
    english, german = s.pick(modifiers.clocks())
    if s.chance(0.5):
        return pair(f"it is {english}", f"es ist {german}", ())
    train = Common(s.pick(nouns.of_kinds(("public",))), THE)
    tail = s.pick((("on Mondays", "montags"), ("every day", "jeden Tag"), ("tomorrow", "morgen")))
    verb = verbs.named(s.pick(("arrive", "depart")))
    tense = "future" if tail[0] == "tomorrow" else "present"
    time = Text(f"at {english} {tail[0]}", f"{tail[1]} um {german}")
    return simple(Clause(train, verb, tense, time=time))


def weather(s: Speaker) -> Sentence:
    """It will rain in Hamburg tomorrow."""
    clause = raining(s, s.pick(("progressive", "past", "future", "present")))
    town, stadt = s.pick(places.TOWNS)
    clause = s.when(replace(clause, place=Text(f"in {town}", f"in {stadt}")), 0.8)
    if clause.time and s.chance(0.3):
        clause = replace(clause, front="time")
    return simple(clause)


def raining(s: Speaker, tense: str) -> Clause:
    """It rains or snows."""
    verb = verbs.special(*s.pick((("rain", "regnen"), ("snow", "schneien"))))
    return Clause(Pronoun("it_n"), verb, tense)


def passive(s: Speaker) -> Sentence:
    """The old bridge was built last year."""
    names = "repair paint clean wash build sell open rent feed plant bake cook photograph pack"
    verb = s.pick([v for v in verbs.ACCUSATIVE if v.english in names.split() and not v.particle])
    item = s.thing(verb, Pronoun("it_n"))
    if isinstance(item, Common) and item.indefinite:
        item = replace(item, determiner=THE)
    subject = item or s.known(verb.objects)
    tense = s.pick(("passive", "passive_past", "passive_past"))
    clause = s.when(Clause(subject, verb, tense), 0.7)
    if clause.time and s.chance(0.3):
        return simple(replace(clause, front="time"))
    return simple(clause, "question", "?") if s.chance(0.15) else simple(clause)


PATTERNS = (
    (statement, 11),
    (fronted_time, 6),
    (negation, 6),
    (placing, 3),
    (sitting, 2),
    (residence, 2),
    (transport, 3),
    (clock_time, 1),
    (weather, 1),
    (passive, 2),
)
