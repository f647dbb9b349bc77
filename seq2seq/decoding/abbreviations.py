"""What a full stop means after a word, by language: facts for the splitter of sentences."""

from dataclasses import dataclass
from functools import lru_cache

# Written in the middle of a sentence: these never end one. Those of Moses are added.
_NONBREAKING = {
    "en": "approx cf dept e.g est i.e incl Mt viz Pres Fr Ph",
    "de": """
        z.B d.h i.d d.i s.o s.u i.A i.V sog bzw vgl ca ggf evtl inkl exkl zzgl bspw geb gest
        verh Dipl Dipl.-Ing Ing Dr Prof Hr Fr Hl Fa Mag Tel Aufl Hrsg Abt Red gez Joh Seb Mio
        Mrd Tsd max St
    """,
    "fr": """
        M MM Mme Mmes Mlle Mlles Mgr Me Dr Pr St Ste av apr env c.-à-d p.ex cf boul tél ex éd
        Éts Ets gén
    """,
    "es": "Sr Sra Srta Sres Dr Dra D Dña Ud Uds Vd pág núm p.ej",
    "it": "Sig Sigg Dott Prof Ing Avv On pag p.es",
    "nl": "dhr mevr drs ir mr bijv d.w.z m.b.t o.a ca nr",
    "pt": "Sr Sra Dr Dra Prof pág p.ex",
    "ru": "т.е т.д т.п г ул им проф др стр рис см",
}
# Don't end one before a number: "No. 5", but "No. He left."
_BEFORE_NUMBER = {
    "en": "no nos art fig figs eq eqs ch chap sec vol vols p pp ed ver nr tel",
    "de": "nr nrn art abb abs bd kap s tab ziff hs no",
    "fr": "n no art fig p pp t vol chap éd al",
    "es": "n art fig p pág vol cap núm",
}
# End one only if a word follows with which sentences often begin. The same holds for single letters
# ("J. Smith") and for words with full stops inside ("U.S.").
_MAY_END = {
    "en": """
        Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov Dec Inc Ltd Corp Co Bros Jr Sr St Ave Blvd
        Rd al Rev Op Col Con Hon Res
    """,
    "de": """
        Jan Feb Mär Apr Jun Jul Aug Sep Sept Okt Nov Dez Str Co Ltd Corp Chr Jh Jhd SA sen jun
        Std Min min Sek v.Chr n.Chr u.a u.ä o.ä u.v.m
    """,
    "fr": "janv févr avr juil sept oct nov déc al Cie art ann dir vol lib hab env sup bd id",
}
# End one before any capital, unless a number follows.
_LISTS_END = frozenset({"etc", "usw", "u.s.w", "uvm", "ff"})
# Sentences often begin with these.
_STARTERS = {
    "en": """
        the this that these those he she it they we you i a an there here in on at but and so
        then when if after before as what who why how where his her its their our my your no yes
        not one some many all both each although however while for from with by to since now
        today later nobody everyone nothing please is are was did do does have let mine yours
        hers ours theirs
    """,
    "de": """
        der die das den dem er sie es wir ich ihr du ein eine einen einem dann danach da dort
        hier heute gestern aber und doch auch als wenn weil wie was wer wo warum wann in im am
        auf an nach vor bei mit seit für von zu zum zur diese dieser dieses diesen jetzt nun so
        man kein keine mein meine sein seine seinen ihre unser unsere alle viele einige niemand
        jeder trotzdem deshalb leider außerdem darum nur später damals dabei dazu dadurch oder
        zuerst bitte nicht nichts obwohl während
    """,
    "fr": """
        le la les l un une des il elle ils elles on nous vous je j tu ce c cette ces cet mais et
        puis alors ensuite dans en à au aux pour par sur avec sans quand si comme son sa ses
        leur leurs mon ma mes notre nos votre vos tout tous toute qui que qu où pourquoi comment
        après avant depuis cela ça aucun plus hier aujourd demain d ne n y chaque ici là quel
        quelle rien personne s
    """,
}
# Write ordinals with a full stop: "3. Oktober".
_ORDINALS = "bs cs da de et fi fo hr hu is lb lv nb nn no pl sk sl sr tr"
_NUMBER_ONLY = "#NUMERIC_ONLY#"


@dataclass(frozen=True)
class Abbreviations:
    """The words of a language after which a full stop need not end a sentence; lower-case sets."""

    nonbreaking: frozenset[str]
    """Never end a sentence; as they are written."""
    before_number: frozenset[str]
    """Don't end one before a number."""
    may_end: frozenset[str]
    """End one if a starter follows; as they are written."""
    lists_end: frozenset[str]
    """End one if a capital follows."""
    starters: frozenset[str]
    """Words with which sentences often begin."""
    ordinals: bool
    """Whether ordinals are written with a full stop."""


@lru_cache(maxsize=64)
def abbreviations_of(language: str) -> Abbreviations:
    """Collect the abbreviations of a language; those of English if it has no list.

    Args:
        language: a code such as `de`, `de-AT` or `de_DE`; anything else counts as unknown.
    """
    # Half a second, which only those who split sentences should wait for.
    from sacremoses.corpus import NonbreakingPrefixes

    code = language.lower().replace("_", "-").partition("-")[0]
    moses = NonbreakingPrefixes()
    listed = code if code in moses.available_langs or code in _NONBREAKING else "en"
    entries = list(moses.words(listed))  # of English, if Moses has no list either
    may_end = frozenset(_MAY_END.get(listed, "").split())
    before_number = frozenset(_BEFORE_NUMBER.get(listed, "").split()) | {
        entry.split()[0].lower() for entry in entries if _NUMBER_ONLY in entry
    }
    nonbreaking = {
        entry
        for entry in entries
        if len(entry) > 1
        and _NUMBER_ONLY not in entry
        and not entry.isdigit()
        and entry.lower() not in before_number
        and not set(entry.upper()) <= set("IVX")  # ordinals
    }
    nonbreaking |= set(_NONBREAKING.get(listed, "").split())
    return Abbreviations(
        nonbreaking=frozenset(nonbreaking) - may_end - _LISTS_END,
        before_number=before_number,
        may_end=may_end,
        lists_end=_LISTS_END,
        starters=frozenset(_STARTERS.get(listed, _STARTERS["en"]).split()),
        ordinals=code in _ORDINALS.split(" "),
    )
