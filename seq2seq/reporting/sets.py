"""What a model does on test sets: translations, and scores of the sets and of their parts."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple, TypeAlias

from seq2seq.config import Config
from seq2seq.corpus import training_splits
from seq2seq.decoding.translation import WARNINGS, OutputWarnings, Translation
from seq2seq.decoding.translator import Translator
from seq2seq.errors import UserError
from seq2seq.reporting.buckets import Bucket, make_buckets, training_frequencies
from seq2seq.reporting.comparison import (
    MAX_CHARACTERS,
    Sample,
    SetComparison,
    choose_samples,
    compare_set,
)
from seq2seq.reporting.significance import bleu_with_interval
from seq2seq.score import Score, ScoreConfig, score_all, too_long_for_ter
from seq2seq.text import SentencePair

_Key: TypeAlias = tuple[str | None, str | None]

_EXAMPLES = 5


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
    buckets: list[Bucket]
    overlap: Overlap | None
    training_note: str
    """In what training text words and lines were counted, or why they were not."""
    samples: list[Sample]
    comparison: SetComparison | None


class _Outputs(NamedTuple):
    """The translations of one test set, and the other system's, if there is one."""

    text: TextSet
    translations: list[Translation]
    lines: list[str]
    others: list[str]


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
    translated = []
    for text, theirs in zip(texts, others, strict=True):
        found = list(for_language(translator, text).translate_stream(text.sources))
        translated.append(_Outputs(text, found, [one.text for one in found], theirs))
    training = _look_up(config, translated)
    scoring = ScoreConfig(tokenize=config.bleu_tokenizer)
    return [_report_set(translator, one, training, scoring, names) for one in translated]


@dataclass(frozen=True)
class _Training:
    """What was found in the training text."""

    note: str
    pairs_read: str = ""
    """How many training pairs, in words."""
    counts: Counter[str] | None = None
    """Of the words of outputs and references; None if the text can't be read."""
    known: Set[_Key] = frozenset()
    """What of the test sets is in it."""

    def overlap(self, text: TextSet) -> Overlap | None:
        if self.counts is None:
            return None
        rows = map(_keys, text.sources, text.references)
        sources, references, pairs = (
            sum(key in self.known for key in column) for column in zip(*rows, strict=True)
        )
        return Overlap(self.pairs_read, sources, references, pairs)


def _keys(source: str, target: str) -> tuple[_Key, _Key, _Key]:
    """What is looked for of a pair: its source, its target, and both together."""
    return (source, None), (None, target), (source, target)


def _look_up(config: Config, translated: Sequence[_Outputs]) -> _Training:
    """Look for words and lines of test sets in the training text, which is read once."""
    texts = [one.text for one in translated]
    rows = (row for text in texts for row in map(_keys, text.sources, text.references))
    wanted, known = set(chain.from_iterable(rows)), set[_Key]()

    def watch(train: Iterable[SentencePair]) -> Iterator[SentencePair]:
        for pair in train:
            known.update(wanted.intersection(_keys(pair.source, pair.target)))
            yield pair

    lines = chain.from_iterable(
        (*one.lines, *one.others, *one.text.references) for one in translated
    )
    try:
        train = watch(chain.from_iterable(split.pairs() for split in training_splits(config.data)))
        counts, read = training_frequencies(lines, train, config.bleu_tokenizer)
        pairs_read = f"the {'first ' if next(train, None) else ''}{read:,} training pairs"
    except UserError as error:
        return _Training(f"not known, because the training text can't be read: {error}")
    return _Training(f"counted in {pairs_read} of this run", pairs_read, counts, known)


def _report_set(
    translator: Translator,
    translated: _Outputs,
    training: _Training,
    scoring: ScoreConfig,
    names: tuple[str, str],
) -> SetReport:
    text, translations, outputs, others = translated
    counts = training.counts
    lengths = [len(ids) for ids in translator.tokenizer.encode(text.sources)]
    comparison = None
    if others:
        theirs = make_buckets(lengths, counts, others, text.references, scoring.tokenize)
        comparison = compare_set(
            names, text.sources, text.references, (outputs, others), theirs, scoring
        )
    _, *interval = bleu_with_interval(outputs, text.references, scoring.tokenize)
    warnings, lines = find_warnings(text.sources, translations)
    return SetReport(
        name=text.name,
        lines=len(outputs),
        scores=score_all(outputs, [text.references], scoring),
        without_ter=too_long_for_ter([outputs, text.references]),
        bleu_interval=(interval[0], interval[1]),
        output_warnings=warnings,
        warning_lines=lines,
        buckets=make_buckets(lengths, counts, outputs, text.references, scoring.tokenize),
        overlap=training.overlap(text),
        training_note=training.note,
        samples=choose_samples(
            for_language(translator, text), text.sources, text.references, outputs
        ),
        comparison=comparison,
    )


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
