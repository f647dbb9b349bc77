"""English inflection: articles, verbs and pronouns."""

from __future__ import annotations

from words import VOWELS, Verb

# Person (0 I, 1 you and plural, 2 third singular), subject, object, possessive.
PRONOUNS: dict[str, tuple[int, str, str, str]] = {
    "I": (0, "I", "me", "my"),
    "you": (1, "you", "you", "your"),
    "he": (2, "he", "him", "his"),
    "she": (2, "she", "her", "her"),
    "it_m": (2, "it", "it", "its"),
    "it_f": (2, "it", "it", "its"),
    "it_n": (2, "it", "it", "its"),
    "we": (1, "we", "us", "our"),
    "you_all": (1, "you", "you", "your"),
    "they": (1, "they", "them", "their"),
    "you_formal": (1, "you", "you", "your"),
}
DOUBLED = [
    "get",
    "sit",
    "swim",
    "run",
    "put",
    "cut",
    "begin",
    "plan",
    "hug",
    "fit",
    "forget",
    "travel",
    "stop",
]


def article(following: str) -> str:
    """The indefinite article before a word, by its sound."""
    word = following.lower()
    if word.startswith(("university", "uniform", "hour", "honest", "one", "euro", "useful")):
        return "an" if word.startswith(("hour", "honest")) else "a"
    return "an" if word[0] in "aeiou" else "a"


def third_person(base: str) -> str:
    """The third person singular: goes, carries, watches."""
    if base in ("be", "have"):
        return {"be": "is", "have": "has"}[base]
    if base.endswith(("s", "sh", "ch", "x", "z", "o")):
        return base + "es"
    if base.endswith("y") and base[-2] not in VOWELS:
        return base[:-1] + "ies"
    return base + "s"


def progressive(base: str) -> str:
    """The -ing form: running, making, lying."""
    if base in DOUBLED:
        return base + base[-1] + "ing"
    if base.endswith("ie"):
        return base[:-2] + "ying"
    if base.endswith("e") and not base.endswith("ee") and base != "be":
        return base[:-1] + "ing"
    return base + "ing"


def be(person: int, past: bool) -> str:
    """A form of "be"."""
    return (("was", "were", "was") if past else ("am", "are", "is"))[person]


def present(verb: Verb, person: int) -> str:
    """A finite present form."""
    if verb.english == "be":
        return be(person, past=False)
    return third_person(verb.english) if person == 2 else verb.english


def past(verb: Verb, person: int) -> str:
    """A finite past form."""
    return be(person, past=True) if verb.english == "be" else verb.english_past
