"""The figures of a report: what a run folder tells, and what its model does on test sets."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from seq2seq.config import Config, read_config
from seq2seq.data.config import control_marks
from seq2seq.data.corpus import read_pairs
from seq2seq.decoding.config import SearchConfig, TranslationOptions
from seq2seq.decoding.translator import Translator
from seq2seq.errors import UserError
from seq2seq.reporting.command import PLACES, flat, known_settings, train_command
from seq2seq.reporting.data import FINISHED_FILE, read_data_record
from seq2seq.reporting.sets import OtherSystem, SetReport, TextSet, report_sets
from seq2seq.reproduction.detail import Subject
from seq2seq.reproduction.report import Row, examine
from seq2seq.storage.checkpoint import checkpoints, find_model, progress_file
from seq2seq.storage.model_folder import load_model, read_search
from seq2seq.storage.strict import MAX_BYTES, parse_json, read_regular_file
from seq2seq.training.config import TrainingConfig
from seq2seq.training.recorder import METRICS, read_metrics

PAGE_FILE = "report.html"
_LARGEST = 1e100  # of the figures of a training; above it, differences could be infinite
_MACHINE = ("processes", "threads", "dtype")


@dataclass(frozen=True)
class OtherRun:
    """Another run beside this one."""

    name: str
    model: str
    """The folder of the model that translated."""
    search: dict[str, float]
    """Beam size and alpha of its translations."""
    curves: dict[str, list[tuple[float, float]]]
    """(step, value) of each metric, by name."""
    settings: dict[str, tuple[Any, Any]]
    """The settings that differ: this run's value and that of the other."""


@dataclass(frozen=True)
class RunReport:
    """Everything that the page shows."""

    run: str
    model: str
    search: dict[str, float]
    """Beam size and alpha of the translations."""
    ended: str
    minutes: float | None
    machine: str
    changes: list[str]
    """Settings that were others when the training was resumed, one line each."""
    best: dict[str, float]
    """The record of the best validation, by `training.select`."""
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
    finished, state = _json(run / FINISHED_FILE), _state(run)
    return RunReport(
        run=name,
        model=find_model(run).name,
        search=_search(run, config),
        ended=str(finished.get("ended", "not finished")),
        minutes=_minutes(state),
        machine=_machine(state, finished),
        changes=_changes(state),
        best=_best(records, config.training),
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
    options = TranslationOptions(device=device, search=_chosen_search(run, config), to=language)
    return Translator.load(run, options)


def _chosen_search(run: Path, config: Config) -> SearchConfig:
    tuned = read_search(find_model(run))
    if tuned is None:
        return config.search
    return replace(config.search, beam_size=tuned.beam_size, alpha=tuned.alpha)


def _search(run: Path, config: Config) -> dict[str, float]:
    search = _chosen_search(run, config)
    return {"beam_size": search.beam_size, "alpha": search.alpha}


def _best(records: Sequence[dict[str, float]], training: TrainingConfig) -> dict[str, float]:
    """Return the record of the validation whose model was kept, the first of the best ones."""
    validations = [record for record in records if "valid/bleu" in record]
    with suppress(KeyError):  # config.yaml names a set that was not validated
        return max(validations, key=training.selecting_bleu, default={})
    return {}


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
    """Collect the curves of another run, its model, and the settings in which it differs."""
    other = read_config(run)
    mine, theirs = flat(asdict(config)), flat(asdict(other))
    settings = {
        key: (mine.get(key), theirs.get(key))
        for key in {**mine, **theirs}
        if key not in PLACES and mine.get(key) != theirs.get(key)
    }
    path = run / METRICS
    curves = _curves(_records(path)) if path.is_file() else {}
    name, model = run.absolute().name, find_model(run).name
    return OtherRun(name, model, _search(run, other), curves, settings)


def trained_subject(run: Path, config: Config) -> Subject:
    """Make the subject of a comparison with the paper from a trained run, with its tuned search.

    Raises:
        UserError: if the model is missing or damaged.
    """
    model = load_model(find_model(run)).model
    return Subject(
        model=model,
        vocab_size=model.vocab_size,
        training=config.training,
        search=_chosen_search(run, config),
        data=config.data,
        run=run,
    )


def _deviations(run: Path, config: Config) -> list[Row]:
    rows = examine(trained_subject(run, config))
    return [row for row in rows if row.finding.differs or row.finding.paper is False]


def _state(run: Path) -> dict[str, Any]:
    """Read what the newest checkpoint knows of the training; empty if there is none."""
    for folder in checkpoints(run)[-1:]:
        with suppress(UserError):
            return _json(progress_file(folder))
    return {}


def _minutes(state: Mapping[str, Any]) -> float | None:
    seconds = _part(state, "progress").get("seconds")
    return seconds / 60 if isinstance(seconds, int | float) else None


def _machine(state: Mapping[str, Any], finished: Mapping[str, Any]) -> str:
    settings = _part(state, "changeable")
    known = [str(finished["machine"])] if "machine" in finished else []
    return ", ".join([*known, *(f"{key} {settings[key]}" for key in _MACHINE if key in settings)])


def _changes(state: Mapping[str, Any]) -> list[str]:
    changes = _part(state, "progress").get("changes")
    return list(map(str, changes)) if isinstance(changes, list) else []


def _part(state: Mapping[str, Any], name: str) -> dict[str, Any]:
    part = state.get(name)
    return part if isinstance(part, dict) else {}


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
