"""From the texts of a document to lines for a model, and back."""

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from textwrap import shorten

from seq2seq.decoding.alignment import Alignment
from seq2seq.decoding.translation import OutputWarnings, Translation
from seq2seq.decoding.translator import Translator
from seq2seq.documents.document import File, Mark, Text
from seq2seq.documents.placeholders import (
    as_strings,
    divide,
    find_placeholders,
    in_order,
    is_unnumbered,
    read_by_programs,
    without_new_quotes,
)
from seq2seq.documents.projection import Link, place, show

_STAND_INS = ("Tom", "100", "2013", "7")
"""What the model sees for words such as `{name}`, if its translation then has each of them once."""
_NUMBER = re.compile(r"#|%[-\d$.+]*l*[diu]|\b(?:n|num|number|count|total)\b|count\b", re.IGNORECASE)


class Plan:
    """Texts on their way through a model.

    Translate `lines` and give the translations to `take`; translate what it returns, until it
    returns nothing. Then align `pairs()`, and give the alignments to `place`.
    """

    def __init__(self, texts: Sequence[Text], *, placeholders: bool = True) -> None:
        self._pieces: list[Text] = []
        # Of each text, the indexes of its pieces, and what stands between them.
        self._layouts: list[list[int | str | Mark]] = []
        for text in texts:
            self._layouts.append([])
            for item in divide(find_placeholders(text)) if placeholders else [text]:
                if isinstance(item, str | Mark):
                    self._layouts[-1].append(item)
                else:
                    self._layouts[-1].append(len(self._pieces))
                    self._pieces.append(item)
        self._shown = [show(piece, _stand_ins(piece)) for piece in self._pieces]
        self._asked = list(range(len(self._pieces)))
        self.translations = [Translation([])] * len(self._pieces)
        """Those of `lines`."""
        self.kept: list[int] = []
        """The `lines` whose texts stayed, since their placeholders would not be the same."""

    @property
    def lines(self) -> list[str]:
        """What the model sees."""
        return [visible.line for visible in self._shown]

    def take(self, translations: Sequence[Translation]) -> list[str]:
        """Take the translations of the lines asked for; return lines to be translated again.

        These have no stand-ins: the translation lacks or repeats one, or swaps `%s` and `%d`.
        """
        for i, translation in zip(self._asked, translations, strict=True):
            self.translations[i] = translation
        self._asked = [i for i in self._asked if not self._has_stand_ins(i)]
        for i in self._asked:
            self._shown[i] = show(self._pieces[i])
        return [self._shown[i].line for i in self._asked]

    def _has_stand_ins(self, i: int) -> bool:
        stand_ins = self._shown[i].stand_ins
        ordered = [atom.stand_in for atom in stand_ins if is_unnumbered(atom.parts[0])]
        return all(
            all(candidate.text.count(atom.stand_in) == 1 for atom in stand_ins)
            and sorted(ordered, key=candidate.text.find) == ordered
            for candidate in self.translations[i].candidates
        )

    def pairs(self, rank: int = 0) -> list[tuple[str, Translation | str]]:
        """Return the lines whose words are to be aligned, each with one of its candidates."""
        return [
            (self._shown[i].line, self._target(i, rank) if rank else translation)
            for i, translation in enumerate(self.translations)
            if self._needs_links(i)
        ]

    def _needs_links(self, i: int) -> bool:
        return self._shown[i].needs_links and bool(self.translations[i].text.strip())

    def _target(self, i: int, rank: int) -> str:
        """Return a candidate, or the last if there are fewer."""
        candidates = self.translations[i].candidates
        return candidates[min(rank, len(candidates) - 1)].text if candidates else ""

    def place(self, alignments: Sequence[Alignment], rank: int = 0) -> list[Text]:
        """Return the translations of the texts, with their marks; what has none stays."""
        waiting = iter(alignments)
        placed = list(self._pieces)
        for i, visible in enumerate(self._shown):
            links = _links(next(waiting)) if self._needs_links(i) else []
            target = self._target(i, rank)
            if target.strip() and target != visible.line:
                source = self._pieces[i]
                text = without_new_quotes(in_order(place(visible, target, links), source), source)
                if _has_same(read_by_programs(source), read_by_programs(text)):
                    placed[i] = text
                else:
                    self.kept.append(i)
        return [
            as_strings(chain(*(placed[i] if isinstance(i, int) else [i] for i in layout)))
            for layout in self._layouts
        ]


def _has_same(source: list[str], target: list[str]) -> bool:
    """Compare placeholders; those of the target may have an ending: `%s` becomes `%sin`."""
    return len(source) == len(target) and all(map(str.startswith, target, source))


def _stand_ins(piece: Text) -> Iterator[str]:
    """Choose what is shown for each word, "" for nothing."""
    text = "".join(item for item in piece if isinstance(item, str))
    free = [word for word in _STAND_INS if word not in text]
    if any(map(str.isalpha, text)):
        for mark in piece:
            if isinstance(mark, Mark) and mark.kind == "word":
                is_number = _NUMBER.search(mark.raw)
                stand_in = next((word for word in free if word.isdigit() or not is_number), "")
                free = [word for word in free if word != stand_in]
                yield stand_in


def _links(alignment: Alignment) -> list[Link]:
    return [Link(alignment.source_spans[i], alignment.target_spans[j]) for i, j in alignment.pieces]


def translate_file(
    file: File,
    translator: Translator,
    on_batch: Callable[[int, int], None] = lambda done, segments: None,
) -> tuple[bytes, OutputWarnings]:
    """Translate a document; also count what is suspicious in the translations of its lines."""
    plan = Plan(file.texts)
    lines = plan.lines
    while lines:
        lines = plan.take(translator.translate(lines, on_batch=on_batch))
    pairs = plan.pairs()
    alignments = translator.alignments([line for line, _ in pairs], [text for _, text in pairs])
    warnings = OutputWarnings()
    for number, (line, translation) in enumerate(
        zip(plan.lines, plan.translations, strict=True), start=1
    ):
        warnings.count(line, translation, f"text {number:,}, {shorten(line, 40)!r}")
    placed = plan.place(alignments)
    warnings.placeholders = len(plan.kept)
    if plan.kept:
        first = plan.kept[0]
        warnings.first["placeholders"] = f"text {first + 1:,}, {shorten(plan.lines[first], 40)!r}"
    return file.join(placed), warnings
