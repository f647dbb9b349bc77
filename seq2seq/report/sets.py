"""The results of a model on test sets: scores, suspicious outputs, samples."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import chain, islice
from typing import TypeAlias

from seq2seq.data.corpus import training_splits
from seq2seq.decoding.translation import WARNINGS, OutputWarnings, Translation
from seq2seq.decoding.translator import Translator
from seq2seq.errors import UserError
from seq2seq.report.significance import bleu_interval, line_chrf
from seq2seq.run.config import Config
from seq2seq.score import SCRIPTS, Score, ScoreConfig, score_all, too_long_for_ter
from seq2seq.text import has_text

_Key: TypeAlias = tuple[str | None, str | None]
EXAMPLES = 5
"""Lines of each kind that are shown."""
MAX_TRAINING_PAIRS = 1_000_000
"""Training pairs among which lines of test sets are looked for: the first ones."""
MAX_CHARACTERS = 1000
"""Characters of a line that can be a sample; a longer one would make the page unreadable."""
_NO_SPACES = "".join(SCRIPTS[name] for name in ("char", "ja-mecab", "zh"))
_MARKS = re.escape(".,;:!?()[]{}\"'„“”‚‘’«»¿¡…–—、。「」（），！？：；")
# Not by \w, which lacks the vowel signs of Hindi and other combining characters.
_WORD = re.compile(rf"\s*(?:[{_NO_SPACES}{_MARKS}]|[^\s{_NO_SPACES}{_MARKS}]+)|\s+")


@dataclass(frozen=True)
class TextSet:
    """Parallel text to translate and score."""

    name: str
    """`valid`, `test`, the name of another validation set, `test/NAME`, or a path of sources."""
    sources: list[str]
    references: list[str]
    language: str | None = None
    """Code of the target language, if the model has several."""
    numbers: Sequence[int] = ()
    """The lines of the pairs, counted from 1, if blank ones are left out between them."""

    def line(self, number: int) -> int:
        """Return the line of a pair in the text, both counted from 1."""
        return self.numbers[number - 1] if self.numbers else number


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
class Sample:
    """A line of the test set, counted from 1, with its translation."""

    kind: str
    """`worst`, `median` or `best`."""
    line: int
    source: str
    reference: str
    output: str
    chrf: float


@dataclass(frozen=True)
class SetReport:
    """The results of a model on one test set."""

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


def report_sets(
    translator: Translator, texts: Sequence[TextSet], config: Config
) -> list[SetReport]:
    """Translate and score test sets."""
    scoring = ScoreConfig(tokenize=config.bleu_tokenizer)
    reports = []
    for text, overlap in zip(texts, count_overlaps(config, texts), strict=True):
        into = for_language(translator, text)
        translations = list(into.translate_stream(text.sources))
        outputs = [translation.text for translation in translations]
        warnings, lines = find_warnings(text.sources, translations)
        report = SetReport(
            name=text.name,
            lines=len(outputs),
            scores=score_all(outputs, [text.references], scoring),
            without_ter=too_long_for_ter([outputs, text.references]),
            bleu_interval=bleu_interval(outputs, text.references, scoring.tokenize),
            output_warnings=warnings,
            warning_lines=[replace(one, line=text.line(one.line)) for one in lines],
            overlap=overlap,
            samples=choose_samples(text, outputs),
        )
        reports.append(report)
    return reports


def count_overlaps(config: Config, texts: Sequence[TextSet]) -> Sequence[Overlap | str]:
    """Count the lines of test sets that are in the training text, which is read once."""
    rows = [list(map(_keys, text.sources, text.references)) for text in texts]
    all_keys = set(chain(*chain(*rows)))
    splits = training_splits(config.data)
    train = filter(has_text, chain.from_iterable(split.pairs() for split in splits))
    matches, read = set[_Key](), 0
    try:
        for pair in islice(train, MAX_TRAINING_PAIRS):
            matches |= all_keys.intersection(_keys(pair.source, pair.target))
            read += 1
        among = f"the {'first ' if next(train, None) else ''}{read:,} training pairs"
    except UserError as error:
        return [str(error)] * len(texts)
    overlaps = []
    for keys in rows:
        matching = [map(matches.__contains__, column) for column in zip(*keys, strict=True)]
        overlaps.append(Overlap(among, *map(sum, matching)))
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
    examples: dict[str, list[WarningLine]] = {kind: [] for kind in WARNINGS}
    for number, (source, translation) in enumerate(zip(sources, translations, strict=True), 1):
        warnings = OutputWarnings()
        warnings.count(source, translation)
        total += warnings
        texts = source[:MAX_CHARACTERS], translation.text[:MAX_CHARACTERS]
        for kind, lines in examples.items():
            if getattr(warnings, kind) and len(lines) < EXAMPLES:
                lines.append(WarningLine(kind, number, *texts))
    return total, list(chain(*examples.values()))


def choose_samples(text: TextSet, outputs: Sequence[str]) -> list[Sample]:
    """Choose the lines with the lowest, the median and the highest chrF.

    Lines of more than `MAX_CHARACTERS` characters are skipped, and so are blank ones.
    """
    ranked = []
    for number, row in enumerate(zip(text.sources, text.references, outputs, strict=True), start=1):
        source, reference, output = row
        if source.strip() and reference.strip() and max(map(len, row)) <= MAX_CHARACTERS:
            ranked.append((line_chrf(output, reference), number, *row))
    ranked.sort()
    worst, rest = ranked[:EXAMPLES], ranked[EXAMPLES:]
    best = rest[-EXAMPLES:][::-1]
    middle = max(0, (len(ranked) - EXAMPLES) // 2)
    median = [row for row in ranked[middle : middle + EXAMPLES] if row not in [*worst, *best]]
    samples = []
    for kind, rows in (("worst", worst), ("median", median), ("best", best)):
        for chrf, number, source, reference, output in rows:
            samples.append(Sample(kind, text.line(number), source, reference, output, chrf))
    return samples


def differing_parts(text: str, other: str) -> list[tuple[str, bool]]:
    """Divide a text into parts, each with whether it is missing in the other text.

    Words and punctuation marks are compared, and characters of scripts that put no spaces between
    words; a part begins with the white space before its first word.
    """
    words, other_words = _WORD.findall(text), _WORD.findall(other)
    # From 200 words on, those that are more than a hundredth of all begin no equal part: without
    # this, the time would grow with the cube of the size.
    matcher = SequenceMatcher(
        None, list(map(str.strip, words)), list(map(str.strip, other_words)), autojunk=True
    )
    parts = []
    for kind, first, end, *_ in matcher.get_opcodes():
        if kind != "insert":
            parts.append(("".join(words[first:end]), kind != "equal"))
    return parts
