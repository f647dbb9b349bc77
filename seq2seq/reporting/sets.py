"""What a model does on test sets: translations, their scores, and those of parts of a set."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from seq2seq.config import Config
from seq2seq.data.config import training_splits
from seq2seq.data.corpus import read_pairs
from seq2seq.decoding.health import Health
from seq2seq.decoding.translation import Translation
from seq2seq.decoding.translator import Translator
from seq2seq.errors import UserError
from seq2seq.evaluation.intervals import LineBleu
from seq2seq.evaluation.scores import Score, ScoreConfig, score_all, too_long_for_ter
from seq2seq.reporting.buckets import Bucket, make_buckets, training_frequencies
from seq2seq.reporting.comparison import SetComparison, compare_set
from seq2seq.reporting.samples import MAX_CHARACTERS, Sample, choose_samples

_EXAMPLES = 5
HEALTH = {
    "empty": "empty outputs",
    "copied": "outputs equal to their sources",
    "repeating": "outputs that repeat themselves",
    "output_truncated": "outputs cut off at the maximum length",
    "source_split": "sources split at sentence ends",
    "source_truncated": "sources too long, their ends left out",
    "unknown": "source pieces unknown to the tokenizer",
}
"""The counts of `Health`, in words."""


@dataclass(frozen=True)
class TextSet:
    """Parallel text to translate and score.

    Attributes:
        name: `valid`, or the name of the source file.
        sources: lines.
        references: lines, as many.
    """

    name: str
    sources: list[str]
    references: list[str]


@dataclass(frozen=True)
class OtherSystem:
    """A system to compare with.

    Attributes:
        name: for the page.
        translate: returns an output for each source of a test set.
        run: its run folder, if it is a run.
    """

    name: str
    translate: Callable[[TextSet], list[str]]
    run: Path | None = None


@dataclass(frozen=True)
class HealthLine:
    """A line with a suspicious translation, its texts cut to a length that can be shown."""

    kind: str
    """The count of `Health` to which it belongs."""
    line: int
    """Counted from 1."""
    source: str
    output: str


@dataclass(frozen=True)
class SetReport:
    """What a model does on one test set."""

    name: str
    lines: int
    scores: list[Score]
    without_ter: str
    """Why TER is not among them; empty if it is."""
    bleu_interval: tuple[float, float]
    """The 95 % bootstrap interval of BLEU."""
    health: Health
    health_lines: list[HealthLine]
    """The first lines of each kind."""
    buckets: list[Bucket]
    frequency_note: str
    """From what text the frequencies are, or why there are none."""
    samples: list[Sample]
    comparison: SetComparison | None
    """With another system, if one was given."""


@dataclass(frozen=True)
class _Outputs:
    """The translations of one test set."""

    text: TextSet
    translations: list[Translation]
    others: list[str]
    """The other system's; empty if there is none."""

    @property
    def lines(self) -> list[str]:
        return [translation.text for translation in self.translations]


def report_sets(
    translator: Translator,
    texts: Sequence[TextSet],
    config: Config,
    name: str,
    other: OtherSystem | None,
) -> list[SetReport]:
    """Translate and score test sets, and compare with another system if there is one.

    Args:
        translator: of the run.
        texts: the test sets.
        config: of the run.
        name: of the run.
        other: the system to compare with, if any.

    Raises:
        UserError: if a text can't be translated or scored.
    """
    others = [[] if other is None else other.translate(text) for text in texts]
    translated = [
        _Outputs(text, list(translator.translate_stream(text.sources)), theirs)
        for text, theirs in zip(texts, others, strict=True)
    ]
    words_in = [[*one.lines, *one.others, *one.text.references] for one in translated]
    counts, note = _count_training_words(config, list(chain.from_iterable(words_in)))
    scoring = ScoreConfig(tokenize=config.bleu_tokenizer)
    names = (name, "" if other is None else other.name)
    return [_report_set(translator, one, counts, note, scoring, names) for one in translated]


def _count_training_words(config: Config, lines: Sequence[str]) -> tuple[Counter[str] | None, str]:
    """Count the words of lines in the training text; None if it can't be read.

    Returns:
        The counts, and from what text they are, or why there are none.
    """
    try:
        train = chain.from_iterable(
            read_pairs(config.data, split) for split in training_splits(config.data)
        )
        counts, read = training_frequencies(lines, train, config.bleu_tokenizer)
    except UserError as error:
        return None, f"not known, because the training text can't be read: {error}"
    return counts, f"counted in the first {read:,} training pairs"


def _report_set(
    translator: Translator,
    translated: _Outputs,
    counts: Counter[str] | None,
    note: str,
    scoring: ScoreConfig,
    names: tuple[str, str],
) -> SetReport:
    text, outputs, others = translated.text, translated.lines, translated.others
    lengths = [len(ids) for ids in translator.tokenizer.encode(text.sources)]
    comparison = None
    if others:
        their_bleu = LineBleu(others, text.references, scoring)
        theirs = make_buckets(lengths, counts, others, text.references, their_bleu)
        comparison = compare_set(
            names, text.sources, text.references, (outputs, others), theirs, scoring
        )
    bleu = LineBleu(outputs, text.references, scoring)
    health, lines = examine_health(text.sources, translated.translations)
    return SetReport(
        name=text.name,
        lines=len(outputs),
        scores=score_all(outputs, [text.references], scoring),
        without_ter=too_long_for_ter([outputs, text.references]),
        bleu_interval=bleu.interval(),
        health=health,
        health_lines=lines,
        buckets=make_buckets(lengths, counts, outputs, text.references, bleu),
        frequency_note=note,
        samples=choose_samples(translator, text.sources, text.references, outputs),
        comparison=comparison,
    )


def examine_health(
    sources: Sequence[str], translations: Sequence[Translation]
) -> tuple[Health, list[HealthLine]]:
    """Count the suspicious translations, and collect the first of each kind."""
    total = Health()
    found: dict[str, list[HealthLine]] = {kind: [] for kind in HEALTH}
    for number, (source, translation) in enumerate(zip(sources, translations, strict=True), 1):
        before = replace(total)
        total.count(source, translation)
        texts = source[:MAX_CHARACTERS], translation.text[:MAX_CHARACTERS]
        for kind, lines in found.items():
            if getattr(total, kind) > getattr(before, kind) and len(lines) < _EXAMPLES:
                lines.append(HealthLine(kind, number, *texts))
    return total, [line for lines in found.values() for line in lines]
