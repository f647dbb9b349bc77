"""Sentences: where one ends and the next begins.

A full stop, question mark or the like ends a sentence if a space follows, or at once in scripts
without spaces, unless what stands around it says otherwise: an abbreviation or an initial before
it, a lower-case letter after it, brackets around it. Quotations in “ ” or « » are split, for their
sentences stand by themselves; those in 「 」 that are part of a sentence are not, because its verb
follows them.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

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
LISTS_END = frozenset({"etc", "usw", "u.s.w", "uvm", "ff"})
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

    nonbreaking: frozenset[str]  # never end a sentence; as they are written
    before_number: frozenset[str]  # don't end one before a number
    may_end: frozenset[str]  # end one if a starter follows; as they are written
    starters: frozenset[str]  # words with which sentences often begin
    ordinals: bool  # whether ordinals are written with a full stop


@lru_cache(maxsize=64)
def abbreviations_of(language: str) -> Abbreviations:
    """Collect the abbreviations of a language, such as `de` or `de-AT`; else, English ones."""
    # Half a second, which only those who split sentences should wait for.
    from sacremoses.corpus import NonbreakingPrefixes

    code = _without_region(language)
    moses = NonbreakingPrefixes()
    listed = code if code in moses.available_langs or code in _NONBREAKING else "en"
    may_end = set(_MAY_END.get(listed, "").split())
    before_number = set(_BEFORE_NUMBER.get(listed, "").split())
    nonbreaking = set(_NONBREAKING.get(listed, "").split())
    entries = set[str]()
    for entry in moses.words(listed):  # of English, if Moses has no list either
        if _NUMBER_ONLY in entry:
            before_number.add(entry.split()[0].lower())
        elif not (len(entry) == 1 or entry.isdigit() or set(entry.upper()) <= set("IVX")):
            entries.add(entry)  # no ordinal
    nonbreaking.update(entry for entry in entries if entry.lower() not in before_number)
    return Abbreviations(
        nonbreaking=frozenset(nonbreaking - may_end - LISTS_END),
        before_number=frozenset(before_number),
        may_end=frozenset(may_end),
        starters=frozenset(_STARTERS.get(listed, _STARTERS["en"]).split()),
        ordinals=writes_ordinals(language),
    )


def writes_ordinals(language: str) -> bool:
    """Return whether a language writes ordinals with a full stop."""
    return _without_region(language) in _ORDINALS.split()


def _without_region(language: str) -> str:
    return re.split("[-_]", language.lower())[0]


NARROW = ".!?…؟۔।॥։።။។"
WIDE = "。！？｡⁇⁈⁉"
BRACKETS = {"(": ")", "[": "]", "（": "）", "［": "］", "「": "」", "『": "』", "【": "】"}
_QUOTES = "「『"
_WIDE_CLOSERS = "」』）】〉》〕］"
_JAPANESE = r"\u3040-\u30ff\u3400-\u9fff"
_NOTE = r"\[\d{1,3}\]"  # a reference to one
_SMILEY = r"\s[:;]-?[)(DP](?=\s|\Z)"
# Possessive quantifiers (`++`) keep the time linear in the length of any line.
_STOPS = rf"""[{NARROW}]++ (?: \s [{NARROW}]++ (?=[\s"'”»)\]] | \Z) )*+"""
EVENT = re.compile(
    rf"""
    (?P<bracket> [{re.escape("".join(BRACKETS))}] )
    | (?P<wide>
        (?: [{WIDE}] | ．(?![0-9０-９]) ) [!?{WIDE}]*+
        | (?<=[{_JAPANESE}]) [!?]++ (?=[{_JAPANESE}])
      )
      (?: [{_WIDE_CLOSERS}”’"'»)\]] | {_NOTE} | （[笑泣汗]） )*+ \s*+
    | (?P<narrow> {_STOPS} )
      (?: ["'”’»›“‘«)\]\}}*{_WIDE_CLOSERS}] | \s »(?=[\s.,;:)] | \Z) | {_NOTE} | {_SMILEY} )*+
      (?: \s++ | \Z )
    | {_STOPS}  # end nothing; taken whole, or each of them would be tried again
    """,
    re.VERBOSE,
)
_OPENERS = r"""\s"'“”‘’„‚«»‹›(\[{¿¡*_—–•·「『（-"""
# A sentence seldom begins so, but the rest of one whose quotation has just ended does.
CONTINUATION = re.compile(
    r"(?!ところ|とても|とにかく|ともかく|とうとう|でも|では|だから|だが|だめ|もし|もう|もっと|もちろん|はい"
    r"|はじめ|はっきり|にもかかわらず|のち|がっかり|やが)"
    r"(?:と|って|など|なんて|[、，,]|が|を|の|は|に|だ|で|も|へ|や|か(?!れ|の))"
)
QUOTING = re.compile(r"(?!ところ|とても|とにかく|ともかく|とうとう)(?:と|って|など|[、，,])")
WORD_BEFORE = re.compile(r"(?:(?<!\w)[^\W\d_]\.\s?)*[\w.\-’']+\Z")
AFTER = re.compile(rf"[{_OPENERS}]{{0,12}}(?P<word>\w{{0,30}})(?P<stop>\.?)")
DOTTED = re.compile(r"(?=.*\.)(?:[^\W\d_]{1,3}[.-]{1,2})+[^\W\d_]{1,3}")
ITEM = re.compile(r"(?:[a-z]|\d{1,2})[.)]\s")  # of a list: "1. ", "b) "
NUMBER = re.compile(r"[図表式]?\d{1,3}")
ROMAN = re.compile(r"[IVXLC]+")
_WINDOW = 60  # characters before a full stop that are looked at


def split_sentences(line: str, language: str = "") -> list[str]:
    """Split a line into sentences, each with the white space that follows it.

    The language's code is for abbreviations and ordinals; by default the line is split as English
    is, and a line without capitals before lower-case letters too.
    """
    ends = _Splitter(line, abbreviations_of(language)).ends()
    sentences = (line[start:end] for start, end in pairwise((0, *ends, len(line))))
    return list(filter(None, sentences))


class _Splitter:
    """One line, read from left to right."""

    def __init__(self, line: str, words: Abbreviations) -> None:
        self.line, self.words = line, words
        self.cased = any(map(str.isupper, line))
        self.closing = _pair_brackets(line)

    def ends(self) -> Iterator[int]:
        """Yield the indices at which a sentence ends, white space included."""
        first = self._first_character(0)  # of the sentence
        bracket_end = -1  # of the outermost brackets that are a part of the sentence
        for match in EVENT.finditer(self.line):
            index = match.start()
            if match["bracket"]:
                if index > bracket_end and self._is_part(index, first):
                    bracket_end = self.closing[index]
            elif match["wide"] or match["narrow"]:
                inside = index < bracket_end and not self._ends_with_quotation(match, bracket_end)
                if not inside and self._ends_here(match, first):
                    yield match.end()
                    first = self._first_character(match.end())

    def _first_character(self, start: int) -> int:
        while start < len(self.line) and self.line[start] in " \u3000\t\"'“„«":
            start += 1
        return start

    def _is_part(self, opening: int, first: int) -> bool:
        """Whether brackets are a part of their sentence, rather than sentences of their own."""
        if opening not in self.closing:
            return False
        if opening > first:
            return True
        closing = self.closing[opening]
        after = self.line[closing + 1 : closing + 13].lstrip()
        if self.line[opening] in _QUOTES:
            stands_alone = not after or self.line[closing - 1] in WIDE
            return not stands_alone or bool(CONTINUATION.match(after))
        return self.line[closing - 1] not in NARROW + WIDE

    def _ends_with_quotation(self, match: re.Match[str], bracket_end: int) -> bool:
        """Whether a sentence may end with the quotation that is a part of it."""
        closes = self.line[bracket_end] in "」』" and match.end() > bracket_end
        return closes and self.line[match.end() : match.end() + 1] not in tuple(_QUOTES)

    def _ends_here(self, match: re.Match[str], first: int) -> bool:
        after = AFTER.match(self.line, match.end())
        assert after is not None
        if match.end() == len(self.line):
            return True
        if match["wide"]:
            return self._wide_stop_ends(match, first)
        word = after["word"]
        if ITEM.match(self.line, first) and ITEM.match(self.line, match.end()):
            return True
        # "iPhone" begins sentences, "and" does not.
        if self.cased and word[:1].islower() and not any(map(str.isupper, word)):
            return False
        if match["narrow"] != "." or match[0].rstrip() != ".":
            return True  # "!", or a quotation or brackets end with it
        return self._word_ends(first, match.start(), after)

    def _wide_stop_ends(self, match: re.Match[str], first: int) -> bool:
        """Whether a stop in a script without spaces ends a sentence: not in "行け！と叫んだ"."""
        whole = match[0].rstrip()
        if match["wide"] == "．" and _is_number(self.line[first : min(first + 9, match.start())]):
            return False  # "１．箱を開ける。"
        if whole != match[0] or (whole == match["wide"] and whole[0] in "。｡．"):
            return True
        continuation = QUOTING if whole == match["wide"] else CONTINUATION
        return not continuation.match(self.line, match.end())

    def _word_ends(self, first: int, stop: int, after: re.Match[str]) -> bool:
        """Whether the word before a full stop ends its sentence."""
        following, is_abbreviated = after["word"], bool(after["stop"])
        starts = following.lower() in self.words.starters and not (
            len(following) == 1 and is_abbreviated
        )
        window = self.line[max(0, stop - _WINDOW) : stop]
        *_, before, token = ["", *window.split()] if window[-1:].strip() else ["", "", ""]
        if not token or set(token) & set("/@=%"):
            return True
        match = WORD_BEFORE.search(window)
        word = re.sub(r"\.\s", ".", match[0]).strip("'’-") if match else ""
        if first + len(word) >= stop and _is_number(word):
            return False  # "1. Open the box."
        number_follows = following[:1].isdigit() or bool(ROMAN.fullmatch(following))
        last = re.split("[.'’]", word)[-1]
        if last.lower() in self.words.before_number and number_follows and not starts:
            return False
        if _is_number(word) and before.rstrip(".").lower() in self.words.before_number:
            return True
        if word in self.words.nonbreaking or word.lower() in self.words.nonbreaking:
            return False
        if word.lower() in LISTS_END:
            return not number_follows
        is_initial = len(word) == 1 and word.isalpha()
        if is_initial and word.islower() and before[-1:].isdigit() and not is_abbreviated:
            return True  # "5 h.", but "753 v. Chr."
        is_ordinal = self.words.ordinals and _is_number(word)
        if is_initial or is_ordinal or DOTTED.fullmatch(word) or word in self.words.may_end:
            return starts
        return True


def _is_number(word: str) -> bool:
    """Whether a word may count or order: 12, XIV, or the letter of a list."""
    word = word.strip()
    is_letter = len(word) == 1 and word.isalpha()
    return is_letter or bool(NUMBER.fullmatch(word) or ROMAN.fullmatch(word))


def _pair_brackets(line: str) -> dict[int, int]:
    """Find the closing bracket of each opening one that has one."""
    pairs: dict[int, int] = {}
    waiting: dict[str, list[int]] = {}
    for index, character in enumerate(line):
        if character in BRACKETS:
            waiting.setdefault(BRACKETS[character], []).append(index)
        elif openings := waiting.get(character):
            pairs[openings.pop()] = index
    return pairs
