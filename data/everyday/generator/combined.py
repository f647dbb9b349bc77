"""Infinitive clauses, coordination, pronouns that look back, and the unreal condition."""

from __future__ import annotations

from dataclasses import replace

import nouns
import verbs
from clauses import (
    Clause,
    english_clause,
    german_clause,
    german_verbs,
)
from modifiers import ADJECTIVE, FREQUENCY
from phrases import (
    THE,
    A,
    Common,
    Phrase,
    Pronoun,
    Text,
    prepositional,
)
from places import TOWNS
from sentence import Sentence, joined, opened, pair, simple
from speaker import Speaker
from subordinate import HAVE, person_action


def infinitive(english: str, german: str, main: Clause, inner: Clause) -> Sentence:
    """A main clause with an infinitive clause; German sets it off by a comma."""
    return pair(
        f"{english_clause(main)} {english} {english_clause(inner, 'to')}".replace("  ", " "),
        f"{german_clause(main)}, {german} {german_clause(inner, 'zu')}",
        (*main.facts(), *inner.facts()),
    )


# Where one goes for what.
ERRANDS: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("market", "supermarket"), ("buy", "sell")),
    (("school", "university"), ("learn", "talk to")),
    (("restaurant", "café", "hotel"), ("eat", "order", "meet", "talk to", "work")),
    (("park", "garden"), ("rest", "read", "feed", "photograph", "play with", "dance")),
    (("stop",), ("pick up", "wait for", "meet")),
    (("library",), ("read", "borrow", "work", "write", "translate")),
    (("water", "pool"), ("swim", "rest", "photograph")),
    (("office",), ("work", "write", "prepare", "talk about", "answer")),
    (("hospital",), ("visit", "comfort", "help")),
    (("theatre", "cinema"), ("watch",)),
    (("zoo",), ("watch", "photograph", "feed")),
    ((), ("cook", "sleep", "tidy up", "eat", "bake", "water", "repair", "rest", "read", "feed")),
)


def purpose(s: Speaker) -> Sentence:
    """Julia went to the supermarket in order to buy milk."""
    subject = s.speaker_or(("adult",))
    pronoun = s.again(subject)
    if pronoun is None:
        return purpose(s)
    kinds, lemmas = s.pick(ERRANDS)
    goal = s.to(*kinds) if kinds else Text("home", "nach Hause")
    going = verbs.special(*s.pick((("go", "gehen"), ("run", "laufen")) if kinds else HOMEWARD))
    main = s.tensed(Clause(subject, going, place=goal))
    inner = s.bare(replace_lemma(pronoun, subject), verbs.named(s.pick(lemmas)))
    if main.tense == "perfect":
        return purpose(s)
    return infinitive("in order", "um", main, replace(inner, place=None))


HOMEWARD = (("go", "gehen"), ("come", "kommen"))


def replace_lemma(pronoun: Pronoun, subject: Phrase) -> Pronoun:
    """The unspoken subject of an infinitive."""
    return Pronoun(pronoun.key, subject.lemma)


def attempt(s: Speaker) -> Sentence:
    """He forgot to turn off the lamp."""
    base, german, tenses = s.pick(
        (
            ("try", "versuchen", ("progressive", "past", "future")),
            ("forget", "vergessen", ("past", "perfect")),
            ("begin", "beginnen", ("past",)),
            ("decide", "beschließen", ("past", "perfect")),
            ("promise", "versprechen", ("past", "perfect")),
            ("plan", "planen", ("progressive", "past")),
        )
    )
    subject = s.speaker_or(("person",))
    pronoun = s.again(subject)
    if pronoun is None:
        return attempt(s)
    main = Clause(subject, verbs.special(base, german), s.pick(tenses))
    if s.chance(0.3):
        main = s.when(main, 1.0)
    if main.time:
        main = replace(main, front="time")
    inner = s.bare(replace_lemma(pronoun, subject), s.human_verb(willed=True))
    return infinitive("", "", main, inner)


OMITTED: tuple[str, ...] = (
    "thank",
    "greet",
    "wait for",
    "close",
    "turn off",
    "help",
    "call up",
    "listen to",
    "pay",
    "have breakfast",
    "hurry",
    "tidy up",
    "rest",
    "hug",
    "smile",
    "laugh",
    "bring along",
)


def without(s: Speaker) -> Sentence:
    """They went home without thanking the cook."""
    main = s.tensed(s.moving(s.speaker_or(("adult",))))
    pronoun = s.again(main.subject)
    if pronoun is None or main.tense in ("perfect", "must", "should", "have", "would like"):
        return without(s)
    verb = verbs.named(s.pick(OMITTED))
    inner = replace(s.bare(replace_lemma(pronoun, main.subject), verb), place=None)
    return pair(
        f"{english_clause(main)} without {english_clause(inner, 'gerund')}",
        f"{german_clause(main)}, ohne {german_clause(inner, 'zu')}",
        (*main.facts(), *inner.facts()),
    )


def contrast(s: Speaker) -> Sentence:
    """Laura bought a red coat on Monday, but Felix did not buy a coat; one verb, two people."""
    verb = s.human_verb(timed=False)
    first, second = s.action(verb=verb), s.bare(verb=verb)
    second = replace(second, tense=first.tense)
    same = english_clause(replace(first, time=None)) == english_clause(second)
    present = first.tense == "present" and verb.english_past == verb.english
    if same or present or first.subject == second.subject or not verb.objects:
        return contrast(s)
    if first.subject.lemma and first.subject.lemma == second.subject.lemma:
        return contrast(s)
    if first.frequency:
        often = (
            FREQUENCY if first.tense == "present" else (("already", "schon"), ("never", "noch nie"))
        )
        second = replace(second, frequency=s.text(often))
    return joined(first, "but", "aber", second, "main")


def sequence(s: Speaker) -> Sentence:
    """He washed the plates and dried the cups: one subject, two verbs."""
    main, pronoun = person_action(s)
    subject = replace_lemma(pronoun, main.subject)
    main = replace(main, tense="past", time=None, frequency=None)
    inner = replace(s.bare(subject, s.human_verb()), tense="past")
    finite, infinite = german_verbs(inner)
    german = german_clause(inner).removeprefix(f"{subject.german('nom')} ")
    if infinite and german_verbs(main) == (finite, german_verbs(main)[1]):
        # One auxiliary serves both verbs: "hat gewaschen und getrocknet".
        german = german.removeprefix(f"{finite} ")
    english = english_clause(inner).removeprefix(f"{subject.english(subject=True)} ")
    return pair(
        f"{english_clause(main)} and {english}",
        f"{german_clause(main)} und {german}",
        (*main.facts(), *inner.facts()),
    )


def anaphora(s: Speaker) -> Sentence:
    """The lamp is broken, but I like it: "it" takes the gender of its antecedent."""
    verb = s.pick([v for v in verbs.ACCUSATIVE if "past_only" not in v.marks])
    found = [n for n in nouns.of_kinds(verb.objects) if not n.mass]
    found = [n for n in found if not any(k in n.kinds for k in ("person", "baby", "instrument"))]
    if not found:
        return anaphora(s)
    noun = s.pick([*found])
    options = [a for a in ADJECTIVE.values() if any(k in nouns.names(noun) for k in a.kinds)]
    if not options or any(k in noun.kinds for k in ("subject", "stranger", "family")):
        return anaphora(s)
    plural = "pair" in noun.kinds or s.chance(0.15)
    determiner = s.pick((THE, THE, replace(THE, english="this", german="dieser")))
    topic = Common(noun, determiner, (), plural)
    adjective = s.pick(options)
    degree = s.pick(("", "", "very")) if adjective.gradable else ""
    first = s.being(topic, adjective, "present", degree)
    subject = s.pick(("I", "you", "he", "she", "we", "they"))
    human: Phrase = Pronoun(subject) if s.chance(0.6) else s.someone(("adult",))
    second = Clause(human, verb, object=Pronoun(topic.it, noun.english))
    tense = "present" if "state" in verb.marks else s.pick(("want", "must", "future", "can"))
    second = replace(second, tense=tense, negated=s.chance(0.3))
    agrees = not second.negated and tense in ("want", "can", "future")
    link = ("and", "und") if agrees else ("but", "aber")
    return joined(first, *link, second, "main")


def circumstance(s: Speaker) -> Sentence:
    """Because of the storm, the train arrived late: prepositions with the genitive."""
    english, german, kinds = s.pick(
        (
            ("because of", "wegen", ("weather", "weather_mass")),
            ("despite", "trotz", ("weather", "weather_mass")),
            ("during", "während", ("event",)),
        )
    )
    cause = Common(s.pick(nouns.of_kinds(kinds)), THE, ())
    cause = replace(cause, adjectives=s.adjectives(cause.noun, 0.4))
    text = prepositional(english, german, "gen", cause)
    clause = replace(s.action(verb=s.human_verb()), time=None)
    if clause.tense in ("perfect", "present"):
        clause = replace(clause, tense="past", frequency=None)
    return simple(replace(clause, time=text, front="time"))


DREAMS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("time", ("read", "visit", "learn", "hike", "cook", "bake", "play with", "rest", "sleep")),
    ("money", ("buy", "rent", "order", "travel", "invite")),
    ("owned_vehicle", ("travel", "visit", "pick up", "go shopping")),
    ("big_pet", ("go for a walk", "travel", "smile")),
)


def unreal(s: Speaker) -> Sentence:
    """If I had a car, I would drive to Italy: the subjunctive in both languages."""
    subject = s.speaker_or(("adult",))
    pronoun = s.again(subject)
    if pronoun is None:
        return unreal(s)
    wish, lemmas = s.pick(DREAMS)
    item: Phrase
    if wish in nouns.BY_ENGLISH:
        more = replace(THE, english="more", german="mehr")
        item = Common(nouns.BY_ENGLISH[wish], more)
    else:
        owned = s.pick(nouns.of_kinds((wish,)))
        item = Common(owned, A, s.adjectives(owned, 0.4))
    lemma = s.pick(lemmas)
    second = s.bare(pronoun, verbs.named(lemma))
    if lemma == "travel":
        town, stadt = s.pick(TOWNS)
        second = replace(second, place=Text(f"to {town}", f"nach {stadt}"))
    first = Clause(subject, replace(HAVE, preterite="hätte"), "past", item)
    return opened("if", "wenn", first, replace(second, tense="conditional"))


PATTERNS = (
    (purpose, 3),
    (attempt, 4),
    (without, 2),
    (contrast, 4),
    (sequence, 3),
    (anaphora, 5),
    (circumstance, 3),
    (unreal, 2),
)
