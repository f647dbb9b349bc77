"""A text as the model sees it: without its marks, whose places are kept."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from seq2seq.documents.document import Mark, Text

STOPS = frozenset(".!?…,;:。！？、，；：؟،؛।")
_MAX_DEPTH = 100  # marks of pairs that are deeper move by themselves, in their order


@dataclass(eq=False)
class Atom:
    """What moves as one: a mark, or a pair around no text."""

    parts: Text
    stand_in: str = ""
    start: int = 0
    end: int = 0
    """Where it is in the line; there is something between only with a stand-in."""
    space_before: bool = False
    space_after: bool = False

    @property
    def is_word(self) -> bool:
        """Whether it may change places with others."""
        return all(isinstance(part, str) or part.kind == "word" for part in self.parts)


@dataclass(eq=False)
class Pair:
    """A pair of marks around text; or the whole text, without marks."""

    marks: list[Mark] = field(default_factory=list)
    items: "list[Pair | Atom]" = field(default_factory=list)
    start: int = 0
    end: int = 0
    """Where its text is in the line."""
    space_before: str = ""
    space_after: str = ""
    """White space at an end of the whole text, if it is directly in this pair."""

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
    line = ""
    space = ""  # what follows the line if more text does
    tail = ""  # the white space that the last part ended with
    tail_in: Pair | None = None  # and the pair that it is in
    within = [root := Pair()]
    hidden: list[Atom] = []  # since the last text
    for part in _group(text, stand_ins):
        if isinstance(part, Mark):
            if part.kind == "open":
                within[-1].items.append(pair := Pair([part], start=len(line)))
                within.append(pair)
            else:
                pair = within.pop()
                pair.marks.append(part)
                pair.end = len(line)
            continue
        if isinstance(part, Atom):
            words, trailing = part.stand_in, ""
            part.space_before, tail = bool(tail), ""
            within[-1].items.append(part)
        else:
            words = part.strip()
            leading = part[: len(part) - len(part.lstrip())]
            trailing = part[len(leading) + len(words) :]
            if leading and not (line or hidden):
                within[-1].space_before += leading
            elif leading:
                space, tail, tail_in = space or leading, leading, within[-1]
                for atom in hidden[-1:]:
                    atom.space_after = True
        if words:
            if not line or (hidden and words[0] in STOPS):
                space = ""
            elif hidden and not space and _ends_word(line[-1]) and words[0].isalnum():
                space = " "  # what is not shown, such as an end of a line, stood between two words
            line += space + words
            space, tail, tail_in, hidden = trailing, trailing, within[-1], []
        if isinstance(part, Atom):
            part.start, part.end = len(line) - len(words), len(line)
            hidden += [] if words else [part]
    if tail_in:
        tail_in.space_after = tail
    root.end = len(line)
    return Shown(line, root)


def _group(text: Text, stand_ins: Iterable[str]) -> list[str | Mark | Atom]:
    """Make an atom of each mark by itself, and of each pair around no text."""
    waiting = iter(stand_ins)
    found: list[str | Mark | Atom] = []
    opened: list[int] = []  # where open marks are in `found`
    deeper = 0
    for part in text:
        if isinstance(part, str):
            found.append(part)
        elif part.kind == "open" and len(opened) < _MAX_DEPTH:
            opened.append(len(found))
            found.append(part)
        elif part.kind == "close" and opened and not deeper:
            start = opened.pop()
            found.append(part)
            if not any(map(_is_text, found[start + 1 : -1])):
                found[start:] = [Atom(tuple(_flatten(found[start:])))]
        else:
            deeper += {"open": 1, "close": -1}.get(part.kind, 0) * bool(opened)
            found.append(Atom((part,), next(waiting, "") if part.kind == "word" else ""))
    for i in opened:
        found[i] = Atom(tuple(_flatten(found[i : i + 1])))
    return found


def _ends_word(character: str) -> bool:
    return character.isalnum() or character in STOPS


def _is_text(part: str | Mark | Atom) -> bool:
    if isinstance(part, str):
        return bool(part.strip())
    return isinstance(part, Mark) or bool(part.stand_in)


def _flatten(parts: Sequence[str | Mark | Atom]) -> Iterator[str | Mark]:
    for part in parts:
        yield from part.parts if isinstance(part, Atom) else (part,)
