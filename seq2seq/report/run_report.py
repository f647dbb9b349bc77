"""The figures of a report: what a run folder tells, and what its model does on test sets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from seq2seq.controls import control_ids
from seq2seq.data.corpus import Split
from seq2seq.decoding.linking import KnownText, choose_step
from seq2seq.decoding.options import TranslationOptions
from seq2seq.decoding.translator import Translator
from seq2seq.errors import UserError
from seq2seq.model_folder import (
    AlignmentStep,
    TrainedModel,
    class_name,
    find_model,
    load_model,
    own_class,
)
from seq2seq.paper.details import Row, compare
from seq2seq.report.overview import best_validation
from seq2seq.report.record import (
    ScoreRecord,
    folder_of_text,
    known_settings,
    newest_state,
    read_figures,
    train_command,
)
from seq2seq.report.sets import SetReport, TextSet, report_sets
from seq2seq.run.config import Config, read_config
from seq2seq.run.data_record import DataRecord, read_data_record
from seq2seq.run.folder import RunFolder
from seq2seq.run.sessions import Session, read_sessions
from seq2seq.text import has_text
from seq2seq.trainer import Metrics
from seq2seq.transformer import Transformer

_MACHINE = ("processes", "threads", "dtype")


@dataclass(frozen=True, kw_only=True)
class RunReport:
    """Everything that the page shows."""

    run: str
    model: str
    """The folder of the model that translated."""
    parameters: int
    search: dict[str, float]
    ended: str
    """Why its training has ended; empty if it has not."""
    steps: int
    """Updates in the newest checkpoint."""
    minutes: float | None
    machine: str
    sessions: list[Session]
    """The starts of the run: by which program and command, when and where."""
    changes: list[str]
    """Settings that changed when the run was resumed, one line each."""
    best: Metrics
    """The record of the best validation, by `training.select`."""
    means: dict[str, float]
    """The selecting BLEU of the mean of the last checkpoints, by their number."""
    averaged: int
    """The number of checkpoints whose mean was kept; 0 if none was."""
    curves: dict[str, list[tuple[float, float]]]
    """(step, value) of each metric."""
    data: DataRecord | None
    target_languages: list[str]
    sets: list[SetReport]
    command: str
    """The command that trains the run again."""
    config: dict[str, Any]
    differences: list[Row]
    """The details that are not as in the paper or, where it is silent, as in tensor2tensor."""


def make_report(
    run: Path,
    tests: Sequence[TextSet],
    *,
    device: str = "auto",
    model_class: type[Transformer] | None = None,
) -> RunReport:
    """Translate the test sets with the model of a run, and collect the figures.

    Without test sets, the texts are the run's own: its validation sets, then its test sets.
    """
    config = read_config(run)
    try:
        texts = tests or own_sets(run, config)
    except UserError as error:
        raise UserError(
            f"{error}, and start the command in a folder where relative paths lead to the text; or"
            " give other text with --test SOURCE REFERENCE"
        ) from error
    folder, files = find_model(run), RunFolder(run)
    trained, language = load_model(folder, model_class), config.data.valid.target_language
    options = TranslationOptions(device=device, search=config.search, to=language)
    translator = Translator(trained, options)
    for text in tests:
        # The translator has the validation set's language; a test may have another.
        control_ids(translator.tokenizer.controls, text.language, None)
    with folder_of_text(run):  # the training text is read, too
        sets = report_sets(translator, texts, config)
    records = list(read_figures(run))
    finished, state = files.read_finished(), newest_state(run)
    changeable = state.changeable if state else {}
    return RunReport(
        run=run.absolute().name,
        model=folder.name,
        parameters=sum(map(Tensor.numel, trained.model.parameters())),
        search={"beam_size": config.search.beam_size, "alpha": config.search.alpha},
        ended=finished.get("ended", ""),
        steps=state.progress.step if state else finished.get("step", 0),
        minutes=state.progress.seconds / 60 if state else None,
        machine=_machine(finished, changeable),
        sessions=read_sessions(run),
        changes=state.progress.changes if state else [],
        best=best_validation(records, config.training),
        means=finished.get("means", {}),
        averaged=finished.get("averaged", 0),
        curves=_curves(records),
        data=read_data_record(run),
        target_languages=trained.target_languages,
        sets=sets,
        command=train_command(config),
        config=known_settings(config),
        differences=[row for row in compare(as_trained(trained, config)) if row.here],
    )


def score_record(report: RunReport) -> ScoreRecord:
    """Return the scores of a report on the run's own sets, to be recorded."""
    sets = {one.name: one.scores for one in report.sets}
    return ScoreRecord(report.model, report.search, sets)


def _machine(finished: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    processor = [str(finished["machine"])] if "machine" in finished else []
    return ", ".join([*processor, *(f"{k} {settings[k]}" for k in _MACHINE if k in settings)])


def _curves(records: Sequence[Metrics]) -> dict[str, list[tuple[float, float]]]:
    """Return (step, value) of each metric."""
    curves: dict[str, list[tuple[float, float]]] = {}
    for record in records:
        for name, value in record.items():
            if name != "step":
                curves.setdefault(name, []).append((record["step"], value))
    return curves


def own_sets(run: Path, config: Config) -> list[TextSet]:
    """Read the validation and test sets of a run: `data.valid_sets.a` is `a`, others `test/a`."""
    names = *config.data.validation_names(), *config.data.test_names()
    return [_read_set(run, config, name) for name in names]


def _read_set(run: Path, config: Config, name: str) -> TextSet:
    split = Split(config.data, name)
    with folder_of_text(run):
        numbered = [(n, pair) for n, pair in enumerate(split.pairs(), 1) if has_text(pair)]
    if not numbered:  # the files are others than those of the training
        raise UserError(f"data.{name}: {split}: no pair has text on both sides; check the files")
    texts = [pair.source for _, pair in numbered], [pair.target for _, pair in numbered]
    numbers = [number for number, _ in numbered]
    return TextSet(_short_name(name), *texts, split.target_language, numbers)


def _short_name(split: str) -> str:
    if split == "valid_sets.test":  # not the test set
        return "valid/test"
    return split.removeprefix("valid_sets.").replace("test_sets.", "test/")


def choose_alignment(run: Path, trained: TrainedModel) -> AlignmentStep | None:
    """Choose where a model of a run aligns, by the run's first validation set."""
    valid = _read_set(run, read_config(run), "valid")
    return choose_step(trained, KnownText(valid.sources, valid.references, valid.language))


def as_trained(trained: TrainedModel, config: Config) -> Config:
    """Return the configuration of a run with the model that it has."""
    kind = own_class(trained.model)
    name = None if kind is None else class_name(kind)
    return replace(config, model=trained.model.config, model_class=name)
