"""German inflection: articles, nouns, adjectives, pronouns and verbs.

Cases are "nom", "acc", "dat" and "gen"; a gender is "m", "f", "n" or "p" for the plural.
A person is an index into PERSONS.
"""

from __future__ import annotations

from words import Adjective, Noun, Verb

CASES = ("nom", "acc", "dat", "gen")
PERSONS = ("ich", "du", "er", "wir", "ihr", "sie")


def grid(table: str) -> dict[tuple[str, str], str]:
    """A table of four genders with four cases each; "-" stands for no ending."""
    cells = {}
    for line in table.strip().splitlines():
        gender, *forms = line.split()
        for case, form in zip(CASES, forms, strict=True):
            cells[gender, case] = "" if form == "-" else form
    return cells


DEFINITE = grid(
    """
    m der den dem des
    f die die der der
    n das das dem des
    p die die den der
    """
)
DER_ENDINGS = grid(
    """
    m er en em es
    f e e er er
    n es es em es
    p e e en er
    """
)
EIN_ENDINGS = grid(
    """
    m - en em es
    f e e er er
    n - - em es
    p e e en er
    """
)
STRONG = grid(
    """
    m er en em en
    f e e er er
    n es es em en
    p e e en er
    """
)
WEAK = grid(
    """
    m e en en en
    f e e en en
    n e e en en
    p en en en en
    """
)
MIXED = grid(
    """
    m er en en en
    f e e en en
    n es es en en
    p en en en en
    """
)
RELATIVE = grid(
    """
    m der den dem dessen
    f die die der deren
    n das das dem dessen
    p die die denen deren
    """
)
WHO = {"nom": "wer", "acc": "wen", "dat": "wem", "gen": "wessen"}

# Person, nominative, accusative, dative, possessive.
PRONOUNS: dict[str, tuple[int, str, str, str, str]] = {
    "I": (0, "ich", "mich", "mir", "mein"),
    "you": (1, "du", "dich", "dir", "dein"),
    "he": (2, "er", "ihn", "ihm", "sein"),
    "she": (2, "sie", "sie", "ihr", "ihr"),
    "it_m": (2, "er", "ihn", "ihm", "sein"),
    "it_f": (2, "sie", "sie", "ihr", "ihr"),
    "it_n": (2, "es", "es", "ihm", "sein"),
    "we": (3, "wir", "uns", "uns", "unser"),
    "you_all": (4, "ihr", "euch", "euch", "euer"),
    "they": (5, "sie", "sie", "ihnen", "ihr"),
    "you_formal": (5, "Sie", "Sie", "Ihnen", "Ihr"),
}
POSSESSIVES = tuple(row[4] for row in PRONOUNS.values())
REFLEXIVE = ("mich", "dich", "sich", "uns", "euch", "sich")
REFLEXIVE_DATIVE = ("mir", "dir", "sich", "uns", "euch", "sich")
CONTRACTIONS = {
    ("in", "dem"): "im",
    ("an", "dem"): "am",
    ("zu", "dem"): "zum",
    ("zu", "der"): "zur",
    ("in", "das"): "ins",
    ("an", "das"): "ans",
    ("von", "dem"): "vom",
    ("bei", "dem"): "beim",
}

# The present of the verbs that follow no rule, in the order of PERSONS.
PRESENT = {
    "sein": "bin bist ist sind seid sind",
    "haben": "habe hast hat haben habt haben",
    "werden": "werde wirst wird werden werdet werden",
    "wissen": "weiß weißt weiß wissen wisst wissen",
    "mögen": "mag magst mag mögen mögt mögen",
    "können": "kann kannst kann können könnt können",
    "müssen": "muss musst muss müssen müsst müssen",
    "dürfen": "darf darfst darf dürfen dürft dürfen",
    "sollen": "soll sollst soll sollen sollt sollen",
    "wollen": "will willst will wollen wollt wollen",
    "möchten": "möchte möchtest möchte möchten möchtet möchten",
    "würden": "würde würdest würde würden würdet würden",
    "hätten": "hätte hättest hätte hätten hättet hätten",
    "sollten": "sollte solltest sollte sollten solltet sollten",
}
PRETERITE = {
    "haben": "hatte",
    "sein": "war",
    "werden": "wurde",
    "können": "konnte",
    "müssen": "musste",
    "dürfen": "durfte",
    "wollen": "wollte",
    "sollen": "sollte",
}


def genus(noun: Noun, plural: bool) -> str:
    """The row of a declension table that a noun uses."""
    return "p" if plural else noun.gender


def noun_form(noun: Noun, case: str, plural: bool) -> str:
    """A noun in its case; dative plurals take -n, weak nouns -(e)n."""
    if plural:
        form = noun.german_plural
        return form if case != "dat" or form.endswith(("n", "s")) else form + "n"
    if case == "gen":
        return noun.genitive
    if noun.weak and case != "nom":
        return "Herrn" if noun.german == "Herr" else noun.german_plural
    return noun.german


def determiner(word: str, gender: str, case: str) -> str:
    """A determiner by its German citation form: der, ein, kein, mein, dieser, viele, zwei, ..."""
    if word == "der":
        return DEFINITE[gender, case]
    if word in ("dieser", "jeder", "welcher"):
        return word[:-2] + DER_ENDINGS[gender, case]
    if word in ("viele", "einige", "mehrere"):
        return word[:-1] + DER_ENDINGS["p", case]
    if word in ("ein", "kein") or word in POSSESSIVES:
        ending = EIN_ENDINGS[gender, case]
        return ("eur" if word == "euer" and ending else word) + ending
    return word


def declension(word: str) -> dict[tuple[str, str], str]:
    """The adjective endings that a determiner calls for."""
    if word in ("der", "dieser", "jeder", "welcher"):
        return WEAK
    if word in ("ein", "kein") or word in POSSESSIVES:
        return MIXED
    return STRONG


def adjective_stem(adjective: Adjective, degree: int) -> str:
    """The stem that takes endings: dunkel dunkl-, teuer teur-, hoch hoh-."""
    if degree:
        return adjective.german_degrees[degree - 1]
    special = {"teuer": "teur", "hoch": "hoh", "sauer": "saur", "müde": "müd"}
    return special.get(adjective.german, adjective.german)


def adjective_form(adjective: Adjective, degree: int, ending: str) -> str:
    """An attributive adjective with its ending."""
    return adjective_stem(adjective, degree) + ending


def predicate_form(adjective: Adjective, degree: int) -> str:
    """A predicate adjective: alt, älter, am ältesten."""
    if degree == 2:
        return f"am {adjective.german_degrees[1]}en"
    return adjective.german_degrees[0] if degree else adjective.german


def contract(preposition: str, phrase: str) -> str:
    """Join a preposition to its phrase: in + dem Haus = im Haus."""
    head, _, rest = phrase.partition(" ")
    short = CONTRACTIONS.get((preposition, head))
    return f"{short} {rest}" if short and rest else f"{preposition} {phrase}"


def needs_e(stem: str) -> bool:
    """Whether -st and -t need a linking e after this stem: arbeitest, öffnet, but lernt."""
    return stem.endswith(("t", "d", "chn", "ffn", "gn", "ckn"))


def verb_stem(infinitive: str) -> str:
    """The infinitive without -en or -n."""
    return infinitive[:-2] if infinitive.endswith("en") else infinitive[:-1]


def present(infinitive: str, third: str, person: int) -> str:
    """A finite present form."""
    if infinitive in PRESENT:
        return PRESENT[infinitive].split()[person]
    stem = verb_stem(infinitive)
    if person == 0:
        return stem[:-2] + "le" if stem.endswith("el") else stem + "e"
    if person in (3, 5):
        return infinitive
    if person == 2:
        return third
    link = "e" if needs_e(stem) else ""
    if person == 4:
        return stem + link + "t"
    regular = third == stem + link + "t"
    base = stem + link if regular else third[:-1]
    return base + ("t" if base.endswith(("s", "ß", "z", "x")) else "st")


def preterite(first: str, person: int) -> str:
    """A finite preterite form from the first person: wohnte, wohntest; ging, gingst."""
    if first.endswith("te") or first == "wurde":
        return first + ("", "st", "", "n", "t", "n")[person]
    link = "e" if first.endswith(("t", "d", "s", "ß")) and person in (1, 4) else ""
    return first + link + ("", "st", "", "en", "t", "en")[person]


def infinitive(verb: Verb, zu: bool = False) -> str:
    """The infinitive with its prefix: einkaufen, einzukaufen, zu helfen, spazieren zu gehen."""
    if zu and (not verb.prefix or verb.prefix.endswith(" ")):
        return f"{verb.prefix}zu {verb.german}"
    return verb.prefix + ("zu" if zu else "") + verb.german


def participle(verb: Verb) -> str:
    """The past participle with its prefix: eingekauft, spazieren gegangen."""
    return verb.prefix + verb.participle


def imperative(verb: Verb, address: str) -> str:
    """The imperative without prefix: du-form, ihr-form ("you_all") or the verb of the Sie-form."""
    if address == "you_formal":
        return verb.german
    if address == "you_all":
        return present(verb.german, verb.third, 4)
    stem = verb_stem(verb.german)
    changed = verb.third[:-1]
    if "i" in changed and "ä" not in changed and not verb.third.startswith(stem):
        return changed
    if stem.endswith("el"):
        return stem[:-2] + "le"
    return stem + ("e" if needs_e(stem) else "")
