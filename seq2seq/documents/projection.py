"""A text as the model sees it, and its marks put into its translation.

A translation is a sequence of units: words and symbols. A link says from which word of the source a
unit comes. A pair of marks goes around the units that come from its text, and any other mark beside
the unit that comes from its neighbour. Each mark is there once, nested as it was. Adjacent pairs
may swap, and so may words such as `{name}`; other marks keep their order.
"""

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise, starmap
from operator import itemgetter
from typing import NamedTuple

from seq2seq.documents.document import Mark, MarkKind, Text

# Letters of Thai, Lao, Burmese, Khmer, Chinese and Japanese, which are written without spaces.
UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
STOPS = frozenset(".!?…,;:。！？、，；：؟،؛।")
_LETTER = rf"(?:(?![{UNSPACED}])[^\W_])"
# The rest of a word, or of a number with its separators
_TOUCHES_BEFORE = re.compile(rf"(?:{_LETTER}|\d[.,'’\u00a0\u202f](?=\Z|\d))+\Z")
_TOUCHES_AFTER = re.compile(rf"(?:{_LETTER}|[.,'’\u00a0\u202f](?=\d))+")
_LONGEST_WORD = 40
_UNSEEN = re.compile(r"<!--|<wbr\b")  # parts no words
# A mark of a note or a sign in a pair of tags: [1], *, \u00b6, \u2191
_NOTE = re.compile(
    r"\[\d{1,4}\]|\(\d{1,4}\)|[\[(]?[^\w\s\"'\u00ab\u00bb\u2018-\u201f\u2039\u203a()\[\]-]{1,4}[\])]?"
)
_MAX_DEPTH = 100  # of pairs in one another; the marks of deeper ones only keep their order


@dataclass(eq=False)
class Atom:
    """A unit that moves as one: a mark, or a pair around no text."""

    parts: Text
    kind: MarkKind
    """The kind of its mark; one half of a pair is `half`, whatever it is in the text."""
    stand_in: str
    start: int
    end: int
    """Where it is in the line; `start` and `end` differ only if it has a stand-in."""
    space_before: str
    space_after: str = ""


@dataclass(eq=False)
class MarkPair:
    """A pair of marks around text; or the whole text, with its white space in place of marks."""

    before: str | Mark
    start: int
    end: int = 0
    """Where its text is in the line."""
    items: "list[MarkPair | Atom]" = field(default_factory=list)
    after: str | Mark = ""

    def has_at_edge(self, item: "MarkPair | Atom") -> bool:
        """Whether an item has all of this text, or stands before or after it."""
        if isinstance(item, MarkPair):
            return item.start <= self.start and item.end >= self.end
        return item.end <= self.start or item.start >= self.end


@dataclass(frozen=True)
class Shown:
    """A text as the model sees it, and where its marks were."""

    line: str
    root: MarkPair

    @property
    def stand_ins(self) -> list[Atom]:
        """The words that have a stand-in in the line."""
        return [item for _, item in _walk(self.root) if isinstance(item, Atom) and item.stand_in]

    @property
    def needs_links(self) -> bool:
        """Whether the place of a mark depends on which words mean the same."""
        for pair, item in _walk(self.root):
            has_stand_in = isinstance(item, Atom) and item.stand_in
            if not has_stand_in and not pair.has_at_edge(item):
                return True
        return False

    def has_free(self, atom: Atom, target: str) -> bool:
        """Tell whether a stand-in is once in a translation, as a word of its own.

        What touched it in the source may touch it again: `100m`.
        """
        start = target.find(atom.stand_in)
        if start < 0 or target.count(atom.stand_in) > 1:
            return False
        around = _touching(self.line, atom.start, atom.end)
        touching = _touching(target, start, start + len(atom.stand_in))
        return all(new in ("", old) for new, old in zip(touching, around, strict=True))

    def has_marks_within(self, words: re.Pattern[str]) -> bool:
        """Tell whether a mark stands inside what a pattern matches."""
        inside = set[int]()
        for match in words.finditer(self.line):
            inside.update(range(match.start() + 1, match.end()))
        return any(item.start in inside or item.end in inside for _, item in _walk(self.root))


def _touching(text: str, start: int, end: int) -> tuple[str, str]:
    """Return the letters and digits before and after a part of a text that touch it."""
    before = _TOUCHES_BEFORE.search(text[max(0, start - _LONGEST_WORD) : start])
    after = _TOUCHES_AFTER.match(text[end : end + _LONGEST_WORD])
    return before[0] if before else "", after[0] if after else ""


def _walk(pair: MarkPair) -> "Iterator[tuple[MarkPair, MarkPair | Atom]]":
    for item in pair.items:
        yield pair, item
        if isinstance(item, MarkPair):
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
    adjoins = False  # whether only formatting does, within a word perhaps
    blank = ""  # the white space that was read last
    last: Atom | None = None  # the atom before it, if there are no words in between
    within = [root := MarkPair("", 0)]
    opened: list[tuple[int, str]] = []  # where the mark that opens a pair is, and `blank` there
    for index, item in enumerate(text):
        if isinstance(item, str):
            words = item.strip()
            blank += item[: len(item) - len(item.lstrip())]
            space = space or blank
            if blank and last:
                last.space_after = _one_space(blank)
            if not words:
                continue
        elif index in pairs and item.kind == "open":
            before = text[index - 1]
            adjoins = adjoins or (isinstance(before, Mark) and before.kind == "close")
            within[-1].items.append(pair := MarkPair(item, len(line)))
            within.append(pair)
            opened.append((index, blank))
            continue
        elif index in pairs:
            pair, (start, before) = within.pop(), opened.pop()
            if _is_note(line, pair.start):
                space = " " * line[pair.start :].startswith(" ")
                line = line[: pair.start]
            pair.end, pair.after = len(line), item
            hidden = hidden or line[-1:] in STOPS
            if pair.start == pair.end:
                parts, place = text[start : index + 1], pair.start
                last = Atom(parts, "alone", "", place, place, _one_space(before))
                within[-1].items[-1] = last
                blank, hidden = "", True
            continue
        else:
            words = next(waiting, "") if item.kind == "word" else ""
        if not line and not last:
            root.before = blank
        if words:
            if not line or (hidden and words[0] in STOPS):
                space = ""
            elif not space and (hidden or adjoins):
                # Something invisible, such as an end of a line, stood between two words.
                are_two = are_words if hidden else are_apart
                space = " " * are_two(line, words)
            line += space + words
            space = ""
        if words:
            hidden = adjoins = False
        elif isinstance(item, Mark) and _UNSEEN.match(item.raw):
            adjoins = True
        else:
            hidden = True
        if isinstance(item, str):
            last, blank = None, item[len(item.rstrip()) :]
            space = blank
        else:
            kind: MarkKind = "half" if item.kind in ("open", "close") else item.kind
            begin = len(line) - len(words)
            last = Atom((item,), kind, words, begin, len(line), _one_space(blank))
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
    for index, item in enumerate(text):
        if isinstance(item, Mark) and item.kind == "open":
            opened.append(index)
        elif isinstance(item, Mark) and item.kind == "close" and opened:
            start = opened.pop()
            pairs |= {start, index} if len(opened) < _MAX_DEPTH else set()
    return pairs


def are_words(before: str, after: str) -> bool:
    """Tell whether two strings, if they touch, would be one word of a language with spaces."""
    return _ends_word(before[-1:]) and bool(re.match(rf"[^\W_{UNSPACED}]", after))


def are_apart(before: str, after: str) -> bool:
    """Tell whether two strings that only formatting parts are words by themselves."""
    return are_words(before, after) and (before[-1:] in STOPS or not after[:1].islower())


def _is_note(line: str, start: int) -> bool:
    """Tell whether what a pair has is no part of the sentence: `word<sup>1</sup>` or `[1]`."""
    text = line[start:]
    if text.isdigit():
        return _ends_word(line[start - 1 : start])
    bare = text.strip()
    return bool(_NOTE.fullmatch(bare)) and not set(bare) <= STOPS


def _ends_word(character: str) -> bool:
    return character.isalnum() or character in STOPS


_UNIT = re.compile(rf"{_LETTER}+(?:['’.-]{_LETTER}+)*|\S")
_PART = re.compile(rf"{_LETTER}+|\S")
_NEAR = 8  # units within which a pair looks for a word if none comes from its text
_MOST_UNITS = 1000  # among which a pair without a word looks for one

Span = tuple[int, int]


def _units(spans: "Mapping[MarkPair, Span]") -> set[int]:
    return set(chain.from_iterable(starmap(range, spans.values())))


class SpanLink(NamedTuple):
    """Characters of a source and of its translation that belong together."""

    source: Span
    target: Span


def place(shown: Shown, target: str, links: Sequence[SpanLink]) -> Text:
    """Put the marks of a text into its translation `target`, by links of `shown.line` with it."""
    writer = _Writer(shown, target, links)
    writer.write(shown.root, 0, len(writer.units))
    return tuple(filter(None, writer.parts))


class _Writer:
    """Writes a translation, unit by unit, with its marks."""

    def __init__(self, shown: Shown, target: str, links: Sequence[SpanLink]) -> None:
        self.line, self.target = shown.line, target
        # Words joined by a sign are several units if a mark stands in such words of the source.
        unit = _PART if shown.has_marks_within(_UNIT) else _UNIT
        # Stand-ins are units, too; they are not written, but the words that they stand for.
        self.units: list[Span] = []
        self.unit_of: dict[Atom, int] = {}
        places = {target.find(atom.stand_in): atom for atom in shown.stand_ins}
        end = 0
        for start in sorted(places.keys() - {-1}):
            self.units += map(re.Match.span, unit.finditer(target, end, start))
            end = start + len(places[start].stand_in)
            self.unit_of[places[start]] = len(self.units)
            self.units.append((start, end))
        self.units += map(re.Match.span, unit.finditer(target, end))
        between = pairwise([(0, 0), *self.units, (len(target), 0)])
        self.gaps = [target[span[1] : following[0]] for span, following in between]
        self.gaps[0] = self.gaps[-1] = " "
        self.hidden = set(self.unit_of.values())
        self.origins = self._find_origins(links)
        self.order = sorted((origin, i) for i, origin in enumerate(self.origins) if origin >= 0)
        self.parts: list[str | Mark] = []
        self.opening: list[str | Mark] = []  # marks that go before what is written next
        self.last: int | Atom | None = None  # the unit or the atom that was written last

    def _find_origins(self, links: Sequence[SpanLink]) -> list[float]:
        """Find the middle of the word of the source that each unit comes from; -1 if none does."""
        middles: list[float] = [-1] * len(self.target)
        for source, (start, end) in links:
            middles[start:end] = [sum(source) / 2] * (end - start)
        origins = [Counter(middles[slice(*unit)]).most_common(1)[0][0] for unit in self.units]
        for atom, unit in self.unit_of.items():
            origins[unit] = (atom.start + atom.end) / 2
        return origins

    def write(self, pair: MarkPair, low: int, high: int) -> None:
        """Write the marks of a pair, and between them its items and units, from `low` to `high`."""
        self.opening.append(pair.before)
        for start, end, item in self._arrange(pair, low, high):
            self._write_units(low, start)
            if isinstance(item, MarkPair):
                self.write(item, start, end)
            else:
                self._write_token(start if start < end else item, item.parts)
            low = end
        self._write_units(low, high)
        self.parts += [*self.opening, pair.after]
        self.opening = []

    def _write_units(self, low: int, high: int) -> None:
        for unit in range(low, high):
            if unit not in self.hidden:
                self._write_token(unit, (self.target[slice(*self.units[unit])],))

    def _write_token(self, token: int | Atom, items: Text) -> None:
        self.parts += [self._space(self.last, token), *self.opening, *items]
        self.opening, self.last = [], token

    def _space(self, left_item: int | Atom | None, right_item: int | Atom) -> str:
        """Return what is between two of what is written: for units, what the translation has."""
        if left_item is None:
            return ""
        if isinstance(left_item, Atom):
            if isinstance(right_item, Atom):
                # Two words do not become one: `a`/`b` in Markdown must not end as `a``b`.
                both = left_item.kind == right_item.kind == "word"
                parted = both and left_item.end != right_item.start
                return left_item.space_after or right_item.space_before or " " * parted
            neighbour, gap = self._first(right_item), self.gaps[right_item]
            after = self.line[left_item.end : left_item.end + 2]
            space, character = left_item.space_after, after.strip()[:1]
        elif isinstance(right_item, Atom):
            neighbour, gap = self.target[self.units[left_item][1] - 1], self.gaps[left_item + 1]
            before = self.line[max(0, right_item.start - 2) : right_item.start]
            space, character = right_item.space_before, before.strip()[-1:]
        else:
            return self.gaps[right_item] or self.gaps[left_item + 1]
        # The spacing is the source's, but a mark that touched a sign does not touch a word here.
        if neighbour == character:
            return space
        is_word = neighbour.isalnum() and not re.match(f"[{UNSPACED}]", neighbour)
        if space:
            return space * (is_word or bool(gap))
        return " " * (is_word and not character.isalnum())

    def _arrange(
        self, pair: MarkPair, low: int, high: int
    ) -> list[tuple[int, int, MarkPair | Atom]]:
        """Find where the items of a pair go, if its own units are from `low` to `high`.

        Return (start, end, item), sorted. Only pairs, and words at their stand-ins, have ends.
        """
        places: list[tuple[int, int, MarkPair | Atom]] = []
        half = replace(pair, items=[])  # what is between two halves of other pairs
        for item in pair.items:
            if isinstance(item, Atom) and item.kind == "half":
                place = self._find_place(item, pair, low, high)
                places += [*self._arrange_part(half, low, place), (place, place, item)]
                low, half = place, replace(pair, items=[])
            else:
                half.items.append(item)
        return places + self._arrange_part(half, low, high)

    def _arrange_part(
        self, pair: MarkPair, low: int, high: int
    ) -> list[tuple[int, int, MarkPair | Atom]]:
        spans = self._find_spans(pair, low, high)
        taken = _units(spans)
        # From between the units of a pair, what is not in it moves to the nearer end.
        ends: dict[int, int] = {}
        for start, end in spans.values():
            for place in range(start + 1, end):
                ends[place] = start if place - start < end - place else end
        places: list[tuple[int, int, MarkPair | Atom]] = []
        last = low
        for item in pair.items:
            if isinstance(item, MarkPair) and item in spans:
                places.append((*spans[item], item))
                continue
            unit = self.unit_of.get(item, -1) if isinstance(item, Atom) else -1
            if low <= unit < high and unit not in taken:
                places.append((unit, unit + 1, item))
                continue
            place = self._find_place(item, pair, low, high)
            place = ends.get(place, place)
            if isinstance(item, Atom) and item.kind != "word":
                place = last = max(last, place)
            places.append((place, place, item))
        return sorted(places, key=itemgetter(0, 1))

    def _find_spans(self, pair: MarkPair, low: int, high: int) -> dict[MarkPair, Span]:
        """Find the units that each pair in a pair goes around.

        If there are none, it is left out.
        """
        pairs = [item for item in pair.items if isinstance(item, MarkPair)]
        for inner in pairs:
            if pair.has_at_edge(inner):
                return {inner: (low, high)}
        spans = self._find_rows(pairs, low, high)
        taken = _units(spans) | self.hidden
        for inner in pairs:
            # Without a unit that comes from its text, it goes around a word near its place.
            if inner not in spans:
                place = self._find_place(inner, pair, low, high)
                near = set(range(max(low, place - _NEAR), min(high, place + _NEAR))) - taken
                words = sorted(near, key=lambda word: (abs(word - place), word))
                word = next((word for word in words if self._first(word).isalnum()), -1)
                if word < 0:
                    word = self._take(spans, place)
                if word < 0:
                    continue
                spans[inner] = word, word + 1
                taken.add(word)
            # If its text ends with a stop, a stop that follows belongs to it.
            start, end = spans[inner]
            stops = self.line[inner.start : inner.end].rstrip()[-1:] in STOPS
            if stops and end < high and end not in taken and self._first(end) in STOPS:
                spans[inner] = start, end + 1
                taken.add(end)
        return spans

    def _take(self, spans: dict[MarkPair, Span], place: int) -> int:
        """Take the first or last word of the nearest pair that has more than one; -1 if none.

        It is not looked for among more units than any sentence has.
        """
        if len(self.units) > _MOST_UNITS:
            return -1
        ends: list[tuple[int, int, MarkPair]] = []
        for pair, (start, end) in spans.items():
            words = [unit for unit in range(start, end) if self._first(unit).isalnum()]
            if len(words) > 1 and not self.hidden & {words[0], words[-1]}:
                ends += [(abs(word - place), word, pair) for word in (words[0], words[-1])]
        if not ends:
            return -1
        _, word, pair = min(ends, key=itemgetter(0, 1))
        start, end = spans[pair]
        is_first = all(not self._first(unit).isalnum() for unit in range(start, word))
        spans[pair] = (word + 1, end) if is_first else (start, word)
        return word

    def _find_rows(self, pairs: Sequence[MarkPair], low: int, high: int) -> dict[MarkPair, Span]:
        """For each of the pairs, find the run of units that has most from its text.

        A unit from the text around the pairs counts -1, and one of another pair ends a run.
        """
        starts = [candidate.start for candidate in pairs]
        spans: dict[MarkPair, Span] = {}
        most: Counter[MarkPair] = Counter()
        current: MarkPair | None = None
        start = value = 0
        for unit in range(low, high):
            origin = self.origins[unit]
            index = bisect_right(starts, origin) - 1
            if index < 0 or origin > pairs[index].end:
                value -= origin >= 0
                continue
            candidate = pairs[index]
            if candidate is not current or value <= 0:
                current, start, value = candidate, unit, 0
            value += 1
            if value > most[candidate]:
                most[candidate], spans[candidate] = value, (start, unit + 1)
        return spans

    def _find_place(self, item: MarkPair | Atom, pair: MarkPair, low: int, high: int) -> int:
        """Find the unit before which an item goes, by those that come from its neighbours."""
        if pair.has_at_edge(item):
            return low if item.end <= pair.start else high
        following = bisect_left(self.order, (item.end, 0))
        preceding = bisect_left(self.order, (item.start, 0)) - 1
        touches = isinstance(item, Atom) and item.space_after and not item.space_before
        touches = touches or self.line[item.end : item.end + 2].lstrip()[:1] in STOPS
        if following < len(self.order) and not (touches and preceding >= 0):
            place = self.order[following][1]
        elif preceding >= 0:
            place = self.order[preceding][1] + 1
        else:
            relative = (item.start - pair.start) / (pair.end - pair.start)
            place = low + round(relative * (high - low))
        return min(max(place, low), high)

    def _first(self, unit: int) -> str:
        return self.target[self.units[unit][0]]
