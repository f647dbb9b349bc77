"""Clauses: one structure, realized in English order and in German order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import english
import german
from phrases import Common, Fact, Phrase, Pronoun, Relative, Text
from words import Verb

# English modal: its finite word (empty: it takes "do"), the rest, German verb, German tense.
MODALS: dict[str, tuple[str, str, str, str]] = {
    "can": ("can", "", "können", "present"),
    "must": ("must", "", "müssen", "present"),
    "may": ("may", "", "dürfen", "present"),
    "should": ("should", "", "sollten", "present"),
    "want": ("", "want to", "wollen", "present"),
    "have": ("", "have to", "müssen", "present"),
    "would like": ("would", "like to", "möchten", "present"),
    "was able": ("was", "able to", "können", "past"),
    "was allowed": ("was", "allowed to", "dürfen", "past"),
    "wanted": ("", "wanted to", "wollen", "past"),
    "had": ("", "had to", "müssen", "past"),
}
BASES = {"wanted": "want", "had": "have"}


@dataclass(frozen=True)
class Clause:
    """Who does what to whom, when, how often, how and where.

    `front` names the slot that stands before the subject. Tenses: present, progressive, past,
    perfect, pluperfect, future, conditional, passive, passive_past, or a key of MODALS.
    """

    subject: Phrase
    verb: Verb
    tense: str = "present"
    object: Phrase | None = None
    recipient: Phrase | None = None
    frequency: Text | None = None
    time: Text | None = None
    manner: Text | None = None
    place: Text | None = None
    complement: Text | None = None
    negated: bool = False
    simultaneous: bool = False
    front: str = ""

    def facts(self) -> Iterator[Fact]:
        """The pairs of lemmas that meet in the clause."""
        passive = self.tense.startswith("passive")
        pieces = [self.subject, self.object, self.recipient]
        for piece in pieces:
            if piece is not None:
                yield from piece.facts()
        for text in (self.place, self.complement, self.time):
            yield from text.facts if text else ()
        if self.subject.lemma:
            kind = "object" if passive else "subject"
            yield kind, self.verb.lemma, self.subject.lemma
        if self.object is not None and self.object.lemma:
            yield "object", self.verb.lemma, self.object.lemma


def join(parts: list[str]) -> str:
    """The parts that are not empty, with single spaces."""
    return " ".join(part for part in parts if part)


def english_group(clause: Clause, support: bool) -> tuple[str, str]:
    """The auxiliary and the rest of the verb; with `support` there is always an auxiliary."""
    verb, tense, person = clause.verb, clause.tense, clause.subject.english_person
    base, done = verb.english, verb.english_participle
    if tense in MODALS:
        finite, rest, _, time = MODALS[tense]
        if finite == "was":
            return english.be(person, past=True), f"{rest} {base}"
        if finite:
            return finite, join([rest, base])
        if support:
            plain = BASES.get(tense, tense)
            auxiliary = "did" if time == "past" else "does" if person == 2 else "do"
            return auxiliary, f"{plain} to {base}"
        head, _, to = rest.partition(" ")
        if time == "present" and person == 2:
            head = english.third_person(head)
        return "", f"{head} {to} {base}"
    have = "has" if person == 2 else "have"
    compound = {
        "progressive": (english.be(person, past=False), english.progressive(base)),
        "past_progressive": (english.be(person, past=True), english.progressive(base)),
        "perfect": (have, done),
        "pluperfect": ("had", done),
        "future": ("will", base),
        "conditional": ("would", base),
        "passive": (english.be(person, past=False), f"being {done}"),
        "passive_past": (english.be(person, past=True), done),
    }
    if tense in compound:
        return compound[tense]
    form = english.past(verb, person) if tense == "past" else english.present(verb, person)
    if base == "be":
        return form, ""
    if support:
        return ("did" if tense == "past" else "does" if person == 2 else "do"), base
    return "", form


def english_objects(clause: Clause) -> list[str]:
    """Particle, recipient and object in English order; a fronted one leaves a gap."""
    verb = clause.verb
    thing = clause.object.english(subject=False) if clause.object else ""
    person = clause.recipient.english(subject=False) if clause.recipient else ""
    if clause.front == "object":
        thing = ""
    if clause.front == "recipient":
        person = "to" if verb.frame == "give" else ""
        return [verb.particle, thing, person]
    if verb.loose and isinstance(clause.object, Pronoun):
        return [thing, verb.particle]
    if verb.frame == "give" and "to" in verb.marks and person:
        return [verb.particle, thing, f"to {person}"]
    return [verb.particle, person, thing]


def english_clause(clause: Clause, order: str = "main") -> str:
    """Realise a clause: main (also subordinate), question, to, bare or gerund."""
    adverbs = [clause.manner, clause.place, clause.time]
    named = {"manner": clause.manner, "place": clause.place, "time": clause.time}
    fronted = named.get(clause.front)
    end = [text.english for text in adverbs if text and text is not fronted]
    complement = clause.complement.english if clause.complement else ""
    if clause.front == "complement":
        complement = ""
    predicate = [*english_objects(clause), complement, *end]
    if order in ("to", "bare", "gerund"):
        base = clause.verb.english
        head = {"to": f"to {base}", "bare": base, "gerund": english.progressive(base)}[order]
        return join(["not" if clause.negated else "", head, *predicate])
    support = clause.negated or (order == "question" and clause.front != "subject")
    auxiliary, rest = english_group(clause, support)
    subject = clause.subject.english(subject=True)
    often = clause.frequency.english if clause.frequency else ""
    if clause.negated and auxiliary in ("can",):
        auxiliary, denial = "cannot", ""
    else:
        denial = "not" if clause.negated else ""
    inverted = order == "question" and clause.front != "subject"
    if inverted and auxiliary == "cannot":
        auxiliary, denial = "can", "not"
    start = [auxiliary, subject, denial] if inverted else [subject, auxiliary, denial]
    words = join([*start, often, rest, *predicate])
    return join([english_front(clause), words])


def english_front(clause: Clause) -> str:
    """What stands before the subject; longer adverbials take a comma."""
    if clause.front in ("", "subject"):
        return ""
    if clause.front in ("object", "recipient"):
        phrase = clause.object if clause.front == "object" else clause.recipient
        return phrase.english(subject=False) if phrase else ""
    text: Text = getattr(clause, clause.front)
    wh = text.english.split()[0] in ("where", "when", "why", "how")
    return text.english + ("," if " " in text.english and not wh else "")


def german_verbs(clause: Clause) -> tuple[str, list[str]]:
    """The finite form, and the infinite forms (without the prefix of a finite main verb)."""
    verb, tense, person = clause.verb, clause.tense, clause.subject.person
    if tense in MODALS:
        modal, time = MODALS[tense][2:]
        if tense == "must" and clause.negated:
            # "Must not" forbids; "muss nicht" would only say that there is no need.
            modal = "dürfen"
        finite = (
            german.preterite(german.PRETERITE[modal], person)
            if time == "past"
            else german.present(modal, "", person)
        )
        return finite, [german.infinitive(verb)]
    if tense in ("future", "conditional"):
        helper = "werden" if tense == "future" else "würden"
        return german.present(helper, "", person), [german.infinitive(verb)]
    if tense == "passive":
        return german.present("werden", "", person), [german.participle(verb)]
    if tense == "passive_past":
        return german.preterite("wurde", person), [german.participle(verb)]
    if tense == "pluperfect":
        had = german.preterite(german.PRETERITE[verb.auxiliary], person)
        return had, [german.participle(verb)]
    if tense == "past" and "preterite" in verb.marks:
        return german.preterite(verb.preterite, person), []
    if tense in ("past", "past_progressive", "perfect"):
        return german.present(verb.auxiliary, "", person), [german.participle(verb)]
    return german.present(verb.german, verb.third, person), []


def object_text(clause: Clause) -> str:
    """The object in the case or with the preposition that the verb governs."""
    phrase = clause.object
    if phrase is None:
        return ""
    accusative = clause.verb.case == "acc" and clause.verb.frame != "prep"
    if isinstance(phrase, Common) and clause.negated and phrase.indefinite and accusative:
        phrase = phrase.negative()
    text = phrase.german(clause.verb.case)
    if clause.verb.frame != "prep":
        return text
    return german.contract(clause.verb.preposition, text)


def german_middle(clause: Clause) -> list[str]:
    """Everything between the finite verb (and subject) and the verbs at the end.

    Pronouns and definite datives come first, then how often and when, definite objects
    (before the time if the clause is negated), "nicht", manner, indefinite and prepositional
    objects, place, and the predicate.
    """
    item, recipient = clause.object, clause.recipient
    thing = "" if clause.front == "object" else object_text(clause)
    person = recipient.german("dat") if recipient and clause.front != "recipient" else ""
    prepositional = clause.verb.frame == "prep"
    light = bool(item and item.pronominal and not prepositional)
    late = bool(item and item.indefinite) or prepositional
    light_person = bool(recipient and recipient.pronominal)
    early_person = bool(recipient and not recipient.indefinite)
    early = not light and not late and clause.negated
    kein = clause.negated and item is not None and item.indefinite and clause.verb.case == "acc"
    kein = kein and not prepositional
    texts = {
        name: text.german if text and clause.front != name else ""
        for name in ("frequency", "time", "manner", "place", "complement")
        for text in [getattr(clause, name)]
    }
    # Where something happens stands before a late object, where something is put behind it.
    scene = late and clause.verb.english != "put"
    now = clause.tense in ("progressive", "passive") and not clause.simultaneous
    return [
        thing if light else "",
        person if light_person or early_person else "",
        thing if early else "",
        texts["frequency"],
        texts["time"],
        "gerade" if now and "weather" not in clause.verb.marks else "",
        "" if light_person or early_person else person,
        "" if light or late or early else thing,
        "nicht" if clause.negated and not kein else "",
        texts["manner"],
        texts["place"] if scene else "",
        thing if late and not light else "",
        "" if scene else texts["place"],
        texts["complement"],
    ]


def reflexive(clause: Clause) -> str:
    """The reflexive pronoun of the verb, if it has one."""
    person = clause.subject.person
    if "reflexive_dat" in clause.verb.marks:
        return german.REFLEXIVE_DATIVE[person]
    formal = isinstance(clause.subject, Pronoun) and clause.subject.key == "you_formal"
    return german.REFLEXIVE[5 if formal else person] if "reflexive" in clause.verb.marks else ""


def german_front(clause: Clause) -> str:
    """What stands before the finite verb when it is not the subject."""
    if clause.front == "object":
        return object_text(clause)
    if clause.front == "recipient":
        return clause.recipient.german("dat") if clause.recipient else ""
    text: Text = getattr(clause, clause.front)
    return text.german


def german_clause(clause: Clause, order: str = "main") -> str:
    """Realise a clause in one of five orders.

    They are main (verb second, also in wh-questions), question (verb first), sub (verb last),
    zu and bare (infinitives without a subject).
    """
    middle, itself = german_middle(clause), reflexive(clause)
    if "reflexive_dat" in clause.verb.marks:
        # The accusative pronoun comes first: "ich schaue es mir an".
        itself, middle = join([middle[0], itself]), middle[1:]
    tail = clause.object.tail.german if clause.object else ""
    if order in ("zu", "bare"):
        form = german.infinitive(clause.verb, zu=order == "zu")
        return join([itself, *middle, form, tail])
    finite, infinite = german_verbs(clause)
    subject = join([clause.subject.german("nom"), clause.subject.tail.german])
    front = german_front(clause) if clause.front not in ("", "subject") else ""
    prefix = "" if infinite else clause.verb.prefix
    if order == "sub":
        end = [*infinite, prefix + finite]
        # After a relative or question word the reflexive precedes a noun: "wo sich Anna ausruht".
        early = front and not clause.subject.pronominal
        pair = [itself, subject] if early else [subject, itself]
        return join([front, *pair, *middle, *end, tail])
    end = [prefix.strip(), *infinite]
    if order == "main" and not front:
        return join([subject, finite, itself, *middle, *end, tail])
    pronoun = clause.subject.pronominal
    order_of_two = [subject, itself] if pronoun else [itself, subject]
    return join([front, finite, *order_of_two, *middle, *end, tail])


def relative_clause(clause: Clause) -> Text:
    """A relative clause: the relative pronoun is its subject or its fronted object."""
    gap = isinstance(clause.subject, Relative)
    return Text(
        english_clause(clause),
        f", {german_clause(clause, 'sub')},",
        tuple(clause.facts()) if gap or clause.front else (),
    )
