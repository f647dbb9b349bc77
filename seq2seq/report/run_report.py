"""The figures of a report: what a run folder tells, and what its model does on test sets."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from seq2seq.data.corpus import Split
from seq2seq.decoding.options import TranslationOptions
from seq2seq.decoding.translator import Translator
from seq2seq.errors import UserError
from seq2seq.model_folder import TrainedModel, load_model
from seq2seq.paper.details import Row, compare
from seq2seq.report.overview import best_validation
from seq2seq.report.record import (
    PLACES,
    DataRecord,
    folder_of_text,
    known_settings,
    newest_progress,
    read_data_record,
    train_command,
    validation_sums,
)
from seq2seq.report.sets import SetReport, TextSet, report_sets
from seq2seq.run.config import Config, read_config
from seq2seq.run.folder import RunFolder, find_model
from seq2seq.run.records import read_metrics
from seq2seq.search import SearchConfig
from seq2seq.settings import flat
from seq2seq.tokenizer import control_ids

_LARGEST = 1e100  # of a run's figures; above it, differences could be infinite
_MACHINE = ("processes", "threads", "dtype")


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """What a run folder tells."""

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
    changes: list[str]
    """Settings that changed when the run was resumed, one line each."""
    best: dict[str, float]
    """The record of the best validation, by `training.select`."""
    means: dict[str, float]
    """The selecting BLEU of the mean of the last checkpoints, by their number."""
    averaged: int
    """The number of checkpoints whose mean was kept; 0 if none was."""
    curves: dict[str, list[tuple[float, float]]]
    """(step, value) of each metric."""


@dataclass(frozen=True, kw_only=True)
class OtherRun(RunFacts):
    """Another run, to compare with."""

    same_sets: dict[str, str]
    """Validation sets of this run, each with the other's name for the same text."""
    settings: dict[str, tuple[Any, Any]]
    """The settings that differ: this run's value and the other's."""


@dataclass(frozen=True, kw_only=True)
class RunReport(RunFacts):
    """Everything that the page shows."""

    data: DataRecord | None
    target_languages: list[str]
    sets: list[SetReport]
    other_run: OtherRun | None
    command: str
    """The command that trains the run again."""
    config: dict[str, Any]
    differences: list[Row]
    """The details that are not as in the paper or, where it is silent, as in tensor2tensor."""


def make_report(
    run: Path,
    tests: Sequence[TextSet],
    other: Path | None = None,
    outputs: list[str] | None = None,
    *,
    device: str = "auto",
) -> RunReport:
    """Translate the test sets with the model of a run, and collect the figures.

    Without test sets, the texts are the run's validation sets. `other` is a run to compare with, or
    a file whose lines `outputs` are translations of the first test set.
    """
    config = read_config(run)
    name, other_name = distinct_names((run, other)) if other else (run.absolute().name, "")
    try:
        texts = tests or validation_sets(run, config)
    except UserError as error:
        raise UserError(f"{error}; give other text with --test SOURCE REFERENCE") from error
    other_run, other_outputs = None, [list[str]() for _ in texts]
    if outputs is not None:
        texts, other_outputs = texts[:1], [outputs]
        if len(outputs) != len(texts[0].sources):
            raise UserError(
                f"--compare {other}: {len(texts[0].sources):,} and {len(outputs):,} lines: not the"
                " same test set"
            )
    elif other is not None:
        other_run, other_outputs = _compare_runs(run, config, other, other_name, texts, device)
    trained = load_model(find_model(run))
    translator = make_translator(trained, config, device)
    for text in tests:
        # The translator has the validation set's language; a test may have another.
        control_ids(translator.tokenizer.controls, text.language, None)
    with folder_of_text(run):  # the training text is read, too
        sets = report_sets(translator, texts, config, (name, other_name), other_outputs)
    return RunReport(
        **_facts(run, config, name, trained),
        data=read_data_record(run),
        target_languages=trained.target_languages,
        sets=sets,
        other_run=other_run,
        command=train_command(config),
        config=known_settings(config),
        differences=[row for row in compare(as_trained(trained, config)) if row.here],
    )


def distinct_names(paths: Sequence[Path]) -> list[str]:
    """Name files or folders by the last part of their paths, or if two are equal, by all of it."""
    names = [path.absolute().name for path in paths]
    return names if len(set(names)) == len(names) else list(map(str, paths))


def _facts(run: Path, config: Config, name: str, trained: TrainedModel) -> dict[str, Any]:
    path, records = RunFolder(run).metrics, list[dict[str, float]]()
    curves: dict[str, list[tuple[float, float]]] = {}
    for record in read_metrics(path) if path.is_file() else ():
        # Only what can be drawn and what JSON can hold.
        figures = {metric: value for metric, value in record.items() if abs(value) <= _LARGEST}
        records.append(figures)
        for metric, value in figures.items():
            curves.setdefault(metric, []).append((record["step"], value))
    curves.pop("step", None)
    search = _search(trained, config)
    finished, state = RunFolder(run).read_finished(), newest_progress(run)
    progress, settings = state.get("progress", {}), state.get("changeable", {})
    cpu = [str(finished["machine"])] if "machine" in finished else []
    return {
        "run": name,
        "model": find_model(run).name,
        "parameters": sum(map(Tensor.numel, trained.model.parameters())),
        "search": {"beam_size": search.beam_size, "alpha": search.alpha},
        "ended": finished.get("ended", ""),
        "steps": progress.get("step", finished.get("step", 0)),
        "minutes": progress["seconds"] / 60 if "seconds" in progress else None,
        "machine": ", ".join([*cpu, *(f"{k} {settings[k]}" for k in _MACHINE if k in settings)]),
        "changes": progress.get("changes", []),
        "best": best_validation(records, config.training),
        "means": finished.get("means", {}),
        "averaged": finished.get("averaged", 0),
        "curves": curves,
    }


def make_translator(trained: TrainedModel, config: Config, device: str) -> Translator:
    """Make a translator by a run's model, into the language of its validation set."""
    search, language = _search(trained, config), config.data.valid.target_language
    return Translator(trained, TranslationOptions(device=device, search=search, to=language))


def _search(trained: TrainedModel, config: Config) -> SearchConfig:
    """Return the search that was tuned for a model, or by which it was validated."""
    tuned = trained.search
    return config.search if tuned is None else replace(config.search, **asdict(tuned))


def validation_sets(run: Path, config: Config) -> list[TextSet]:
    """Read the validation sets of a run: `valid` and `data.valid_sets`."""
    sets = []
    for name in config.data.validation_names():
        split = Split(config.data, name)
        with folder_of_text(run):
            pairs = list(split.pairs())
        texts = [pair.source for pair in pairs], [pair.target for pair in pairs]
        sets.append(TextSet(name.removeprefix("valid_sets."), *texts, split.target_language))
    return sets


def _compare_runs(
    run: Path, config: Config, other: Path, name: str, texts: Sequence[TextSet], device: str
) -> tuple[OtherRun, list[list[str]]]:
    """Collect what another run's folder tells and the settings that differ, and translate."""
    other_config = read_config(other)
    values, other_values = flat(asdict(config)), flat(asdict(other_config))
    for side in ("source", "target"):
        key = f"data.{side}_language"
        language, other_language = values[key], other_values[key]
        if language != other_language and not {language, other_language} & {"source", "target"}:
            raise UserError(
                f"--compare {other}: its {key} is {other_language}, and {run} has {language}:"
                " compare runs of the same languages"
            )
    settings = {
        key: (values.get(key), other_values.get(key))
        for key in {**values, **other_values}
        if key not in PLACES and values.get(key) != other_values.get(key)
    }
    sums, other_sums = map(validation_sums, (run, other))
    same_sets = {a: b for a, x in sums.items() for b, y in other_sums.items() if x == y}
    trained = load_model(find_model(other))
    translator, outputs = make_translator(trained, other_config, device), []
    into = other_config.data.target_language
    for text in texts:
        language = text.language or config.data.target_language
        # A model of one language may not know its code.
        if len(trained.target_languages) > 1:
            translator = translator.with_target_language(language)
        elif text.language is not None and into not in ("target", language):
            raise UserError(
                f"--compare {other}: translates into {into}, and {text.name} is in {language}:"
                " compare runs of the same languages"
            )
        translations = translator.translate_stream(text.sources)
        outputs.append([translation.text for translation in translations])
    facts = _facts(other, other_config, name, trained)
    return OtherRun(**facts, same_sets=same_sets, settings=settings), outputs


def as_trained(trained: TrainedModel, config: Config) -> Config:
    """Return the configuration of a run with the model that it has, and its tuned search."""
    return replace(config, model=trained.model.config, search=_search(trained, config))
