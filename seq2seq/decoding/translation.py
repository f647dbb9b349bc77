"""The translation of a line: its candidates, joined from its segments' candidates."""

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from seq2seq.case import upper_case

if TYPE_CHECKING:  # where documents are read, nobody waits for PyTorch
    from seq2seq.decoding.segments import Segment
    from seq2seq.search import Hypothesis
    from seq2seq.tokenizer import Tokenizer


class Candidate(NamedTuple):
    """One translation of a line."""

    text: str
    score: float  # log-probability divided by the length penalty
    pieces: list[str]  # the subword pieces of the text
    truncated: bool  # whether it was cut off at the maximum length
    too_short: bool = False  # less than a third of the pieces of a segment of 12 or more


def make_candidates(
    tokenizer: "Tokenizer",
    segment: "Segment",
    hypotheses: "Sequence[Hypothesis]",
    target_language: str = "",
) -> list[Candidate]:
    """Make the candidates of a segment from the outputs of the search.

    Those of a segment that the model read in another case are written in capitals.
    """
    candidates = []
    controls = set(tokenizer.controls.values())
    source = sum(i not in controls for i in segment.source_ids) - 1  # pieces, without `</s>`
    for hypothesis in hypotheses:
        ids = hypothesis.token_ids
        (text,) = tokenizer.decode([ids])
        if segment.capitals:
            text = upper_case(text, target_language)
        too_short = source >= 12 and 3 * len(ids) < source
        pieces = tokenizer.pieces(ids)
        candidates.append(
            Candidate(text.strip(), hypothesis.score, pieces, hypothesis.truncated, too_short)
        )
    return candidates


@dataclass(frozen=True)
class Translation:
    """The translation of one line."""

    candidates: list[Candidate]
    """The best first, or samples in the order in which they were drawn; one without pieces, of
    score 0, for a line without words, which is copied; none for an empty line."""
    unknown: int = 0
    """Number of pieces of the line that are unknown to the tokenizer."""
    missing_terms: tuple[str, ...] = ()
    """Terms of the glossary that stand in the line, whose translations `text` lacks."""
    added_terms: tuple[str, ...] = ()
    """Terms whose translations `text` has beside the model's own words, it seems."""
    parts: tuple[tuple[str, str, "Translation"], ...] = ()
    """For each segment (a column, a sentence, a part of a long line), the unchanged text before it,
    its source and its translation; empty for a line that is one segment without such text."""

    @property
    def text(self) -> str:
        """The best translation; "" for an empty line."""
        return self.candidates[0].text if self.candidates else ""

    @property
    def score(self) -> float:
        """The best translation's score; 0 for a line without words."""
        return self.candidates[0].score if self.candidates else 0.0

    @classmethod
    def from_segments(
        cls, segments: "list[Segment]", candidates: list[list[Candidate]]
    ) -> "Translation":
        """Join the candidates of the segments of a line."""
        parts, missing, added, before = [], list[str](), list[str](), ""
        for segment, outputs in zip(segments, candidates, strict=True):
            lacking: list[str] = []
            for term, times in Counter(segment.terms if outputs else ()).items():
                lacking += [term.source] * (times - len(term.places_in(outputs[0].text)))
            missing += lacking
            terms = dict.fromkeys(segment.terms if outputs else ())
            twice = [x.source for x in terms if x.is_added(segment.source, outputs[0].text)]
            added += twice
            part = cls(outputs, segment.unknown, tuple(lacking), tuple(twice))
            parts.append((before + segment.copied, segment.source, part))
            before = segment.separator
        return cls(
            _join(segments, candidates),
            unknown=sum(segment.unknown for segment in segments),
            missing_terms=tuple(missing),
            added_terms=tuple(added),
            parts=() if _is_one_text(segments) else tuple(parts),
        )


def _is_one_text(segments: "list[Segment]") -> bool:
    """Return whether a line is one segment, with nothing but white space after it."""
    return len(segments) == 1 and not (segments[0].copied or segments[0].separator.strip())


def _join(segments: "list[Segment]", candidates: list[list[Candidate]]) -> list[Candidate]:
    """Join the best candidates of all segments, then the second best, and so on."""
    # A segment without words has no candidates.
    nothing = [Candidate("", 0.0, [], False)]
    count = min(
        map(len, filter(None, candidates)),
        default=int(any(segment.copied or segment.separator for segment in segments)),
    )
    joined = []
    for row in zip(*(outputs or nothing * count for outputs in candidates), strict=False):
        texts, scores, pieces, truncated, too_short = zip(*row, strict=True)
        line = _join_texts(segments, texts)
        joined.append(
            Candidate(line, sum(scores), list(chain(*pieces)), any(truncated), any(too_short))
        )
    return joined


def _join_texts(segments: "list[Segment]", texts: Sequence[str]) -> str:
    """Join texts and what is copied around them, with a space where they need one."""
    line = ""
    for segment, translated in zip(segments, texts, strict=True):
        text = segment.copied + translated
        spaced = not line or line[-1].isspace() or _is_wide(line[-1]) or not text
        if not (spaced or text[0].isspace() or _is_wide(text[0])):
            line += " "  # there was none between sentences of Chinese or Japanese
        line += text + segment.separator
    return line


def _is_wide(character: str) -> bool:
    """Whether it is a character of a script without spaces; Korean, which has some, is wide too."""
    wide = bool(character) and unicodedata.east_asian_width(character) in "WF"
    return wide and not re.search("HANGUL|KOREAN", unicodedata.name(character, ""))


WARNINGS = {
    "empty": "empty outputs",
    "copied": "outputs equal to their sources",
    "too_short": "outputs far too short for their sources",
    "repeating": "outputs that repeat themselves",
    "other_numbers": "outputs with other numbers or placeholders than their sources",
    "output_truncated": "outputs cut off at the maximum length",
    "unknown": "source pieces unknown to the tokenizer",
    "placeholders": "texts left as they were, to keep placeholders",
    "too_long": "texts longer than their document allows",
}
"""Names of the counts of `OutputWarnings`, but for terms, which only a glossary has."""
_TERMS = {
    "missing_terms": "terms not translated as the glossary says",
    "added_terms": "terms of the glossary written in addition to the model's own words, it seems",
}


@dataclass
class OutputWarnings:
    """Counts of suspicious outputs, and of pieces of sources that are unknown."""

    lines: int = 0
    empty: int = 0  # lines without output whose source is not blank
    copied: int = 0  # lines whose output is the source, if the model wrote it
    too_short: int = 0  # lines with an output of less than a third of the pieces of its source
    repeating: int = 0  # lines in whose output one to eight pieces occur four times in a row
    other_numbers: int = 0  # lines whose output has other digits, placeholders or addresses
    output_truncated: int = 0  # lines whose output was cut off at the maximum length
    missing_terms: int = 0  # terms of the glossary that were not translated as given
    added_terms: int = 0  # terms of the glossary that stand beside the model's own words
    unknown: int = 0  # source pieces that are unknown to the tokenizer, in all lines
    placeholders: int = 0  # texts of documents that stayed as they were, to keep `%s` and `{name}`
    too_long: int = 0  # texts of documents with more characters than these allow
    first: dict[str, str] = field(default_factory=dict)
    """Where the first of each count is, such as `line 17`."""

    def count(self, source: str, translation: Translation, where: str = "") -> None:
        """Count one line and its translation, and note where it is, if that is known."""
        before = vars(self).copy()
        text = source.strip()
        self.lines += 1
        self.unknown += translation.unknown
        self.missing_terms += len(translation.missing_terms)
        self.added_terms += len(translation.added_terms)
        self.empty += bool(text) and not translation.text.strip()
        if translation.candidates:
            best = translation.candidates[0]
            self.copied += bool(best.pieces) and text == best.text.strip()
            self.too_short += best.too_short
            self.repeating += repeats(best.pieces)
            self.output_truncated += best.truncated
            self.other_numbers += bool(best.pieces) and _fixed(text) != _fixed(best.text)
        if where:
            for name, count in before.items():
                if getattr(self, name) != count:
                    self.first.setdefault(name, where)

    def __add__(self, later: "OutputWarnings") -> "OutputWarnings":
        """Return the counts of these lines and of later ones."""
        counts = vars(self) | {"first": later.first | self.first}
        for name in counts.keys() - {"first"}:
            counts[name] += getattr(later, name)
        return OutputWarnings(**counts)

    def __str__(self) -> str:
        """Return the counts above 0, on one line, each with the first place that is known."""
        counts = []
        for name, meaning in (WARNINGS | _TERMS).items():
            if count := getattr(self, name):
                where = f" (first: {self.first[name]})" if name in self.first else ""
                counts.append(f"{meaning}: {count:,}{where}")
        return f"lines: {self.lines:,}; {'; '.join(counts) or 'nothing suspicious'}"


# Placeholders in lines of text; documents have the grammar of their format.
_PLACEHOLDER = re.compile(r"\{\w*\}|%(?:\d+\$|\(\w+\))?[sd@]|https?://[\w./-]*\w")


def _fixed(text: str) -> tuple[list[int], list[str]]:
    """Return what no translation changes, in any order: digits, placeholders and addresses.

    Numbers may change places and separators.
    """
    digits = sorted(map(unicodedata.digit, re.findall(r"\d", text)))
    return digits, sorted(_PLACEHOLDER.findall(text))


def repeats(pieces: list[str]) -> bool:
    """Return whether the same one to eight pieces occur four times in a row."""
    if len(pieces) - len(set(pieces)) < 3:  # as in most lines
        return False
    for size in range(1, min(8, len(pieces) // 4) + 1):
        run = 0
        for i in range(size, len(pieces)):
            run = run + 1 if pieces[i] == pieces[i - size] else 0
            if run == 3 * size:
                return True
    return False
