"""The report: every detail with the claims of paper and tensor2tensor and the finding."""

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import ModuleType

import torch
from tabulate import tabulate

from seq2seq.fidelity import decoding, embedding, layers, optimization, recipe, results
from seq2seq.fidelity.detail import Detail, Finding, Subject

COLUMNS = 120


def _details(*modules: ModuleType) -> list[Detail]:
    return [
        value for module in modules for value in vars(module).values() if isinstance(value, Detail)
    ]


MODEL_DETAILS = _details(layers, embedding)
"""The details of a model alone, whose training is not known."""
DETAILS = MODEL_DETAILS + _details(optimization, recipe, decoding, results)

_TITLES = ("#", "detail", "the paper", "tensor2tensor", "here, measured", "verdict")
_WIDTHS = (2, 16, 21, 21, 29, 13)


@dataclass(frozen=True)
class Row:
    """A line of the report."""

    number: int
    detail: Detail
    finding: Finding


def examine(subject: Subject, details: Sequence[Detail] = DETAILS) -> list[Row]:
    """Measure every detail."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the computations are too small for several threads
    try:
        return [Row(i, detail, detail(subject)) for i, detail in enumerate(details, start=1)]
    finally:
        torch.set_num_threads(threads)


def as_text(rows: Sequence[Row]) -> str:
    """Format the report as a table of at most 120 columns, and a summary."""
    return f"{text_table(map(_cells, rows), _TITLES, _WIDTHS)}\n\n{summary(rows)}"


def _cells(row: Row) -> tuple[str, ...]:
    detail, finding = row.detail, row.finding
    claims = (detail.paper or "silent", detail.tensor2tensor or "not known")
    return (str(row.number), detail.name, *claims, finding.here, finding.verdict)


def summary(rows: Sequence[Row]) -> str:
    """Count the details that agree with the paper, with tensor2tensor, or with neither."""
    paper = sum(bool(row.finding.paper) for row in rows)
    others = [
        row.finding.paper for row in rows if not row.finding.paper and not row.finding.differs
    ]
    differing = [str(row.number) for row in rows if row.finding.differs]
    listed = f" ({', '.join(differing)})" if differing else ""
    return textwrap.fill(
        f"{len(rows)} details: {paper} as the paper; {others.count(None)} as tensor2tensor, the"
        f" paper being silent; {others.count(False)} as tensor2tensor against the paper;"
        f" {len(differing)} differ{listed}",
        COLUMNS,
    )


def as_records(rows: Sequence[Row]) -> list[dict[str, object]]:
    """Return the report as flat records; a missing claim is None."""
    return [
        {
            "number": row.number,
            "detail": row.detail.name,
            "paper": row.detail.paper,
            "tensor2tensor": row.detail.tensor2tensor,
            "here": row.finding.here,
            "as_paper": row.finding.paper,
            "as_tensor2tensor": row.finding.tensor2tensor,
            "verdict": row.finding.verdict,
        }
        for row in rows
    ]


def text_table(rows: Iterable[Sequence[str]], titles: Sequence[str], widths: Sequence[int]) -> str:
    """Format rows in columns of at most these widths, wrapping long cells."""
    return tabulate(
        rows, titles, tablefmt="presto", maxcolwidths=list(widths), disable_numparse=True
    )
