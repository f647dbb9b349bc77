"""What a model does on test sets: translations, and scores of the sets."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import TypeAlias

from seq2seq.config import Config
from seq2seq.data.corpus import training_splits
from seq2seq.decoding.translation import WARNINGS, OutputWarnings, Translation
from seq2seq.decoding.translator import Translator
from seq2seq.errors import UserError
from seq2seq.evaluation.scores import Score, ScoreConfig, score_all, too_long_for_ter
from seq2seq.evaluation.significance import bleu_with_interval
from seq2seq.reporting.comparison import (
    MAX_CHARACTERS,
    Sample,
    SetComparison,
    choose_samples,
    compare_set,
)

_Key: TypeAlias = tuple[str | None, str | None]

_EXAMPLES = 5
MAX_TRAINING_PAIRS = 1_000_000
"""Training pairs among which lines of test sets are looked for: the first ones."""


@dataclass(frozen=True)
class TextSet:
    """Parallel text to translate and score."""

    name: str
    """`valid`, or the name of the source file."""
    sources: list[str]
    references: list[str]
    language: str | None = None
    """Code of the target language, if the model has several."""


@dataclass(frozen=True)
class WarningLine:
    """A line with a suspicious translation, its texts cut to a length that can be shown."""

    kind: str
    """The count of `OutputWarnings` to which it belongs."""
    line: int
    source: str
    output: str


@dataclass(frozen=True)
class Overlap:
    """Lines of a test set that are in the training text, character for character."""

    among: str
    """The training pairs that were read, in words."""
    sources: int
    references: int
    pairs: int


@dataclass(frozen=True)
class SetReport:
    """What a model does on one test set."""

    name: str
    lines: int
    scores: list[Score]
    without_ter: str
    """Why TER is not among them; empty if it is."""
    bleu_interval: tuple[float, float]
    output_warnings: OutputWarnings
    warning_lines: list[WarningLine]
    """The first lines of each kind."""
    overlap: Overlap | str
    """If the training text can't be read, the reason."""
    samples: list[Sample]
    comparison: SetComparison | None


def report_sets(
    translator: Translator,
    texts: Sequence[TextSet],
    config: Config,
    names: tuple[str, str],
    others: Sequence[list[str]],
) -> list[SetReport]:
    """Translate and score test sets; compare with another system's outputs where there are any.

    The names are those of the run and of the other system.
    """
    scoring = ScoreConfig(tokenize=config.bleu_tokenizer)
    overlaps = count_overlaps(config, texts)
    reports = []
    for text, theirs, overlap in zip(texts, others, overlaps, strict=True):
        into = for_language(translator, text)
        translations = list(into.translate_stream(text.sources))
        outputs = [translation.text for translation in translations]
        sides = text.sources, text.references
        comparison = compare_set(names, *sides, (outputs, theirs), scoring) if theirs else None
        _, low, high = bleu_with_interval(outputs, text.references, scoring.tokenize)
        warnings, lines = find_warnings(text.sources, translations)
        report = SetReport(
            name=text.name,
            lines=len(outputs),
            scores=score_all(outputs, [text.references], scoring),
            without_ter=too_long_for_ter([outputs, text.references]),
            bleu_interval=(low, high),
            output_warnings=warnings,
            warning_lines=lines,
            overlap=overlap,
            samples=choose_samples(into, *sides, outputs),
            comparison=comparison,
        )
        reports.append(report)
    return reports


def count_overlaps(config: Config, texts: Sequence[TextSet]) -> Sequence[Overlap | str]:
    """Count the lines of test sets that are in the training text, which is read once."""
    rows = [list(map(_keys, text.sources, text.references)) for text in texts]
    wanted = set(chain(*chain(*rows)))
    train = chain.from_iterable(split.pairs() for split in training_splits(config.data))
    matches, read = set[_Key](), 0
    try:
        for pair in islice(train, MAX_TRAINING_PAIRS):
            matches |= wanted.intersection(_keys(pair.source, pair.target))
            read += 1
        among = f"the {'first ' if next(train, None) else ''}{read:,} training pairs"
    except UserError as error:
        return [str(error)] * len(texts)
    overlaps = []
    for keys in rows:
        counts = [sum(key in matches for key in column) for column in zip(*keys, strict=True)]
        overlaps.append(Overlap(among, *counts))
    return overlaps


def _keys(source: str, target: str) -> tuple[_Key, _Key, _Key]:
    """Return what is looked for of a pair: its source, its target, and both together."""
    return (source, None), (None, target), (source, target)


def for_language(translator: Translator, text: TextSet) -> Translator:
    """Return a translator into the language of a test set."""
    return translator if text.language is None else translator.with_target_language(text.language)


def find_warnings(
    sources: Sequence[str], translations: Sequence[Translation]
) -> tuple[OutputWarnings, list[WarningLine]]:
    """Count the suspicious translations, and collect the first of each kind."""
    total = OutputWarnings()
    found: dict[str, list[WarningLine]] = {kind: [] for kind in WARNINGS}
    for number, (source, translation) in enumerate(zip(sources, translations, strict=True), 1):
        one = OutputWarnings()
        one.count(source, translation)
        total += one
        texts = source[:MAX_CHARACTERS], translation.text[:MAX_CHARACTERS]
        for kind, lines in found.items():
            if getattr(one, kind) and len(lines) < _EXAMPLES:
                lines.append(WarningLine(kind, number, *texts))
    return total, [line for lines in found.values() for line in lines]
