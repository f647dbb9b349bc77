"""The speaker: chooses phrases and clauses that make sense."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import TypeVar

import modifiers
import nouns
import places
import verbs
from clauses import MODALS, Clause
from modifiers import ADJECTIVE, ADJECTIVES
from phrases import (
    EVERY,
    INSTRUMENT,
    MANY,
    SEVERAL,
    SOME,
    THE,
    THIS,
    ZERO,
    A,
    Common,
    Determiner,
    Name,
    Pair,
    Phrase,
    Pronoun,
    Question,
    Relative,
    Text,
    possessive,
    prepositional,
)
from words import Adjective, Noun, Place, Verb

Item = TypeVar("Item")
COLOURS = ("red", "blue", "green", "yellow", "white", "black", "brown", "grey")
FIRST_OF_TWO = ("old", "new", "big", "small", "beautiful", "expensive", "cheap", "warm", "long")
PRONOUN_SUBJECTS = ("I", "you", "he", "she", "we", "they")
PAST = ("past", "pluperfect", "passive_past", "was able", "was allowed", "wanted", "had")
PRESENT_MODALS = tuple(name for name, row in MODALS.items() if row[3] == "present")
PAST_MODALS = tuple(name for name, row in MODALS.items() if row[3] == "past")
SEVERAL_AT_ONCE: tuple[str, ...] = (
    "fruit",
    "vegetable",
    "collectable",
    "colourful_plant",
    "baked",
    "animal",
    "readable",
)
SEVERAL_AT_ONCE += ("dish", "cutlery", "problem", "mistake", "clothing", "study", "seat", "thing")
# People whom one calls somebody's rather than "the".
CLOSE = ("friend", "neighbour", "colleague", "boss")
DUTIES = ("work", "hurry", "get up", "go shopping", "tidy up")
WISHES = ("sleep", "rest", "go for a walk", "dance", "go shopping", "watch television", "hike")
# What people do when they feel a certain way, so that reasons and conditions make sense.
MOODS = {
    "tired": ("sleep", "rest", "fall asleep", "drink", "go home"),
    "happy": ("laugh", "smile", "sing", "dance", "hug", "invite", "thank", "praise"),
    "sad": ("cry", "call up", "write", "talk to", "hug", "listen to", "look at"),
    "ill": ("sleep", "rest", "call up", "drink", "go home", "cough"),
    "hungry": ("eat", "cook", "order", "bake", "go shopping", "peel", "have breakfast"),
    "thirsty": ("drink", "order drink"),
    "curious": ("open", "read", "visit", "talk to", "follow", "learn", "listen to", "watch"),
    "nervous": ("cough", "prepare", "hurry", "go for a walk", "talk about", "tidy up"),
    "angry": ("complain about", "throw away", "close", "go home", "write", "go for a walk"),
    "raining": ("watch television", "read", "sleep", "play", "bake", "tidy up", "drink", "cook"),
}
SCENES: dict[str, tuple[str, ...]] = {
    "sleep": ("bedroom", "living room", "garden"),
    "work": ("work",),
    "laugh": ("classroom", "theatre", "cinema"),
    "dance": ("kitchen", "park", "street", "hotel"),
    "sing": ("church", "bathroom", "garden", "street", "park"),
    "swim": ("water", "pool"),
    "hike": ("forest",),
    "have breakfast": ("eat", "kitchen", "garden"),
    "rest": ("garden", "park", "hotel", "living room", "beach"),
    "eat": ("kitchen", "garden", "park", "restaurant"),
    "drink": ("eat", "kitchen", "garden"),
    "order": ("restaurant", "hotel", "café"),
    "buy": ("market", "supermarket"),
    "read": ("garden", "park", "library", "living room"),
    "write": ("library", "office", "café"),
    "repair": ("garage", "cellar", "garden"),
    "meet": ("town", "eat", "stop", "green"),
    "see": ("stop", "shop", "street", "park"),
    "wait for": ("stop", "hall"),
    "look for": ("room", "garden"),
    "lose": ("town", "green", "outdoors", "shop"),
    "find": ("green", "street", "cellar"),
    "get to know": ("university", "work", "eat"),
    "bark": ("garden", "street"),
    "play with": ("garden", "park", "living room"),
    "hide": ("cellar", "garden", "bedroom"),
    "learn": ("school", "university"),
}


def past(clause: Clause) -> bool:
    """Whether the clause is about the past."""
    return clause.tense in PAST


@cache
def suiting(noun: Noun) -> tuple[Adjective, ...]:
    """The adjectives that make sense with a noun."""
    return tuple(a for a in ADJECTIVES if any(kind in nouns.names(noun) for kind in a.kinds))


class Speaker:
    """Chooses, from one stream of random numbers, what to say."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def chance(self, probability: float) -> bool:
        """Whether something of this probability happens."""
        return self.rng.random() < probability

    def pick(self, items: Sequence[Item]) -> Item:
        """One of the items."""
        return items[self.rng.randrange(len(items))]

    def text(self, items: Sequence[tuple[str, str]]) -> Text:
        """One of the rows of a table."""
        return Text(*self.pick(items))

    # Noun phrases.

    def adjectives(self, noun: Noun, odds: float = 0.45) -> tuple[tuple[Adjective, int], ...]:
        """No adjective, one that suits the noun, or two of which the second is a colour."""
        suitable = suiting(noun)
        if not suitable or not self.chance(odds):
            return ()
        first = self.pick(suitable)
        colours = [a for a in suitable if a.english in COLOURS]
        if first.english in FIRST_OF_TWO and colours and self.chance(0.4):
            return ((first, 0), (self.pick(colours), 0))
        return ((first, 0),)

    def determiner(self, noun: Noun, owner: str) -> tuple[Determiner, bool]:
        """A determiner and whether the noun is plural; `owner` keys the possessive."""
        mine = possessive(owner or "I")
        if "instrument" in noun.kinds:
            return INSTRUMENT, False
        if "subject" in noun.kinds:
            return ZERO, False
        if "family" in noun.kinds or "owned" in noun.kinds:
            return mine, False
        if any(kind in noun.kinds for kind in ("weather", "weather_mass", "beast")):
            return THE, "beast" in noun.kinds and self.chance(0.3)
        roll = self.rng.random()
        several = any(kind in SEVERAL_AT_ONCE for kind in noun.kinds)
        if noun.mass:
            return (ZERO if roll < 0.6 else THE if roll < 0.9 or not owner else mine), False
        if "pair" in noun.kinds:
            return (THE if roll < 0.3 else mine if roll < 0.7 and owner else ZERO), True
        if roll < 0.32:
            return A, False
        if roll < 0.56:
            return THE, False
        if roll < 0.74:
            return (mine if owner else THE), self.chance(0.15)
        if roll < 0.80:
            return THIS, self.chance(0.3)
        if not several:
            return (A, False) if roll < 0.9 else (THE, True)
        if roll < 0.88:
            return ZERO, True
        number = Determiner(*self.pick(modifiers.NUMBERS[:5]))
        return self.pick((MANY, SOME, SEVERAL, number, number)), True

    def common(self, noun: Noun, owner: str = "", odds: float = 0.45) -> Common:
        """A phrase around a noun."""
        determiner, plural = self.determiner(noun, owner)
        bare = determiner == INSTRUMENT or "subject" in noun.kinds
        return Common(noun, determiner, () if bare else self.adjectives(noun, odds), plural)

    def known(self, kinds: tuple[str, ...], odds: float = 0.3) -> Common:
        """A definite singular phrase."""
        noun = self.pick(nouns.of_kinds(kinds))
        return Common(noun, THE, self.adjectives(noun, odds), "pair" in noun.kinds)

    def someone(self, kinds: tuple[str, ...] = ("person",), owner: str = "I") -> Phrase:
        """A person in the third person: a name, a relative, or somebody by occupation."""
        roll = self.rng.random()
        if roll < 0.22:
            man = self.chance(0.5)
            name = self.pick(modifiers.MEN if man else modifiers.WOMEN)
            return Name(name, sex="he" if man else "she")
        if roll < 0.28:
            man = self.chance(0.5)
            title = "Mr." if man else "Mrs."
            return Name(self.pick(modifiers.SURNAMES), title, "he" if man else "she")
        if roll < 0.5:
            family = nouns.of_kinds(("family",))
            if "adult" in kinds:
                family = tuple(noun for noun in family if "adult" in noun.kinds)
            noun = self.pick(family)
            return Common(noun, possessive(owner), self.adjectives(noun, 0.12))
        noun = self.pick(nouns.of_kinds(kinds))
        if "family" in noun.kinds or "owned" in noun.kinds:
            owner = owner if "family" in noun.kinds or owner in ("she",) else "she"
            return Common(noun, possessive(owner), self.adjectives(noun, 0.12))
        roll = self.rng.random()
        if noun.english in CLOSE or (roll < 0.15 and "friend" in noun.kinds):
            return Common(noun, possessive(owner), self.adjectives(noun, 0.35))
        determiner = THE if roll < 0.8 else A if roll < 0.87 else EVERY if roll < 0.89 else THIS
        plural = determiner is THE and self.chance(0.18)
        return Common(noun, determiner, self.adjectives(noun, 0.35), plural)

    def subject(self, verb: Verb) -> Phrase:
        """A subject of a kind that the verb allows."""
        kinds = verb.subjects
        human = [kind for kind in kinds if kind in ("person", "adult")]
        if human and (len(kinds) == 1 or self.chance(0.7)):
            return self.speaker_or(tuple(human))
        noun = self.pick(nouns.of_kinds(tuple(k for k in kinds if k not in human) or kinds))
        if "pet" in noun.kinds and self.chance(0.4):
            return Common(noun, possessive(self.pick(("I", "we", "he", "she"))), ())
        mass = noun.mass or "pair" in noun.kinds
        plural = not noun.mass and ("pair" in noun.kinds or self.chance(0.15))
        determiner = THE if mass or self.chance(0.85) else THIS
        return Common(noun, determiner, self.adjectives(noun, 0.35), plural)

    def speaker_or(self, kinds: tuple[str, ...]) -> Phrase:
        """A person who acts: a pronoun, somebody, or two people."""
        roll = self.rng.random()
        if roll < 0.3:
            return Pronoun(self.pick(PRONOUN_SUBJECTS))
        if roll < 0.36:
            first, second = self.pick(modifiers.WOMEN), self.pick(modifiers.MEN)
            return Pair(Name(first, sex="she"), Name(second, sex="he"))
        if roll < 0.39:
            boys, girls = nouns.of_kinds(("family",))[0::2], nouns.of_kinds(("family",))[1::2]
            mine = possessive("I")
            return Pair(Common(self.pick(boys), mine), Common(self.pick(girls), mine))
        return self.someone(kinds)

    def again(self, phrase: Phrase) -> Pronoun | None:
        """The pronoun that takes a phrase up again, or None where usage wavers."""
        if isinstance(phrase, Pronoun):
            return phrase
        if isinstance(phrase, Common):
            return Pronoun(phrase.it, phrase.lemma) if phrase.it else None
        if isinstance(phrase, Relative):
            sex = "they" if phrase.plural else phrase.noun.sex
            return Pronoun(sex, phrase.lemma) if sex else None
        if isinstance(phrase, Question):
            return None
        if isinstance(phrase, Name):
            return Pronoun(phrase.sex)
        return Pronoun("we" if phrase.person == 3 else "they")

    def owner(self, subject: Phrase) -> str:
        """The key of the possessive that refers to the subject."""
        pronoun = self.again(subject)
        return pronoun.key if pronoun and not pronoun.key.startswith("it_") else ""

    def thing(self, verb: Verb, subject: Phrase) -> Phrase | None:
        """An object of a kind that the verb allows."""
        if not verb.objects:
            return None
        owner = self.owner(subject)
        kind = self.pick(verb.objects)
        if kind in ("person", "adult"):
            if self.chance(0.2):
                key = self.pick(tuple(k for k in PRONOUN_SUBJECTS if k != owner))
                if not self.same_speaker(key, subject):
                    return Pronoun(key)
            phrase = self.someone((kind,), owner or "I")
            clash = phrase.lemma and phrase.lemma == subject.lemma
            return self.known(("worker",)) if clash or self.named_twice(phrase, subject) else phrase
        if kind in ("room", "town", "place") or (kind == "zoo" and verb.english == "visit"):
            place = self.pick(places.of_kinds(kind))
            adjectives = self.adjectives(place.noun, 0.3)
            idle = any(adjective.english == verb.english for adjective, _ in adjectives)
            return Common(place.noun, THE, () if idle else adjectives)
        noun = self.pick(nouns.of_kinds((kind,)))
        if verb.english == "like" and not noun.mass and "person" not in noun.kinds:
            return Common(noun, self.pick((THE, THIS)), self.adjectives(noun, 0.4))
        if noun.english == subject.lemma:
            return self.known(("worker",))
        item = self.common(noun, owner)
        idle = any(adjective.english == verb.english for adjective, _ in item.adjectives)
        return replace(item, adjectives=()) if idle else item

    def named_twice(self, phrase: Phrase, subject: Phrase) -> bool:
        """Whether the two phrases share a name."""
        names = [p for p in (subject, getattr(subject, "first", None)) if p is not None]
        names.append(getattr(subject, "second", subject))
        return isinstance(phrase, Name) and phrase in names

    def same_speaker(self, key: str, subject: Phrase) -> bool:
        """Whether a pronoun would overlap with the subject ("I see us")."""
        first, second = ("I", "we"), ("you", "you_all")
        mine = subject.key if isinstance(subject, Pronoun) else ""
        mine = "we" if subject.person == 3 else mine
        possessed = isinstance(subject, Common) and subject.determiner == possessive(key)
        return possessed or any(key in group and mine in group for group in (first, second))

    # Places and times.

    def at(self, *kinds: str) -> Text:
        """Where something happens."""
        return self.located(self.place(*kinds))

    def place(self, *kinds: str) -> Place:
        """A place of one of the kinds, or one by its name."""
        names = tuple(kind.replace(" ", "_") for kind in kinds)
        return self.pick([p for p in places.PLACES if any(k in nouns.names(p.noun) for k in names)])

    def located(self, place: Place) -> Text:
        """Where something happens, as a phrase."""
        phrase = Common(place.noun, THE, self.adjectives(place.noun, 0.3))
        return prepositional(place.english_at, place.german_at, "dat", phrase)

    def to(self, *kinds: str) -> Text:
        """Where somebody goes."""
        place = self.place(*kinds)
        phrase = Common(place.noun, THE, self.adjectives(place.noun, 0.25))
        return prepositional(place.english_to, place.german_to, place.german_to_case, phrase)

    def position(self, case: str) -> Text:
        """A place in a room: dative where something is, accusative where it goes."""
        english, german, kind = self.pick(places.POSITIONS)
        noun = self.pick(nouns.of_kinds((kind,)))
        return prepositional(english, german, case, Common(noun, THE, self.adjectives(noun, 0.3)))

    def when(self, clause: Clause, odds: float = 0.55) -> Clause:
        """The clause with a time that suits its tense."""
        if not self.chance(odds) or "state" in clause.verb.marks:
            return clause
        dated = self.chance(0.4)
        part = self.pick(modifiers.dated_times())
        if clause.tense == "past" or clause.tense in ("passive_past", *PAST_MODALS):
            times = part if dated else modifiers.past_times()
        elif clause.tense == "future" or clause.tense in PRESENT_MODALS:
            times = part if dated else modifiers.future_times()
        elif clause.tense == "present":
            times = modifiers.habitual_times()
        else:
            return clause
        return replace(clause, time=self.text(times))

    # Clauses.

    def tensed(self, clause: Clause) -> Clause:
        """The clause with a tense and what belongs to it."""
        verb = clause.verb
        roll = self.rng.random()
        if "state" in verb.marks:
            return replace(clause, tense="present" if roll < 0.75 else "past")
        if roll < 0.4 and "past_only" not in verb.marks:
            ambiguous = verb.english_past == verb.english and clause.subject.english_person != 2
            if roll < 0.22 or ambiguous:
                return replace(clause, tense="progressive")
            return self.habit(replace(clause, tense="present"))
        if roll < 0.7:
            return self.when(replace(clause, tense="past"))
        if roll < 0.76:
            adverb = self.text((("already", "schon"), ("just", "gerade"), ("never", "noch nie")))
            return replace(clause, tense="perfect", frequency=adverb)
        if roll < 0.86:
            return self.when(replace(clause, tense="future"))
        modals = PRESENT_MODALS if self.chance(0.7) else PAST_MODALS
        human = any(kind in ("person", "adult", "child") for kind in verb.subjects)
        human = human and "unwilled" not in verb.marks
        return self.when(replace(clause, tense=self.pick(modals) if human else "past"), 0.4)

    def habit(self, clause: Clause) -> Clause:
        """What somebody does regularly: how often, when, or both."""
        roll = self.rng.random()
        if roll < 0.4:
            return replace(clause, frequency=self.text(modifiers.FREQUENCY))
        if roll < 0.6:
            often = self.pick(
                (("often", "oft"), ("sometimes", "manchmal"), ("usually", "meistens"))
            )
            return replace(clause, frequency=Text(*often), time=self.text(modifiers.loose_times()))
        return self.when(clause, 1.0)

    def verb(self) -> Verb:
        """Any verb of the ordinary frames."""
        roll = self.rng.random()
        tables = (verbs.PLAIN, verbs.WITH_DATIVE, verbs.DITRANSITIVE, verbs.WITH_PREPOSITION)
        bounds = (0.16, 0.24, 0.34, 0.45)
        for bound, table in zip(bounds, tables, strict=True):
            if roll < bound:
                return self.pick(table)
        return self.pick(verbs.ACCUSATIVE)

    def human_verb(self, timed: bool = True, willed: bool = False) -> Verb:
        """A verb for people: `timed` names an event, not a state; `willed` can be intended."""
        while True:
            verb = self.verb()
            if not any(kind in ("person", "adult") for kind in verb.subjects):
                continue
            if willed and ("unwilled" in verb.marks or "past_only" in verb.marks):
                continue
            if not timed or "state" not in verb.marks:
                return verb

    def bare(self, subject: Phrase | None = None, verb: Verb | None = None) -> Clause:
        """A clause without tense: subject, verb, objects, manner and scene."""
        verb = verb or (self.human_verb(timed=False) if subject else self.verb())
        subject = subject or self.subject(verb)
        clause = Clause(subject, verb, object=self.thing(verb, subject))
        if verb.frame == "give":
            recipient = self.someone(owner=self.owner(subject) or "I")
            if self.chance(0.3):
                keys = [k for k in PRONOUN_SUBJECTS if not self.same_speaker(k, subject)]
                keys = [k for k in keys if k != self.owner(subject)]
                recipient = Pronoun(self.pick(keys))
            if recipient == subject or (recipient.lemma and recipient.lemma == subject.lemma):
                recipient = self.known(("worker",))
            clause = replace(clause, recipient=recipient)
        manner = modifiers.MANNER.get(verb.english, ())
        if manner and not verb.particle and self.chance(0.3):
            clause = replace(clause, manner=self.text(manner))
        scene = SCENES.get(verb.lemma, ())
        if scene and self.chance(0.35):
            clause = replace(clause, place=self.at(*scene))
        return clause

    def action(self, subject: Phrase | None = None, verb: Verb | None = None) -> Clause:
        """A whole clause: who does what, in which tense, when, how and where."""
        if verb is None and self.chance(0.16):
            return self.tensed(self.moving(subject))
        return self.tensed(self.bare(subject, verb))

    def moving(self, subject: Phrase | None = None) -> Clause:
        """Somebody goes somewhere."""
        special = verbs.special
        roll = self.rng.random()
        if roll < 0.45:
            verb = special("go", "gehen")
            kinds = ("green", "shop", "town", "water", "pool", "zoo", "work")
            place = Text("home", "nach Hause") if self.chance(0.15) else self.to(*kinds)
        elif roll < 0.6:
            verb = special("run", "laufen")
            place = self.to("green", "stop", "water")
        elif roll < 0.7:
            verb, place = special("come", "kommen"), Text("home", "nach Hause")
        else:
            english = self.pick(("drive", "travel", "fly"))
            german = {"drive": "fahren", "travel": "reisen", "fly": "fliegen"}[english]
            verb = special(english, german)
            town, stadt = self.pick(places.TOWNS)
            place = Text(f"to {town}", f"nach {stadt}")
        return Clause(subject or self.speaker_or((verb.subjects[0],)), verb, place=place)

    def fitting(self, mood: str, subject: Phrase) -> Clause:
        """What somebody does, without tense, because of a mood or the rain."""
        lemma = self.pick(
            [m for m in MOODS[mood] if m not in ("go home", "order drink", "look at")]
        )
        if "go home" in MOODS[mood] and self.chance(0.15):
            place = Text("home", "nach Hause")
            return Clause(subject, verbs.special("go", "gehen"), place=place)
        clause = self.bare(subject, verbs.named(lemma))
        drinks = mood == "ill" and lemma == "drink"
        if drinks:
            clause = replace(clause, object=Common(nouns.BY_ENGLISH["tea"], ZERO))
        if mood == "raining" or lemma in ("sleep", "rest", "have breakfast"):
            clause = replace(clause, place=None)
        return clause

    # Predicates.

    def being(self, subject: Phrase, adjective: Adjective, tense: str, degree: str = "") -> Clause:
        """Somebody or something is as an adjective says; `degree` may be very or too."""
        adverb = {"": "", "very": "sehr ", "too": "zu "}[degree]
        english = f"{degree} {adjective.english}".strip()
        facts = (("adjective", adjective.english, subject.lemma),) if subject.lemma else ()
        complement = Text(english, adverb + adjective.german, facts)
        return Clause(subject, verbs.special("be", "sein"), tense, complement=complement)

    def state(self, subject: Phrase, tense: str) -> Clause:
        """How somebody is: the kind of clause that gives a reason."""
        roll = self.rng.random()
        if roll < 0.6:
            adjective = ADJECTIVE[self.pick(modifiers.STATES.split())]
            degree = "very" if self.chance(0.2) else ""
            return self.being(subject, adjective, tense, degree)
        have = next(verb for verb in verbs.ACCUSATIVE if verb.english == "have")
        if roll < 0.7:
            noun = nouns.BY_ENGLISH[self.pick(("time", "money"))]
            return Clause(subject, have, tense, Common(noun, Determiner("no", "kein")))
        verb = verbs.named(self.pick(DUTIES if roll < 0.87 else WISHES))
        duty = ("had",) if tense == "past" else ("have", "must")
        wish = ("wanted",) if tense == "past" else ("want",)
        return Clause(subject, verb, self.pick(duty if roll < 0.87 else wish))
