"""A document: the texts that are translated, and all that stays as it is."""

import re
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from typing import Literal, NamedTuple, TypeAlias

from seq2seq.documents.encodings import Encoding
from seq2seq.errors import UserError

MarkKind = Literal["open", "close", "half", "alone", "word"]


class Mark(NamedTuple):
    """A tag or a placeholder inside a text, which the translation has exactly once."""

    raw: str
    """The mark as it stands in the file."""
    kind: MarkKind = "alone"
    """`open` and `close` are balanced within a text; the other half of a `half` is in another. A
    `word` stands for a name or a number. `find_placeholders` finds those in strings later."""


Text = tuple[str | Mark, ...]
"""A text as its reader sees it, without escapes, with the marks at their places."""


Escape: TypeAlias = Callable[[str], str]
"""Writes characters as the format has them."""


def write_text(text: Text, escape: Escape = str) -> str:
    """Write the marks of a text as they are, and its strings by `escape`."""
    return "".join(item.raw if isinstance(item, Mark) else escape(item) for item in text)


def map_strings(change: Callable[[str], str], text: Text) -> Text:
    """Return a text with its strings changed, and its marks as they are."""
    return tuple(item if isinstance(item, Mark) else change(item) for item in text)


def only_strings(text: Iterable[str | Mark], mark: str = "") -> str:
    """Return the strings of a text, with `mark` in place of each of its marks."""
    return "".join(mark if isinstance(item, Mark) else item for item in text)


def join_strings(items: Iterable[str | Mark]) -> Text:
    """Make one string of those that follow one another, without empty ones."""
    joined: list[str | Mark] = []
    for item in items:
        if isinstance(item, str) and joined and isinstance(joined[-1], str):
            joined[-1] += item
        elif item:
            joined.append(item)
    return tuple(joined)


@dataclass(frozen=True)
class Slot:
    """A text, and where its translation goes."""

    text: Text
    """Nothing where something must be written that is no translation."""
    start: int
    end: int
    """The translation replaces these characters of the document, perhaps none."""
    write: Callable[[Text], str]
    """Writes a translation as the file has it: escaped, with what the format has around it.

    A model may write line ends where the format can't have them: see `spans.one_line`.
    """
    holes: Sequence[tuple[Mark, int, int]] = ()
    """Marks that may have texts of their own in them, such as a note, and where these are."""
    max_characters: int | None = None
    """The most characters that the document allows its translation."""

    def has_room_for(self, text: Text) -> bool:
        """Tell whether a translation is as short as it must be; marks don't count."""
        return self.max_characters is None or len(only_strings(text)) <= self.max_characters

    def has_hole_for(self, slot: "Slot") -> bool:
        """Tell whether another slot is in one of the holes."""
        before = bisect_right(self.holes, slot.start, key=itemgetter(1))
        return before > 0 and slot.end <= self.holes[before - 1][2]


@dataclass(frozen=True)
class Languages:
    """The languages of a document and its translation, as codes of the model such as `en`."""

    source: str
    target: str


def language_of(code: str) -> str:
    """Return the language of a code, without the country or script that it adds."""
    return re.split("[-_]", code.lower())[0]


def same_language(found: str, other_code: str) -> bool:
    """Whether two codes may stand for one language, whatever country or script they add."""
    language, other_language = language_of(found), language_of(other_code)
    return language == other_language or len(language) != len(other_language)


def suits(source: str, target: str, languages: Languages) -> bool:
    """Whether two codes may stand for the languages of the model; "" is none named."""
    return same_language(source, languages.source) and same_language(target, languages.target)


def check_languages(source: str, target: str, languages: Languages) -> None:
    """Refuse a document that names other languages than the model's; "" is none named."""
    if not suits(source, target, languages):
        named = f"from {source} to {target}" if source and target else f"in {source or target}"
        raise UserError(
            f"is {named}, but the model translates {languages.source} to {languages.target}:"
            " take another model, or correct what the document says"
        )


FindSlots: TypeAlias = Callable[[str, Languages], Iterable[Slot]]


@dataclass(frozen=True)
class Document:
    """The content of a file, decoded, and the texts in it that are to be translated."""

    content: str
    slots: Sequence[Slot]
    """In the order of the places to which their translations go, those within others after them."""

    def __post_init__(self) -> None:
        """Refuse a text within another one that is not in one of its holes."""
        around: list[Slot] = []  # the slots that have not ended, the innermost last
        start = 0
        for slot in self.slots:
            while around and around[-1].end <= slot.start:
                around.pop()
            if slot.start < start or (around and not around[-1].has_hole_for(slot)):
                line = self.content.count("\n", 0, slot.start) + 1
                raise UserError(f"line {line}: a text within another one: move it out of it")
            around.append(slot)
            start = slot.start

    @classmethod
    def read(cls, find_slots: FindSlots, content: str, languages: Languages) -> "Document":
        """Read a document of the format of which `find_slots` finds the texts."""
        return cls(content, list(find_slots(content, languages)))

    @property
    def texts(self) -> list[Text]:
        """The texts to translate."""
        return [slot.text for slot in self.slots if slot.text]

    def join(self, translations: Iterable[Text]) -> str:
        """Put the translations of the texts in their places."""
        waiting = iter(translations)
        texts = [next(waiting) if slot.text else () for slot in self.slots]
        written: list[tuple[int, int, str]] = []  # places and what is there, the last first
        for slot, text in zip(reversed(self.slots), reversed(texts), strict=True):
            within = []
            while written and written[-1][0] < slot.end:
                within.append(written.pop())
            written.append((slot.start, slot.end, self._write(slot, text, within)))
        return self._render(0, len(self.content), written[::-1])

    def _write(self, slot: Slot, text: Text, within: Sequence[tuple[int, int, str]]) -> str:
        """Write a translation, with what is written in the holes of its slot."""
        if not within:
            return slot.write(text)
        if text == slot.text:
            return self._render(slot.start, slot.end, within)
        new: dict[str | Mark, deque[Mark]] = {}  # equal marks one after the other
        for mark, start, end in slot.holes:
            inner = within[bisect_left(within, (start,)) : bisect_left(within, (end,))]
            raw = mark.raw.replace(self.content[start:end], self._render(start, end, inner))
            new.setdefault(mark, deque()).append(mark._replace(raw=raw))
        return slot.write(tuple(new[item].popleft() if new.get(item) else item for item in text))

    def _render(self, start: int, end: int, written: Sequence[tuple[int, int, str]]) -> str:
        """Return a part of the content with what is written in it."""
        strings = []
        for first, last, string in written:
            strings += [self.content[start:first], string]
            start = last
        return "".join([*strings, self.content[start:end]])


@dataclass(frozen=True)
class File:
    """A file that was read: a document, or an archive with several."""

    content: bytes
    documents: Mapping[str, tuple[Document, Encoding]]
    """By their names in an archive."""
    replace: Callable[[Mapping[str, bytes]], bytes]
    """Returns the file with other content in some of its documents."""

    @property
    def texts(self) -> list[Text]:
        """The texts to translate."""
        texts: list[Text] = []
        for document, _ in self.documents.values():
            texts += document.texts
        return texts

    def too_long(self, translations: Iterable[Text]) -> list[int]:
        """Return the indices of the translations that have more characters than they may have."""
        slots = chain.from_iterable(document.slots for document, _ in self.documents.values())
        pairs = zip(filter(lambda slot: slot.text, slots), translations, strict=True)
        return [i for i, (slot, text) in enumerate(pairs) if not slot.has_room_for(text)]

    def join(self, translations: Iterable[Text]) -> bytes:
        """Return the file with the translations of the texts in their places."""
        new, waiting = {}, iter(translations)
        for name, (document, encoding) in self.documents.items():
            joined = document.join(waiting)
            if joined != document.content:
                new[name] = encoding.encode(joined)
        return self.replace(new) if new else self.content


UTF_16_ESCAPE = r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}"


def read_escape(match: re.Match[str], characters: Mapping[str, str]) -> str:
    r"""Return the character of an escape: one or two `\uXXXX`, or `\n` as `characters` have it.

    Groups of the match may be named `octal` and `hex`.
    """
    sign = match[0][1:2]
    if sign in ("u", "U") and len(match[0]) > 2:
        units = bytes.fromhex(re.sub(r"\\[uU]", "", match[0]))
        return units.decode("utf-16-be", "surrogatepass")
    if match.lastgroup in ("octal", "hex"):
        return chr(int(match[match.lastgroup], 8 if match.lastgroup == "octal" else 16))
    return characters.get(sign, sign)


def unescape(
    raw: str, escape: re.Pattern[str], characters: Mapping[str, str]
) -> tuple[str, Sequence[int]]:
    """Return the text that a raw form stands for, and where each character begins, and the end."""
    strings, offsets, end = [], [], 0
    for match in escape.finditer(raw):
        strings += [raw[end : match.start()], read_escape(match, characters)]
        offsets += [*range(end, match.start()), *[match.start()] * len(strings[-1])]
        end = match.end()
    return "".join([*strings, raw[end:]]), [*offsets, *range(end, len(raw) + 1)]


def quoted(
    content: str, start: int, slots: Iterable[Slot], offsets: Sequence[int], quote: Escape = str
) -> Iterator[Slot]:
    """Take slots of a value to the file, where `offsets` from `start` are those of its characters.

    `quote` writes a part of the value as the file has it.
    """
    for slot in slots:
        first, last = start + offsets[slot.start], start + offsets[slot.end]

        def write(text: Text, slot: Slot = slot, raw: str = content[first:last]) -> str:
            return raw if text == slot.text else quote(slot.write(text))

        yield Slot(slot.text, first, last, write)
