"""The attention of a sentence pair against equation 1 in NumPy, and its picture."""

import io

import numpy as np
import pytest
import torch
from matplotlib.image import imread
from torch import Tensor, nn

from seq2seq.config import Positions
from seq2seq.decoding.attention import draw_heads
from seq2seq.errors import UserError
from seq2seq.tokenizer import END_ID, START_ID, Tokenizer
from seq2seq.transformer import MultiHeadAttention
from tests.conftest import MakeTrained
from tests.decoding.translators import new_translator

SOURCE, TARGET = "a man sees the sea.", "nobody paints an apple."


def equation_1(attention: MultiHeadAttention, x: Tensor, memory: Tensor) -> np.ndarray:
    """softmax(Q K^T / sqrt(d_k)) of each head (H, T, S), without a mask."""
    w_q, w_k = (linear.weight.numpy() for linear in (attention.w_q, attention.w_k))  # (H x K, D)
    heads = []
    for q, k in zip(np.split(w_q, 2), np.split(w_k, 2), strict=True):
        query, key = x[0].numpy() @ q.T, memory[0].numpy() @ k.T
        heads.append(np.exp(query @ key.T / np.sqrt(len(q))))
    exponentials = np.stack(heads)
    return exponentials / exponentials.sum(-1, keepdims=True)


def test_the_weights_are_equation_1_of_each_attention_between_the_pieces(
    make_trained: MakeTrained, tokenizer: Tokenizer
) -> None:
    trained = make_trained()
    trained.model.train()
    translator = new_translator(trained)
    model, inputs = translator.models[0], {}

    def keep(module: nn.Module, given: tuple) -> None:
        inputs[module] = given

    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            module.register_forward_pre_hook(keep)
    found = translator.attention(SOURCE, TARGET)
    source, target = tokenizer.encode([SOURCE, TARGET])
    assert found.source == tokenizer.pieces([*source, END_ID])
    assert found.target_input == tokenizer.pieces([START_ID, *target])
    record = found.record("cross")
    assert record["rows"] == tokenizer.pieces([*target, END_ID])
    assert record["columns"] == found.source
    kinds = {
        "encoder": [layer.self_attention for layer in model.encoder.layers],
        "decoder": [layer.self_attention for layer in model.decoder.layers],
        "cross": [layer.cross_attention for layer in model.decoder.layers],
    }
    for kind, attentions in kinds.items():
        weights = getattr(found, kind)
        expected = np.stack([equation_1(a, *inputs[a][:2]) for a in attentions])
        if kind == "decoder":
            assert (weights.triu(1) == 0).all()
            expected = np.tril(expected)
            expected /= expected.sum(-1, keepdims=True)
        assert weights.dtype == torch.float32
        np.testing.assert_allclose(weights.numpy(), expected, rtol=0, atol=1e-6)
        np.testing.assert_allclose(weights.sum(-1).numpy(), 1.0, rtol=0, atol=1e-6)


def test_layers_and_heads_are_counted_from_1(make_trained: MakeTrained) -> None:
    maps = new_translator(make_trained()).attention(SOURCE, TARGET)
    assert maps.record("cross")["layers"] == [2]
    for layer, head, name in ((0, 1, "layer 0"), (3, 1, "layer 3"), (1, 0, "head 0")):
        with pytest.raises(UserError, match=f"^{name}: must be from 1 to 2"):
            maps.record("cross", layer, head)


def test_blank_and_too_long_texts_are_refused(make_trained: MakeTrained) -> None:
    trained = make_trained(positions=Positions.learned, max_learned_positions=80)
    translator = new_translator(trained, max_extra_tokens=50)
    translator.attention(SOURCE, TARGET)
    for source, target, complaint in (
        ("", TARGET, "one is blank"),
        (SOURCE, " \t", "one is blank"),
        (SOURCE, TARGET * 20, "the target has"),
    ):
        with pytest.raises(UserError, match=complaint):
            translator.attention(source, target)


def test_a_row_attends_to_a_column_in_the_picture() -> None:
    weights = torch.zeros(3, 9)
    weights[0, 8] = 1.0
    drawn = draw_heads({"one": weights}, ["r"] * 3, ["c"] * 9, "png")
    red, green, blue = np.moveaxis(imread(io.BytesIO(drawn))[..., :3], 2, 0)
    navy = (red < 0.1) & (abs(green - 0.188) < 0.02) & (abs(blue - 0.42) < 0.02)
    panel = (abs(red - 0.969) < 0.01) & (abs(green - 0.984) < 0.01) & (blue > 0.99)
    rows, columns = np.nonzero(panel)
    # The color bar has the cell's navy in a few lines on the far right.
    found_rows, found_columns = np.nonzero(navy & (np.arange(navy.shape[1]) < columns.max() + 30))
    assert len(found_rows) > 300
    assert np.median(found_rows) < rows.min() + (rows.max() - rows.min()) / 3
    assert np.median(found_columns) > columns.min() + (columns.max() - columns.min()) * 8 / 9
    # Four panels stand side by side, the fifth below them.
    height, width = drawn_size(dict.fromkeys("abcd", weights))
    assert height == len(red)
    assert drawn_size(dict.fromkeys("abcde", weights)) == pytest.approx(
        (2 * height, width), rel=0.2
    )


def drawn_size(heads: dict[str, torch.Tensor]) -> tuple[int, ...]:
    return imread(io.BytesIO(draw_heads(heads, ["r"] * 3, ["c"] * 9, "png"))).shape[:2]


@pytest.mark.parametrize("file_format", ["svg", "png", "pdf"])
def test_pieces_of_any_script_are_drawn(file_format: str) -> None:
    """Warnings are errors: neither a missing glyph nor mathematics may raise one."""
    pieces = ["▁Hund", "▁犬", "🐕", "$x$", "$\\frac{$", "_^", "\ud800", "</s>"]
    heads = {f"head {number}": torch.full((8, 8), 1 / 8) for number in (1, 2)}
    drawn = draw_heads(heads, pieces, pieces, file_format)
    assert drawn.startswith({"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}[file_format])
    if file_format == "svg":
        text = drawn.decode()
        assert all(f"<!-- {title} -->" in text for title in heads)
        assert text.count("<!-- ▁Hund -->") == 2 * len(heads)
        assert text.count("<!-- � -->") >= 2 * len(heads)  # \ud800 is no character
