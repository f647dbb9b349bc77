"""Relative clauses: their pronoun agrees with the noun and takes its case from the clause."""

from __future__ import annotations

from dataclasses import replace

import nouns
import verbs
from clauses import (
    Clause,
    english_clause,
    german_clause,
    relative_clause,
)
from modifiers import ADJECTIVE, CHARACTER, STATES
from phrases import (
    THE,
    A,
    Common,
    Relative,
    Text,
)
from sentence import Sentence, simple
from speaker import Speaker
from subordinate import HAVE


def related(s: Speaker, kinds: tuple[str, ...]) -> Common:
    """A definite noun for a relative clause to describe."""
    noun = s.pick([n for n in nouns.of_kinds(kinds) if not n.mass and "family" not in n.kinds])
    plural = "pair" in noun.kinds or s.chance(0.2)
    return Common(noun, THE, s.adjectives(noun, 0.2), plural)


def relative_subject(s: Speaker) -> Sentence:
    """The woman who is buying the flowers is very friendly."""
    noun = replace(related(s, ("worker", "friend", "man", "woman", "boy", "pupil")), adjectives=())
    inner = s.action(Relative(noun.noun, noun.plural), s.human_verb())
    subject = replace(noun, relative=relative_clause(inner))
    adjective = ADJECTIVE[s.pick((STATES + " " + CHARACTER).split())]
    degree = "very" if s.chance(0.3) and adjective.gradable else ""
    return simple(s.being(subject, adjective, s.pick(("present", "past")), degree))


def relative_object(s: Speaker) -> Sentence:
    """The cake that my aunt baked yesterday is delicious."""
    verb = s.pick(verbs.ACCUSATIVE + verbs.WITH_PREPOSITION + verbs.WITH_DATIVE)
    kinds = tuple(k for k in verb.objects if k not in ("room", "town", "place", "subject"))
    nouns_found = [n for n in nouns.of_kinds(kinds) if not n.mass]
    if not nouns_found or "instrument" in kinds or verb.english in ("appeal", "belong", "fit"):
        return relative_object(s)
    noun = s.pick(nouns_found)
    if noun.kinds[0] == "baby" or "family" in noun.kinds or "beast" in noun.kinds:
        return relative_object(s)
    plural = "pair" in noun.kinds or s.chance(0.2)
    head = Common(noun, THE, s.adjectives(noun, 0.2), plural)
    inner = s.action(verb=verb)
    if inner.subject.indefinite or inner.subject.lemma == noun.english:
        return relative_object(s)
    inner = replace(inner, object=Relative(noun, plural), front="object")
    head = replace(head, relative=relative_clause(inner))
    options = [a for a in ADJECTIVE.values() if any(k in nouns.names(noun) for k in a.kinds)]
    if s.chance(0.5) and options:
        head = replace(head, adjectives=())
        return simple(s.being(head, s.pick(options), s.pick(("present", "past"))))
    watcher = s.speaker_or(("person",))
    outer_verb = verbs.named(s.pick(("like", "see", "need")))
    if not any(k in nouns.names(noun) for k in outer_verb.objects):
        return relative_object(s)
    return simple(Clause(watcher, outer_verb, "present", head))


def relative_person(s: Speaker) -> Sentence:
    """We invited the neighbour who had helped us: the clause moves behind the verb."""
    outer_verb = s.pick([v for v in verbs.ACCUSATIVE if "person" in v.objects])
    outer = s.action(s.speaker_or(("person",)), outer_verb)
    noun = related(s, ("worker", "friend", "woman"))
    if outer.subject.lemma == noun.lemma or outer.verb.loose:
        return relative_person(s)
    inner = s.action(Relative(noun.noun, noun.plural), s.human_verb())
    head = replace(noun, relative=relative_clause(inner))
    outer = replace(outer, object=head, time=None, place=None, manner=None)
    if outer.tense == "present" and "state" not in outer.verb.marks and not outer.frequency:
        outer = replace(outer, tense="past")
    return simple(outer)


def whose(s: Speaker) -> Sentence:
    """The boy whose dog is ill is very sad."""
    noun = replace(related(s, ("worker", "friend", "woman", "boy")), adjectives=())
    own = s.pick(nouns.of_kinds(("pet", "owned_vehicle", "family")))
    relative = Relative(noun.noun, noun.plural)
    options = [a for a in ADJECTIVE.values() if any(k in nouns.names(own) for k in a.kinds)]
    adjective = s.pick(options)
    tense = s.pick(("present", "present", "past"))
    theirs = Common(own, replace(THE, english="whose", german=relative.german("gen")))
    inner = s.being(theirs, adjective, tense)
    text = Text(english_clause(inner), f", {german_clause(inner, 'sub')},", tuple(inner.facts()))
    subject = replace(noun, relative=text)
    mood = ADJECTIVE[s.pick((STATES + " " + CHARACTER).split())]
    return simple(s.being(subject, mood, tense, "very" if mood.gradable and s.chance(0.3) else ""))


def introduced(s: Speaker) -> Sentence:
    """Sarah has a brother who is learning Spanish."""
    owner = s.speaker_or(("adult",))
    noun = s.pick(
        nouns.of_kinds(("friend", "brother", "sister", "cousin", "uncle", "aunt", "niece"))
    )
    head = Common(noun, A, s.adjectives(noun, 0.3))
    inner = s.action(Relative(noun, False), s.human_verb())
    head = replace(head, relative=relative_clause(inner))
    if owner.lemma or noun.english in ("father", "mother"):
        return introduced(s)
    return simple(Clause(owner, HAVE, "present", head))


PATTERNS = (
    (relative_subject, 4),
    (relative_object, 5),
    (relative_person, 3),
    (whose, 2),
    (introduced, 2),
)
