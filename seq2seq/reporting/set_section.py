"""The page's section of a test set: health, comparison, scores of its parts, and samples."""

from seq2seq.reporting.comparison import LineChange, SetComparison
from seq2seq.reporting.curves import draw_attention
from seq2seq.reporting.samples import Sample, differing_parts
from seq2seq.reporting.sets import HEALTH, SetReport
from seq2seq.reporting.tables import MAX_TEXT, bucket_table, interval, rows_table, shown, table

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
