"""Draw Figures 1 and 2 of the paper with the names in transformer.py and the paper's sections.

    python scripts/architecture.py

writes data/pictures/architecture.svg.
"""

import argparse
from html import escape
from pathlib import Path

FILE = Path(__file__).parents[1] / "data" / "pictures" / "architecture.svg"
WIDTH, HEIGHT = 1060, 745
ENCODER, DECODER, DETAIL = 170, 535, 880  # the middles of the columns
BOX, TALL, LOW = 230, 44, 30  # a box's width, its height with two lines and with one
SUM = HEIGHT - 135  # where embeddings and positions are added
FOOT = SUM - 44  # where the layers begin
SUBLAYER = 22 + TALL + 14 + LOW  # the height of a sublayer with its norm

STYLE = """
text { font: 13px "Helvetica Neue", Arial, sans-serif; fill: #1f2328; text-anchor: middle }
.code { font: 12px "DejaVu Sans Mono", Menlo, Consolas, monospace }
.small { font-size: 11px; fill: #59636e }
.left { text-anchor: start } .right { text-anchor: end }
rect, circle { stroke: #59636e; fill: none }
.page { fill: #ffffff; stroke: none } .frame { fill: #f3f4f6 }
.attention { fill: #fde3c3 } .forward { fill: #cfe8f5 } .norm { fill: #f7f3bf }
.embedding { fill: #f9dcdc } .project { fill: #dfdcf3 } .softmax { fill: #d4efd9 }
path { stroke: #59636e; fill: none; stroke-width: 1.3 } marker path { fill: #59636e; stroke: none }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .small { fill: #b8c0ca } .page { fill: #0d1117 } .frame { fill: #1b212a }
.attention { fill: #6b4413 } .forward { fill: #14506b } .norm { fill: #56520f }
.embedding { fill: #652b2b } .project { fill: #3d3775 } .softmax { fill: #1d5229 }
rect, circle, path { stroke: #9198a1 } marker path { fill: #9198a1 }
}
"""

drawn: list[str] = []


def text(x: float, y: float, words: str, kind: str = "") -> None:
    """Write words around, left or right of x, with their baseline at y."""
    drawn.append(f'<text x="{x:g}" y="{y:g}" class="{kind}">{escape(words)}</text>')


def rectangle(x: float, y: float, width: float, height: float, kind: str) -> None:
    """Draw a rectangle whose left upper corner is (x, y)."""
    drawn.append(
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="7" class="{kind}"/>'
    )


def box(
    x: float, y: float, kind: str, title: str, more: str = "", section: str = "", width: float = BOX
) -> float:
    """Draw a box around x that stands on y; return its upper end."""
    height = TALL if more else LOW
    top = y - height
    rectangle(x - width / 2, top, width, height, kind)
    text(x, top + 19, title, "code")
    text(x, top + 36, more, "small")
    text(x + width / 2 - 7, top + 14, section, "small right")
    return top


def arrow(*points: tuple[float, float], head: bool = True) -> None:
    """Draw a line through some points, with a head at its end."""
    way = "L".join(f"{x:g} {y:g}" for x, y in points)
    drawn.append(f'<path d="M{way}"' + (' marker-end="url(#head)"/>' if head else "/>"))


def frame(x: float, top: float, bottom: float, title: str, section: str) -> None:
    """Draw the frame of a class around a column."""
    left, width = x - BOX / 2 - 30, BOX + 48
    rectangle(left, top, width, bottom - top, "frame")
    text(left + 12, top + 19, title, "code left")
    text(left + width - 10, top + 19, section, "small right")


def sublayer(x: float, y: float, name: str, kind: str, made_by: str, section: str) -> float:
    """Draw LayerNorm(x + Dropout(Sublayer(x))) upwards from y; return its upper end."""
    arrow((x, y), (x, y - 22))
    top = box(x, y - 22, kind, made_by, name, section)
    arrow((x, top), (x, top - 14))
    end = box(x, top - 14, "norm", "LayerNorm(x + Dropout(…))")
    around, norm = x - BOX / 2 - 16, (top - 14 + end) / 2
    arrow((x, y - 10), (around, y - 10), (around, norm), (x - BOX / 2, norm))
    return end


def stack(x: float, name: str, tokens: str, *sublayers: tuple[str, str, str, str]) -> float:
    """Draw a stack from its tokens to its output; return the upper end of its layers."""
    text(x, HEIGHT - 12, tokens, "code")
    arrow((x, HEIGHT - 28), (x, HEIGHT - 46))
    top = box(x, HEIGHT - 46, "embedding", "Embedding", "times √d_model", "3.4")
    arrow((x, top), (x, SUM + 9))
    drawn.append(f'<circle cx="{x}" cy="{SUM}" r="9"/>')
    text(x, SUM + 5, "+")
    text(x + 12, SUM - 14, "Dropout", "small left")
    y = FOOT
    top = y - len(sublayers) * SUBLAYER - 34
    frame(x, top, FOOT + 8, name, "3.1")
    arrow((x, SUM - 9), (x, FOOT), head=False)
    for one in sublayers:
        y = sublayer(x, y, *one)
    arrow((x, y), (x, top - 26))
    return top - 26


def draw() -> str:
    """Return the picture."""
    text(25, 35, "Transformer(source, target_input)", "code left")
    text(DETAIL, HEIGHT - 12, "Numbers are the sections of the paper.", "small")
    attention = ("attention", "MultiHeadAttention", "3.2.2")
    feed_forward = ("feed_forward", "forward", "FeedForward", "3.3")
    memory = stack(
        ENCODER,
        "EncoderLayer × N",
        "embed(source)",
        ("self_attention", *attention),
        feed_forward,
    )
    states = stack(
        DECODER,
        "DecoderLayer × N",
        "embed(target_input)",
        ("self_attention, causal_mask", *attention),
        ("cross_attention", *attention),
        feed_forward,
    )
    # 3.5: one table of positions for both stacks
    middle = (ENCODER + DECODER) / 2
    box(middle, SUM + LOW / 2, "embedding", "PositionalEncoding", width=160)
    text(middle, SUM + LOW / 2 + 14, "3.5", "small")
    arrow((middle - 80, SUM), (ENCODER + 9, SUM))
    arrow((middle + 80, SUM), (DECODER - 9, SUM))
    # the encoder's output, read by each layer of the decoder
    text(ENCODER, memory - 8, "encode(source)", "code")
    cross, between = FOOT - SUBLAYER - 22 - TALL / 2, middle - 6
    text(ENCODER + 64, memory - 18, "memory", "small left")
    start = (ENCODER + 60, memory - 12)
    arrow(start, (between, memory - 12), (between, cross), (DECODER - BOX / 2, cross))
    # 3.4: the same matrix before the softmax
    text(DECODER - 14, states + 17, "decode(target_input, memory)", "code right")
    top = box(DECODER, states, "project", "project", "by the matrix of the embedding", "3.4")
    arrow((DECODER, top), (DECODER, top - 20))
    text(DECODER, top - 44, "logits (B, T, V)", "code")
    text(DECODER, top - 28, "softmax: in the loss and in the search", "small")
    draw_attention(20, 330)
    draw_feed_forward(350, FOOT + 8)
    return page()


def draw_attention(top: float, bottom: float) -> None:
    """Draw Figure 2: the heads of one multi-head attention."""
    frame(DETAIL, top, bottom, "MultiHeadAttention", "3.2.2")
    columns = {"w_q": ("x", -80), "w_k": ("memory", 0), "w_v": ("memory", 80)}
    split = 0.0
    for name, (read, shift) in columns.items():
        text(DETAIL + shift, bottom - 10, read, "small")
        arrow((DETAIL + shift, bottom - 22), (DETAIL + shift, bottom - 36))
        end = box(DETAIL + shift, bottom - 36, "project", name, width=70)
        split = end - 16
        arrow((DETAIL + shift, end), (DETAIL + shift, split))
    column(
        box(DETAIL, split, "norm", "split_heads"),
        ("attention", "attention", "softmax(Q Kᵀ / √d_k) V, masked", "3.2.1"),
        ("norm", "concatenate_heads"),
        ("project", "w_o"),
    )


def draw_feed_forward(top: float, bottom: float) -> None:
    """Draw equation 2."""
    frame(DETAIL, top, bottom, "FeedForward", "3.3")
    text(DETAIL, bottom - 10, "x", "small")
    column(
        bottom - 22,
        ("forward", "inner", "x W₁ + b₁: (B, T, d_ff)"),
        ("norm", "relu"),
        ("forward", "outer", "… W₂ + b₂: (B, T, D)"),
    )


def column(above: float, *boxes: tuple[str, ...]) -> None:
    """Draw boxes upwards from a height, each with an arrow to it, and one out of the last."""
    for kind, *words in boxes:
        arrow((DETAIL, above), (DETAIL, above - 14))
        above = box(DETAIL, above - 14, kind, *words)
    arrow((DETAIL, above), (DETAIL, above - 18))


def page() -> str:
    """Return what was drawn as a file."""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}">',
            f"<style>{STYLE}</style>",
            '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8"'
            ' orient="auto"><path d="M0 0L8 4L0 8z"/></marker>',
            f'<rect class="page" width="{WIDTH}" height="{HEIGHT}"/>',
            *drawn,
            "</svg>\n",
        ]
    )


def main() -> None:
    """Write the file."""
    argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0]).parse_args()
    FILE.write_text(draw())


if __name__ == "__main__":
    main()
