"""Tables of text."""

import textwrap
from collections.abc import Iterable, Sequence
from itertools import zip_longest


def table(
    titles: Iterable[Sequence[str]], rows: Iterable[Sequence[str]], widths: Sequence[int]
) -> str:
    """Columns of fixed widths; what is too long for its cell goes on below."""
    rule = "-+-".join("-" * width for width in widths)
    lines = [*_lines(titles, widths), rule, *_lines(rows, widths)]
    return "\n".join(line.rstrip() for line in lines)


def _lines(rows: Iterable[Sequence[str]], widths: Sequence[int]) -> Iterable[str]:
    for row in rows:
        cells = [textwrap.wrap(c, width) or [""] for c, width in zip(row, widths, strict=True)]
        for parts in zip_longest(*cells, fillvalue=""):
            yield " | ".join(part.ljust(width) for part, width in zip(parts, widths, strict=True))
