"""The page: a report as one HTML file without scripts, links or anything to load.

The templates escape every text, and `escape_text` spells out what can't be seen, so that what comes
from a corpus, a model or a configuration is shown and not interpreted.
"""

import math
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from seq2seq.decoding.translation import WARNINGS
from seq2seq.reporting.buckets import Bucket
from seq2seq.reporting.comparison import differing_parts
from seq2seq.reporting.draw import Points, curves_svg
from seq2seq.reporting.record import DataRecord
from seq2seq.reporting.report import OtherRun, RunReport
from seq2seq.reporting.sets import SetReport
from seq2seq.trainer import bleu_by_set, set_name

MAX_TEXT = 1000
"""Characters of a text that are shown."""
_MAX_ROWS = 100
_MAX_BYTES = 1_000_000
_JOINERS = "\t\u200c\u200d"  # in many scripts a part of words
_BUCKETS = {
    "source_length": ("Lines by source length", "source tokens"),
    "rarest_word": (
        "Lines by how often the rarest word of the reference occurs in training",
        "occurrences",
    ),
    "word_frequency": (
        "Words of the references by how often they occur in training",
        "occurrences",
    ),
    "word_kind": ("Words of the references by their kind", "kind"),
}
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
class Bar:
    """A cell of a table that is drawn: shares from 0 to 1, of a value and of its interval."""

    share: float
    low: float = 0.0
    high: float = 0.0


class Number(str):
    """A number that is formatted already."""


@dataclass(frozen=True)
class Table:
    """A table of the page; `format_cell` says what its cells can be."""

    titles: Sequence[str]
    rows: Sequence[Sequence[Any]]


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
    environment.globals["format_cell"] = format_cell
    return environment.get_template("page.html").render(
        report=report,
        with_attention=with_attention,
        bleus=bleu_by_set,
        charts=_charts(report),
        validations=_validations(report),
        histograms=_histograms(report.data or DataRecord()),
        # Shown whole, to be copied.
        command=Markup.escape(escape_text(report.command, len(report.command))),
        WARNINGS=WARNINGS,
        bucket_tables=_bucket_tables,
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


def format_cell(value: Any) -> tuple[str, bool]:
    """Return a cell as text, and whether it is aligned to the right, as numbers and intervals.

    An interval without width, such as a single line's, is empty.
    """
    match value:
        case Number():
            return value, True
        case int():
            return f"{value:,}", True
        case float():
            return f"{value:.2f}", True
        case (low, high):
            return (f"{low:.2f} to {high:.2f}" if low < high else ""), True
    return str(value), False


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


def _validations(report: RunReport) -> Table:
    bleus = [name for name in report.curves if name.endswith("/bleu") and name != "valid/bleu"]
    metrics = ["valid/loss", "valid/perplexity", "valid/bleu", *bleus]
    titles = ["step", "loss", "perplexity", "BLEU", *(f"BLEU, {set_name(n)}" for n in bleus)]
    values = [dict(report.curves.get(name, [])) for name in metrics]
    rows = [
        [int(step), *(Number(f"{v[step]:.4f}" if step in v else "") for v in values)]
        for step in list(values[2])[-_MAX_ROWS:]
    ]
    return Table(titles, rows)


def _histograms(record: DataRecord) -> dict[str, Table]:
    tables = {}
    if record.histogram:
        table = _histogram(["tokens", "source", "target"], record.histogram, _range)
        tables["Training sentences by length"] = table
    if record.ratios:
        table = _histogram(["target per source tokens", "pairs"], record.ratios, _ratio_range)
        tables["Training pairs by length ratio"] = table
    return tables


def _histogram(
    titles: Sequence[str],
    rows: Sequence[tuple[float, *tuple[int, ...]]],
    name: Callable[[float, float | None], str],
) -> Table:
    """Draw rows of a lower bound and counts, each count with a bar."""
    top = max(1, *(count for _, *counts in rows for count in counts))
    ends = [*(start for start, *_ in rows[1:]), None]
    return Table(
        [titles[0], *(title for side in titles[1:] for title in (side, "bar"))],
        [
            [name(start, end), *(cell for n in counts for cell in (n, Bar(n / top)))]
            for (start, *counts), end in zip(rows, ends, strict=True)
        ],
    )


def _ratio_range(start: float, end: float | None) -> str:
    return f"{start:g} or more" if end is None else f"{start:g} to {end:g}"


def _range(start: float, end: float | None) -> str:
    """Name the integers from `start` to below `end`."""
    if end is None:
        return f"{start:,} or more"
    return f"{start:,}" if end == start + 1 else f"{start:,} to {end - 1:,}"


def _bucket_tables(one: SetReport) -> dict[str, Table]:
    compared, tables = one.comparison, {}
    other, others = ("", []) if compared is None else (compared.other, compared.buckets)
    for by, (title, values) in _BUCKETS.items():
        if group := [bucket for bucket in one.buckets if bucket.by == by]:
            theirs = [bucket for bucket in others if bucket.by == by]
            tables[title] = bucket_table(group, values, other, theirs)
    return tables


def bucket_table(
    buckets: Sequence[Bucket], values: str, other: str = "", theirs: Sequence[Bucket] = ()
) -> Table:
    """List the scores of buckets of one kind and, if there is another system, its scores."""
    metric = buckets[0].metric
    titles = [values, "words" if metric == "F1" else "lines"]
    titles += [f"{metric}, this run" if theirs else metric, "interval", "bar"]
    titles += [f"{metric}, {other}", f"interval, {other}", "bar"] if theirs else []
    rows: list[list[Any]] = []
    for i, bucket in enumerate(buckets):
        rows.append([bucket.kind or _range(bucket.start, bucket.end), bucket.count])
        for one in (bucket, *theirs[i : i + 1]):
            bar = Bar(one.value / 100, one.low / 100, one.high / 100)
            rows[-1] += [one.value, (one.low, one.high), bar]
    return Table(titles, rows)
