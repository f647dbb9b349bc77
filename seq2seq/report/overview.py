"""The overview of several runs: what differs between them, and how they validated and scored."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any

from seq2seq.config import TrainingConfig
from seq2seq.errors import UserError
from seq2seq.report.record import PLACES, ScoreRecord, newest_state, read_figures, read_scores
from seq2seq.run.config import read_config
from seq2seq.run.data_record import read_data_record
from seq2seq.run.folder import RunFolder
from seq2seq.run.sessions import read_sessions
from seq2seq.settings import flat
from seq2seq.trainer import Metrics

_RECORDED = {"BLEU": "bleu", "chrF2": "chrf"}
_TITLES = {"bleu": "BLEU", "chrf": "chrF"}


@dataclass(frozen=True)
class RunSummary:
    """A run, as its folder describes it."""

    name: str
    settings: dict[str, Any]
    sums: dict[str, str]
    """Digests of each text and of the model's class, by their keys among the settings."""
    origin: dict[str, str]
    """The program that trained it, the machine and the precision."""
    results: dict[str, Any]
    rank: tuple[bool, tuple[float, float]]
    ended: bool
    incomplete: bool
    """Whether its figures end before the run, as those of a damaged copy do."""
    signatures: dict[str, str]
    """Signatures of the scores of the last model, by their titles; empty if none are recorded."""


def find_runs(folder: Path) -> tuple[list[Path], list[Path]]:
    """Find the runs in a folder, however deep they lie, and the folders without any beside them."""
    runs: list[Path] = []
    left_out: list[Path] = []
    seen: set[str] = set()

    def visit(path: Path) -> bool:
        real = os.path.realpath(path)
        if real in seen:  # a link to a folder above
            return True
        seen.add(real)
        if os.path.exists(path / "config.yaml"):
            runs.append(path)
            return True
        inside: list[Path] = []
        with suppress(OSError):
            inside = sorted(p for p in path.iterdir() if p.is_dir() and not p.name.startswith("."))
        without = [one for one in inside if not visit(one)]
        if len(without) == len(inside):
            return False
        left_out.extend(without)
        return True

    if not visit(folder):
        return [folder], []  # whose error names it
    return runs, left_out


def read_runs(folders: Sequence[Path]) -> tuple[list[RunSummary], list[str]]:
    """Read runs, the best first, and say why others can't be read. No model is loaded."""
    runs, errors = [], []
    for folder in folders:
        try:
            runs.append(_read(folder))
        except UserError as error:
            errors.append(str(error))
    return sorted(runs, key=lambda run: run.rank, reverse=True), errors


def rows_of_runs(runs: Sequence[RunSummary]) -> list[dict[str, Any]]:
    """Make a row for each run, with the settings that are not the same in all."""
    rows: list[dict[str, Any]] = [{"run": run.name} for run in runs]
    described = [one | run.origin for run, one in zip(runs, _alike(runs), strict=True)]
    for key in _differing(described):
        for row, settings in zip(rows, described, strict=True):
            row[key] = settings.get(key)
    for row, run in zip(rows, runs, strict=True):
        row |= run.results
    return rows


def common_folder(paths: Sequence[str]) -> str:
    """Return the folder that all paths share; "" if there is none."""
    if len(set(map(os.path.isabs, paths))) > 1:
        return ""
    return os.path.commonpath(paths)


def rows_over_seeds(runs: Sequence[RunSummary]) -> list[dict[str, Any]]:
    """Make a row for the runs that differ in their seed alone, with mean and range of each figure.

    Runs that have not ended are left out. A figure that not all runs of a row have says how many.
    """
    ended = [run for run in runs if run.ended]
    groups: dict[str, list[RunSummary]] = {}
    settings_of: dict[str, dict[str, Any]] = {}
    for run, alike in zip(ended, _alike(ended), strict=True):
        settings = {key: value for key, value in alike.items() if key not in {"seed", *PLACES}}
        groups.setdefault(str(settings), []).append(run)
        settings_of[str(settings)] = settings
    keys, rows = _differing(list(settings_of.values())), []
    for settings, members in zip(settings_of.values(), groups.values(), strict=True):
        row: dict[str, Any] = {"runs": common_folder([run.name for run in members])}
        row |= {key: settings.get(key) for key in keys}
        row["seeds"] = sorted(run.settings["seed"] for run in members)
        for title in dict.fromkeys(chain.from_iterable(run.results for run in members)):
            values = [run.results[title] for run in members if title in run.results]
            if title.startswith((*_TITLES.values(), "perplexity")):
                row[title] = {"mean": fmean(values), "min": min(values), "max": max(values)}
                if len(values) < len(members):
                    row[title]["runs"] = len(values)
        rows.append(row)
    return rows


def remarks(runs: Sequence[RunSummary]) -> Iterator[str]:
    """Say what is the same in all runs, and what can't be compared."""
    for key in dict.fromkeys(chain.from_iterable(run.origin for run in runs)):
        values = dict.fromkeys(run.origin.get(key, "not recorded") for run in runs)
        same = "in all runs" if len(values) == 1 else "not the same in all runs"
        yield f"{key} ({same}): {'; '.join(values)}"
    by_metric: dict[str, dict[str, list[str]]] = {}
    for run in runs:
        for title, signature in run.signatures.items():
            names = by_metric.setdefault(title.split()[0], {}).setdefault(signature, [])
            names.append(f"{run.name} ({title})")
    for metric, signatures in by_metric.items():
        for signature, names in signatures.items():
            where = "" if len(signatures) == 1 else f", of {', '.join(names)}"
            yield f"{metric}|{signature}{where}"
        if len(signatures) > 1:
            yield f"{metric}: the signatures differ, and these scores can't be compared"
    if open_ones := [run.name for run in runs if not run.ended]:
        yield f"not ended yet: {', '.join(open_ones)}"
    if incomplete := [run.name for run in runs if run.incomplete]:
        yield (
            "metrics.jsonl ends before the run, and tokens and the best step may be wrong: copy the"
            f" folder again: {', '.join(incomplete)}"
        )
    if unscored := [run.name for run in runs if run.ended and not run.signatures]:
        yield (
            "without scores of the model that the run ended with, BLEU is that of the best"
            f" validation (seq2seq report RUN scores it): {', '.join(unscored)}"
        )


def _alike(runs: Sequence[RunSummary]) -> list[dict[str, Any]]:
    """Return the settings of runs, with texts and classes told apart by what they hold.

    A test set that only some runs have is left out, since it changes no training.
    """
    alike = [dict(run.settings) for run in runs]
    for key in dict.fromkeys(chain.from_iterable(alike)):
        given = [(run, one) for run, one in zip(runs, alike, strict=True) if one.get(key)]
        if all(key in run.sums for run, _ in given):
            names: dict[str, str] = {}
            for run, one in given:
                names.setdefault(run.sums[key], os.path.basename(str(one[key])))
            for run, one in given:
                one[key] = name = names[digest := run.sums[key]]
                if list(names.values()).count(name) > 1:
                    one[key] = f"{name} ({digest})"
        if key.startswith("data.test") and len({one[key] for _, one in given}) < 2:
            for one in alike:
                one.pop(key, None)
    return alike


def _differing(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the keys whose values are not the same in all."""
    keys = dict.fromkeys(chain.from_iterable(settings))
    values = {key: {str(one.get(key)) for one in settings} for key in keys}
    return [key for key in keys if key not in PLACES and len(values[key]) > 1]


def _read(folder: Path) -> RunSummary:
    config, files = read_config(folder), RunFolder(folder)
    state = newest_state(folder)
    validations: list[Metrics] = []
    step, step_of_last, tokens = 0, 0, 0.0
    for record in read_figures(folder):
        step_of_last = int(record.get("step", step_of_last))
        if {"valid/perplexity", "valid/bleu"} <= record.keys():
            validations.append(record)
        # Means over the steps since the record before.
        if {"train/source_tokens", "train/target_tokens"} <= record.keys():
            per_step = record["train/source_tokens"] + record["train/target_tokens"]
            step, tokens = int(record["step"]), tokens + per_step * (record["step"] - step)
    ended, scores = files.read_finished().get("ended"), read_scores(folder)
    best = best_validation(validations, config.training)
    if best and scores is not None:  # of the model that is used, which may be a mean
        best = {**best, **_final(scores)}
    results = {
        "steps": state.progress.step if state else step,
        "minutes": round(state.progress.seconds / 60, 1) if state else None,
        "million tokens": round(round(tokens) / 1e6, 2),  # of both sides, trained on
        **_scores(best),
        "ended": ended or "not yet",
    }
    rank = bool(best), config.training.rank(best) if best else (0.0, 0.0)
    signatures = {} if scores is None else dict(_signatures(scores))
    return RunSummary(
        name=str(folder),
        settings=flat(asdict(config)),
        sums=_sums(folder),
        origin=_origin(folder),
        results=results,
        rank=rank,
        ended=bool(ended),
        incomplete=bool(ended and state and step_of_last < state.progress.step),
        signatures=signatures,
    )


def _sums(folder: Path) -> dict[str, str]:
    record = read_data_record(folder)
    sums = {} if record is None else record.sha256
    digests = {f"data.{of.partition(': ')[0]}": digest[:12] for of, digest in sums.items()}
    if codes := dict.fromkeys(one.class_code for one in read_sessions(folder)):
        digests["model_class"] = ", then ".join(codes)
    return digests


def _origin(folder: Path) -> dict[str, str]:
    """Return what computed the updates; of a run that was continued elsewhere, all that did."""
    sessions = read_sessions(folder)

    def joined(values: Iterable[str]) -> str:
        return ", then ".join(dict.fromkeys(values))

    if not sessions:
        return {}
    return {
        "program": joined(one.program for one in sessions),
        "machine": joined(one.machine for one in sessions),
        "precision": joined(one.precision for one in sessions),
    }


def best_validation(records: Sequence[Metrics], training: TrainingConfig) -> Metrics:
    """Return the record of the validation whose model was kept, the first of the best ones."""
    validations = [record for record in records if "valid/bleu" in record]
    with suppress(KeyError):  # config.yaml names a set that was not validated
        return max(validations, key=training.rank, default={})
    return {}


def _final(record: ScoreRecord) -> Metrics:
    """Return the scores of a run's model by the names of metrics, such as `valid/bleu`."""
    metrics: dict[str, float] = {}
    for name, scores in record.sets.items():
        for score in scores:
            if score.name in _RECORDED:
                metrics[f"{_prefix(name)}/{_RECORDED[score.name]}"] = score.value
    for metric in _RECORDED.values():
        of_sets = [v for k, v in metrics.items() if k.startswith("valid") and k.endswith(metric)]
        if len(of_sets) > 1:
            metrics[f"valid/mean/{metric}"] = fmean(of_sets)
    return metrics


def _prefix(name: str) -> str:
    return name if name.partition("/")[0] in ("valid", "test") else f"valid/{name}"


def _signatures(record: ScoreRecord) -> Iterator[tuple[str, str]]:
    for name, scores in record.sets.items():
        for score in scores:
            if score.name in _RECORDED:
                yield _title(f"{_prefix(name)}/{_RECORDED[score.name]}"), score.signature


def _title(metric: str) -> str:
    """Return the title of `valid/NAME/bleu`, `BLEU NAME`; the title of `valid/bleu` is `BLEU`."""
    where, _, kind = metric.rpartition("/")
    if where != "valid/test":  # a validation set of this name is not the test set
        where = "" if where == "valid" else where.removeprefix("valid/")
    return f"{_TITLES[kind]} {where}".strip()


def _scores(best: Metrics) -> dict[str, float]:
    if not best:
        return {}
    scores = {"best step": int(best["step"]), "perplexity": round(best["valid/perplexity"], 3)}
    for metric, value in best.items():
        if metric.rpartition("/")[2] in _TITLES:
            scores[_title(metric)] = round(value, 2)
    return scores
