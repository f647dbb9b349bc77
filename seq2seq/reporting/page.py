"""The page: a report as one HTML file without scripts, links or anything to load.

The templates escape every text, and `escape_text` spells out what can't be seen, so that what comes
from a corpus, a model or a configuration is shown and not interpreted.
"""

import math
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from seq2seq.decoding.translation import WARNINGS
from seq2seq.reporting.comparison import differing_parts
from seq2seq.reporting.draw import Points, curves_svg
from seq2seq.reporting.report import OtherRun, RunReport
from seq2seq.training.recorder import bleu_by_set, set_name

MAX_TEXT = 1000
"""Characters of a text that are shown."""
_MAX_ROWS = 100
_MAX_BYTES = 1_000_000
_JOINERS = "\t\u200c\u200d"  # in many scripts a part of words
_LOSS = "Loss without label smoothing, nats per target token"
_CHARTS = {
    # Their logarithms are drawn; `train/loss` is smoothed, so that it may be above `valid/loss`.
    _LOSS: {"training, with dropout": "train/perplexity", "validation": "valid/perplexity"},
    "Validation BLEU": {},
    "Learning rate": {"rate": "train/learning_rate"},
    "Gradient norm": {"norm": "train/gradient_norm"},
    "Tokens per second": {"source and target": "train/tokens_per_second"},
}


@dataclass(frozen=True)
class Chart:
    """A picture of curves, and where each of them ends."""

    title: str
    svg: Markup
    last: Mapping[str, str]


def draw_page(report: RunReport) -> str:
    """Draw the page of a run; without the samples' attention if it would have more than 1 MB."""
    page = _render(report, with_attention=True)
    return page if len(page.encode()) <= _MAX_BYTES else _render(report, with_attention=False)


def _render(report: RunReport, *, with_attention: bool) -> str:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("seq2seq.reporting"),
        autoescape=True,
        finalize=escape_text,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html").render(
        report=report,
        with_attention=with_attention,
        bleus=bleu_by_set,
        charts=_charts(report),
        validations=_validations(report),
        # Shown whole, to be copied.
        command=Markup.escape(escape_text(report.command, len(report.command))),
        WARNINGS=WARNINGS,
        differing_parts=differing_parts,
        lines=lambda count: "1 line" if count == 1 else f"{count:,} lines",
    )


def escape_text(value: Any, most: int = MAX_TEXT) -> Any:
    """Cut a text, and spell out what can't be seen or would reorder its neighbors."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    if len(value) > most:
        value = value[:most] + "…"
    return "".join(
        f"\\u{ord(c):04x}"
        if unicodedata.category(c) in ("Cc", "Cf", "Cs") and c not in _JOINERS
        else c
        for c in value
    )


def _charts(report: RunReport) -> list[Chart]:
    sets = {set_name(name): name for name in report.curves if name.endswith("/bleu")}
    charts = []
    for title, names in _CHARTS.items():
        metrics = names or sets
        curves: dict[str, Points] = {n: report.curves.get(m, []) for n, m in metrics.items()}
        if report.other_run is not None:
            curves |= _others_curves(report.other_run, metrics)
        if title == _LOSS:
            curves = {
                label: [(step, math.log(value)) for step, value in points if value > 0]
                for label, points in curves.items()
            }
        curves = {label: points for label, points in curves.items() if points}
        if svg := curves_svg(curves):
            last = {
                label: f"{points[-1][1]:.4g} at step {points[-1][0]:,.0f}"
                for label, points in curves.items()
            }
            charts.append(Chart(title, Markup(svg), last))
    return charts


def _others_curves(other: OtherRun, names: Mapping[str, str]) -> dict[str, Points]:
    """Return the other run's validations on the same text; `names` has metrics by their labels."""
    curves: dict[str, Points] = {}
    for label, name in names.items():
        kind = name.rpartition("/")[2]
        theirs = other.same_sets.get(set_name(name)) if name.startswith("valid/") else None
        if theirs is not None:
            metric = f"valid/{kind}" if theirs == "valid" else f"valid/{theirs}/{kind}"
            curves[f"{label}, {other.run}"] = other.curves.get(metric, [])
    return curves


def _validations(report: RunReport) -> tuple[list[str], list[tuple[int, list[float | None]]]]:
    """Return the names of the metrics, and the last validations: steps and values."""
    bleus = [name for name in report.curves if name.endswith("/bleu") and name != "valid/bleu"]
    metrics = ["valid/loss", "valid/perplexity", "valid/bleu", *bleus]
    titles = ["loss", "perplexity", "BLEU", *(f"BLEU, {set_name(name)}" for name in bleus)]
    values = [dict(report.curves.get(name, [])) for name in metrics]
    steps = list(values[2])[-_MAX_ROWS:]
    return titles, [(int(step), [column.get(step) for column in values]) for step in steps]
