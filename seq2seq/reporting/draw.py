"""Texts, tables and bars of the page."""

import math
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from html import escape

from seq2seq.reporting.buckets import Bucket
from seq2seq.reporting.comparison import Attention

MAX_TEXT = 1000
"""Characters of a text that are shown."""
_JOINERS = "\t\u200c\u200d"  # in many scripts a part of words
_BAR = 120  # pixels


def bucket_table(
    buckets: Sequence[Bucket], values: str, other: str = "", theirs: Sequence[Bucket] = ()
) -> str:
    """Draw the scores of buckets and, beside them, those of another system.

    Args:
        buckets: of one kind.
        values: what they are divided by.
        other: the name of the other system.
        theirs: its buckets, the same as those of the run; empty if there is none.
    """
    metric = buckets[0].metric
    top = max(100.0, *(bucket.high for bucket in (*buckets, *theirs)))
    titles = [values, "words" if metric == "F1" else "lines"]
    titles += [f"{metric}, this run" if theirs else metric, "interval", "bar"]
    titles += [f"{metric}, {other}", f"interval, {other}", "bar"] if theirs else []
    rows = []
    for place, bucket in enumerate(buckets):
        cells = [shown(_span(bucket)), f"{bucket.count:,}"]
        for one in (bucket, *theirs[place : place + 1]):
            cells += [f"{one.value:.2f}", interval(one.low, one.high)]
            cells.append(bar(one.value / top, one.low / top, one.high / top))
        rows.append(cells)
    return rows_table(map(shown, titles), rows, numbers=(1, 2, 3, 5, 6))


def histogram(labels: Sequence[str], counts: dict[str, Sequence[int]], values: str) -> str:
    """Draw one or two series of counts.

    Args:
        labels: of the rows.
        counts: of each row, by the name of the series.
        values: what the labels are.
    """
    top = max(1, *(count for side in counts.values() for count in side))
    titles = [values, *(title for side in counts for title in (side, "bar"))]
    rows = []
    for place, label in enumerate(labels):
        cells = [shown(label)]
        for side in counts.values():
            cells += [f"{side[place]:,}", bar(side[place] / top)]
        rows.append(cells)
    return rows_table(map(shown, titles), rows, numbers=(1, 3))


def spans(bounds: Sequence[int]) -> list[str]:
    """Name the integers from each bound to the next."""
    return [_range(start, end) for start, end in zip(bounds, [*bounds[1:], None], strict=True)]


def interval(low: float, high: float) -> str:
    """Write an interval; nothing for one without width, as that of a single line is."""
    return f"{low:.2f} to {high:.2f}" if low < high else ""


def bar(share: float, low: float | None = None, high: float | None = None) -> str:
    """Draw a share from 0 to 1 and, if there is one, its interval."""
    kind, whisker = "bars", ""
    if low is not None and high is not None and low < high:
        kind = "bars interval"
        whisker = f'<path class="whisker" d="M{_BAR * low:.1f} 8H{_BAR * high:.1f}"/>'
    return (
        f'<svg class="{kind}" aria-hidden="true" width="{_BAR}" height="16"'
        f' viewBox="0 0 {_BAR} 16">'
        f'<rect class="bar" y="3" height="10" width="{_BAR * share:.1f}"/>{whisker}</svg>'
    )


def _span(bucket: Bucket) -> str:
    return bucket.kind or _range(bucket.start, bucket.end)


def _range(start: int, end: int | None) -> str:
    if end is None:
        return f"{start:,} or more"
    return f"{start:,}" if end == start + 1 else f"{start:,} to {end - 1:,}"


def table(titles: Sequence[str], rows: Iterable[Sequence[str]], numbers: Iterable[int] = ()) -> str:
    """Make a table of texts; some columns, counted from 0, hold numbers."""
    return rows_table(map(shown, titles), [list(map(shown, row)) for row in rows], numbers)


def rows_table(titles: Iterable[str], rows: Iterable[Sequence[str]], numbers: Iterable[int]) -> str:
    """Make a table of cells that are HTML; some columns, counted from 0, hold numbers."""
    right = set(numbers)

    def row(cells: Iterable[str], tag: str, scope: str = "") -> str:
        drawn = [
            f"<{tag}{scope}{' class=number' if column in right else ''}>{cell}</{tag}>"
            for column, cell in enumerate(cells)
        ]
        return f"<tr>{''.join(drawn)}</tr>\n"

    body = "".join(row(cells, "td") for cells in rows)
    head = row(titles, "th", " scope=col")
    return f'<div class="wide"><table><thead>{head}</thead><tbody>{body}</tbody></table></div>\n'


def shown(text: str, most: int = MAX_TEXT) -> str:
    """Escape a text, cut it, and spell out what can't be seen or would reorder its neighbors."""
    if len(text) > most:
        text = text[:most] + "…"
    visible = (
        f"\\u{ord(c):04x}"
        if unicodedata.category(c) in ("Cc", "Cf", "Cs") and c not in _JOINERS
        else c
        for c in text
    )
    return escape("".join(visible))


Points = Sequence[tuple[float, float]]

_WIDTH, _HEIGHT = 420, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 10, 12, 28
_MAX_POINTS = 400
_LEVELS = 8
_CELL = 16
_LEAST_SPAN = 1e-100  # of an axis; its ticks must differ


def draw_curves(title: str, curves: Mapping[str, Points]) -> str:
    """Draw curves by step, thinned out to at most 400 points each; "" if there are no points."""
    thinned = {name: _thin(points) for name, points in curves.items()}
    thinned = {name: points for name, points in thinned.items() if points}
    if not thinned:
        return ""
    xs = [x for points in thinned.values() for x, _ in points]
    ys = [y for points in thinned.values() for _, y in points]
    right = max(xs) or 1.0
    ticks = _ticks(min(ys), max(ys))
    bottom, top = ticks[0], ticks[-1]

    def place(x: float, y: float) -> str:
        across = _LEFT + (_WIDTH - _LEFT - _RIGHT) * x / right
        down = _TOP + (_HEIGHT - _TOP - _BOTTOM) * (top - y) / (top - bottom)
        return f"{across:.1f},{down:.1f}"

    parts = []
    for value in ticks:
        y = place(0, value).partition(",")[2]
        parts.append(f'<path class="grid" d="M{_LEFT} {y}H{_WIDTH - _RIGHT}"/>')
        parts.append(
            f'<text x="{_LEFT - 6}" y="{y}" dy=".35em" class="right">{_number(value)}</text>'
        )
    for step in sorted({round(right * tick / 3) for tick in range(4)}):
        x = place(step, bottom).partition(",")[0]
        anchor = "left" if step == 0 else "right" if step >= right else "middle"
        parts.append(f'<text x="{x}" y="{_HEIGHT - 8}" class="{anchor}">{step:,.0f}</text>')
    for number, (name, points) in enumerate(thinned.items()):
        line = " ".join(place(x, y) for x, y in points)
        last = f"{name}: {points[-1][1]:.4g} at step {points[-1][0]:,.0f}"
        parts.append(
            f'<polyline class="curve c{number % 4}" points="{line}">'
            f"<title>{shown(last)}</title></polyline>"
        )
        if len(points) == 1:
            x, y = place(*points[0]).split(",")
            parts.append(f'<circle class="dot c{number % 4}" cx="{x}" cy="{y}" r="3"/>')
    legend = "".join(
        f'<span class="key c{number % 4}">{shown(name)}</span>'
        for number, name in enumerate(thinned)
    )
    return (
        f"<figure><figcaption>{shown(title)} {legend}</figcaption>"
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{shown(title)} by step">'
        f"{''.join(parts)}</svg></figure>"
    )


def draw_attention(attention: Attention) -> str:
    """Draw a heat map; a strong cell is a large weight. Weights below 1/16 are left out."""
    labels = 7 * min(max(map(len, attention.rows)), 14) + 8
    above = 7 * min(max(map(len, attention.columns)), 14) + 8
    width = labels + _CELL * len(attention.columns) + 4
    height = above + _CELL * len(attention.rows) + 4
    levels: dict[int, list[str]] = {}
    for row, weights in enumerate(attention.weights):
        for column, weight in enumerate(weights):
            if level := min(_LEVELS, round(weight * _LEVELS)):
                cell = f"M{labels + column * _CELL} {above + row * _CELL}h{_CELL}v{_CELL}h-{_CELL}z"
                levels.setdefault(level, []).append(cell)
    parts = [
        f'<path class="cell" fill-opacity="{level / _LEVELS:.3g}" d="{"".join(cells)}"/>'
        for level, cells in sorted(levels.items())
    ]
    for row, piece in enumerate(attention.rows):
        y = above + row * _CELL + _CELL / 2
        parts.append(
            f'<text x="{labels - 4}" y="{y}" dy=".35em" class="right">{_label(piece)}</text>'
        )
    for column, piece in enumerate(attention.columns):
        x = labels + column * _CELL + _CELL / 2
        parts.append(
            f'<text transform="translate({x} {above - 4}) rotate(-90)" dy=".35em">'
            f"{_label(piece)}</text>"
        )
    return (
        f'<svg class="map" width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
        f' role="img" aria-label="attention, output pieces in rows, source pieces in columns">'
        f"{''.join(parts)}</svg>"
    )


def _label(piece: str) -> str:
    return shown(piece if len(piece) <= 14 else piece[:13] + "…")


def _thin(points: Points) -> list[tuple[float, float]]:
    finite = [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)]
    every = math.ceil(len(finite) / _MAX_POINTS) or 1
    kept = finite[::every]
    return kept if not finite or kept[-1] == finite[-1] else [*kept, finite[-1]]


def _ticks(low: float, high: float) -> list[float]:
    """Choose round values, at most eight, that enclose the range."""
    span = max(high - low or abs(high) or 1.0, _LEAST_SPAN)
    step = 10.0 ** math.floor(math.log10(span / 3))
    step *= next(factor for factor in (1, 2, 5, 10) if span / (step * factor) <= 5)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [step * place for place in range(first, max(last, first + 1) + 1)]


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
