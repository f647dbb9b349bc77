"""Table 3 of the paper (section 6.2), compared with runs."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

from seq2seq.errors import UserError
from seq2seq.fidelity.report import COLUMNS, text_table
from seq2seq.sizes import TransformerConfig
from seq2seq.train import TrainingConfig

Setting = int | float | str | None
WIDTHS = ("d_model", "d_ff", "d_k", "d_v")


@dataclass(frozen=True)
class PaperRow:
    """A row of the table: its settings, and its scores on newstest2013."""

    name: str
    """As in conf/experiment/table3/<name>.yaml."""
    settings: Mapping[str, Setting]
    """The settings that differ from base."""
    perplexity: float
    """Per word piece."""
    bleu: float
    millions: int | None = None
    """Parameters in millions, where the paper prints them."""

    def overrides(self, divisor: int = 1) -> list[str]:
        """Write the settings as overrides of `seq2seq train`, with all widths divided."""
        words = []
        for name, value in self.settings.items():
            section = "training" if name == "label_smoothing" else "model"
            if name in WIDTHS and isinstance(value, int):
                value //= divisor
            words.append(f"{section}.{name}={value}")
        return words


def table_settings(config: TransformerConfig, label_smoothing: float) -> dict[str, Setting]:
    """Return the settings that the table varies; d_k and d_v of d_model / num_heads are None."""
    derived = config.d_model // config.num_heads
    names = ("num_layers", "d_model", "d_ff", "num_heads", "dropout")
    return {
        **{name: getattr(config, name) for name in names},
        "d_k": None if config.key_width == derived else config.key_width,
        "d_v": None if config.value_width == derived else config.value_width,
        "label_smoothing": label_smoothing,
        "positions": config.positions.value,
    }


BASE = table_settings(TransformerConfig(), TrainingConfig.label_smoothing)
"""The settings of the base model."""

_BIG = {"d_model": 1024, "d_ff": 4096, "num_heads": 16, "dropout": 0.3}

ROWS = (
    PaperRow("base", {}, 4.92, 25.8, 65),
    PaperRow("A_h1", {"num_heads": 1}, 5.29, 24.9),
    PaperRow("A_h4", {"num_heads": 4}, 5.00, 25.5),
    PaperRow("A_h16", {"num_heads": 16}, 4.91, 25.8),
    PaperRow("A_h32", {"num_heads": 32}, 5.01, 25.4),
    PaperRow("B_dk16", {"d_k": 16}, 5.16, 25.1, 58),
    PaperRow("B_dk32", {"d_k": 32}, 5.01, 25.4, 60),
    PaperRow("C_n2", {"num_layers": 2}, 6.11, 23.7, 36),
    PaperRow("C_n4", {"num_layers": 4}, 5.19, 25.3, 50),
    PaperRow("C_n8", {"num_layers": 8}, 4.88, 25.5, 80),
    PaperRow("C_dmodel256", {"d_model": 256}, 5.75, 24.5, 28),
    PaperRow("C_dmodel1024", {"d_model": 1024}, 4.66, 26.0, 168),
    PaperRow("C_dff1024", {"d_ff": 1024}, 5.12, 25.4, 53),
    PaperRow("C_dff4096", {"d_ff": 4096}, 4.75, 26.2, 90),
    PaperRow("D_dropout0", {"dropout": 0.0}, 5.77, 24.6),
    PaperRow("D_dropout02", {"dropout": 0.2}, 4.95, 25.5),
    PaperRow("D_eps0", {"label_smoothing": 0.0}, 4.67, 25.3),
    PaperRow("D_eps02", {"label_smoothing": 0.2}, 5.47, 25.7),
    PaperRow("E_learned_positions", {"positions": "learned"}, 4.92, 25.7),
    PaperRow("big", _BIG, 4.33, 26.4, 213),
)


@dataclass(frozen=True)
class TableRun:
    """A run to compare with the table, as of its last validation; its settings are `BASE`'s."""

    name: str
    settings: Mapping[str, Setting]
    seed: int
    step: int
    perplexity: float
    bleu: float
    parameters: int


@dataclass(frozen=True)
class Line:
    """The runs of a row, one for each seed, with the row of the paper, if there is one.

    The scores are means, and the spreads the highest of the runs minus the lowest.
    """

    runs: Sequence[TableRun]
    row: PaperRow | None
    change: str
    """The settings that differ from base's, under the paper's names."""
    perplexity: float
    bleu: float
    perplexity_spread: float
    bleu_spread: float
    perplexity_minus_base: float
    bleu_minus_base: float


def changed(settings: Mapping[str, Setting], base: Mapping[str, Setting]) -> dict[str, Setting]:
    """Return the settings that differ from base's."""
    return {name: value for name, value in settings.items() if value != base[name]}


def compare(runs: Sequence[TableRun]) -> list[Line]:
    """Match runs with rows of the table, in its order.

    Runs that agree in all settings of the table are the seeds of one row. The base row is the one
    from which the others differ in the fewest settings; of several, the one closest to the paper's.
    """
    rows: list[list[TableRun]] = []
    for run in runs:
        row = next((row for row in rows if row[0].settings == run.settings), [])
        if not row:
            rows.append(row)
        for other in row:
            if run.seed == other.seed or run.step != other.step:
                raise UserError(
                    f"{run.name} (seed {run.seed}, step {run.step:,}) has the settings of"
                    f" {other.name} (seed {other.seed}, step {other.step:,}): runs of a row have"
                    " different seeds and the same number of steps"
                )
        row.append(run)
    base = min(
        rows,
        key=lambda row: (
            sum(len(changed(other[0].settings, row[0].settings)) for other in rows),
            len(changed(row[0].settings, BASE)),
        ),
    )
    lines = [_line(row, base) for row in rows]
    return sorted(lines, key=lambda line: ROWS.index(line.row) if line.row else len(ROWS))


def _line(runs: Sequence[TableRun], base: Sequence[TableRun]) -> Line:
    settings, base_settings = runs[0].settings, base[0].settings
    changes = changed(settings, base_settings)
    rows = [row for row in ROWS if _is_same_change(row, settings, base_settings)]
    symbols = {"num_layers": "N", "num_heads": "h", "label_smoothing": "eps"}
    change = ", ".join(f"{symbols.get(name, name)} {value}" for name, value in changes.items())
    scores = dict[str, float]()
    for name in _SCORES:
        own, of_base = ([getattr(run, name) for run in row] for row in (runs, base))
        scores |= {name: mean(own), f"{name}_spread": max(own) - min(own)}
        scores[f"{name}_minus_base"] = mean(own) - mean(of_base)
    return Line(runs=runs, row=rows[0] if rows else None, change=change or "base", **scores)


def _is_same_change(
    row: PaperRow, settings: Mapping[str, Setting], base: Mapping[str, Setting]
) -> bool:
    """Return whether a run changes the settings of a row, widths by the same factor."""
    if set(row.settings) != set(changed(settings, base)):
        return False
    for name, value in row.settings.items():
        if name in WIDTHS:
            factor = _width(settings, name) / _width(base, name)
            if factor != _width({**BASE, name: value}, name) / _width(BASE, name):
                return False
        elif settings[name] != value:
            return False
    return True


def _width(settings: Mapping[str, Setting], name: str) -> float:
    value = settings[name]
    if value is None:
        return _width(settings, "d_model") / _width(settings, "num_heads")
    return float(value)


_TITLES = (
    *("row", "perplexity\nhere", "perplexity\npaper", "BLEU\nhere", "BLEU\npaper"),
    "million\n(paper)",
)
_SCORES = {"perplexity": "perplexity", "bleu": "BLEU"}
_WIDTHS = [26, 13, 12, 13, 11, 11]


def as_text(lines: Sequence[Line]) -> str:
    """Format a table of at most 100 columns, with the differences from base in parentheses."""
    table = text_table(map(_cells, lines), _TITLES, maxcolwidths=_WIDTHS)
    return "\n".join([table, "", *_seeds(lines), *_orderings(lines)])


def _seeds(lines: Sequence[Line]) -> list[str]:
    """Say of how many seeds a row is the mean, and how far they are from one another."""
    fewest, most = (bound(len(line.runs) for line in lines) for bound in (min, max))
    if most == 1:
        return []
    spreads = []
    for name, title in _SCORES.items():
        values = [getattr(line, f"{name}_spread") for line in lines if len(line.runs) > 1]
        spreads.append(f"{mean(values):.2f} in {title} (at most {max(values):.2f})")
    count = most if fewest == most else f"{fewest} to {most}"
    differ = " and ".join(spreads)
    return [f"A row is the mean of {count} seeds, which differ on average by {differ}."]


def _cells(line: Line) -> tuple[str, ...]:
    row, base = line.row, ROWS[0]
    return (
        f"{row.name if row else 'not in the table'}: {line.change}",
        f"{line.perplexity:.2f} ({line.perplexity_minus_base:+.2f})",
        f"{row.perplexity:.2f} ({row.perplexity - base.perplexity:+.2f})" if row else "",
        f"{line.bleu:.2f} ({line.bleu_minus_base:+.2f})",
        f"{row.bleu:.1f} ({row.bleu - base.bleu:+.1f})" if row else "",
        f"{line.runs[0].parameters / 1e6:.1f}"
        + (f" ({row.millions})" if row and row.millions else ""),
    )


def _orderings(lines: Sequence[Line]) -> list[str]:
    """Count the rows that are on the same side of base as in the paper, by each score."""
    sentences = []
    base = next(line for line in lines if line.change == "base")
    for name, title in _SCORES.items():
        sides, unclear = {True: list[str](), False: list[str]()}, []
        for line in lines:
            if line.row is None or getattr(line.row, name) == getattr(ROWS[0], name):
                continue
            paper = getattr(line.row, name) - getattr(ROWS[0], name)
            here = getattr(line, f"{name}_minus_base")
            sides[here * paper > 0].append(line.row.name)
            spread = max(getattr(one, f"{name}_spread") for one in (line, base))
            if spread and abs(here) <= spread:
                unclear.append(line.row.name)
        same, other = sides[True], sides[False]
        if same or other:
            rest = f"; not {', '.join(other)}" if other else ""
            count = f"{title}: {len(same)} of {len(same) + len(other)} rows"
            sentence = f"{count} are on the same side of base as in the paper{rest}"
            if unclear:
                listed = ", ".join(unclear)
                sentence += f". No farther from base than seeds are from one another: {listed}"
            sentences.append(textwrap.fill(sentence, COLUMNS))
    return sentences
