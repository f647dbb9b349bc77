"""The figures of a report: what a run folder tells, and what its model does on test sets."""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from seq2seq.config import Config, read_config
from seq2seq.data.config import control_marks, training_splits
from seq2seq.data.corpus import read_pairs
from seq2seq.decoding.config import SearchConfig, TranslationOptions
from seq2seq.decoding.health import Health
from seq2seq.decoding.translation import Translation
from seq2seq.decoding.translator import Translator
from seq2seq.errors import UserError
from seq2seq.evaluation.intervals import bleu_interval
from seq2seq.evaluation.scores import Score, ScoreConfig, score_all
from seq2seq.reporting.buckets import Bucket, make_buckets, training_frequencies
from seq2seq.reporting.command import flat, train_command
from seq2seq.reporting.comparison import SetComparison, compare_set
from seq2seq.reporting.data import read_data_record
from seq2seq.reporting.samples import Sample, choose_samples
from seq2seq.reproduction.detail import Subject
from seq2seq.reproduction.report import Row, examine
from seq2seq.storage.checkpoint import (
    checkpoints,
    find_model,
    load_model,
    progress_file,
    read_search,
)
from seq2seq.storage.strict import MAX_BYTES, parse_json, read_regular_file
from seq2seq.training.recorder import METRICS, read_metrics

PAGE_FILE = "report.html"
_FINISHED = "finished.json"
_EXAMPLES = 5
_LARGEST = 1e100  # of the figures of a training; above it, differences could be infinite
_MACHINE = ("processes", "threads", "dtype")
_HEALTH = ("empty", "copied", "repeating", "output_truncated", "source_split", "source_truncated")


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
    """

    name: str
    translate: Callable[[TextSet], list[str]]


@dataclass(frozen=True)
class SetReport:
    """What a model does on one test set."""

    name: str
    lines: int
    scores: list[Score]
    bleu_interval: tuple[float, float]
    """The 95 % bootstrap interval of BLEU."""
    health: Health
    health_lines: dict[str, list[int]]
    """The first lines that count, from 1, by field of `Health`."""
    buckets: list[Bucket]
    frequency_note: str
    """From what text the frequencies are, or why there are none."""
    samples: list[Sample]
    comparison: SetComparison | None
    """With another system, if one was given."""


@dataclass(frozen=True)
class RunReport:
    """Everything that the page shows."""

    run: str
    model: str
    averaged: int | None
    """The number of checkpoints whose mean the model in averaged is, as far as it is known."""
    search: dict[str, float]
    """Beam size and alpha of the translations."""
    ended: str
    minutes: float | None
    machine: str
    best: dict[str, float]
    """The record of the best validation, by BLEU."""
    curves: dict[str, list[tuple[float, float]]]
    """(step, value) of each metric, by name."""
    data: dict[str, Any]
    """What the training recorded of its data; empty if it was trained by an earlier version."""
    sets: list[SetReport]
    command: str
    """The command that trains the run again."""
    config: dict[str, Any]
    parameters: int
    fidelity: list[Row]
    """The details that agree neither with the paper nor with tensor2tensor, and those that agree
    with tensor2tensor against the paper."""

    def record(self) -> dict[str, Any]:
        """Return the figures as JSON has them."""
        record = asdict(self)
        record["fidelity"] = [
            {
                "number": row.number,
                "detail": row.detail.name,
                "paper": row.detail.paper,
                "here": row.finding.here,
                "verdict": row.finding.verdict,
            }
            for row in self.fidelity
        ]
        return record


def make_report(
    run: Path,
    tests: Sequence[TextSet],
    other: OtherSystem | None = None,
    *,
    device: str = "auto",
    fidelity: bool = True,
) -> RunReport:
    """Translate the test sets with the model of a run, and collect the figures.

    Args:
        run: the run folder.
        tests: the test sets; the run's validation set if there are none.
        other: the system to compare with, if any.
        device: to translate on.
        fidelity: whether to compare the model with the paper, which takes some seconds.

    Raises:
        UserError: if the folder is not that of a training, or a text or the model can't be read.
    """
    path = run / METRICS
    if not path.is_file():
        raise UserError(f"{run}: no {METRICS}; give the run_dir of a training")
    config, records = read_config(run), [_finite(record) for record in read_metrics(path)]
    translator, name = load_translator(run, device), run.absolute().name
    texts = tests or [validation_set(config)]
    sets = [report_set(translator, text, config, name, other) for text in texts]
    validations = [record for record in records if "valid/bleu" in record]
    names = list(dict.fromkeys(name for record in records for name in record if name != "step"))
    minutes, machine = _progress(run)
    search = translator.search
    assert isinstance(search, SearchConfig)
    return RunReport(
        run=name,
        model=find_model(run).name,
        averaged=_averaged(run),
        search={"beam_size": search.beam_size, "alpha": search.alpha},
        ended=_ended(run),
        minutes=minutes,
        machine=machine,
        best=max(validations, key=lambda record: record["valid/bleu"], default={}),
        curves={name: [(r["step"], r[name]) for r in records if name in r] for name in names},
        data=read_data_record(run),
        sets=sets,
        command=train_command(config),
        config={key: value for key, value in flat(asdict(config)).items() if value is not None},
        parameters=sum(p.numel() for p in translator.models[0].parameters()),
        fidelity=_deviations(run, config) if fidelity else [],
    )


def load_translator(run: Path, device: str) -> Translator:
    """Load a run's model, with the search that was tuned for it, or by which it was validated.

    Raises:
        UserError: if the run or its model can't be read.
    """
    config = read_config(run)
    language, _ = control_marks(config.data, "valid")
    tuned = read_search(find_model(run))
    search = None if tuned else config.search
    options = TranslationOptions(device=device, search=search, to=language)
    return Translator.load(run, options)


def validation_set(config: Config) -> TextSet:
    """Read the validation set of a training.

    Raises:
        UserError: if it can't be read; it says what to do.
    """
    try:
        pairs = list(read_pairs(config.data, "valid"))
    except UserError as error:
        raise UserError(f"{error}; give other text with --test SOURCE REFERENCE") from error
    return TextSet("valid", [pair.source for pair in pairs], [pair.target for pair in pairs])


def report_set(
    translator: Translator, text: TextSet, config: Config, name: str, other: OtherSystem | None
) -> SetReport:
    """Translate and score one test set, and compare with another system if there is one."""
    scoring = ScoreConfig(tokenize=config.bleu_tokenizer)
    translations = list(translator.translate_stream(text.sources))
    outputs = [translation.text for translation in translations]
    others = other.translate(text) if other else []
    lengths = [len(ids) for ids in translator.tokenizer.encode(text.sources)]
    counts: Counter[str] | None = None
    try:
        train = chain.from_iterable(
            read_pairs(config.data, split) for split in training_splits(config.data)
        )
        counts, read = training_frequencies([*outputs, *others, *text.references], train)
        note = f"counted in the first {read:,} training pairs"
    except UserError as error:
        note = f"not known, because the training text can't be read: {error}"
    comparison = None
    if other:
        comparison = compare_set(
            (name, other.name),
            text.sources,
            text.references,
            (outputs, others),
            make_buckets(lengths, counts, others, text.references, scoring),
        )
    health, places = _examine_health(text.sources, translations)
    return SetReport(
        name=text.name,
        lines=len(outputs),
        scores=score_all(outputs, [text.references], scoring),
        bleu_interval=bleu_interval(outputs, text.references, scoring),
        health=health,
        health_lines=places,
        buckets=make_buckets(lengths, counts, outputs, text.references, scoring),
        frequency_note=note,
        samples=choose_samples(translator, text.sources, text.references, outputs),
        comparison=comparison,
    )


def _examine_health(
    sources: Sequence[str], translations: Sequence[Translation]
) -> tuple[Health, dict[str, list[int]]]:
    """Count the suspicious translations, and find the first of each kind."""
    total, places = Health(), dict[str, list[int]]()
    for number, (source, translation) in enumerate(zip(sources, translations, strict=True), 1):
        total.count(source, translation)
        one = Health()
        one.count(source, translation)
        for kind in _HEALTH:
            if getattr(one, kind) and len(found := places.setdefault(kind, [])) < _EXAMPLES:
                found.append(number)
    return total, places


def trained_subject(run: Path, config: Config) -> Subject:
    """Make the subject of a comparison with the paper from a trained run.

    Raises:
        UserError: if the model is missing or damaged.
    """
    model = load_model(find_model(run)).model
    return Subject(
        model=model,
        vocab_size=model.vocab_size,
        training=config.training,
        search=config.search,
        data=config.data,
        run=run,
    )


def _deviations(run: Path, config: Config) -> list[Row]:
    rows = examine(trained_subject(run, config))
    return [row for row in rows if row.finding.differs or row.finding.paper is False]


def _progress(run: Path) -> tuple[float | None, str]:
    """Return minutes and machine of a training, as its newest checkpoint has them."""
    for folder in checkpoints(run)[-1:]:
        state: dict[str, Any] = {}
        with suppress(UserError):
            state = _json(progress_file(folder))
        progress, settings = state.get("progress"), state.get("changeable")
        if isinstance(progress, dict) and isinstance(settings, dict):
            seconds = progress.get("seconds")
            known = [str(found)] if (found := _json(run / _FINISHED).get("machine")) else []
            known += [f"{key} {settings[key]}" for key in _MACHINE if key in settings]
            return seconds / 60 if isinstance(seconds, int | float) else None, ", ".join(known)
    return None, ""


def _finite(record: dict[str, float]) -> dict[str, float]:
    """Keep the figures of a record that can be drawn and that JSON can hold."""
    return {name: value for name, value in record.items() if abs(value) <= _LARGEST}


def _averaged(run: Path) -> int | None:
    number = _json(run / _FINISHED).get("averaged")
    return number if isinstance(number, int) else None


def _ended(run: Path) -> str:
    return str(_json(run / _FINISHED).get("ended", "not finished"))


def _json(path: Path) -> dict[str, Any]:
    """Read an object that the training wrote; empty if there is none, or it is damaged."""
    with suppress(UserError):
        content = parse_json(path, read_regular_file(path, MAX_BYTES))
        if isinstance(content, dict):
            return content
    return {}
