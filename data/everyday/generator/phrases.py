"""Noun phrases: one structure that is realized in both languages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import english
import german
from words import Adjective, Noun

Fact = tuple[str, str, str]


@dataclass(frozen=True)
class Text:
    """A piece that reads the same wherever it stands: an adverb, a time, a place."""

    english: str
    german: str
    facts: tuple[Fact, ...] = ()


@dataclass(frozen=True)
class Phrase:
    """What can be a subject or an object; the base of the phrases below.

    The person is an index into the German persons; `lemma` is the English noun it stands for.
    """

    @property
    def person(self) -> int:
        """The German person, an index."""
        return 2

    @property
    def english_person(self) -> int:
        """The English person: 0 I, 2 third singular, 1 all others."""
        return self.person if self.person in (0, 2) else 1

    @property
    def lemma(self) -> str:
        """The English noun that the phrase stands for, or nothing."""
        return ""

    @property
    def pronominal(self) -> bool:
        """Whether the phrase is a pronoun."""
        return False

    @property
    def indefinite(self) -> bool:
        """Whether "kein" rather than "nicht" would negate the phrase."""
        return False

    @property
    def tail(self) -> Text:
        """The relative clause, which German moves behind the verb when the phrase is an object."""
        return Text("", "")

    def english(self, subject: bool) -> str:
        """The phrase in English."""
        raise NotImplementedError

    def german(self, case: str) -> str:
        """The phrase in German."""
        raise NotImplementedError

    def facts(self) -> Iterator[Fact]:
        """The pairs of lemmas that meet inside the phrase."""
        return iter(())


@dataclass(frozen=True)
class Pronoun(Phrase):
    """A personal pronoun, with the noun that it stands for where the sentence says so."""

    key: str
    antecedent: str = ""

    @property
    def person(self) -> int:
        """The German person, an index."""
        return german.PRONOUNS[self.key][0]

    @property
    def lemma(self) -> str:
        """The English noun that the phrase stands for, or nothing."""
        return self.antecedent

    @property
    def pronominal(self) -> bool:
        """Whether the phrase is a pronoun."""
        return True

    def english(self, subject: bool) -> str:
        """The phrase in English."""
        _, nominative, objective, _ = english.PRONOUNS[self.key]
        return nominative if subject else objective

    def german(self, case: str) -> str:
        """The phrase in German."""
        _, nominative, accusative, dative, _ = german.PRONOUNS[self.key]
        return {"nom": nominative, "acc": accusative, "dat": dative}[case]


@dataclass(frozen=True)
class Question(Phrase):
    """The question words for persons and things."""

    human: bool

    @property
    def pronominal(self) -> bool:
        """Whether the phrase is a pronoun."""
        return True

    def english(self, subject: bool) -> str:
        """The phrase in English."""
        return "who" if self.human else "what"

    def german(self, case: str) -> str:
        """The phrase in German."""
        return german.WHO[case] if self.human else "was"


@dataclass(frozen=True)
class Relative(Phrase):
    """A relative pronoun, which agrees with the noun before it."""

    noun: Noun
    plural: bool

    @property
    def person(self) -> int:
        """The German person, an index."""
        return 5 if self.plural else 2

    @property
    def lemma(self) -> str:
        """The English noun that the phrase stands for, or nothing."""
        return self.noun.english

    @property
    def pronominal(self) -> bool:
        """Whether the phrase is a pronoun."""
        return True

    def english(self, subject: bool) -> str:
        """The phrase in English."""
        if not any(kind in ("person", "stranger", "baby") for kind in self.noun.kinds):
            return "that"
        return "who" if subject else "whom"

    def german(self, case: str) -> str:
        """The phrase in German."""
        return german.RELATIVE[german.genus(self.noun, self.plural), case]


@dataclass(frozen=True)
class Name(Phrase):
    """A first name, or a surname with its title."""

    name: str
    title: str = ""
    sex: str = ""

    def english(self, subject: bool) -> str:
        """The phrase in English."""
        return f"{self.title} {self.name}".strip()

    def german(self, case: str) -> str:
        """The phrase in German."""
        if self.title == "Mr.":
            return f"{'Herr' if case == 'nom' else 'Herrn'} {self.name}"
        return f"Frau {self.name}" if self.title else self.name

    @property
    def genitive(self) -> str:
        """The genitive before a noun: Annas, Max'."""
        return self.name + ("'" if self.name.endswith(("s", "x", "z", "ß")) else "s")


@dataclass(frozen=True)
class Determiner:
    """A determiner by its citation forms; an empty German form takes strong adjectives."""

    english: str
    german: str


THE = Determiner("the", "der")
A = Determiner("a", "ein")
THIS = Determiner("this", "dieser")
EVERY = Determiner("every", "jeder")
WHICH = Determiner("which", "welcher")
ZERO = Determiner("", "")
MANY = Determiner("many", "viele")
SOME = Determiner("some", "einige")
SEVERAL = Determiner("several", "mehrere")
INSTRUMENT = Determiner("the", "")


def possessive(key: str) -> Determiner:
    """The possessive of a personal pronoun."""
    return Determiner(english.PRONOUNS[key][3], german.PRONOUNS[key][4])


@dataclass(frozen=True)
class Common(Phrase):
    """A determiner, adjectives with their degrees, a noun, and what follows it.

    A first name as `owner` stands before the noun in both languages; any other owner stands
    before it in English and in the genitive after it in German.
    """

    noun: Noun
    determiner: Determiner
    adjectives: tuple[tuple[Adjective, int], ...] = ()
    plural: bool = False
    owner: Phrase | None = None
    modifier: Text | None = None
    relative: Text | None = None

    @property
    def person(self) -> int:
        """The German person, an index."""
        return 5 if self.plural else 2

    @property
    def lemma(self) -> str:
        """The English noun that the phrase stands for, or nothing."""
        return self.noun.english

    @property
    def indefinite(self) -> bool:
        """Whether "kein" rather than "nicht" would negate the phrase."""
        definite = (THE, THIS, EVERY, WHICH)
        possessed = self.determiner.german in german.POSSESSIVES or self.owner is not None
        return self.determiner not in definite and not possessed

    @property
    def tail(self) -> Text:
        """The relative clause."""
        return self.relative or Text("", "")

    @property
    def it(self) -> str:
        """The key of the pronoun that takes up this phrase, or nothing where usage wavers."""
        if self.plural:
            return "they"
        if any(kind in ("person", "baby", "stranger") for kind in self.noun.kinds):
            return self.noun.sex
        return f"it_{self.noun.gender}"

    def english(self, subject: bool) -> str:
        """The phrase in English."""
        words = [adjective_english(*pair) for pair in self.adjectives]
        words.append(self.noun.english_plural if self.plural else self.noun.english)
        determiner = self.determiner.english
        if self.owner is not None:
            owner = self.owner.english(subject=True)
            determiner = owner + ("'" if owner.endswith("s") and self.owner.person == 5 else "'s")
        elif self.determiner == A:
            determiner = english.article(words[0])
        elif self.determiner == THIS and self.plural:
            determiner = "these"
        parts = [determiner, *words]
        parts += [piece.english for piece in (self.modifier, self.relative) if piece]
        return " ".join(filter(None, parts))

    def german(self, case: str) -> str:
        """The phrase in German."""
        genus = german.genus(self.noun, self.plural)
        word = self.determiner.german
        named = isinstance(self.owner, Name)
        endings = german.STRONG if named else german.declension(word)
        first = (
            self.owner.genitive
            if isinstance(self.owner, Name)
            else (german.determiner(word, genus, case) if word else "")
        )
        parts = [first]
        parts += [
            german.adjective_form(adjective, degree, endings[genus, case])
            for adjective, degree in self.adjectives
        ]
        parts.append(german.noun_form(self.noun, case, self.plural))
        if self.owner is not None and not named:
            parts.append(self.owner.german("gen"))
        if self.modifier:
            parts.append(self.modifier.german)
        return " ".join(filter(None, parts))

    def negative(self) -> Common:
        """The phrase as the object of a negated verb: "any" in English, "kein" in German."""
        if self.determiner == A:
            return replace(self, determiner=Determiner("a", "kein"))
        return replace(self, determiner=Determiner("any", "kein"))

    def facts(self) -> Iterator[Fact]:
        """The pairs of lemmas that meet inside the phrase."""
        for adjective, _ in self.adjectives:
            yield "adjective", adjective.english, self.noun.english
        for piece in (self.modifier, self.relative):
            yield from piece.facts if piece else ()
        if self.owner is not None:
            yield from self.owner.facts()


@dataclass(frozen=True)
class Pair(Phrase):
    """Two phrases joined by "and"."""

    first: Phrase
    second: Phrase

    @property
    def person(self) -> int:
        """The German person, an index."""
        return 3 if 0 in (self.first.person, self.second.person) else 5

    def english(self, subject: bool) -> str:
        """The phrase in English."""
        return f"{self.first.english(subject)} and {self.second.english(subject)}"

    def german(self, case: str) -> str:
        """The phrase in German."""
        return f"{self.first.german(case)} und {self.second.german(case)}"

    def facts(self) -> Iterator[Fact]:
        """The pairs of lemmas that meet inside the phrase."""
        yield from self.first.facts()
        yield from self.second.facts()


def adjective_english(adjective: Adjective, degree: int) -> str:
    """An adjective in its degree: 0 positive, 1 comparative, 2 superlative."""
    return adjective.english_degrees[degree - 1] if degree else adjective.english


def prepositional(english_word: str, german_word: str, case: str, phrase: Phrase) -> Text:
    """A preposition with its phrase, contracted in German where an article allows it."""
    return Text(
        f"{english_word} {phrase.english(subject=False)}",
        german.contract(german_word, phrase.german(case)),
        tuple(phrase.facts()),
    )
