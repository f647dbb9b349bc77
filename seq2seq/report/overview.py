"""The overview of several runs: what differs between them, and how they validated."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from seq2seq.report.record import PLACES, newest_progress
from seq2seq.run.config import read_config
from seq2seq.run.folder import RunFolder
from seq2seq.run.records import read_metrics, set_name
from seq2seq.settings import flat
from seq2seq.trainer import Metrics
from seq2seq.update import TrainingConfig


@dataclass(frozen=True)
class _Run:
    """What the folder of a run says about it."""

    name: str
    settings: dict[str, Any]
    results: dict[str, Any]
    rank: tuple[bool, tuple[float, float]]


def overview(folders: Sequence[Path]) -> list[dict[str, Any]]:
    """Make a row for each run, the best first, with the settings that are not the same in all.

    No model is loaded.
    """
    runs = sorted(map(_read, folders), key=lambda run: run.rank, reverse=True)
    rows: list[dict[str, Any]] = [{"run": run.name} for run in runs]
    for key in dict.fromkeys(chain.from_iterable(run.settings for run in runs)):
        values = [run.settings.get(key) for run in runs]
        if key not in PLACES and len(set(map(str, values))) > 1:
            for row, value in zip(rows, values, strict=True):
                row[key] = value
    for row, run in zip(rows, runs, strict=True):
        row |= run.results
    return rows


def _read(folder: Path) -> _Run:
    config, files = read_config(folder), RunFolder(folder)
    progress = newest_progress(folder).get("progress", {})
    validations: list[Metrics] = []
    step, tokens = 0, 0.0
    for record in read_metrics(files.metrics) if files.metrics.is_file() else ():
        if {"valid/perplexity", "valid/bleu"} <= record.keys():
            validations.append(record)
        if "train/target_tokens" in record:  # means over the steps since the record before
            per_step = record["train/source_tokens"] + record["train/target_tokens"]
            step, tokens = int(record["step"]), tokens + per_step * (record["step"] - step)
    best = best_validation(validations, config.training)
    results = {
        "steps": progress.get("step", step),
        "minutes": round(progress["seconds"] / 60, 1) if "seconds" in progress else None,
        "million tokens": round(round(tokens) / 1e6, 2),  # of both sides, trained on
        **_scores(best),
        "ended": files.read_finished().get("ended") or "not yet",
    }
    rank = bool(best), config.training.rank(best) if best else (0.0, 0.0)
    return _Run(str(folder), flat(asdict(config)), results, rank)


def best_validation(records: Sequence[Metrics], training: TrainingConfig) -> Metrics:
    """Return the record of the validation whose model was kept, the first of the best ones."""
    validations = [record for record in records if "valid/bleu" in record]
    with suppress(KeyError):  # config.yaml names a set that was not validated
        return max(validations, key=training.rank, default={})
    return {}


def _scores(best: Metrics) -> dict[str, float]:
    if not best:
        return {}
    scores = {"best step": int(best["step"]), "perplexity": round(best["valid/perplexity"], 3)}
    for metric, value in best.items():
        title = {"bleu": "BLEU", "chrf": "chrF"}.get(metric.rpartition("/")[2])
        if title:
            name = set_name(metric)
            scores[title if name == "valid" else f"{title} {name}"] = round(value, 2)
    return scores
