"""From the texts of a document to lines for a model, and back."""

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, pairwise
from textwrap import shorten
from typing import TYPE_CHECKING

from seq2seq.decoding.translation import OutputWarnings, Translation
from seq2seq.documents.document import File, Mark, Text, only_strings
from seq2seq.documents.placeholders import (
    as_strings,
    divide,
    find_placeholders,
    in_order,
    is_unnumbered,
    read_by_programs,
    without_new_quotes,
)
from seq2seq.documents.projection import SpanLink, place, show

if TYPE_CHECKING:  # where documents are read, nobody waits for PyTorch
    from seq2seq.decoding.alignment import Alignment
    from seq2seq.decoding.translator import Translator

_STAND_INS = ("Tom", "100", "2013", "7")
"""The words that the model reads for `{name}` and the like, if its translation has each once."""
_NUMBER = re.compile(r"#|%[-\d$.+]*l*[diu]|\b(?:n|num|number|count|total)\b|count\b", re.IGNORECASE)


class _Piece:
    """A part of a text that is translated by itself."""

    def __init__(self, source: Text) -> None:
        self.source = source
        self.shown = show(source, _stand_ins(source))
        self.translation = Translation([])
        self.placed = source

    @property
    def needs_links(self) -> bool:
        return self.shown.needs_links and bool(self.translation.text.strip())

    def keeps_stand_ins(self) -> bool:
        """Tell whether all candidates have each stand-in once, those of `%s` and `%d` in order."""
        stand_ins = self.shown.stand_ins
        ordered = [atom.stand_in for atom in stand_ins if is_unnumbered(atom.parts[0])]
        for candidate in self.translation.candidates:
            are_free = all(self.shown.has_free(atom, candidate.text) for atom in stand_ins)
            if not are_free or sorted(ordered, key=candidate.text.find) != ordered:
                return False
        return True

    def target(self, rank: int) -> str:
        """Return a candidate, or the last if there are fewer."""
        candidates = self.translation.candidates
        return candidates[min(rank, len(candidates) - 1)].text if candidates else ""

    def place(self, alignment: "Alignment | None", rank: int) -> bool:
        """Put a candidate with its marks into `placed`, unless its placeholders would differ."""
        target, source = self.target(rank), self.source
        self.placed = source
        if not target.strip() or target == self.shown.line:
            return True
        links: list[SpanLink] = []
        if alignment:
            sources, targets = alignment.source_spans, alignment.target_spans
            links += (SpanLink(sources[i], targets[j]) for i, j in alignment.pieces)
        text = without_new_quotes(in_order(place(self.shown, target, links), source), source)
        placeholders, written = read_by_programs(source), read_by_programs(text)
        # A placeholder of the translation may have an ending: `%s` becomes `%sin`.
        is_same = len(placeholders) == len(written) and all(
            map(str.startswith, written, placeholders)
        )
        is_same = is_same and not _has_new_empty_pair(text, source)
        self.placed = text if is_same else source
        return is_same


class Plan:
    """Texts on their way through a model.

    Translate `lines` and give the translations to `take`; translate what it returns, until it
    returns nothing. Then align `pairs()`, and give the alignments to `place`.
    """

    def __init__(self, texts: Sequence[Text], *, placeholders: bool = True) -> None:
        self._pieces: list[_Piece] = []
        # The pieces of each text, and the marks and spaces between them.
        self._layouts: list[list[_Piece | str | Mark]] = []
        for text in texts:
            self._layouts.append([])
            for item in divide(find_placeholders(text)) if placeholders else [text]:
                if isinstance(item, str | Mark):
                    self._layouts[-1].append(item)
                else:
                    self._pieces.append(_Piece(item))
                    self._layouts[-1].append(self._pieces[-1])
        self._asked = self._pieces
        self.kept: list[int] = []
        """The `lines` whose texts stayed, since their placeholders would not be the same."""

    @property
    def lines(self) -> list[str]:
        """The lines that the model reads."""
        return [piece.shown.line for piece in self._pieces]

    @property
    def texts_of_lines(self) -> list[int]:
        """The indices of the texts from which `lines` are."""
        layouts = enumerate(self._layouts)
        return [i for i, layout in layouts for part in layout if isinstance(part, _Piece)]

    @property
    def translations(self) -> list[Translation]:
        """The translations of `lines`."""
        return [piece.translation for piece in self._pieces]

    def take(self, translations: Sequence[Translation]) -> list[str]:
        """Take the translations of the lines asked for; return lines to be translated again.

        These have no stand-ins: the translation lacks or repeats one, or swaps `%s` and `%d`.
        """
        asked, self._asked = self._asked, []
        for piece, translation in zip(asked, translations, strict=True):
            piece.translation = translation
            if not piece.keeps_stand_ins():
                piece.shown = show(piece.source)
                self._asked.append(piece)
        return [piece.shown.line for piece in self._asked]

    def pairs(self, rank: int = 0) -> list[tuple[str, Translation | str]]:
        """Return the lines whose words are to be aligned, each with one of its candidates."""
        aligned = [piece for piece in self._pieces if piece.needs_links]
        return [(x.shown.line, x.target(rank) if rank else x.translation) for x in aligned]

    def place(self, alignments: "Sequence[Alignment]", rank: int = 0) -> list[Text]:
        """Return the translations of the texts, with their marks; what has none stays."""
        self.kept = []
        waiting = iter(alignments)
        for i, piece in enumerate(self._pieces):
            if not piece.place(next(waiting) if piece.needs_links else None, rank):
                self.kept.append(i)
        texts = []
        for layout in self._layouts:
            parts = (part.placed if isinstance(part, _Piece) else (part,) for part in layout)
            texts.append(as_strings(chain.from_iterable(parts)))
        return texts


def _has_new_empty_pair(text: Text, source: Text) -> bool:
    """Tell whether signs around no word would mean something else: `~~~~`, `[](address)`."""
    known = set(pairwise(source))
    return any(_is_empty(*pair) and pair not in known for pair in pairwise(text))


def _is_empty(before: str | Mark, after: str | Mark) -> bool:
    if not isinstance(before, Mark) or not isinstance(after, Mark):
        return False
    return before.kind == "open" and after.kind == "close" and not before.raw.startswith("<")


def _stand_ins(piece: Text) -> Iterator[str]:
    """Choose what is shown for each word, "" for nothing."""
    text = only_strings(piece)
    if not any(map(str.isalpha, text)):
        return
    shown = map(str.upper, _STAND_INS) if text.isupper() else _STAND_INS
    free = [word for word in shown if word not in text]
    for mark in piece:
        if isinstance(mark, Mark) and mark.kind == "word":
            is_number = _NUMBER.search(mark.raw)
            stand_in = next((word for word in free if word.isdigit() or not is_number), "")
            if stand_in:
                free.remove(stand_in)
            yield stand_in


def _place(index: int, line: str) -> str:
    return f"text {index + 1:,}, {shorten(line, 40)!r}"


def translate_file(
    file: File,
    translator: "Translator",
    on_batch: Callable[[int, int], None] = lambda done, segments: None,
) -> tuple[bytes, OutputWarnings]:
    """Translate a document; also count what is suspicious in the translations of its lines."""
    plan = Plan(file.texts)
    lines = plan.lines
    while lines:
        lines = plan.take(translator.translate(lines, on_batch=on_batch))
    pairs = plan.pairs()
    alignments = translator.alignments([line for line, _ in pairs], [text for _, text in pairs])
    placed = plan.place(alignments)
    too_long = file.too_long(placed)
    warnings = OutputWarnings(placeholders=len(plan.kept), too_long=len(too_long))
    lines_of_texts = zip(plan.texts_of_lines, plan.lines, plan.translations, strict=True)
    for i, (text, line, translation) in enumerate(lines_of_texts):
        where = _place(text, line)
        warnings.count(line, translation, where)
        if i in plan.kept[:1]:
            warnings.first["placeholders"] = where
    for i in too_long[:1]:
        warnings.first["too_long"] = _place(i, only_strings(file.texts[i]))
    return file.join(placed), warnings
