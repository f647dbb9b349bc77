"""Noise in training text: capitals and typing errors, as the modifiers of OpusTrainer add them.

The noise of a pair is a function of (seed, epoch, number of the pair) alone, so that a resumed run
and any number of processes see the same text.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from seq2seq.case import KEPT, upper_case
from seq2seq.errors import check_number
from seq2seq.settings import digested
from seq2seq.text import SentencePair


@dataclass(kw_only=True)
class NoiseConfig:
    """Noise in the training text, drawn again for each epoch; validation text has none.

    Each share is a part of the determined training text, which a resumed run must have.
    """

    capitals: float = digested(0.0)
    """Share of the training pairs that are written in capitals, on both sides. The vocabulary is
    learned from as many."""

    typos: float = digested(0.0)
    """Share of the training pairs whose source gets typing errors: in about every tenth word, and
    in at least one."""

    def __post_init__(self) -> None:
        for name in ("capitals", "typos"):
            check_number(f"data.noise.{name}", getattr(self, name), at_least=0, at_most=1)

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self.capitals or self.typos)


def add_noise(
    pair: SentencePair, noise: NoiseConfig, languages: Sequence[str], number: Sequence[int | str]
) -> SentencePair:
    """Return a pair with noise, a function of these numbers; most pairs have none.

    A pair gets no capitals if its source has no small letters, as in scripts without case.
    """
    random = Random(" ".join(map(str, number)))
    in_capitals, with_typos = random.random() < noise.capitals, random.random() < noise.typos
    source, target = pair
    if in_capitals and (written := upper_case(source, languages[0])) != source:
        source, target = written, upper_case(target, languages[1])
    if with_typos:
        source = misspell(source, random)
    return SentencePair(source, target)


_SHARE = 0.1  # of the words of a text with typing errors
_ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")  # of a keyboard


def misspell(text: str, random: Random) -> str:
    """Make typing errors in a text."""
    parts = re.split(r"(\s+)", text)  # words at even places, what is between them at odd ones
    words = [i for i in range(0, len(parts), 2) if _can_be_misspelled(parts[i])]
    if not words:
        return text
    for i in [i for i in words if random.random() < _SHARE] or [random.choice(words)]:
        if random.random() < 1 / 5 and i + 2 < len(parts):
            parts[i + 1] = ""
        else:
            parts[i] = _misspell_word(parts[i], random)
    return "".join(parts)


def _can_be_misspelled(word: str) -> bool:
    return sum(map(str.isalpha, word)) > 1 and not KEPT.search(word)


def _misspell_word(word: str, random: Random) -> str:
    """Swap, double, leave out or mistake a letter."""
    at = random.choice([i for i, letter in enumerate(word) if letter.isalpha()])
    letter = word[at]
    kind = random.choice(("swap", "double", "omit", "mistake"))
    if kind == "swap":
        at = min(at, len(word) - 2)
        return word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    if kind == "double":
        return word[:at] + letter + word[at:]
    if kind == "omit":
        return word[:at] + word[at + 1 :]
    return word[:at] + _neighbor(letter, random) + word[at + 1 :]


def _neighbor(letter: str, random: Random) -> str:
    """Return the letter of a key beside that of a letter; nothing if the keyboard lacks it."""
    row = next((row for row in _ROWS if letter.lower() in row), "")
    place = row.find(letter.lower())
    beside = random.choice([*row[max(0, place - 1) : place], *row[place + 1 : place + 2]] or [""])
    return beside.upper() if letter.isupper() else beside
