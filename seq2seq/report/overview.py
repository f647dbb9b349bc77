"""The overview of several runs: what differs between them, and how they validated."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from seq2seq.report.record import PLACES, newest_progress
from seq2seq.run.config import Config, read_config
from seq2seq.run.folder import RunFolder
from seq2seq.run.records import read_metrics, set_name
from seq2seq.settings import flat
from seq2seq.trainer import Metrics
from seq2seq.update import TrainingConfig


@dataclass(frozen=True)
class RunSummary:
    """What the folder of a run says about it."""

    name: str
    config: Config
    ended: str  # why training ended; empty if it has not
    steps: int
    minutes: float | None
    tokens: int  # of both sides, trained on
    best: Metrics  # of the validation whose model was kept; empty before the first
    last: Metrics  # of the last validation


def summarize(folder: Path) -> RunSummary:
    """Read what a run has recorded; its model is not loaded."""
    config, path = read_config(folder), RunFolder(folder).metrics
    finished = RunFolder(folder).read_finished()
    progress = newest_progress(folder).get("progress", {})
    validations: list[Metrics] = []
    step, tokens = 0, 0.0
    for record in read_metrics(path) if path.is_file() else ():
        if {"valid/perplexity", "valid/bleu"} <= record.keys():
            validations.append(record)
        if "train/target_tokens" in record:  # means over the steps since the record before
            per_step = record["train/source_tokens"] + record["train/target_tokens"]
            step, tokens = int(record["step"]), tokens + per_step * (record["step"] - step)
    return RunSummary(
        name=str(folder),
        config=config,
        ended=finished.get("ended", ""),
        steps=progress.get("step", step),
        minutes=progress["seconds"] / 60 if "seconds" in progress else None,
        tokens=round(tokens),
        best=best_validation(validations, config.training),
        last=validations[-1] if validations else {},
    )


def best_validation(records: Sequence[Metrics], training: TrainingConfig) -> Metrics:
    """Return the record of the validation whose model was kept, the first of the best ones."""
    validations = [record for record in records if "valid/bleu" in record]
    with suppress(KeyError):  # config.yaml names a set that was not validated
        return max(validations, key=training.rank, default={})
    return {}


def overview(runs: Sequence[RunSummary]) -> list[dict[str, Any]]:
    """Make a row for each run, the best first, with the settings that are not the same in all."""
    settings = {run.name: flat(asdict(run.config)) for run in runs}
    differing = [
        key
        for key in dict.fromkeys(key for of_run in settings.values() for key in of_run)
        if key not in PLACES and len({str(of_run.get(key)) for of_run in settings.values()}) > 1
    ]

    def rank(run: RunSummary) -> tuple[bool, tuple[float, float]]:
        return bool(run.best), run.config.training.rank(run.best) if run.best else (0.0, 0.0)

    return [
        {
            "run": run.name,
            **{key: settings[run.name].get(key) for key in differing},
            "steps": run.steps,
            "minutes": None if run.minutes is None else round(run.minutes, 1),
            "million tokens": round(run.tokens / 1e6, 2),
            **_scores(run.best),
            "ended": run.ended or "not yet",
        }
        for run in sorted(runs, key=rank, reverse=True)
    ]


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
