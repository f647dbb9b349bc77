"""Sample translations: the worst, the median and the best lines, and what differs in them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import groupby
from operator import itemgetter

from seq2seq.decoding.translator import Translator
from seq2seq.errors import UserError
from seq2seq.evaluation.intervals import line_chrf

PER_KIND = 5
MAX_CHARACTERS = 1000
"""Characters of a line that can be a sample; a longer one would make the page unreadable."""
MAX_PIECES = 40
"""Pieces per side up to which the attention is shown."""
# Thai and Lao, Burmese, Khmer, kana, Chinese characters
_NO_SPACES = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
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
    """A line of the test set with its translation."""

    kind: str
    """`worst`, `median` or `best`."""
    line: int
    """Counted from 1."""
    source: str
    reference: str
    output: str
    chrf: float
    attention: Attention | None


def choose_samples(
    translator: Translator,
    sources: Sequence[str],
    references: Sequence[str],
    outputs: Sequence[str],
) -> list[Sample]:
    """Choose the lines with the lowest, the median and the highest chrF.

    Lines of more than `MAX_CHARACTERS` characters are left out, and so are blank ones.
    """
    lines = [
        line
        for line, texts in enumerate(zip(sources, references, outputs, strict=True))
        if texts[0].strip() and texts[1].strip() and max(map(len, texts)) <= MAX_CHARACTERS
    ]
    scores = line_chrf([outputs[i] for i in lines], [references[i] for i in lines])
    ranked = sorted(zip(scores, lines, strict=True))
    middle = max(0, (len(ranked) - PER_KIND) // 2)
    chosen = {"worst": ranked[:PER_KIND]}
    rest = ranked[PER_KIND:]
    chosen["best"] = rest[max(0, len(rest) - PER_KIND) :][::-1]
    taken = set(chosen["worst"]) | set(chosen["best"])
    chosen["median"] = [one for one in ranked[middle : middle + PER_KIND] if one not in taken]
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
        for kind in ("worst", "median", "best")
        for score, line in chosen[kind]
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
    weights = maps.cross[-1].float().mean(dim=0)
    return Attention(rows, columns, [[round(w, 3) for w in row] for row in weights.tolist()])


def differing_parts(text: str, other: str) -> list[tuple[str, bool]]:
    """Divide a text into parts, each with whether it is missing in the other text.

    Words and punctuation marks are compared, and characters of scripts that put no spaces between
    words.
    """
    mine, theirs = _PARTS.findall(text), [word for word in _PARTS.findall(other) if word.strip()]
    places = [place for place, part in enumerate(mine) if part.strip()]
    words = [mine[place] for place in places]
    missing = set(places)
    for block in SequenceMatcher(None, words, theirs, autojunk=False).get_matching_blocks():
        missing -= set(places[block.a : block.a + block.size])
    marked = ((part, place in missing) for place, part in enumerate(mine))
    return [
        ("".join(part for part, _ in group), differs)
        for differs, group in groupby(marked, key=itemgetter(1))
    ]
