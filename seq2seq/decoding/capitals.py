"""Text in capitals, read in the case that a vocabulary knows.

To a vocabulary that was learned from text with few capitals, a word in capitals is a row of
letters, which a model can't translate. Such a text is read in small letters, or with the capitals
that its words usually have, and its translation is written in capitals.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import TypeAlias

from seq2seq.case import KEPT, lower_letters
from seq2seq.pieces import Span
from seq2seq.tokenizer import UNKNOWN_ID

WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
STOP = re.compile(r"[.!?…][^\w\s]*\s")  # between two sentences
ENGLISH_I = re.compile(r"I(?:['’].*)?")  # the English word, which is never small
_ALSO_IN_CAPITALS = "ßªº"
MORE_PIECES = 1.75

Encode: TypeAlias = Callable[[list[str]], list[list[int]]]
"""Returns the token ids of each text."""
Cost: TypeAlias = tuple[int, int]
"""The number of unknown pieces of a word, and of all its pieces."""


@dataclass(frozen=True)
class Cased:
    """A text in another case."""

    text: str
    ends: Sequence[int]
    """Where each character of the original ends in `text`."""

    def original_spans(self, spans: Iterable[Span]) -> list[Span]:
        """Move spans from `text` to the original."""
        moved = []
        for start, end in spans:
            first = bisect_right(self.ends, start)
            moved.append((first, bisect_right(self.ends, end - 1) + 1 if start < end else first))
        return moved


def known_case(text: str, encode: Encode, language: str) -> Cased | None:
    """Return a text in capitals in the case that a vocabulary knows; None for any other text.

    In a text in capitals no word has a small letter, but for addresses, `{name}` and the like. Each
    word gets the case in which it has the fewest pieces: small letters, a first capital, as at the
    beginning of a sentence, or its own (`NATO`). The vocabulary hardly knows capitals if the words
    have more unknown pieces in capitals, or 1.75 times as many pieces as in their new case. A
    single word must be one piece in its new case, because otherwise it may be an abbreviation.
    """
    # Addresses and the like become digits, which are no words.
    places = list(WORD.finditer(KEPT.sub(lambda match: "0" * len(match[0]), text)))
    words = [match[0] for match in places]
    if not all(map(_is_in_capitals, words)) or max(map(len, words), default=0) < 2:
        return None
    forms_of_words: list[list[list[str]]] = []
    end = 0
    for match in places:
        begins = not forms_of_words or bool(STOP.match(text, end, match.start()))
        forms_of_words.append(_forms(match[0], language, begins))
        end = match.end()
    costs = _costs([*words, *map("".join, chain(*forms_of_words))], encode)
    chosen = [min(forms, key=lambda form: costs["".join(form)]) for forms in forms_of_words]
    unknown, pieces = map(sum, zip(*map(costs.__getitem__, words), strict=True))
    fewest_unknown, fewest = map(sum, zip(*(costs["".join(form)] for form in chosen), strict=True))
    if len(words) == 1 and (fewest_unknown, fewest) != (0, 1):
        return None
    if unknown <= fewest_unknown and pieces < MORE_PIECES * fewest:
        return None
    letters: list[str] = []  # of each character of the text
    for match, form in zip(places, chosen, strict=True):
        letters += [*text[len(letters) : match.start()], *form]
    letters += text[len(letters) :]
    return Cased("".join(letters), list(accumulate(map(len, letters))))


def _is_in_capitals(word: str) -> bool:
    letters = filter(str.isalpha, word)
    return all(letter.isupper() or letter in _ALSO_IN_CAPITALS for letter in letters)


def _forms(word: str, language: str, begins: bool) -> list[list[str]]:
    """Return the cases that a word may have, the likeliest first, each as what its letters become.

    One letter may become several.
    """
    small = lower_letters(word, language)
    letters = [*small] if len(small) == len(word) else [lower_letters(c, language) for c in word]
    capitalized = [word[0], *letters[1:]]
    if language.startswith("en") and ENGLISH_I.fullmatch(word):
        return [capitalized]
    first, second = (capitalized, letters) if begins else (letters, capitalized)
    return [first, second, [*word]]


def _costs(words: Iterable[str], encode: Encode) -> dict[str, Cost]:
    different = list(dict.fromkeys(words))
    ids_of_words = zip(different, encode(different), strict=True)
    return {word: (ids.count(UNKNOWN_ID), len(ids)) for word, ids in ids_of_words}
