"""How things are: qualities, comparisons, professions, where things stand, whose they are."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import modifiers
import nouns
import places
import verbs
from clauses import Clause
from modifiers import ADJECTIVES
from phrases import (
    THE,
    A,
    Common,
    Determiner,
    Name,
    Text,
    possessive,
)
from sentence import Sentence, pair, simple
from speaker import Speaker, suiting
from words import Noun

BE = verbs.special("be", "sein")


FEMININE = {
    "teacher": "Lehrerin",
    "doctor": "Ärztin",
    "dentist": "Zahnärztin",
    "cook": "Köchin",
    "singer": "Sängerin",
    "writer": "Schriftstellerin",
    "journalist": "Journalistin",
    "engineer": "Ingenieurin",
    "lawyer": "Anwältin",
    "judge": "Richterin",
    "pilot": "Pilotin",
    "gardener": "Gärtnerin",
    "painter": "Malerin",
    "baker": "Bäckerin",
}


def description(s: Speaker) -> Sentence:
    """The soup is too hot."""
    adjective = s.pick(ADJECTIVES)
    noun = s.pick(described(adjective.kinds))
    determiner = s.pick((THE, THE, possessive(s.pick(("I", "you", "he", "she", "we")))))
    if "family" in noun.kinds or "owned" in noun.kinds:
        determiner = possessive("she")
    elif noun.mass or "animal" in noun.kinds or "place" in noun.kinds or "person" in noun.kinds:
        determiner = THE
    plural = "pair" in noun.kinds or (not noun.mass and s.chance(0.2))
    owner = Name(s.pick(modifiers.WOMEN)) if determiner is not THE and s.chance(0.3) else None
    subject = Common(noun, determiner, (), plural, owner)
    degree = s.pick(("", "very", "too")) if adjective.gradable else ""
    clause = s.being(subject, adjective, s.pick(("present", "present", "past")), degree)
    negated = not degree and s.chance(0.3)
    clause = replace(clause, negated=negated)
    return simple(clause, "question", "?") if s.chance(0.15) else simple(clause)


@cache
def described(kinds: tuple[str, ...]) -> tuple[Noun, ...]:
    """The nouns and places of some kinds."""
    found = nouns.of_kinds(kinds)
    return (*found, *(place.noun for place in places.of_kinds(*kinds)))


def comparison(s: Speaker) -> Sentence:
    """Your car is faster than our bus; as old as; not as big as."""
    adjective = s.pick([a for a in ADJECTIVES if a.gradable])
    options = described(adjective.kinds)
    first = s.pick(options)
    second = s.pick([noun for noun in options if noun.kinds[:2] == first.kinds[:2]])
    subject = compared(s, first, "I")
    other = compared(s, second, "you")
    if first == second and subject.determiner == other.determiner:
        return comparison(s)
    if s.chance(0.6):
        english, word = f"{adjective.english_degrees[0]} than", "als"
        german = f"{adjective.german_degrees[0]} als"
        negated = s.chance(0.1)
    else:
        english, word = f"as {adjective.english} as", "wie"
        german, negated = f"so {adjective.german} {word}", s.chance(0.5)
    facts = (
        ("adjective", adjective.english, first.english),
        ("adjective", adjective.english, second.english),
    )
    complement = Text(
        f"{english} {other.english(subject=True)}", f"{german} {other.german('nom')}", facts
    )
    tense = "present" if s.chance(0.8) else "past"
    return simple(Clause(subject, BE, tense, complement=complement, negated=negated))


WORLD = {
    "place": ("live",),
    "structure": ("live",),
    "dwelling": ("live",),
    "beast": ("zoo",),
    "tree": ("green",),
    "fruit": ("shop",),
    "vegetable": ("shop",),
}


def compared(s: Speaker, noun: Noun, owner: str) -> Common:
    """One side of a comparison."""
    loose = noun.mass or any(
        kind in noun.kinds for kind in ("animal", "place", "weather", "structure", "show")
    )
    determiner = THE if loose else possessive(owner)
    if "person" in noun.kinds and not any(k in noun.kinds for k in ("family", "friend", "owned")):
        determiner = THE
    if "owned" in noun.kinds:
        determiner = possessive("she")
    adjectives = s.adjectives(noun, 0.12) if noun.kinds[0] == "thing" else ()
    return Common(noun, determiner, adjectives, "pair" in noun.kinds)


def superlative(s: Speaker) -> Sentence:
    """This is the oldest tree in the park."""
    adjective = s.pick([a for a in ADJECTIVES if a.gradable])
    options = [n for n in described(adjective.kinds) if not n.mass and "weather" not in n.kinds]
    options = [n for n in options if not any(k in n.kinds for k in ("person", "baby", "stranger"))]
    if not options:
        return superlative(s)
    noun = s.pick(options)
    scene = next((WORLD[kind] for kind in noun.kinds if kind in WORLD), ())
    where = s.at(*scene) if scene and s.chance(0.7) else None
    determiner = THE if where or s.chance(0.5) else possessive(s.pick(("I", "he", "she", "we")))
    if scene:
        determiner = THE
    best = Common(noun, determiner, ((adjective, 2),), "pair" in noun.kinds, modifier=where)
    if best.plural:
        english = f"these are {best.english(subject=True)}"
        return pair(english, f"das sind {best.german('nom')}", best.facts())
    return pair(
        f"this is {best.english(subject=True)}", f"das ist {best.german('nom')}", best.facts()
    )


def profession(s: Speaker) -> Sentence:
    """Anna is a famous singer: German names the woman's profession by its feminine."""
    woman = s.chance(0.55)
    name = Name(s.pick(modifiers.WOMEN if woman else modifiers.MEN))
    english = s.pick(tuple(FEMININE))
    noun = nouns.BY_ENGLISH[english]
    if woman:
        noun = replace(noun, german=FEMININE[english], gender="f")
    kind = s.pick([a for a in suiting(noun) if a.english not in modifiers.STATES.split()])
    job = Common(noun, A, ((kind, 0),))
    complement = Text(job.english(subject=False), job.german("nom"), tuple(job.facts()))
    tense = "present" if s.chance(0.7) else "past"
    return simple(Clause(name, BE, tense, complement=complement))


COUNTS = (Determiner("many", "viele"), Determiner("several", "mehrere"))


def existence(s: Speaker) -> Sentence:
    """There are three cinemas in the city."""
    place = s.pick(places.of_kinds("town", "eat", "shop", "stop", "work"))
    where = s.at("live")
    single = s.chance(0.5)
    determiner = A if single else s.pick((Determiner(*s.pick(modifiers.NUMBERS[:5])), *COUNTS))
    phrase = Common(place.noun, determiner, s.adjectives(place.noun, 0.7), not single)
    past = s.chance(0.25)
    head = ("was" if past else "is") if single else ("were" if past else "are")
    english = f"there {head} {phrase.english(subject=False)} {where.english}"
    verb = "gab" if past else "gibt"
    german = f"es {verb} {phrase.german('acc')} {where.german}"
    return pair(english, german, (*phrase.facts(), *where.facts))


def resting(s: Speaker) -> Sentence:
    """The books are on the shelf: German says how they are there, lying or standing."""
    lying = s.chance(0.5)
    noun = s.pick(nouns.of_kinds(("flat" if lying else "upright",)))
    verb = replace(
        verbs.special("lie", "liegen") if lying else verbs.special("stand", "stehen"),
        english="be",
        english_past="was",
        marks=("state", "preterite"),
    )
    owner = s.pick(("I", "you", "he", "she", "we", "they"))
    determiner = possessive(owner) if s.chance(0.4) else THE
    subject = Common(noun, determiner, s.adjectives(noun), s.chance(0.25))
    clause = Clause(subject, verb, "past" if s.chance(0.3) else "present", place=s.position("dat"))
    clause = replace(clause, negated=s.chance(0.15))
    return simple(clause, "question", "?") if s.chance(0.15) else simple(clause)


def possession(s: Speaker) -> Sentence:
    """The teacher's car is broken: first names stand before the noun, others behind it."""
    owner = s.someone()
    if isinstance(owner, Name) and owner.title:
        owner = Name(s.pick(modifiers.MEN))
    if isinstance(owner, Common):
        owner = replace(owner, adjectives=(), plural=False)
        owner = replace(owner, determiner=THE if owner.indefinite else owner.determiner)
    adjective = s.pick(ADJECTIVES)
    kinds = ("device", "owned_vehicle", "clothing", "pet", "dwelling", "instrument", "gift")
    options = [n for n in nouns.of_kinds(kinds) if n in described(adjective.kinds)]
    noun = s.pick(options or nouns.of_kinds(("pet",)))
    adjective = s.pick([a for a in ADJECTIVES if any(k in nouns.names(noun) for k in a.kinds)])
    subject = Common(noun, THE, (), owner=owner)
    clause = s.being(subject, adjective, s.pick(("present", "past")))
    if s.chance(0.4):
        verb = verbs.named(s.pick(("photograph", "see")))
        acting = s.pick(
            [n for n in modifiers.WOMEN if not isinstance(owner, Name) or n != owner.name]
        )
        item = replace(subject, adjectives=((adjective, 0),))
        clause = s.when(Clause(Name(acting), verb, "past", object=item), 0.6)
    return simple(clause)


PATTERNS = (
    (description, 3),
    (comparison, 3),
    (superlative, 2),
    (profession, 1),
    (existence, 2),
    (resting, 3),
    (possession, 2),
)
