"""Two systems on one test set: a paired test, n-grams won and lost, lines that changed most."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from seq2seq.evaluation.intervals import line_chrf, words
from seq2seq.evaluation.paper_bleu import MAX_ORDER, ngrams
from seq2seq.evaluation.scores import ScoreConfig
from seq2seq.evaluation.significance import Comparison, compare
from seq2seq.reporting.buckets import Bucket
from seq2seq.reporting.samples import MAX_CHARACTERS

NGRAMS = 10
LINES = 5


@dataclass(frozen=True)
class NgramChange:
    """An n-gram that one system gets right more often than the other."""

    ngram: str
    run: int
    """Times that the run's outputs have it where the reference has it."""
    other: int
    """The same for the other system."""


@dataclass(frozen=True)
class LineChange:
    """A line that the two systems translate differently well."""

    line: int
    """Counted from 1."""
    source: str
    reference: str
    run: str
    other: str
    run_chrf: float
    other_chrf: float


@dataclass(frozen=True)
class SetComparison:
    """Another system beside the run, which is the baseline of the tests."""

    other: str
    tests: list[Comparison]
    buckets: list[Bucket]
    """The other system's scores, in buckets as those of the run."""
    ngrams_won: list[NgramChange]
    """Those that the run gets right more often."""
    ngrams_lost: list[NgramChange]
    lines_won: list[LineChange]
    """Those that the run translates better, by chrF."""
    lines_lost: list[LineChange]


def compare_set(
    names: tuple[str, str],
    sources: Sequence[str],
    references: Sequence[str],
    outputs: tuple[Sequence[str], Sequence[str]],
    buckets: list[Bucket],
    scoring: ScoreConfig,
) -> SetComparison:
    """Compare the outputs of a run with those of another system.

    Args:
        names: of the run and the other system; they differ.
        sources: lines.
        references: lines.
        outputs: the lines of the run, and those of the other system.
        buckets: the other system's scores.
        scoring: the options of the tests' metrics.
    """
    run, other = outputs
    won, lost = ngram_changes(run, other, references, scoring.tokenize)
    lines = line_changes(sources, references, run, other)
    return SetComparison(
        other=names[1],
        tests=compare(dict(zip(names, outputs, strict=True)), [references], scoring),
        buckets=buckets,
        ngrams_won=won,
        ngrams_lost=lost,
        lines_won=[one for one in lines if one.run_chrf > one.other_chrf][:LINES],
        lines_lost=[one for one in lines[::-1] if one.run_chrf < one.other_chrf][:LINES],
    )


def ngram_changes(
    run: Sequence[str],
    other: Sequence[str],
    references: Sequence[str],
    tokenize: str | None = None,
) -> tuple[list[NgramChange], list[NgramChange]]:
    """Find the n-grams that one system gets right more often, by compare-mt's smoothed ratio.

    Args:
        run: lines.
        other: lines.
        references: lines.
        tokenize: BLEU's tokenizer, which makes words of lines.

    Returns:
        At most `NGRAMS` that the run gets right more often, and as many for the other system.
    """
    matched = [Counter[tuple[str, ...]](), Counter[tuple[str, ...]]()]
    for number, outputs in enumerate((run, other)):
        for output, reference in zip(outputs, references, strict=True):
            sides = (_ngrams(words(line, tokenize)) for line in (output, reference))
            for found, expected in zip(*sides, strict=True):
                matched[number].update(found & expected)
    mine, theirs = matched

    def best(a: Counter[tuple[str, ...]], b: Counter[tuple[str, ...]]) -> list[tuple[str, ...]]:
        more = [ngram for ngram in a if a[ngram] > b[ngram]]
        more.sort(key=lambda ngram: (-(a[ngram] + 1) / (a[ngram] + b[ngram] + 2), ngram))
        return more[:NGRAMS]

    return (
        [NgramChange(" ".join(n), mine[n], theirs[n]) for n in best(mine, theirs)],
        [NgramChange(" ".join(n), mine[n], theirs[n]) for n in best(theirs, mine)],
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


def _ngrams(tokens: list[str]) -> Iterator[Counter[tuple[str, ...]]]:
    return (ngrams(tokens, order) for order in range(1, MAX_ORDER + 1))
