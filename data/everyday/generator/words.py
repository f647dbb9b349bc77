"""The kinds of word in the lexicon, and how a line of a table becomes one."""

from __future__ import annotations

from dataclasses import dataclass

VOWELS = "aeiouäöüy"


@dataclass(frozen=True)
class Noun:
    """A noun in both languages; a mass noun has no plural."""

    english: str
    english_plural: str
    german: str
    gender: str
    german_plural: str
    genitive: str
    weak: bool
    kinds: tuple[str, ...]

    @property
    def mass(self) -> bool:
        """Whether the noun has no plural."""
        return not self.german_plural

    @property
    def sex(self) -> str:
        """The pronoun of a person whose grammatical gender agrees, else nothing."""
        return next((kind for kind in self.kinds if kind in ("he", "she")), "")


@dataclass(frozen=True)
class Adjective:
    """An adjective with its comparatives and superlatives, and the kinds of noun it suits."""

    english: str
    english_degrees: tuple[str, str]
    german: str
    german_degrees: tuple[str, str]
    kinds: tuple[str, ...]

    @property
    def gradable(self) -> bool:
        """Whether the adjective can be compared."""
        return bool(self.german_degrees[0])


@dataclass(frozen=True)
class Verb:
    """A verb in both languages with the kinds of subject and object that it takes.

    The English particle stays behind the verb; a `loose` one follows a pronoun ("turn it on").
    The German prefix is separable; one that ends in a space is written apart
    ("spazieren gehen").
    """

    english: str
    particle: str
    loose: bool
    english_past: str
    english_participle: str
    german: str
    prefix: str
    third: str
    preterite: str
    participle: str
    auxiliary: str
    frame: str
    subjects: tuple[str, ...]
    objects: tuple[str, ...]
    marks: tuple[str, ...]
    preposition: str = ""
    case: str = "acc"

    @property
    def lemma(self) -> str:
        """The English base with its particle."""
        return f"{self.english} {self.particle}".strip()


@dataclass(frozen=True)
class Place:
    """A place as a noun with its prepositions: where one is, and where one goes."""

    noun: Noun
    english_at: str
    english_to: str
    german_at: str
    german_to: str
    german_to_case: str


def english_plural(word: str) -> str:
    """The regular plural of an English noun."""
    if word.endswith(("s", "sh", "ch", "x", "z")):
        return word + "es"
    if word.endswith("y") and word[-2] not in VOWELS:
        return word[:-1] + "ies"
    return word + "s"


def german_genitive(noun: str, gender: str, weak_plural: str) -> str:
    """The genitive singular: nothing for feminines, -(e)n for weak nouns, else -s or -es."""
    if gender == "f":
        return noun
    if weak_plural:
        return "Herrn" if noun == "Herr" else weak_plural
    if noun.endswith(("s", "ß", "z", "x", "sch", "st")):
        return noun + "es"
    groups = "".join("v" if c in VOWELS else " " for c in noun.lower()).split()
    short = len(groups) == 1 and noun[-1].lower() not in VOWELS and not noun.endswith("h")
    return noun + ("es" if short else "s")


def parse_noun(line: str) -> Noun:
    """Read `english[/plural] | German m|f|n Plural|- [weak] [=genitive] | kinds`."""
    english, german, kinds = (part.strip() for part in line.split("|"))
    singular, _, plural = english.partition("/")
    form, gender, german_plural, *extras = german.split()
    german_plural = "" if german_plural == "-" else german_plural
    weak = "weak" in extras
    genitive = german_genitive(form, gender, german_plural if weak else "")
    for extra in extras:
        if extra.startswith("="):
            genitive = extra[1:]
    return Noun(
        singular,
        plural or english_plural(singular),
        form,
        gender,
        german_plural,
        genitive,
        weak,
        tuple(kinds.split()),
    )


def rows(table: str) -> list[str]:
    """The lines of a table; one that begins with a space continues the line before it."""
    return table.strip().replace("\n ", " ").splitlines()
