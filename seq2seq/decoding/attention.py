"""Attention maps: the weights of each attention for a sentence pair, and their pictures."""

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from seq2seq.decoding.attended import read_attentions
from seq2seq.errors import UserError
from seq2seq.tokenizer import END_ID, START_ID, Tokenizer
from seq2seq.transformer import Transformer

FORMATS = ("svg", "png", "pdf")
MAX_PIECES = 100
"""Most pieces per side of a picture, for the labels to be readable."""

_FONT = "DejaVu Sans"  # comes with matplotlib; has SentencePiece's word mark
_NO_GLYPH = "\N{REPLACEMENT CHARACTER}"  # drawn for characters that no installed font has
_CELL = 0.2  # inches, enough for a line of text in 9 points
_MAX_PIXELS = 10_000  # per side of a .png, which must fit into memory


@dataclass(frozen=True)
class AttentionMaps:
    """The weights of every attention for one sentence pair; L layers, H heads."""

    source: list[str]  # S pieces, the last of them ``</s>``
    target_input: list[str]  # T pieces read, the first of them the start symbol
    target_output: list[str]  # T pieces written, the last of them ``</s>``
    encoder: Tensor = field(repr=False)  # (L, H, S, S): of source positions, to each other
    decoder: Tensor = field(repr=False)  # (L, H, T, T): of target positions, to each other
    cross: Tensor = field(repr=False)  # (L, H, T, S): of target positions, to source positions

    def record(
        self,
        kind: str,
        layer: int | str | None = None,
        head: int | str = "all",
        most: float = math.inf,
    ) -> dict[str, Any]:
        """Return the weights of a layer (by default the last) and a head as JSON has them.

        Both are counted from 1, or "all". `weights` is a list [layer][head][row][column]; the
        pieces of the rows attend to those of the columns. A target position attends to the source
        for the piece that it writes. Raises UserError if there are more than `most` weights.
        """
        rows = {"encoder": self.source, "decoder": self.target_input, "cross": self.target_output}
        weights = getattr(self, kind)
        layers = _choose("layer", len(weights) if layer is None else layer, len(weights))
        heads = _choose("head", head, weights.shape[1])
        chosen = weights[layers[0] - 1 : layers[-1], heads[0] - 1 : heads[-1]]
        if chosen.numel() > most:
            raise UserError(f"these are {chosen.numel():,} weights: ask for one layer, or one head")
        return {
            "kind": kind,
            "layers": layers,
            "heads": heads,
            "rows": rows[kind],
            "columns": self.target_input if kind == "decoder" else self.source,
            "weights": [[weights.tolist() for weights in of_layer] for of_layer in chosen],
        }


def _choose(name: str, choice: int | str, count: int) -> list[int]:
    numbers = list(range(1, count + 1))
    if choice == "all":
        return numbers
    if str(choice) not in map(str, numbers):
        raise UserError(f"{name} {choice}: must be from 1 to {count} for this model, or all")
    return [int(choice)]


@torch.no_grad()
def record_attention(
    model: Transformer, tokenizer: Tokenizer, source_ids: list[int], target_ids: list[int]
) -> AttentionMaps:
    """Run a model on a sentence pair and record the weights of each attention (equation 1).

    The model must be in evaluation mode; the ids are without start and end symbols.
    """
    source, target_input = [*source_ids, END_ID], [START_ID, *target_ids]
    device = next(model.parameters()).device
    attentions = {
        "encoder": [getattr(layer, "self_attention", layer) for layer in model.encoder.layers],
        "decoder": [getattr(layer, "self_attention", layer) for layer in model.decoder.layers],
        "cross": [getattr(layer, "cross_attention", layer) for layer in model.decoder.layers],
    }
    ids = torch.tensor([source], device=device), torch.tensor([target_input], device=device)
    calls = read_attentions(model, chain(*attentions.values()), *ids)
    weights: dict[nn.Module, Tensor] = {call.module: call.weights().squeeze(0) for call in calls}
    for module in chain(*attentions.values()):
        if module not in weights:
            raise UserError(
                f"{type(module).__name__} has no weights to draw: it doesn't call equation_1 of"
                " MultiHeadAttention"
            )
    return AttentionMaps(
        source=tokenizer.source_pieces(source),
        target_input=tokenizer.pieces(target_input),
        target_output=tokenizer.pieces([*target_ids, END_ID]),
        **{
            kind: torch.stack([weights[m] for m in modules]) for kind, modules in attentions.items()
        },
    )


def draw_heads(
    heads: dict[str, Tensor], rows: Sequence[str], columns: Sequence[str], file_format: str
) -> bytes:
    """Draw the weights (rows, columns) of heads, by panel title; a dark cell is a large weight.

    The pieces of the rows attend to those of the columns.
    """
    longest = max(len(rows), len(columns))
    if longest > MAX_PIECES:
        raise UserError(
            f"{longest} pieces are too many for a picture (at most {MAX_PIECES}):"
            " give a shorter text, or use --json"
        )
    from matplotlib.figure import Figure

    fonts, missing = _fonts_for({*"".join(rows), *"".join(columns)})
    unknown = str.maketrans(dict.fromkeys(missing, _NO_GLYPH))
    row_labels = [piece.translate(unknown) for piece in rows]
    column_labels = [piece.translate(unknown) for piece in columns]
    across = min(len(heads), 4)
    down = math.ceil(len(heads) / across)
    # Room for the longest label, about half a cell per character.
    width = across * _CELL * (len(columns) + max(map(len, row_labels)) / 2 + 2) + 1.5
    height = down * _CELL * (len(rows) + max(map(len, column_labels)) / 2 + 3) + 0.5
    figure = Figure(figsize=(width, height), layout="constrained")
    panels = figure.subplots(down, across, squeeze=False).flatten()
    # Without parse_math, a dollar sign in a piece would begin a formula.
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
    """Find the installed fonts that draw the characters, and the characters that none has."""
    from matplotlib.font_manager import FontProperties, findfont, fontManager, get_font

    fonts, missing = [], characters
    for name in dict.fromkeys((_FONT, *sorted(fontManager.get_font_names()))):
        if not missing:
            break
        # matplotlib chooses one member of the family, by name: check that one.
        font = get_font(findfont(FontProperties(family=[name])))
        drawn = {character for character in missing if font.get_char_index(ord(character))}
        # A "last resort" font has a box for every character.
        if drawn and "lastresort" not in name.replace(" ", "").lower():
            fonts.append(name)
            missing = missing - drawn
    return fonts, missing
