"""The report: every detail, what the paper and its code say of it, and what is here."""

import json
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from seq2seq.reproduction import embedding, recipe, residuals, search, sublayers, training
from seq2seq.reproduction.layout import table
from seq2seq.reproduction.paper import DETAILS, Detail
from seq2seq.reproduction.subject import Finding, Subject

_MEASURES: tuple[Callable[[Subject], Finding], ...] = (
    residuals.residual_norm_dropout,
    residuals.norm_after_the_last_layer,
    residuals.inner_dropout,
    residuals.norm_epsilon,
    embedding.positions,
    embedding.embedding_scale,
    embedding.shared_matrix,
    embedding.decoder_start,
    sublayers.attention_biases,
    sublayers.attention_formula,
    sublayers.feed_forward_formula,
    sublayers.initialisation,
    training.label_smoothing,
    training.loss_normalisation,
    training.adam,
    training.learning_rates,
    recipe.batch,
    recipe.steps,
    recipe.dropout_rate,
    recipe.averaging,
    search.beam,
    search.length_penalties,
    search.longest_output,
    recipe.vocabulary,
    recipe.evaluation_sets,
    recipe.bleu_variants,
    recipe.cost,
)

_TITLES = ("#", "detail", "the paper", "its code of 2017", "here, measured", "verdict")
_WIDTHS = (2, 16, 21, 21, 32, 13)
_COLUMNS = 120


@dataclass(frozen=True)
class Row:
    """One line of the report."""

    number: int
    detail: Detail
    finding: Finding


def examine(subject: Subject) -> list[Row]:
    """Measure every detail."""
    threads = torch.get_num_threads()
    # So little is computed at a time that threads would only wait for each other.
    torch.set_num_threads(1)
    try:
        findings = [measure(subject) for measure in _MEASURES]
    finally:
        torch.set_num_threads(threads)
    return [
        Row(number, detail, finding)
        for number, (detail, finding) in enumerate(zip(DETAILS, findings, strict=True), start=1)
    ]


def as_text(rows: Sequence[Row]) -> str:
    """A table of at most 120 columns, and how many details are whose."""
    return f"{table([_TITLES], map(_cells, rows), _WIDTHS)}\n\n{summary(rows)}"


def _cells(row: Row) -> tuple[str, ...]:
    detail, finding = row.detail, row.finding
    return (
        str(row.number),
        detail.name,
        detail.paper,
        detail.authors,
        finding.here,
        finding.verdict,
    )


def summary(rows: Sequence[Row]) -> str:
    """How many details are as the paper, as its code, or neither."""
    paper = sum(bool(row.finding.paper) for row in rows)
    silent = sum(row.finding.paper is None and not row.finding.differs for row in rows)
    authors = sum(row.finding.paper is False and not row.finding.differs for row in rows)
    odd = [str(row.number) for row in rows if row.finding.differs]
    sentence = (
        f"{len(rows)} details: {paper} as the paper; {silent} as the authors' code, the paper being"
        f" silent; {authors} as the authors' code against the paper; {len(odd)} differ"
    )
    return textwrap.fill(sentence + (f" ({', '.join(odd)})" if odd else ""), _COLUMNS)


def as_json(rows: Sequence[Row]) -> str:
    """The same for programs: a list of objects."""
    return json.dumps(
        [
            {
                "number": row.number,
                "detail": row.detail.name,
                "paper": row.detail.paper,
                "tensor2tensor": row.detail.authors,
                "here": row.finding.here,
                "as_the_paper": row.finding.paper,
                "as_the_authors": row.finding.authors,
                "verdict": row.finding.verdict,
            }
            for row in rows
        ],
        indent=2,
        ensure_ascii=False,
    )
