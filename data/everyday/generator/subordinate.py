"""Subordinate clauses: reasons, conditions, times, reported speech and indirect questions."""

from __future__ import annotations

from dataclasses import replace

import nouns
import verbs
from clauses import (
    MODALS,
    Clause,
    english_clause,
    german_clause,
)
from modifiers import ADJECTIVE, STATES
from phrases import (
    ZERO,
    Common,
    Phrase,
    Pronoun,
    Text,
)
from sentence import Sentence, joined, opened, pair
from speaker import Speaker, past
from statements import raining
from words import Verb

HAVE = next(verb for verb in verbs.ACCUSATIVE if verb.english == "have")


def person_action(s: Speaker, state: bool = False) -> tuple[Clause, Pronoun]:
    """A clause about people, and the pronoun that takes its subject up again."""
    while True:
        verb = s.human_verb(timed=not state)
        clause = s.action(s.speaker_or(("adult",)), verb)
        if s.chance(0.15):
            clause = s.tensed(s.moving(s.speaker_or(("adult",))))
        pronoun = s.again(clause.subject)
        if pronoun is not None and clause.tense != "perfect":
            return clause, pronoun


def time_of(clause: Clause) -> str:
    """The tense of a state that goes with the clause."""
    return "past" if past(clause) else "present"


def plain(phrase: Phrase) -> Phrase:
    """The phrase without adjectives, which might clash with what is said about it."""
    return replace(phrase, adjectives=()) if isinstance(phrase, Common) else phrase


def moody(s: Speaker) -> tuple[Clause, Clause]:
    """A clause of action that follows from the clause of mood beside it, both about people."""
    subject = plain(s.speaker_or(("adult",)))
    pronoun = s.again(subject)
    if pronoun is None or subject.indefinite:
        return moody(s)
    mood = s.pick((*STATES.split(), "raining"))
    action = s.tensed(s.fitting(mood, subject))
    if action.tense in ("perfect", *MODALS) or action.frequency:
        return moody(s)
    before = past(action)
    if mood == "raining":
        return action, raining(s, "past_progressive" if before else "progressive")
    degree = "very" if s.chance(0.2) and ADJECTIVE[mood].gradable else ""
    return action, s.being(pronoun, ADJECTIVE[mood], "past" if before else "present", degree)


def because(s: Speaker) -> Sentence:
    """The tired teacher drinks a cold coffee because he has slept badly."""
    if s.chance(0.75):
        action, reason = moody(s)
        return joined(action, "because", "weil", reason)
    main, pronoun = person_action(s)
    reason = s.state(pronoun, time_of(main))
    if s.chance(0.25):
        badly = Text("badly", "schlecht")
        tense = "pluperfect" if past(main) else "perfect"
        reason = Clause(pronoun, verbs.named("sleep"), tense, manner=badly)
    return joined(main, "because", "weil", reason)


def although(s: Speaker) -> Sentence:
    """Although it was raining, we went to the park."""
    main, pronoun = person_action(s)
    main = replace(main, subject=plain(main.subject))
    reason = s.state(pronoun, time_of(main))
    if s.chance(0.2):
        reason = raining(s, "past_progressive" if past(main) else "progressive")
    if s.chance(0.4) and not main.time:
        return opened("although", "obwohl", reason, main)
    return joined(main, "although", "obwohl", reason)


def spending(s: Speaker) -> Verb:
    """What one needs time and money for."""
    return verbs.named(s.pick(("buy", "rent", "order", "visit", "repair", "invite")))


def condition(s: Speaker) -> Sentence:
    """If I am hungry, I will cook a soup; the condition may also follow."""
    action, mood = moody(s)
    tense = s.pick(("future", "can", "should", "must"))
    if "unwilled" in action.verb.marks:
        tense = "future"
    subject = action.subject
    action = replace(action, tense=tense, time=None)
    if mood.verb.english == "be":
        mood = replace(mood, tense="present")
        if s.chance(0.2):
            time = Common(nouns.BY_ENGLISH[s.pick(("time", "money"))], ZERO)
            mood = Clause(mood.subject, HAVE, "present", time)
            action = replace(s.bare(subject, spending(s)), tense=tense)
        if s.chance(0.6):
            pronoun = mood.subject
            mood = replace(mood, subject=subject)
            return opened("if", "wenn", mood, replace(action, subject=pronoun))
    else:
        mood = raining(s, "present")
        if s.chance(0.6):
            return opened("if", "wenn", mood, action)
    return joined(action, "if", "wenn", mood)


def whenever(s: Speaker) -> Sentence:
    """When it rains, the children always play in the living room."""
    action, mood = moody(s)
    if "past_only" in action.verb.marks or action.verb.english_past == action.verb.english:
        return whenever(s)
    often = s.text(
        (("always", "immer"), ("often", "oft"), ("never", "nie"), ("usually", "meistens"))
    )
    action = replace(action, tense="present", frequency=often, time=None)
    if mood.verb.english == "be":
        pronoun, subject = mood.subject, action.subject
        mood = replace(mood, subject=subject, tense="present")
        return opened("when", "wenn", mood, replace(action, subject=pronoun))
    return opened("when", "wenn", raining(s, "present"), action)


def before_after(s: Speaker) -> Sentence:
    """After she had eaten the soup, Emma called up her uncle."""
    subject = s.someone(("adult",))
    pronoun = s.again(subject)
    first = s.bare(subject, s.human_verb(willed=True))
    if pronoun is None or subject.indefinite:
        return before_after(s)
    first = replace(first, place=None)
    second = replace(s.bare(pronoun, s.human_verb(willed=True)), tense="past")
    if s.chance(0.5):
        return opened("after", "nachdem", replace(first, tense="pluperfect"), second)
    return opened("before", "bevor", replace(first, tense="past"), second)


def while_doing(s: Speaker) -> Sentence:
    """While my father is cooking the soup, Nina is reading a book."""
    first = s.bare(s.someone(("adult",)), s.human_verb())
    second = s.bare(s.someone(("adult",)), s.human_verb())
    if first.subject == second.subject:
        return while_doing(s)
    tense = "progressive"
    first = replace(first, tense=tense, simultaneous=True)
    second = replace(second, tense=tense, simultaneous=True)
    return opened("while", "während", first, second)


def that_clause(s: Speaker) -> Sentence:
    """We hope that the train will arrive soon."""
    base, german, tenses = s.pick(
        (
            ("know", "wissen", ("present", "past")),
            ("hope", "hoffen", ("present",)),
            ("think", "denken", ("present", "past")),
            ("say", "sagen", ("present", "past")),
            ("believe", "glauben", ("present",)),
        )
    )
    subject = s.speaker_or(("person",))
    tense = s.pick(tenses)
    content = s.action()
    if base == "hope":
        while content.tense not in ("future", "can", "past"):
            content = s.action()
    if tense == "past":
        content = replace(content, tense="past", frequency=None, time=None)
    main = Clause(subject, verbs.special(base, german), tense)
    if base == "know" and s.chance(0.3):
        main = replace(main, negated=True)
    return joined(main, "that", "dass", content)


def indirect_question(s: Speaker) -> Sentence:
    """I do not know whether he has found his key."""
    subject = s.speaker_or(("person",))
    main = Clause(subject, verbs.special("know", "wissen"), "present", negated=True)
    word = s.pick((("whether", "ob"), ("why", "warum"), ("when", "wann"), ("where", "wo")))
    content = s.action(verb=s.human_verb())
    if word[0] != "whether":
        content = replace(content, time=None, frequency=None, place=None, manner=None)
        while content.tense not in ("past", "future", "want", "must"):
            content = replace(content, tense=s.pick(("past", "future", "want")))
    if s.chance(0.3):
        return asked(s, word, content)
    return joined(main, *word, content)


def asked(s: Speaker, word: tuple[str, str], content: Clause) -> Sentence:
    """Do you know where she is working?"""
    question = Clause(Pronoun("you"), verbs.special("know", "wissen"), "present")
    return pair(
        f"{english_clause(question, 'question')} {word[0]} {english_clause(content)}",
        f"{german_clause(question, 'question')}, {word[1]} {german_clause(content, 'sub')}",
        content.facts(),
        "?",
    )


PATTERNS = (
    (because, 6),
    (although, 4),
    (condition, 4),
    (whenever, 3),
    (before_after, 4),
    (while_doing, 3),
    (that_clause, 5),
    (indirect_question, 4),
)
