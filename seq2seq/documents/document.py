"""A document: the texts that are translated, and all that stays as it is."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from seq2seq.documents.encodings import Encoding
from seq2seq.errors import UserError

Kind = Literal["open", "close", "half", "alone", "word"]


class Mark(NamedTuple):
    """A tag or a placeholder inside a text, which the translation has exactly once."""

    raw: str
    """As it stands in the file."""
    kind: Kind = "alone"
    """`open` and `close` are balanced within a text; the other half of a `half` is in another. A
    `word` stands for a name or a number. `find_placeholders` finds those in strings later."""


Text = tuple[str | Mark, ...]
"""A text as its reader sees it, without escapes, with the marks at their places."""


def write_text(text: Text, escape: Callable[[str], str] = str) -> str:
    """Write the marks of a text as they are, and its strings by `escape`."""
    return "".join(item.raw if isinstance(item, Mark) else escape(item) for item in text)


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
    start: int
    end: int
    """The translation replaces these characters of the document, perhaps none."""
    write: Callable[[Text], str]
    """Writes a translation as the file has it: escaped, with what the format has around it.

    A model may write line ends where the format can't have them: see `spans.one_line`.
    """


@dataclass(frozen=True)
class Languages:
    """What a document is translated from and into, as the codes of the model say, such as `en`."""

    source: str
    target: str


def same_language(found: str, other_code: str) -> bool:
    """Whether two codes may stand for one language, whatever country or script they add."""
    language, other_language = (re.split("[-_]", code.lower())[0] for code in (found, other_code))
    return language == other_language or len(language) != len(other_language)


def check_languages(source: str, target: str, languages: Languages) -> None:
    """Refuse a document that names other languages than the model's; "" is none named."""
    if not (same_language(source, languages.source) and same_language(target, languages.target)):
        named = f"from {source} to {target}" if source and target else f"in {source or target}"
        raise UserError(
            f"is {named}, but the model translates {languages.source} to {languages.target}:"
            " take another model, or correct what the document says"
        )


@dataclass(frozen=True)
class Document:
    """The content of a file, decoded, and the texts in it that are to be translated."""

    content: str
    slots: Sequence[Slot]
    """In the order of the places to which their translations go."""

    @property
    def texts(self) -> list[Text]:
        """What is to be translated."""
        return [slot.text for slot in self.slots]

    def join(self, translations: Sequence[Text | None]) -> str:
        """Put translations in their places; where there is None, what stands there stays."""
        strings, end = [], 0
        for slot, text in zip(self.slots, translations, strict=True):
            if text is not None:
                assert end <= slot.start
                strings += [self.content[end : slot.start], slot.write(text)]
                end = slot.end
        return "".join([*strings, self.content[end:]])


@dataclass(frozen=True)
class Filled(Document):
    """One that gets targets; slots without a text write what must be there if any of them is."""

    groups: Sequence[range] = ()
    """Slots that only together write a target: each has a translation or its source."""

    @property
    def texts(self) -> list[Text]:
        """What is to be translated."""
        return [slot.text for slot in self.slots if slot.text]

    def join(self, translations: Sequence[Text | None]) -> str:
        """Put translations in their places."""
        if all(text is None for text in translations):
            return self.content
        remaining = iter(translations)
        complete = [next(remaining) if slot.text else () for slot in self.slots]
        for group in self.groups:
            if any(complete[i] is not None for i in group):
                for i in group:
                    complete[i] = self.slots[i].text if complete[i] is None else complete[i]
        return super().join(complete)


@dataclass(frozen=True)
class File:
    """A file that was read: a document, or an archive with several."""

    documents: Mapping[str, tuple[Document, Encoding]]
    """By their names in an archive."""
    replace: Callable[[Mapping[str, bytes]], bytes]
    """Returns the file with other content in some of its documents."""

    @property
    def texts(self) -> list[Text]:
        """What is to be translated."""
        return [text for document, _ in self.documents.values() for text in document.texts]

    def join(self, translations: Sequence[Text | None]) -> bytes:
        """Return the file with translations in their places; where there is None, nothing changes.

        With None everywhere, it is the same file.
        """
        new, start = {}, 0
        for name, (document, encoding) in self.documents.items():
            count = len(document.texts)
            joined = document.join(translations[start : start + count])
            start += count
            if joined != document.content:
                new[name] = encoding.encode(joined)
        return self.replace(new)


UTF_16_ESCAPE = r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}"


def decode_utf_16(escapes: str) -> str:
    r"""Return the character that one or two `\uXXXX` stand for."""
    units = bytes.fromhex(escapes.lower().replace("\\u", ""))
    return units.decode("utf-16-be", "surrogatepass")


def unescape(
    raw: str, escape: re.Pattern[str], character: Callable[[re.Match[str]], str]
) -> tuple[str, Sequence[int]]:
    """Return the text that a raw form stands for, and where each character begins, and the end."""
    strings, offsets, end = [], [], 0
    for match in escape.finditer(raw):
        strings += [raw[end : match.start()], character(match)]
        offsets += [*range(end, match.start()), *[match.start()] * len(strings[-1])]
        end = match.end()
    return "".join([*strings, raw[end:]]), [*offsets, *range(end, len(raw) + 1)]


def quoted(
    content: str,
    start: int,
    slots: Sequence[Slot],
    offsets: Sequence[int],
    quote: Callable[[str], str] = str,
) -> list[Slot]:
    """Take slots of a value to the file, where `offsets` from `start` are those of its characters.

    `quote` writes a part of the value as the file has it.
    """

    def slot(inner: Slot) -> Slot:
        first, last = start + offsets[inner.start], start + offsets[inner.end]

        def write(text: Text) -> str:
            if text == inner.text:
                return content[first:last]
            return quote(inner.write(text))

        return Slot(inner.text, first, last, write)

    return [slot(inner) for inner in slots]
