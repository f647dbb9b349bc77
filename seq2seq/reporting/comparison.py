"""Sample lines of a system, and two systems compared on one test set."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import groupby
from operator import itemgetter

from seq2seq.decoding.translator import Translator
from seq2seq.errors import UserError
from seq2seq.evaluation.scores import SCRIPTS, ScoreConfig
from seq2seq.evaluation.significance import Comparison, compare, line_chrf

PER_KIND = 5
MAX_CHARACTERS = 1000
"""Characters of a line that can be a sample; a longer one would make the page unreadable."""
MAX_PIECES = 40
"""Pieces per side up to which the attention is shown."""
LINES = 5
_NO_SPACES = "".join(SCRIPTS[name] for name in ("char", "ja-mecab", "zh"))
_MARKS = re.escape(".,;:!?()[]{}\"'„“”‚‘’«»¿¡…–—、。「」（），！？：；")
_PARTS = re.compile(rf"\s+|[{_NO_SPACES}{_MARKS}]|[^\s{_NO_SPACES}{_MARKS}]+")


@dataclass(frozen=True)
class Attention:
    """Cross-attention of the last layer, the mean of its heads."""

    rows: list[str]
    """Pieces of the output that attend: the start symbol, then all but the last."""
    columns: list[str]
    """Pieces of the source."""
    weights: list[list[float]]


@dataclass(frozen=True)
class Sample:
    """A line of the test set, counted from 1, with its translation."""

    kind: str
    """`worst`, `median` or `best`."""
    line: int
    source: str
    reference: str
    output: str
    chrf: float
    attention: Attention | None


@dataclass(frozen=True)
class LineChange:
    """A line, counted from 1, that one system translates better than the other."""

    line: int
    source: str
    reference: str
    run: str
    other: str
    run_chrf: float
    other_chrf: float


@dataclass(frozen=True)
class SetComparison:
    """Another system compared with the run, which is the baseline of the tests."""

    other: str
    tests: list[Comparison]
    lines_won: list[LineChange]
    """Lines that the run translates better, by chrF."""
    lines_lost: list[LineChange]


def choose_samples(
    translator: Translator,
    sources: Sequence[str],
    references: Sequence[str],
    outputs: Sequence[str],
) -> list[Sample]:
    """Choose the lines with the lowest, the median and the highest chrF.

    Lines of more than `MAX_CHARACTERS` characters are skipped, and so are blank ones.
    """
    lines = [
        line
        for line, texts in enumerate(zip(sources, references, outputs, strict=True))
        if texts[0].strip() and texts[1].strip() and max(map(len, texts)) <= MAX_CHARACTERS
    ]
    scores = line_chrf([outputs[i] for i in lines], [references[i] for i in lines])
    ranked = sorted(zip(scores, lines, strict=True))
    worst, rest = ranked[:PER_KIND], ranked[PER_KIND:]
    best = rest[max(0, len(rest) - PER_KIND) :][::-1]
    middle = max(0, (len(ranked) - PER_KIND) // 2)
    median = [one for one in ranked[middle : middle + PER_KIND] if one not in [*worst, *best]]
    return [
        Sample(
            kind,
            line + 1,
            sources[line],
            references[line],
            outputs[line],
            score,
            attention_of(translator, sources[line], outputs[line]),
        )
        for kind, group in (("worst", worst), ("median", median), ("best", best))
        for score, line in group
    ]


def attention_of(translator: Translator, source: str, output: str) -> Attention | None:
    """Compute the attention of a translation; None if there is none or it is too large to show."""
    if len(translator.models) > 1 or not output.strip():
        return None
    try:
        maps = translator.attention(source, output)
    except UserError:  # longer than the model accepts, or a NaN
        return None
    rows, columns = maps.sides("cross")
    if max(len(rows), len(columns)) > MAX_PIECES:
        return None
    weights = maps.cross[-1].float().mean(dim=0)  # (H, T, S) -> (T, S)
    return Attention(rows, columns, [[round(w, 3) for w in row] for row in weights.tolist()])


def differing_parts(text: str, other: str) -> list[tuple[str, bool]]:
    """Divide a text into parts, each with whether it is missing in the other text.

    Words and punctuation marks are compared, and characters of scripts that put no spaces between
    words.
    """
    mine, theirs = _PARTS.findall(text), [word for word in _PARTS.findall(other) if word.strip()]
    indices = [index for index, part in enumerate(mine) if part.strip()]
    words = [mine[index] for index in indices]
    missing = set(indices)
    for block in SequenceMatcher(None, words, theirs, autojunk=False).get_matching_blocks():
        missing -= set(indices[block.a : block.a + block.size])
    marked = ((part, index in missing) for index, part in enumerate(mine))
    return [
        ("".join(part for part, _ in group), differs)
        for differs, group in groupby(marked, key=itemgetter(1))
    ]


def compare_set(
    names: tuple[str, str],
    sources: Sequence[str],
    references: Sequence[str],
    outputs: tuple[Sequence[str], Sequence[str]],
    scoring: ScoreConfig,
) -> SetComparison:
    """Compare the outputs of a run and of another system."""
    run, other = outputs
    lines = line_changes(sources, references, run, other)
    return SetComparison(
        other=names[1],
        tests=compare(dict(zip(names, outputs, strict=True)), [references], scoring),
        lines_won=[one for one in lines if one.run_chrf > one.other_chrf][:LINES],
        lines_lost=[one for one in lines[::-1] if one.run_chrf < one.other_chrf][:LINES],
    )


def line_changes(
    sources: Sequence[str], references: Sequence[str], run: Sequence[str], other: Sequence[str]
) -> list[LineChange]:
    """List the lines that can be shown, those first in which the run gains most chrF."""
    rows = [
        (line, *texts)
        for line, texts in enumerate(zip(sources, references, run, other, strict=True), start=1)
        if max(map(len, texts)) <= MAX_CHARACTERS
    ]
    mine = line_chrf([row[3] for row in rows], [row[2] for row in rows])
    theirs = line_chrf([row[4] for row in rows], [row[2] for row in rows])
    changes = [LineChange(*row, a, b) for row, a, b in zip(rows, mine, theirs, strict=True)]
    return sorted(changes, key=lambda change: change.other_chrf - change.run_chrf)
