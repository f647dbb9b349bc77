"""The page: a report as one HTML file without scripts, links or anything to load.

Every text that comes from a corpus, a model or a configuration goes through `shown`, so that it is
shown and not interpreted.
"""

from collections.abc import Mapping
from importlib import resources

from seq2seq.reporting.comparison import LineChange, Sample, SetComparison, differing_parts
from seq2seq.reporting.draw import (
    MAX_TEXT,
    Points,
    bucket_table,
    draw_attention,
    draw_curves,
    histogram,
    interval,
    rows_table,
    shown,
    spans,
    table,
)
from seq2seq.reporting.report import OtherRun, RunFacts, RunReport
from seq2seq.reporting.sets import HEALTH, SetReport

_MAX_HEALTH_TEXT = 200
_FEW = 10  # differing lines, below which sacreBLEU's p-values are too small
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
_MISSING = '<mark class="missing">marked so</mark>'
_EXTRA = '<mark class="extra">marked so</mark>'


def draw_set(one: SetReport, *, with_attention: bool) -> str:
    """Draw the section of a test set, with the comparison if there is one."""
    rows = [[label, f"{getattr(one.health, kind):,}"] for kind, label in HEALTH.items()]
    health = table(["health", "count"], rows, numbers=(1,))
    if one.health_lines:
        cells = [
            [
                HEALTH[found.kind],
                f"{found.line:,}",
                shown(found.source, _MAX_HEALTH_TEXT),
                shown(found.output, _MAX_HEALTH_TEXT),
            ]
            for found in one.health_lines
        ]
        lines = rows_table(["health", "line", "source", "output"], cells, numbers=(1,))
        health += f"<details><summary>The first lines of each kind</summary>{lines}</details>\n"
    buckets = []
    for by, (title, values) in _BUCKETS.items():
        group = [bucket for bucket in one.buckets if bucket.by == by]
        if group:
            other, theirs = "", []
            if one.comparison is not None:
                other = one.comparison.other
                theirs = [bucket for bucket in one.comparison.buckets if bucket.by == by]
            drawn = bucket_table(group, values, other, theirs)
            buckets.append(f"<h3>{shown(title)}</h3>\n{drawn}")
    compared = "" if one.comparison is None else _comparison(one.comparison)
    kinds: dict[str, list[Sample]] = {}
    for sample in one.samples:
        kinds.setdefault(sample.kind, []).append(sample)
    samples = [
        f"<h3>{kind.capitalize()} lines by chrF</h3>\n"
        + "".join(_sample(sample, with_attention=with_attention) for sample in group)
        for kind, group in kinds.items()
    ]
    without = "" if with_attention else " Attention is left out, to keep the page below 1 MB."
    parts = [health, compared, *buckets]
    overlap = ""
    if one.overlap is not None:
        overlap = (
            f"<p>Also among {one.overlap.among}: {one.overlap.sources:,} of the sources,"
            f" {one.overlap.references:,} of the references and {one.overlap.pairs:,} of the"
            " pairs.</p>\n"
        )
    return (
        f"<h2>{shown(one.name)}: {_lines(one.lines)}</h2>\n{overlap}{''.join(parts)}"
        '<p class="soft">Intervals: 95 %, bootstrap over lines. Training'
        f" frequencies: {shown(one.training_note)}.</p>\n"
        '<h3>Samples</h3>\n<p class="soft">Words of the reference that the output lacks are'
        f" {_MISSING}, words of the output that the reference lacks"
        f" {_EXTRA}.{without}</p>\n{''.join(samples)}"
    )


def _lines(count: int) -> str:
    return "1 line" if count == 1 else f"{count:,} lines"


def _comparison(comparison: SetComparison) -> str:
    other = comparison.other
    tests = [
        [
            test.metric,
            f"{test.value - test.difference:.2f}",
            f"{test.value:.2f}",
            f"{test.difference:+.2f}",
            f"{test.p_value:.4f}",
            interval(*test.interval) if test.interval else "",
        ]
        for test in comparison.tests
    ]
    differing = comparison.tests[0].differing_lines
    few = " Where so few lines differ, p is too small." if 0 < differing < _FEW else ""
    titles = ["metric", "this run", other, "difference", "p", f"95 % interval of {other}"]
    signatures = "".join(
        f"<dt>{shown(test.metric)}</dt><dd><code>{shown(test.signature)}</code></dd>"
        for test in comparison.tests
    )
    verb = "differs" if differing == 1 else "differ"
    parts = [
        f"<h3>Compared with {shown(other)}</h3>\n<p>{_lines(differing)} {verb}.{few} The test is"
        f" paired bootstrap. The difference is that of {shown(other)} to this run; a lower TER is"
        " better.</p>\n",
        table(titles, tests, (1, 2, 3, 4, 5)),
        f"<details><summary>Signatures of the test</summary><dl>{signatures}</dl></details>\n",
    ]
    ngrams = []
    for better, changes in (
        ("this run", comparison.ngrams_won),
        (other, comparison.ngrams_lost),
    ):
        rows = [[change.ngram, f"{change.run:,}", f"{change.other:,}"] for change in changes]
        counts = table(["n-gram", "this run", other], rows, (1, 2))
        title = f"<h3>N-grams that {shown(better)} gets right more often</h3>"
        ngrams.append(f"<div>{title}\n{counts}</div>\n")
    parts.append(f'<div class="beside">{"".join(ngrams)}</div>\n')
    parts.append(f'<p class="soft">Words that the reference lacks are {_EXTRA}.</p>\n')
    for better, lines in (("this run", comparison.lines_won), (other, comparison.lines_lost)):
        parts.append(f"<h3>Lines that {shown(better)} translates better, by chrF</h3>\n")
        parts += [_line_change(change, other) for change in lines]
    return "".join(parts)


def _line_change(change: LineChange, other: str) -> str:
    texts = {
        "source": shown(change.source),
        "reference": shown(change.reference),
        f"this run, {change.run_chrf:.2f}": _marked(change.run, change.reference, "extra"),
        f"{other}, {change.other_chrf:.2f}": _marked(change.other, change.reference, "extra"),
    }
    rows = [f'<dt>{shown(name)}</dt><dd dir="auto">{text}</dd>' for name, text in texts.items()]
    return (
        f'<div class="sample"><div class="soft">line {change.line:,}</div>'
        f"<dl>{''.join(rows)}</dl></div>\n"
    )


def _sample(sample: Sample, *, with_attention: bool) -> str:
    attention = ""
    if with_attention and sample.attention is not None:
        drawn = draw_attention(sample.attention)
        attention = (
            f'<details><summary>attention</summary><div class="wide">{drawn}</div></details>'
        )
    reference = _marked(sample.reference, sample.output, "missing")
    output = _marked(sample.output, sample.reference, "extra")
    return (
        f'<div class="sample"><div class="soft">line {sample.line:,}, chrF {sample.chrf:.2f}</div>'
        f'<dl><dt>source</dt><dd dir="auto">{shown(sample.source)}</dd>'
        f'<dt>reference</dt><dd dir="auto">{reference}</dd>'
        f'<dt>output</dt><dd dir="auto">{output}</dd></dl>'
        f"{attention}</div>\n"
    )


def _marked(text: str, other: str, kind: str) -> str:
    parts = [
        f'<mark class="{kind}">{shown(part)}</mark>' if differs else shown(part)
        for part, differs in differing_parts(text[:MAX_TEXT], other[:MAX_TEXT])
    ]
    return "".join(parts) or '<span class="soft">empty</span>'


_MAX_ROWS = 100
_MAX_BYTES = 1_000_000

_CHARTS = {
    "Loss, nats per target token": {"training": "train/loss", "validation": "valid/loss"},
    "Validation BLEU": {},
    "Learning rate": {"rate": "train/learning_rate"},
    "Gradient norm": {"norm": "train/gradient_norm"},
    "Tokens per second": {"source and target": "train/tokens_per_second"},
}


def draw_page(report: RunReport) -> str:
    """Draw the page of a run; without the samples' attention if it would have more than 1 MB."""
    page = _page(report, with_attention=True)
    if len(page.encode()) <= _MAX_BYTES:
        return page
    return _page(report, with_attention=False)


def _page(report: RunReport, *, with_attention: bool) -> str:
    style = resources.files(__package__).joinpath("style.css").read_text("utf-8")
    sections = [
        _verdict(report),
        _curves(report),
        _data(report),
        *(draw_set(one, with_attention=with_attention) for one in report.sets),
        _configuration(report),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        # Nothing is loaded and nothing runs, whatever a text on the page holds.
        '<meta http-equiv="Content-Security-Policy"'
        " content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>{shown(report.run)}: report</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        f"<main>\n{''.join(sections)}</main>\n</body>\n</html>\n"
    )


def _verdict(report: RunReport) -> str:
    first = report.sets[0]
    tiles = [(f"{score.value:.2f}", f"{score.name}, {first.name}") for score in first.scores[:3]]
    if "valid/perplexity" in report.best:
        tiles.append((f"{report.best['valid/perplexity']:.2f}", "best validation's perplexity"))
    tiles.append((f"{report.parameters:,}", "parameters"))
    if report.minutes is not None:
        tiles.append((f"{report.minutes:,.1f} min", "training"))
    drawn = "".join(f"<div><b>{shown(v)}</b><span>{shown(n)}</span></div>" for v, n in tiles)
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
        kept = f"that of {report.averaged} was" if report.averaged else "none was"
        facts.append(f"Validation BLEU of the mean of checkpoints: {bleus}; {kept} kept.")
    if report.changes:
        facts.append(f"Resumed with other settings: {'; '.join(report.changes)}.")
    rows = [
        [one.name, f"{one.lines:,}", score.name, f"{score.value:.2f}", _interval(one, score.name)]
        for one in report.sets
        for score in one.scores
    ]
    titles = ["set", "lines", "metric", "value", "95 % interval"]
    signatures = {score.name: score.signature for one in report.sets for score in one.scores}
    listed = "".join(
        f"<dt>{shown(name)}</dt><dd><code>{shown(text)}</code></dd>"
        for name, text in signatures.items()
    )
    notes = "".join(
        f"<p>{shown(f'{one.name}: {one.without_ter}')}.</p>\n"
        for one in report.sets
        if one.without_ter
    )
    beside = "" if report.other_run is None else _both(report, report.other_run)
    return (
        f"<h1>{shown(report.run)}</h1>\n<p>{shown(' '.join(facts))}</p>\n"
        f'<div class="tiles">{drawn}</div>\n{table(titles, rows, numbers=(1, 3, 4))}{notes}'
        f"<details open><summary>Signatures</summary><dl>{listed}</dl></details>\n{beside}"
    )


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
    return f"BLEU {bleus} at step {facts.best['step']:,}"


def _set_name(metric: str) -> str:
    """Return the validation set of `valid/bleu` or `valid/NAME/bleu`."""
    first, *middle, _ = metric.split("/")
    return middle[0] if middle else first


def _both(run: RunFacts, other: OtherRun) -> str:
    rows = [
        ["model", *(_model(one) for one in (run, other))],
        ["best validation", *(_best(one) if one.best else "" for one in (run, other))],
        ["training ended", *(_end(one) for one in (run, other))],
        ["steps", *(f"{one.steps:,}" for one in (run, other))],
        ["minutes", *(f"{one.minutes:,.1f}" if one.minutes else "" for one in (run, other))],
        ["machine", run.machine, other.machine],
        ["parameters", f"{run.parameters:,}", f"{other.parameters:,}"],
    ]
    known = {_set_name(name) for name in run.curves if name.endswith("/bleu")} - {"mean"}
    missing = sorted(known - other.same_sets.keys())
    note = (
        f"<p>{shown(other.run)} was not validated on the same text as"
        f" {shown(', '.join(missing))} of this run: its BLEU there can't be compared.</p>\n"
        if missing
        else ""
    )
    return f"<h2>Both runs</h2>\n{table(['', 'this run', other.run], rows)}{note}"


def _interval(one: SetReport, metric: str) -> str:
    return interval(*one.bleu_interval) if metric == "BLEU" else ""


def _curves(report: RunReport) -> str:
    sets = {_set_name(name): name for name in report.curves if name.endswith("/bleu")}
    charts = ""
    for title, names in _CHARTS.items():
        shown_names = names or sets
        curves: dict[str, Points] = {
            label: report.curves.get(name, []) for label, name in shown_names.items()
        }
        if report.other_run is not None:
            curves |= _others_curves(report.other_run, shown_names)
        charts += draw_curves(title, curves)
    further = {name: metric for name, metric in sets.items() if metric != "valid/bleu"}
    metrics = ["valid/loss", "valid/perplexity", "valid/bleu", *further.values()]
    titles = ["step", "loss", "perplexity", "BLEU", *(f"BLEU, {name}" for name in further)]
    values = {name: dict(report.curves.get(name, [])) for name in metrics}
    steps = list(values["valid/bleu"])
    rows = [
        [f"{step:,.0f}", *(f"{v[step]:.4f}" if step in v else "" for v in values.values())]
        for step in steps[-_MAX_ROWS:]
    ]
    left_out = len(steps) - len(rows)
    summary = "All validations" if not left_out else f"The last {_MAX_ROWS} validations"
    validations = table(titles, rows, numbers=range(len(titles)))
    return (
        f'<h2>Curves</h2>\n<div class="charts">{charts}</div>\n'
        f"<details><summary>{summary}</summary>{validations}</details>\n"
    )


def _others_curves(other: OtherRun, names: Mapping[str, str]) -> dict[str, Points]:
    """Return the other run's validations on the same text, by their labels.

    Args:
        other: the other run.
        names: this run's metrics by their labels.
    """
    curves: dict[str, Points] = {}
    for label, name in names.items():
        kind = name.rpartition("/")[2]
        theirs = other.same_sets.get(_set_name(name)) if name.startswith("valid/") else None
        if theirs is not None:
            metric = f"valid/{kind}" if theirs == "valid" else f"valid/{theirs}/{kind}"
            curves[f"{label}, {other.run}"] = other.curves.get(metric, [])
    return curves


def _data(report: RunReport) -> str:
    title = "<h2>Data</h2>\n"
    if not report.data:
        return f"{title}<p>The run has no record of its data.</p>\n"
    rows = []
    for split, counts in report.data.get("counts", {}).items():
        reasons = ", ".join(f"{n:,} {reason}" for reason, n in counts["left_out"].items() if n)
        rows.append([split, f"{counts['read']:,}", f"{counts['kept']:,}", reasons or "none"])
    parts = [title, table(["split", "pairs read", "kept", "left out"], rows, numbers=(1, 2))]
    parts += [f"<p>{shown(warning)}</p>\n" for warning in report.data.get("warnings", [])]
    lengths = report.data.get("lengths", {})
    if lengths:
        titles = ["tokens in training", *(f"{q} %" for q in lengths["percentiles"])]
        sides = [[side, *(f"{n:,}" for n in lengths[side])] for side in ("source", "target")]
        parts.append(table(titles, sides, numbers=range(1, len(titles))))
    if found := report.data.get("histogram"):
        counts = {side: found[side] for side in ("source", "target")}
        parts.append("<h3>Training sentences by length</h3>\n")
        parts.append(histogram(spans(found["bounds"]), counts, "tokens"))
    if found := report.data.get("ratios"):
        starts, ends = found["bounds"], found["bounds"][1:]
        labels = [f"{start:g} to {end:g}" for start, end in zip(starts, ends, strict=False)]
        labels.append(f"{starts[-1]:g} or more")
        parts.append("<h3>Training pairs by length ratio</h3>\n")
        parts.append(histogram(labels, {"pairs": found["pairs"]}, "target per source tokens"))
    return "".join(parts)


def _configuration(report: RunReport) -> str:
    parts = ["<h2>Differences from the paper</h2>\n"]
    if report.fidelity:
        rows = [
            [
                str(row.number),
                row.detail.name,
                row.detail.paper or "silent",
                row.finding.here,
                row.finding.verdict,
            ]
            for row in report.fidelity
        ]
        parts.append(table(["#", "detail", "the paper", "here", "verdict"], rows))
    else:
        parts.append("<p>None.</p>\n")
    if report.other_run is not None:
        name, settings = report.other_run.run, report.other_run.settings
        rows = [[key, str(mine), str(theirs)] for key, (mine, theirs) in settings.items()]
        parts.append(f"<h2>Settings that differ from {shown(name)}</h2>\n")
        parts.append(table(["key", "this run", name], rows) if rows else "<p>None.</p>\n")
    rows = [[key, str(value)] for key, value in report.config.items()]
    command = shown(report.command, most=len(report.command))
    parts.append(
        f"<h2>Configuration</h2>\n<p>To train it again:</p>\n<pre>{command}</pre>\n<details>"
        "<summary>Every setting</summary>"
        f"{table(['key', 'value'], rows)}</details>\n"
    )
    return "".join(parts)
