"""The figures of a report: what a run folder tells, and what its model does on test sets."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from seq2seq.config import Config, read_config
from seq2seq.data.config import control_marks
from seq2seq.data.corpus import read_pairs
from seq2seq.decoding.config import SearchConfig, TranslationOptions
from seq2seq.decoding.translator import Translator
from seq2seq.errors import UserError
from seq2seq.reporting.command import flat, known_settings, train_command
from seq2seq.reporting.data import FINISHED_FILE, read_data_record
from seq2seq.reporting.sets import OtherSystem, SetReport, TextSet, report_sets
from seq2seq.reproduction.detail import Subject
from seq2seq.reproduction.report import Row, examine
from seq2seq.storage.checkpoint import checkpoints, find_model, progress_file
from seq2seq.storage.model_folder import load_model, read_search
from seq2seq.storage.strict import MAX_BYTES, parse_json, read_regular_file
from seq2seq.training.recorder import METRICS, read_metrics

PAGE_FILE = "report.html"
_LARGEST = 1e100  # of the figures of a training; above it, differences could be infinite
_PLACES = ("run_dir", "cache", "resume")
"""Settings that say where a run is, and not what it is."""
_MACHINE = ("processes", "threads", "dtype")


@dataclass(frozen=True)
class OtherRun:
    """Another run beside this one."""

    name: str
    curves: dict[str, list[tuple[float, float]]]
    """(step, value) of each metric, by name."""
    settings: dict[str, tuple[Any, Any]]
    """The settings that differ: this run's value and that of the other."""


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
    other_run: OtherRun | None
    """The run that it is compared with, if any."""
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
) -> RunReport:
    """Translate the test sets with the model of a run, and collect the figures.

    Args:
        run: the run folder.
        tests: the test sets; the run's validation set if there are none.
        other: the system to compare with, if any.
        device: to translate on.

    Raises:
        UserError: if the folder is not that of a training, or a text or the model can't be read.
    """
    path = run / METRICS
    if not path.is_file():
        raise UserError(f"{run}: no {METRICS}; give the run_dir of a training")
    config, records = read_config(run), _records(path)
    translator, name = load_translator(run, device), run.absolute().name
    texts = tests or [validation_set(config)]
    validations = [record for record in records if "valid/bleu" in record]
    finished = _json(run / FINISHED_FILE)
    minutes, machine = _progress(run, finished)
    averaged = finished.get("averaged")
    search = translator.search
    assert isinstance(search, SearchConfig)
    return RunReport(
        run=name,
        model=find_model(run).name,
        averaged=averaged if isinstance(averaged, int) else None,
        search={"beam_size": search.beam_size, "alpha": search.alpha},
        ended=str(finished.get("ended", "not finished")),
        minutes=minutes,
        machine=machine,
        best=max(validations, key=lambda record: record["valid/bleu"], default={}),
        curves=_curves(records),
        data=read_data_record(run),
        sets=report_sets(translator, texts, config, name, other),
        other_run=None if other is None or other.run is None else _beside(config, other.run),
        command=train_command(config),
        config=known_settings(config),
        parameters=sum(p.numel() for p in translator.models[0].parameters()),
        fidelity=_deviations(run, config),
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


def _curves(records: Sequence[Mapping[str, float]]) -> dict[str, list[tuple[float, float]]]:
    names = dict.fromkeys(name for record in records for name in record if name != "step")
    return {name: [(r["step"], r[name]) for r in records if name in r] for name in names}


def _beside(config: Config, run: Path) -> OtherRun:
    """Collect the curves of another run, and the settings in which it differs."""
    mine, theirs = flat(asdict(config)), flat(asdict(read_config(run)))
    settings = {
        key: (mine.get(key), theirs.get(key))
        for key in {**mine, **theirs}
        if key not in _PLACES and mine.get(key) != theirs.get(key)
    }
    path = run / METRICS
    curves = _curves(_records(path)) if path.is_file() else {}
    return OtherRun(run.absolute().name, curves, settings)


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


def _progress(run: Path, finished: Mapping[str, Any]) -> tuple[float | None, str]:
    """Return minutes and machine of a training, from its newest checkpoint and from its end."""
    for folder in checkpoints(run)[-1:]:
        state: dict[str, Any] = {}
        with suppress(UserError):
            state = _json(progress_file(folder))
        progress, settings = state.get("progress"), state.get("changeable")
        if isinstance(progress, dict) and isinstance(settings, dict):
            seconds = progress.get("seconds")
            known = [str(finished["machine"])] if "machine" in finished else []
            known += [f"{key} {settings[key]}" for key in _MACHINE if key in settings]
            return seconds / 60 if isinstance(seconds, int | float) else None, ", ".join(known)
    return None, ""


def _records(path: Path) -> list[dict[str, float]]:
    """Read the figures of a training that can be drawn and that JSON can hold."""
    return [
        {name: value for name, value in record.items() if abs(value) <= _LARGEST}
        for record in read_metrics(path)
    ]


def _json(path: Path) -> dict[str, Any]:
    """Read an object that the training wrote; empty if there is none, or it is damaged."""
    with suppress(UserError):
        content = parse_json(path, read_regular_file(path, MAX_BYTES))
        if isinstance(content, dict):
            return content
    return {}
