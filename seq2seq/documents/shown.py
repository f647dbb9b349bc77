"""A text as the model sees it: without its marks, whose places are kept."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from seq2seq.documents.document import Kind, Mark, Text

# Of Thai, Lao, Burmese, Khmer, Chinese and Japanese, which are written without spaces.
UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
STOPS = frozenset(".!?…,;:。！？、，；：؟،؛।")
_MAX_DEPTH = 100  # of pairs in one another; the marks of deeper ones only keep their order


@dataclass(eq=False)
class Atom:
    """What moves as one: a mark, or a pair around no text."""

    parts: Text
    stand_in: str
    start: int
    end: int
    """Where it is in the line; `start` and `end` differ only if it has a stand-in."""
    space_before: str
    space_after: str = ""

    @property
    def kind(self) -> Kind:
        """That of its mark; one half of a pair is `half`, whatever it is in the text."""
        mark = self.parts[0]
        if len(self.parts) > 1 or isinstance(mark, str):
            return "alone"
        return "half" if mark.kind in ("open", "close") else mark.kind


@dataclass(eq=False)
class Pair:
    """A pair of marks around text; or the whole text, with its white space in place of marks."""

    before: str | Mark
    start: int
    end: int = 0
    """Where its text is in the line."""
    items: "list[Pair | Atom]" = field(default_factory=list)
    after: str | Mark = ""

    def has_at_edge(self, item: "Pair | Atom") -> bool:
        """Whether an item has all of this text, or stands before or after it."""
        if isinstance(item, Pair):
            return item.start <= self.start and item.end >= self.end
        return item.end <= self.start or item.start >= self.end


@dataclass(frozen=True)
class Shown:
    """A text as the model sees it, and where its marks were."""

    line: str
    root: Pair

    @property
    def stand_ins(self) -> list[Atom]:
        """The words that have a stand-in in the line."""
        return [item for _, item in _walk(self.root) if isinstance(item, Atom) and item.stand_in]

    @property
    def needs_links(self) -> bool:
        """Whether the place of a mark depends on which words mean the same."""
        return any(
            not (pair.has_at_edge(item) or (isinstance(item, Atom) and item.stand_in))
            for pair, item in _walk(self.root)
        )

    def has_marks_within(self, words: re.Pattern[str]) -> bool:
        """Tell whether a mark stands inside what a pattern matches."""
        places = {at for _, item in _walk(self.root) for at in (item.start, item.end)}
        spans = (match.span() for match in words.finditer(self.line))
        return any(places.intersection(range(start + 1, end)) for start, end in spans)


def _walk(pair: Pair) -> "Iterator[tuple[Pair, Pair | Atom]]":
    for item in pair.items:
        yield pair, item
        if isinstance(item, Pair):
            yield from _walk(item)


def show(text: Text, stand_ins: Iterable[str] = ()) -> Shown:
    """Take the marks out of a text.

    A word such as `{name}` becomes one of `stand_ins`, none of which is in the text; without one,
    it is taken out, too.
    """
    waiting = iter(stand_ins)
    pairs = _find_pairs(text)
    line = ""
    space = ""  # what comes before the next words
    hidden = False  # whether a mark that is not shown does, too
    blank = ""  # the white space that was read last
    last: Atom | None = None  # the atom before it, if there are no words in between
    within = [root := Pair("", 0)]
    opened: list[tuple[int, str]] = []  # where the mark that opens a pair is, and `blank` there
    for index, part in enumerate(text):
        if isinstance(part, str):
            words = part.strip()
            blank += part[: len(part) - len(part.lstrip())]
            space = space or blank
            if blank and last:
                last.space_after = _one_space(blank)
            if not words:
                continue
        elif index in pairs and part.kind == "open":
            before = text[index - 1]
            hidden = hidden or (isinstance(before, Mark) and before.kind == "close")
            within[-1].items.append(pair := Pair(part, len(line)))
            within.append(pair)
            opened.append((index, blank))
            continue
        elif index in pairs:
            pair, (start, before) = within.pop(), opened.pop()
            # A number that touches a word is no part of it: `word<sup>1</sup>`.
            if line[pair.start :].isdigit() and _ends_word(line[pair.start - 1 : pair.start]):
                line = line[: pair.start]
            pair.end, pair.after = len(line), part
            hidden = hidden or line[-1:] in STOPS
            if pair.start == pair.end:
                last = Atom(text[start : index + 1], "", pair.start, pair.end, _one_space(before))
                within[-1].items[-1] = last
                blank, hidden = "", True
            continue
        else:
            words = next(waiting, "") if part.kind == "word" else ""
        if not line and not last:
            root.before = blank
        if words:
            if not line or (hidden and words[0] in STOPS):
                space = ""
            elif hidden and not space and are_words(line, words):
                space = " "  # what is not shown, such as an end of a line, stood between two words
            line += space + words
            space = ""
        hidden = not words
        if isinstance(part, str):
            last, blank = None, part[len(part.rstrip()) :]
            space = blank
        else:
            last = Atom((part,), words, len(line) - len(words), len(line), _one_space(blank))
            within[-1].items.append(last)
            blank = ""
    root.end, root.after = len(line), blank
    return Shown(line, root)


def _one_space(blank: str) -> str:
    """Return the space that stands for white space: a no-break space stays one."""
    return blank if blank in ("\u00a0", "\u202f") else " " * bool(blank)


def _find_pairs(text: Text) -> set[int]:
    """Return where the marks of pairs are that are not too deep."""
    pairs: set[int] = set()
    opened: list[int] = []
    for index, part in enumerate(text):
        if isinstance(part, Mark) and part.kind == "open":
            opened.append(index)
        elif isinstance(part, Mark) and part.kind == "close" and opened:
            start = opened.pop()
            pairs |= {start, index} if len(opened) < _MAX_DEPTH else set()
    return pairs


def are_words(before: str, after: str) -> bool:
    """Tell whether two strings, if they touch, would be one word of a language with spaces."""
    return _ends_word(before[-1:]) and bool(re.match(rf"[^\W_{UNSPACED}]", after))


def _ends_word(character: str) -> bool:
    return character.isalnum() or character in STOPS
