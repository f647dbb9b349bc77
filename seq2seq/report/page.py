"""The page: a report as one HTML file without scripts, links or anything to load.

The templates escape every text, and `escape_text` spells out what can't be seen, so that what comes
from a corpus, a model or a configuration is shown and not interpreted.
"""

import io
import math
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from typing import Any, TypeAlias

from markupsafe import Markup

from seq2seq.decoding.translation import WARNINGS
from seq2seq.report.run_report import RunReport
from seq2seq.report.sets import differing_parts
from seq2seq.run.records import bleu_by_set, set_name

Points: TypeAlias = Sequence[tuple[float, float]]

_COLORS = ("#0b62b8", "#b3470b", "#2b7a3d", "#7b3fa0")
_INK, _GRID = "#5b6570", "#d5dbe1"
# The page's own colors, which are others in the dark.
_VARIABLES = {_INK: "soft", _GRID: "line"} | {c: f"c{i}" for i, c in enumerate(_COLORS)}
_DASHES = ("-", (0, (4, 2)), (0, (1, 1.5)), (0, (5, 2, 1, 2)))
_MAX_POINTS = 300  # of a curve
MAX_TEXT = 1000
"""Characters of a text that are shown."""
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
    """Draw the page of a run."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("seq2seq.report"),
        autoescape=True,
        finalize=escape_text,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html").render(
        report=report,
        bleus=bleu_by_set,
        charts=_charts(report),
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
    escaped = ""
    for c in value:
        is_seen = unicodedata.category(c) not in ("Cc", "Cf", "Cs") or c in _JOINERS
        escaped += c if is_seen else f"\\u{ord(c):04x}"
    return escaped


def _charts(report: RunReport) -> list[Chart]:
    bleus = {set_name(name): name for name in report.curves if name.endswith("/bleu")}
    charts = []
    for title, metrics in _CHARTS.items():
        curves, last = dict[str, Points](), {}
        for label, name in (metrics or bleus).items():
            points = report.curves.get(name, [])
            if title == _LOSS:
                points = [(step, math.log(value)) for step, value in points if value > 0]
            if points:
                curves[label] = points
                last[label] = f"{points[-1][1]:.4g} at step {points[-1][0]:,.0f}"
        if curves:
            charts.append(Chart(title, Markup(curves_svg(curves)), last))
    return charts


def curves_svg(curves: Mapping[str, Points]) -> str:
    """Draw curves by step as SVG in the page's colors."""
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    # Text stays text, and equal curves give equal bytes.
    with matplotlib.rc_context(
        {"svg.fonttype": "none", "svg.hashsalt": "seq2seq", "font.family": "DejaVu Sans"}
    ):
        figure = Figure(figsize=(4.2, 2.2))
        axes = figure.add_axes((0.15, 0.12, 0.81, 0.82))
        for number, points in enumerate(curves.values()):
            axes.plot(
                *zip(*points[:: -(len(points) // _MAX_POINTS + 1)], strict=True),  # with the last
                color=_COLORS[number % 4],
                linestyle=_DASHES[number % 4],
                marker="o" if len(points) == 1 else "",
                markersize=4,
                clip_on=False,
            )
        axes.grid(axis="y", color=_GRID, clip_on=False)
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0, labelsize=10.5, labelcolor=_INK)
        axes.set_xlim(0, max(map(itemgetter(0), chain(*curves.values()))) or 1)
        axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.yaxis.set_major_locator(MaxNLocator(5))
        axes.yaxis.set_major_formatter(lambda y, _: f"{y:,.0f}" if abs(y) >= 1000 else f"{y:.3g}")
        content = io.StringIO()
        figure.savefig(
            content,
            format="svg",
            transparent=True,
            metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")),
        )
    svg = content.getvalue()
    svg = svg[svg.index("<svg") :]
    for color, name in _VARIABLES.items():
        svg = svg.replace(color, f"var(--{name})")
    return svg
