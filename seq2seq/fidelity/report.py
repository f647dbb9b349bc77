"""The report: every detail with the claims of paper and tensor2tensor and the finding."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import compress
from types import ModuleType

import torch
from tabulate import tabulate

from seq2seq.fidelity import decoding, embedding, layers, optimization, recipe, results
from seq2seq.fidelity.detail import Detail, Finding, Subject

COLUMNS = 100
text_table = partial(tabulate, tablefmt="simple", disable_numparse=True)
"""Format rows under titles, with cells that wrap at `maxcolwidths`."""


def _details(*modules: ModuleType) -> list[Detail]:
    return [
        value for module in modules for value in vars(module).values() if isinstance(value, Detail)
    ]


MODEL_DETAILS = _details(layers, embedding)
"""The details of a model alone, whose training is not known."""
DETAILS = MODEL_DETAILS + _details(optimization, recipe, decoding, results)

_TITLES = ("#", "detail", "the paper", "tensor2tensor", "here, measured", "verdict")
_WIDTHS = [2, 14, 22, 15, 22, 13]


@dataclass(frozen=True)
class Row:
    """A line of the report: a detail and what was found; None where a claim is missing."""

    number: int
    detail: str
    paper: str | None
    tensor2tensor: str | None
    here: str
    as_paper: bool | None
    as_tensor2tensor: bool | None
    verdict: str


def examine(subject: Subject, details: Sequence[Detail] = DETAILS) -> list[Row]:
    """Measure every detail."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the computations are too small for several threads
    try:
        found = [detail(subject) for detail in details]
    finally:
        torch.set_num_threads(threads)
    return [_row(i, *both) for i, both in enumerate(zip(details, found, strict=True), start=1)]


def _row(number: int, detail: Detail, found: Finding) -> Row:
    as_paper = found.paper if detail.paper else None
    as_tensor2tensor = found.tensor2tensor if detail.tensor2tensor else None
    names = compress(("the paper", "tensor2tensor"), (as_paper, as_tensor2tensor))
    verdict = f"as {' and '.join(names)}" if not found.differs else "differs"
    claims = detail.name, detail.paper, detail.tensor2tensor
    return Row(number, *claims, found.here, as_paper, as_tensor2tensor, verdict)


def as_text(rows: Sequence[Row]) -> str:
    """Format the report as a table of at most `COLUMNS` columns, and a summary."""
    cells = (
        (r.number, r.detail, r.paper or "silent", r.tensor2tensor or "not known", r.here, r.verdict)
        for r in rows
    )
    return f"{text_table(cells, _TITLES, maxcolwidths=_WIDTHS)}\n\n{summary(rows)}"


def summary(rows: Sequence[Row]) -> str:
    """Count the details that agree with the paper, with tensor2tensor, or with neither."""
    verdicts = [(row.as_paper, row.verdict) for row in rows]
    paper = sum(bool(as_paper) for as_paper, _ in verdicts)
    silent, against = (verdicts.count((kind, "as tensor2tensor")) for kind in (None, False))
    differing = [str(row.number) for row in rows if row.verdict == "differs"]
    listed = f" ({', '.join(differing)})" if differing else ""
    return textwrap.fill(
        f"{len(rows)} details: {paper} as the paper; {silent} as tensor2tensor, the"
        f" paper being silent; {against} as tensor2tensor against the paper;"
        f" {len(differing)} differ{listed}",
        COLUMNS,
    )
