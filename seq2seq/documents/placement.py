"""Marks in a translation: around, before or after the words that they stood at in the source.

Links say which words of a translation belong to which words of its source. A pair of marks goes
around the words that are linked best with those that it was around, and any other mark to the word
that is linked with its neighbour. Each mark is there once, nested as it was. Pairs side by side may
swap, and so may words such as `{name}`, but no other marks.
"""

import re
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby, pairwise
from typing import NamedTuple

from seq2seq.documents.document import Mark, Text
from seq2seq.documents.shown import STOPS, Atom, Pair, Shown

# Of Thai, Lao, Burmese, Khmer, Chinese and Japanese, which are written without spaces.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_LETTER = rf"(?:(?![{_UNSPACED}])[^\W_])"
_UNIT = re.compile(rf"[{_UNSPACED}]+|{_LETTER}+(?:['’.-]{_LETTER}+)*|\S")
_CERTAIN = 1e6  # the weight of a link that is known
_NEAR = 8  # units within which a pair without links looks for a word

Span = tuple[int, int]
Place = tuple[int, int, Pair | Atom]
"""Where an item begins and ends, in units."""


class Link(NamedTuple):
    """Characters of a source and of its translation that belong together."""

    source: Span
    target: Span
    weight: float = 1.0


def place(shown: Shown, target: str, links: Sequence[Link]) -> Text:
    """Put the marks of a text into its translation."""
    return _Writer(shown, target, links).text


class _Units:
    """What a translation consists of, words, signs and stand-ins, and their links to the source.

    The place of a mark is the index of the unit that it stands before.
    """

    def __init__(self, shown: Shown, target: str, links: Sequence[Link]) -> None:
        self.line, self.target = shown.line, target
        found = [(atom, target.find(atom.stand_in)) for atom in shown.stand_ins]
        known = {
            atom: Link((atom.start, atom.end), (start, start + len(atom.stand_in)), _CERTAIN)
            for atom, start in found
            if start >= 0
        }
        links = [link for link in links if self._is_likely(link)]
        self.spans = _divide(target, sorted(link.target for link in known.values()), links)
        self.starts = [start for start, _ in self.spans]
        self.unit_of = {atom: self._unit(link.target[0]) for atom, link in known.items()}
        fixed = frozenset(self.unit_of.values())
        self.kinds = [_kind(target[start]) for start in self.starts]
        for unit in fixed:
            self.kinds[unit] = ""
        # By the middle of a word of the source, its units and the weights of its links to them.
        linked: dict[float, dict[int, float]] = {}
        for link in [*known.values(), *links]:
            shares = linked.setdefault(sum(link.source) / 2, {})
            for unit, weight in self._share(link):
                if unit not in fixed or link.weight == _CERTAIN:
                    shares[unit] = shares.get(unit, 0.0) + weight
        self.middles = sorted(middle for middle, shares in linked.items() if shares)
        self.shares = [linked[middle] for middle in self.middles]
        self.totals = [0.0] * len(self.spans)
        for shares in self.shares:
            for unit, weight in shares.items():
                self.totals[unit] += weight
        self.sums = [0.0, *accumulate(self.totals)]

    def _is_likely(self, link: Link) -> bool:
        """Whether both sides are words, or neither is."""
        texts = self.line[slice(*link.source)], self.target[slice(*link.target)]
        return len({any(map(str.isalnum, text)) for text in texts}) == 1

    def _unit(self, character: int) -> int:
        return max(0, bisect_right(self.starts, character) - 1)

    def _share(self, link: Link) -> Iterator[tuple[int, float]]:
        """Share the weight of a link among units, by their characters."""
        start, end = link.target
        for unit in range(self._unit(start), bisect_left(self.starts, end)):
            part = min(end, self.spans[unit][1]) - max(start, self.spans[unit][0])
            if part > 0:
                yield unit, link.weight * part / (end - start)

    def arrange(self, pair: Pair, low: int, high: int) -> list[Place]:
        """Find the places of a pair's items, if its own are from `low` to `high`, and order them.

        Those of a stand-in or a pair have an end.
        """
        spans = self._spans(pair, low, high)
        taken = sorted(spans.values())
        found: list[Place] = []
        last = low
        for item in pair.items:
            if isinstance(item, Pair):
                found.append((*spans[item], item))
                continue
            unit = self.unit_of.get(item, -1)
            if low <= unit < high and _is_free((unit, unit + 1), taken):
                found.append((unit, unit + 1, item))
                continue
            place = _beside(self._place(item, pair, low, high), taken)
            if not item.is_word:
                place = last = max(last, place)
            found.append((place, place, item))
        return sorted(found, key=lambda one: one[:2])

    def _spans(self, pair: Pair, low: int, high: int) -> dict[Pair, Span]:
        """Give the pairs in a pair the units that are linked best to their text.

        The surest chooses first.
        """
        pairs = [item for item in pair.items if isinstance(item, Pair)]
        weights = {one: self._weights(one, low, high) for one in pairs}
        sureness = {one: self._best(weights[one], [])[0] for one in pairs}
        spans: dict[Pair, Span] = {}
        taken: list[Span] = []
        for one in sorted(pairs, key=lambda one: -sureness[one]):
            if pair.has_at_edge(one):
                spans[one] = low, high
                continue
            _, span = self._best(weights[one], taken)
            if span is None:
                span = self._near(self._place(one, pair, low, high), low, high, taken)
            spans[one] = self._fit_signs(one, span, low, high, taken)
            if span[0] < span[1]:
                insort(taken, spans[one])
        return spans

    def _weights(self, pair: Pair, low: int, high: int) -> dict[int, float]:
        """Add up, for each unit, the links to the text of a pair."""
        weights: dict[int, float] = {}
        first = bisect_left(self.middles, pair.start)
        for shares in self.shares[first : bisect_right(self.middles, pair.end)]:
            for unit, weight in shares.items():
                if low <= unit < high:
                    weights[unit] = weights.get(unit, 0.0) + weight
        return weights

    def _best(self, weights: dict[int, float], taken: list[Span]) -> tuple[float, Span | None]:
        """Find the span with the greatest sum of its weights, less those of its other links."""
        units = [unit for unit in sorted(weights) if _is_free((unit, unit + 1), taken)]
        best: tuple[float, Span | None] = (float("-inf"), None)
        value, start = float("-inf"), 0
        for previous, unit in zip([-1, *units], units, strict=False):
            value -= self.sums[unit] - self.sums[previous + 1]
            if value <= 0 or not _is_free((start, unit), taken):
                value, start = 0.0, unit
            value += 2 * weights[unit] - self.totals[unit]
            best = max(best, (value, (start, unit + 1)), key=lambda one: one[0])
        return best

    def _near(self, place: int, low: int, high: int, taken: list[Span]) -> Span:
        """Find a word near a place, or a place between words if all of them are taken."""
        units = range(max(low, place - _NEAR), min(high, place + _NEAR))
        for unit in sorted(units, key=lambda unit: abs(unit - place)):
            if self.kinds[unit] == "" and _is_free((unit, unit + 1), taken):
                return unit, unit + 1
        place = _beside(place, taken)
        return place, place

    def _fit_signs(self, pair: Pair, span: Span, low: int, high: int, taken: list[Span]) -> Span:
        """Add signs to the ends of a span, or remove them, so that it ends as the source does."""
        start, end = span
        text = self.line[pair.start : pair.end].strip()
        first, last = _kind(text[0]), _kind(text[-1])
        while end - start > 1 and self.kinds[end - 1] and not last:
            end -= 1
        while end - start > 1 and self.kinds[start] and not first:
            start += 1
        if start < end < high and last and self.kinds[end] == last != self.kinds[end - 1]:
            end += _is_free((end, end + 1), taken)
        if low < start < end and first and self.kinds[start - 1] == first != self.kinds[start]:
            start -= _is_free((start - 1, start), taken)
        return start, end

    def _place(self, item: Pair | Atom, pair: Pair, low: int, high: int) -> int:
        """Find the place beside the unit that is linked with a neighbour."""
        if pair.has_at_edge(item):
            return low if item.end <= pair.start else high
        first = bisect_left(self.middles, pair.start)
        end = bisect_right(self.middles, pair.end)
        following = bisect_left(self.middles, item.end, first, end)
        after = [min(_strong(shares)) for shares in self.shares[following:end][:1]]
        before = [max(_strong(shares)) + 1 for shares in self.shares[first:following][-1:]]
        places = [*after, *before]
        if isinstance(item, Atom) and (
            (item.space_after and not item.space_before)
            or self.line[item.end :].lstrip()[:1] in STOPS
        ):
            places = [*before, *after]
        relative = (item.start - pair.start) / (pair.end - pair.start)
        place = places[0] if places else low + round(relative * (high - low))
        return min(max(place, low), high)


def _divide(target: str, known: Sequence[Span], links: Sequence[Link]) -> list[Span]:
    """Divide a text into units: stand-ins whole, text without spaces where links say so."""
    cuts = sorted({place for link in links for place in link.target})
    found: list[Span] = []
    done = 0
    for start, end in [*known, (len(target), len(target))]:
        for match in _UNIT.finditer(target, done, max(done, start)):
            first, last = match.span()
            if re.match(f"[{_UNSPACED}]", match[0]):
                inside = cuts[bisect_right(cuts, first) : bisect_left(cuts, last)]
                # Without any links, each character is a unit.
                inside = inside or ([] if cuts else list(range(first + 1, last)))
                found += pairwise([first, *inside, last])
            else:
                found.append((first, last))
        if end > start >= done:
            found.append((start, end))
        done = max(done, end)
    return found


def _kind(sign: str) -> str:
    """Return "" for a letter or a digit, and one kind of sign for all stops."""
    return "" if sign.isalnum() else "." if sign in STOPS else sign


def _strong(shares: dict[int, float]) -> list[int]:
    """Return the units with at least half the weight of the greatest."""
    return [unit for unit, weight in shares.items() if 2 * weight >= max(shares.values())]


def _is_free(span: Span, taken: Sequence[Span]) -> bool:
    """Whether a span overlaps with none of the others, which are in order."""
    before = bisect_left(taken, (span[1], 0))
    return before == 0 or taken[before - 1][1] <= span[0]


def _beside(place: int, taken: Sequence[Span]) -> int:
    """Move a place inside of a span to its nearer end."""
    for start, end in taken[: bisect_left(taken, (place, 0))][-1:]:
        if place < end:
            return start if place - start < end - place else end
    return place


class _Writer:
    """Writes a translation with its marks."""

    def __init__(self, shown: Shown, target: str, links: Sequence[Link]) -> None:
        self._target, self._line = target, shown.line
        self._units = _Units(shown, target, links)
        self._spans = self._units.spans
        self._parts: list[str | Mark] = []
        self._last = ""  # character written
        self._done = 0  # characters of the translation
        # Stand-ins at which their marks can't stand, because these are inside of other marks.
        self._lost = set(self._units.unit_of.values())
        self._places: dict[Pair, list[Place]] = {}
        self._arrange(shown.root, 0, len(self._spans))
        self._write_pair(shown.root, 0, len(self._spans))

    @property
    def text(self) -> Text:
        """What was written."""
        parts: list[str | Mark] = []
        for part in self._parts:
            if isinstance(part, str) and parts and isinstance(parts[-1], str):
                parts[-1] += part
            else:
                parts.append(part)
        return tuple(parts)

    def _arrange(self, pair: Pair, low: int, high: int) -> None:
        """Find the places of all that is in a pair."""
        self._places[pair] = self._units.arrange(pair, low, high)
        for start, end, item in self._places[pair]:
            if isinstance(item, Pair):
                self._arrange(item, start, end)
            elif start < end:
                self._lost.discard(start)

    def _write_pair(self, pair: Pair, low: int, high: int) -> None:
        """Write a pair's marks, and what is between them, from one place to another."""
        if low < high:
            self._write_until(self._spans[low][0])
        self._parts += pair.marks[:1]
        self._write_space(pair.space_before, at_edge=not self._last)
        for (start, end), group in groupby(self._places[pair], lambda place: place[:2]):
            items = [item for *_, item in group]
            if start == end:
                self._write_atoms([_as_atom(item) for item in items], start, high)
            elif isinstance(items[0], Pair):
                self._write_pair(items[0], start, end)
            else:
                self._write_until(self._spans[start][0])
                self._parts += items[0].parts
                self._done, self._last = self._spans[start][1], items[0].stand_in[-1]
        if low < high:
            self._write_until(self._spans[high - 1][1])
        self._write_space(pair.space_after, at_edge=self._done == len(self._target))
        self._parts += pair.marks[1:]

    def _write_atoms(self, atoms: Sequence[Atom], place: int, high: int) -> None:
        """Write atoms between two units, with spaces around them as in the source."""
        self._write_until(self._spans[place - 1][1] if place else 0)
        following = self._spans[place][0] if place < high else self._done
        # At the ends of a text, there would be as much space as the source has.
        gap = self._target[self._done : following] or " " * (place in (0, high))
        self._done = following
        first, last = atoms[0], atoms[-1]
        before = self._line[: first.start].rstrip()[-1:]
        after = self._line[last.end :].lstrip()[:1]
        if _needs_space(self._last, gap, asked=first.space_before, known=before):
            self._parts.append(" ")
        for one, other in zip(atoms, [*atoms[1:], None], strict=True):
            self._parts += one.parts
            if other and (one.space_after or other.space_before):
                self._parts.append(" ")
        neighbour = self._target[following] if place < high else ""
        if _needs_space(neighbour, gap, asked=last.space_after, known=after):
            self._parts.append(" ")
            self._last = " "

    def _write_space(self, space: str, *, at_edge: bool) -> None:
        if space and at_edge:
            self._parts.append(space)

    def _write_until(self, end: int) -> None:
        """Write the translation up to a character, without stand-ins that are lost."""
        lost = sorted(self._spans[unit] for unit in self._lost)
        for start, stop in [*(span for span in lost if self._done <= span[0] < end), (end, end)]:
            text = self._target[self._done : start]
            if text := text.rstrip() if start < stop else text:
                self._parts.append(text)
                self._last = text[-1]
            self._done = max(self._done, stop)


def _needs_space(neighbour: str, gap: str, *, asked: bool, known: str) -> bool:
    """Whether a space goes between a mark and its neighbour, where there was a gap.

    `known` is its neighbour in the source.
    """
    is_word = neighbour.isalnum() and not re.match(f"[{_UNSPACED}]", neighbour)
    if neighbour.isspace() or not neighbour:
        return False
    return is_word or bool(gap) if asked else is_word and not known.isalnum()


def _as_atom(item: Pair | Atom) -> Atom:
    """Make an atom of a pair for which there are no words."""
    if isinstance(item, Atom):
        return item
    parts = [part for inner in item.items for part in _as_atom(inner).parts]
    return Atom(
        (item.marks[0], *parts, item.marks[1]), "", item.start, item.start, space_before=True
    )
