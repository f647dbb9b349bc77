"""The curves of the page, by matplotlib."""

import io
import math
from collections.abc import Mapping, Sequence

Points = Sequence[tuple[float, float]]

COLORS = ("#0b62b8", "#b3470b", "#2b7a3d", "#7b3fa0")
"""Of curves: the page's `--c0` to `--c3`."""
_DASHES = ("-", (0, (4, 2)), (0, (1, 1.5)), (0, (5, 2, 1, 2)))
_INK, _GRID = "#5b6570", "#d5dbe1"  # the page's --soft and --line
_MAX_POINTS = 300  # of a curve


def curves_svg(curves: Mapping[str, Points]) -> str:
    """Draw curves by step as SVG in the page's colors; "" if there are no points."""
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    thinned = {name: _thin(points) for name, points in curves.items()}
    if not any(thinned.values()):
        return ""
    # Text stays text, and equal curves give equal bytes.
    with matplotlib.rc_context(
        {"svg.fonttype": "none", "svg.hashsalt": "seq2seq", "font.family": "DejaVu Sans"}
    ):
        figure = Figure(figsize=(4.2, 2.2))
        axes = figure.add_axes((0.15, 0.12, 0.81, 0.82))
        for number, points in enumerate(thinned.values()):
            axes.plot(
                [x for x, _ in points],
                [y for _, y in points],
                color=COLORS[number % 4],
                linestyle=_DASHES[number % 4],
                marker="o" if len(points) == 1 else "",
                markersize=4,
                clip_on=False,
            )
        axes.grid(axis="y", color=_GRID, clip_on=False)
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0, labelsize=10.5, labelcolor=_INK)
        axes.set_xlim(0, max(x for points in thinned.values() for x, _ in points) or 1)
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
    drawn = content.getvalue()
    drawn = drawn[drawn.index("<svg") :]
    names = {color: f"--c{number}" for number, color in enumerate(COLORS)}
    for color, name in (names | {_INK: "--soft", _GRID: "--line"}).items():
        drawn = drawn.replace(color, f"var({name})")
    return drawn


def _thin(points: Points) -> list[tuple[float, float]]:
    finite = [(x, y) for x, y in points if math.isfinite(x) and math.isfinite(y)]
    every = math.ceil(len(finite) / _MAX_POINTS) or 1
    kept = finite[::every]
    return kept if not finite or kept[-1] == finite[-1] else [*kept, finite[-1]]
