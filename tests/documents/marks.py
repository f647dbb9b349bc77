"""Texts with marks, written as one string: `<b>`, `</b>`, `<br/>` and `{name}`."""

import re
from collections.abc import Callable, Sequence

from seq2seq.decoding.alignment import Alignment
from seq2seq.decoding.translation import Candidate, Translation
from seq2seq.documents.document import Mark, Text, write_text
from seq2seq.documents.projection import Shown, SpanLink, place, show
from seq2seq.documents.translate import Plan


def read(marked: str) -> Text:
    return tuple(
        part if part[0] not in "<{" else Mark(part, kind(part))
        for part in re.split(r"(<[^>]*>|\{\w+\})", marked)
        if part
    )


def kind(raw: str) -> str:
    return (
        "word" if raw[0] == "{" else
        "close" if raw[1] == "/" else
        "alone" if raw[-2] == "/" else
        "open"
    )  # fmt: skip


def link_words(source: str, target: str, links: str) -> list[SpanLink]:
    """Make links of pairs `i-j` of words and signs, counted from 0."""
    words = [[found.span() for found in re.finditer(r"\w+|[^\w\s]", t)] for t in (source, target)]
    pairs = [map(int, pair.split("-")) for pair in links.split()]
    return [SpanLink(words[0][i], words[1][j]) for i, j in pairs]


def run_plan(plan: Plan, translate: Callable[[str], str]) -> list[Text]:
    """Translate what a plan asks for, each word linked to the one in its place."""
    asked = plan.lines
    while asked:
        found = [Candidate(translate(line), 0.0, [], False) for line in asked]
        asked = plan.take([Translation([candidate]) for candidate in found])
    return plan.place([Alignment.verbatim(line) for line, _ in plan.pairs()])


def transfer(marked: str, target: str, links: str, stand_ins: Sequence[str] = ()) -> str:
    shown: Shown = show(read(marked), stand_ins)
    return write_text(place(shown, target, link_words(shown.line, target, links)))
