"""The page: a report as one HTML file without scripts, links or anything to load.

The templates escape every text, and `escape_text` spells out what can't be seen, so that what comes
from a corpus, a model or a configuration is shown and not interpreted.
"""

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from seq2seq.reporting.buckets import Bucket
from seq2seq.reporting.comparison import SetComparison, differing_parts
from seq2seq.reporting.draw import Points, curves_svg, heat_map
from seq2seq.reporting.record import DataRecord
from seq2seq.reporting.report import OtherRun, RunFacts, RunReport
from seq2seq.reporting.sets import WARNINGS, SetReport

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
_CHARTS = {
    "Loss, nats per target token": {"training": "train/loss", "validation": "valid/loss"},
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
    """Equal to `high` if there is no interval."""
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
    """A picture of curves."""

    title: str
    svg: Markup
    last: Mapping[str, str]
    """Where each curve ends, by its name."""


def draw_page(report: RunReport) -> str:
    """Draw the page of a run; without the samples' attention if it would have more than 1 MB."""
    page = _render(report, with_attention=True)
    if len(page.encode()) <= _MAX_BYTES:
        return page
    return _render(report, with_attention=False)


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
        scores=_scores(report),
        facts=_facts(report),
        both=_both(report),
        charts=_charts(report),
        validations=_validations(report),
        data=_data(report.data or DataRecord()),
        # Shown whole, to be copied.
        command=Markup.escape(escape_text(report.command, len(report.command))),
        WARNINGS=WARNINGS,
        tables=_set_tables,
        differing_parts=differing_parts,
        heat_map=heat_map,
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


def _facts(report: RunReport) -> str:
    """Describe the run in sentences."""
    pair = f"{report.config['data.source_language']} to {', '.join(report.target_languages)}"
    facts = [f"Translates {pair}. Training ended: {_end(report)}."]
    if report.machine:
        facts.append(f"Machine: {report.machine}.")
    facts.append(f"Scored here: {_model(report)}.")
    if report.best:
        select = report.config["training.select"]
        by = "" if select == "valid" else f" by training.select={select}"
        facts.append(f"Best validation while training{by}: {_best(report)}.")
    if report.means:
        bleus = ", ".join(f"{bleu:.2f} of the last {n}" for n, bleu in report.means.items())
        kept = f"the mean of {report.averaged} was" if report.averaged else "none was"
        facts.append(f"Validation BLEU of the mean of checkpoints: {bleus}; {kept} kept.")
    if report.changes:
        facts.append(f"Resumed with other settings: {'; '.join(report.changes)}.")
    return " ".join(facts)


def _end(facts: RunFacts) -> str:
    return facts.ended or f"not yet, {facts.steps:,} steps are saved"


def _model(facts: RunFacts) -> str:
    mean = f", the mean of the last {facts.averaged} checkpoints" if facts.averaged else ""
    which = f"the model in {facts.model}{mean if facts.model == 'averaged' else ''}"
    return f"{which}, with beam {facts.search['beam_size']} and alpha {facts.search['alpha']:g}"


def _best(facts: RunFacts) -> str:
    """Name the BLEU of each validation set, and of their mean, at the best step."""
    sets = {_set_name(key): value for key, value in facts.best.items() if key.endswith("/bleu")}
    of = {name: f" ({name})" if len(sets) > 1 else "" for name in sets}
    bleus = ", ".join(f"{value:.2f}{of[name]}" for name, value in sets.items())
    return f"BLEU {bleus} at step {facts.best['step']:,}" if sets else ""


def _set_name(metric: str) -> str:
    """Return the validation set of `valid/bleu` or `valid/NAME/bleu`."""
    first, *middle, _ = metric.split("/")
    return middle[0] if middle else first


def _scores(report: RunReport) -> Table:
    rows = []
    for one in report.sets:
        for score in one.scores:
            interval = one.bleu_interval if score.name == "BLEU" else (0, 0)
            rows.append([one.name, one.lines, score.name, score.value, interval])
    return Table(["set", "lines", "metric", "value", "95 % interval"], rows)


def _both(report: RunReport) -> tuple[Table, list[str]] | None:
    """Compare two runs; and name the validation sets that they don't share."""
    other = report.other_run
    if other is None:
        return None
    rows: dict[str, Callable[[RunFacts], str]] = {
        "model": _model,
        "best validation": _best,
        "training ended": _end,
        "steps": lambda one: f"{one.steps:,}",
        "minutes": lambda one: f"{one.minutes:,.1f}" if one.minutes else "",
        "machine": lambda one: one.machine,
        "parameters": lambda one: f"{one.parameters:,}",
    }
    table = [[name, describe(report), describe(other)] for name, describe in rows.items()]
    known = {_set_name(name) for name in report.curves if name.endswith("/bleu")} - {"mean"}
    return Table(["", "this run", other.run], table), sorted(known - other.same_sets.keys())


def _charts(report: RunReport) -> list[Chart]:
    sets = {_set_name(name): name for name in report.curves if name.endswith("/bleu")}
    charts = []
    for title, names in _CHARTS.items():
        metrics = names or sets
        curves: dict[str, Points] = {
            label: report.curves.get(name, []) for label, name in metrics.items()
        }
        if report.other_run is not None:
            curves |= _others_curves(report.other_run, metrics)
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
        theirs = other.same_sets.get(_set_name(name)) if name.startswith("valid/") else None
        if theirs is not None:
            metric = f"valid/{kind}" if theirs == "valid" else f"valid/{theirs}/{kind}"
            curves[f"{label}, {other.run}"] = other.curves.get(metric, [])
    return curves


def _validations(report: RunReport) -> Table:
    """List the last validations."""
    bleus = [name for name in report.curves if name.endswith("/bleu") and name != "valid/bleu"]
    metrics = ["valid/loss", "valid/perplexity", "valid/bleu", *bleus]
    titles = ["step", "loss", "perplexity", "BLEU", *(f"BLEU, {_set_name(n)}" for n in bleus)]
    values = [dict(report.curves.get(name, [])) for name in metrics]
    rows = [
        [int(step), *(Number(f"{v[step]:.4f}" if step in v else "") for v in values)]
        for step in list(values[2])[-_MAX_ROWS:]
    ]
    return Table(titles, rows)


def _data(record: DataRecord) -> dict[str, Table]:
    """Return the tables of the data's record, by their titles."""
    rows: list[list[str | int]] = []
    for split, counts in record.counts.items():
        reasons = ", ".join(f"{n:,} {why}" for why, n in counts.left_out.items() if n)
        rows.append([split, counts.read, counts.kept, reasons or "none"])
    tables = {"": Table(["split", "pairs read", "kept", "skipped"], rows)}
    if lengths := record.lengths:
        titles = ["tokens in training", *(f"{q} %" for q in lengths.percentiles)]
        rows = [["source", *lengths.source], ["target", *lengths.target]]
        tables["Tokens of training sentences"] = Table(titles, rows)
    if sizes := record.histogram:
        labels = [_range(*ends) for ends in _spans(sizes.bounds)]
        series = {"source": sizes.source, "target": sizes.target}
        tables["Training sentences by length"] = _histogram(labels, series, "tokens")
    if ratios := record.ratios:
        labels = [
            f"{start:g} or more" if end is None else f"{start:g} to {end:g}"
            for start, end in _spans(ratios.bounds)
        ]
        table = _histogram(labels, {"pairs": ratios.pairs}, "target per source tokens")
        tables["Training pairs by length ratio"] = table
    return tables


def _histogram(labels: Sequence[str], series: Mapping[str, Sequence[int]], title: str) -> Table:
    top = max(1, *(count for counts in series.values() for count in counts))
    rows = [
        [label, *(cell for count in counts for cell in (count, Bar(count / top)))]
        for label, *counts in zip(labels, *series.values(), strict=True)
    ]
    return Table([title, *(t for name in series for t in (name, "bar"))], rows)


def _spans(bounds: Sequence[float]) -> list[tuple[float, float | None]]:
    return list(zip(bounds, [*bounds[1:], None], strict=True))


def _range(start: float, end: float | None) -> str:
    """Name the integers from `start` to below `end`."""
    if end is None:
        return f"{start:,} or more"
    return f"{start:,}" if end == start + 1 else f"{start:,} to {end - 1:,}"


def _set_tables(one: SetReport) -> dict[str, Any]:
    """Return the tables of a test set."""
    compared, buckets = one.comparison, {}
    for by, (title, values) in _BUCKETS.items():
        if group := [bucket for bucket in one.buckets if bucket.by == by]:
            theirs = [] if compared is None else [b for b in compared.buckets if b.by == by]
            other = "" if compared is None else compared.other
            buckets[title] = bucket_table(group, values, other, theirs)
    counts = [[name, getattr(one.output_warnings, kind)] for kind, name in WARNINGS.items()]
    return {
        "warnings": Table(["suspicious outputs", "count"], counts),
        "buckets": buckets,
        "tests": None if compared is None else _tests(compared),
    }


def bucket_table(
    buckets: Sequence[Bucket], values: str, other: str = "", theirs: Sequence[Bucket] = ()
) -> Table:
    """List the scores of buckets of one kind and, if there is another system, its scores.

    Args:
        buckets: the run's.
        values: what they are divided by.
        other: the name of the other system.
        theirs: its buckets, the same as the run's.
    """
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


def _tests(compared: SetComparison) -> Table:
    other = compared.other
    rows = [
        [
            test.metric,
            test.value - test.difference,
            test.value,
            Number(f"{test.difference:+.2f}"),
            Number(f"{test.p_value:.4f}"),
            test.interval or (0, 0),
        ]
        for test in compared.tests
    ]
    titles = ["metric", "this run", other, "difference", "p", f"95 % interval of {other}"]
    return Table(titles, rows)
