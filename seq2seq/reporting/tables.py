"""Texts, tables and bars of the page."""

import unicodedata
from collections.abc import Iterable, Sequence
from html import escape

from seq2seq.reporting.buckets import Bucket

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
