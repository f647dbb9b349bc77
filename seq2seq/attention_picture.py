"""Attention as a picture: a heat map a head, the words along its sides (Figures 3-5)."""

import io
import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from seq2seq.errors import UserError

FORMATS = ("svg", "png", "pdf")
MAX_PIECES = 100
"""Of a side that can still be read in a picture."""

_FONT = "DejaVu Sans"  # matplotlib brings it along; it has SentencePiece's word mark
_NO_GLYPH = "\N{REPLACEMENT CHARACTER}"  # for what no installed font draws
_CELL = 0.2  # inches, enough for a line of the font's 9 points
_MAX_PIXELS = 10_000  # a side of a .png, which would not fit into memory at any size


def draw_heads(
    heads: dict[str, Tensor], rows: Sequence[str], columns: Sequence[str], file_format: str
) -> bytes:
    """Draw the weights of some heads, dark where a row's piece attends to a column's.

    Args:
        heads: by its title, each head's weights (rows, columns).
        rows: pieces that attend.
        columns: pieces that are attended to.
        file_format: one of FORMATS.

    Raises:
        UserError: too many pieces for a picture, or matplotlib is not installed.
    """
    longest = max(len(rows), len(columns))
    if longest > MAX_PIECES:
        raise UserError(
            f"{longest} pieces are too many for a picture (at most {MAX_PIECES}):"
            " take a shorter text, or --json"
        )
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UserError("a picture needs matplotlib: pip install matplotlib") from None
    fonts, missing = _fonts_for({*"".join(rows), *"".join(columns)})
    unknown = str.maketrans(dict.fromkeys(missing, _NO_GLYPH))
    row_labels = [piece.translate(unknown) for piece in rows]
    column_labels = [piece.translate(unknown) for piece in columns]
    across = min(len(heads), 4)
    down = math.ceil(len(heads) / across)
    # Room for the longest piece on a label, about half a cell a character.
    width = across * _CELL * (len(columns) + max(map(len, row_labels)) / 2 + 2) + 1.5
    height = down * _CELL * (len(rows) + max(map(len, column_labels)) / 2 + 3) + 0.5
    figure = Figure(figsize=(width, height), layout="constrained")
    panels = figure.subplots(down, across, squeeze=False).flatten()
    # Pieces are what they are, not mathematics between dollar signs.
    style: dict[str, Any] = {"fontfamily": fonts, "fontsize": 9, "parse_math": False}
    for axes, (title, weights) in zip(panels, heads.items(), strict=False):
        image = axes.imshow(weights.cpu().numpy(), cmap="Blues", vmin=0.0, vmax=1.0)
        axes.set_title(title, fontfamily=_FONT, fontsize=10)
        axes.set_xticks(range(len(columns)), column_labels, rotation=90, **style)
        axes.set_yticks(range(len(rows)), row_labels, **style)
        axes.tick_params(length=0)
    for axes in panels[len(heads) :]:
        axes.set_axis_off()
    bar = figure.colorbar(image, ax=panels, aspect=30, pad=0.01, shrink=min(1.0, 4 / height))
    bar.set_label("weight that a row's piece gives to a column's", fontfamily=_FONT, fontsize=9)
    file = io.BytesIO()
    dpi = min(150.0, _MAX_PIXELS / max(width, height))
    figure.savefig(file, format=file_format, dpi=dpi)
    return file.getvalue()


def _fonts_for(characters: set[str]) -> tuple[list[str], set[str]]:
    """The fonts it takes to draw characters, of those installed, and what none of them has."""
    from matplotlib.font_manager import (
        FontProperties,
        findfont,
        findSystemFonts,
        fontManager,
        get_font,
    )

    def drawn_by(path: str) -> set[str]:
        font = get_font(path)
        return {character for character in missing if font.get_char_index(ord(character))}

    fonts, missing = [_FONT], characters
    missing = missing - drawn_by(findfont(_FONT))
    for path in sorted(findSystemFonts()) if missing else ():
        try:
            if not drawn_by(path):
                continue
            if path not in {entry.fname for entry in fontManager.ttflist}:
                fontManager.addfont(path)
            name = get_font(path).family_name
            # Of its family the member that will be taken.
            drawn = drawn_by(findfont(FontProperties(family=[name])))
        except (OSError, RuntimeError):  # damaged, or of bitmaps
            continue
        if drawn and "lastresort" not in name.replace(" ", "").lower():  # boxes for everything
            fonts.append(name)
            missing = missing - drawn
    return fonts, missing
