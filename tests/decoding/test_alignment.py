"""Alignments against the norms of Kobayashi et al. written out, and where their spans stand."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from seq2seq.config import Positions, TransformerConfig
from seq2seq.decoding import alignment, attention, linking
from seq2seq.decoding.alignment import Alignment
from seq2seq.decoding.attended import read_attentions
from seq2seq.decoding.linking import KnownText, PiecePair
from seq2seq.decoding.segments import LengthLimits, make_segments
from seq2seq.decoding.translation import Candidate, Translation
from seq2seq.decoding.translator import Translator
from seq2seq.errors import UserError
from seq2seq.model_folder import (
    AlignmentStep,
    TrainedModel,
    load_model,
    new_transformer,
    save_alignment,
    save_model,
)
from seq2seq.tokenizer import END_ID, START_ID, Tokenizer
from seq2seq.transformer import MultiHeadAttention, Transformer
from tests.conftest import MakeModel, MakeTrained
from tests.decoding.translators import new_translator
from tests.models import ALL_MODERN

SOURCE, TARGET = "a man sees the sea.", "nobody paints an apple."


def norms_written_out(model: Transformer, tokenizer: Tokenizer, layer: int) -> Tensor:
    """||sum_h weight_h(t, s) W_h^O value_h(s)|| (T, S), head by head and position by position."""
    module: Any = model.decoder.layers[layer - 1].cross_attention
    assert isinstance(module, MultiHeadAttention)
    memories = []
    hook = module.register_forward_pre_hook(lambda _, inputs: memories.append(inputs[1]))
    ids = tokenizer.encode([SOURCE])[0], tokenizer.encode_target([TARGET])[0]
    weights = attention.record_attention(model, tokenizer, *ids).cross[layer - 1]  # (H, T, S)
    hook.remove()
    heads, targets, sources = weights.shape
    value = nn.functional.linear(memories[0][0], module.w_v.weight, module.w_v.bias)
    values = value.chunk(model.config.kv_heads, dim=-1)  # each (S, d_v)
    output = module.w_o.weight.chunk(heads, dim=1)  # each (D, d_v)
    norms = torch.zeros(targets, sources, dtype=torch.float64)
    for t in range(targets):
        for s in range(sources):
            vectors = [
                weights[h, t, s] * (output[h] @ values[h * len(values) // heads][s])
                for h in range(heads)
            ]
            norms[t, s] = torch.stack(vectors).sum(0).norm()
    return norms


@pytest.mark.parametrize(
    "choices",
    [{}, {"attention_bias": True, "num_layers": 3}, {"num_decoder_layers": 1}, ALL_MODERN],
)
def test_a_piece_is_linked_to_the_source_piece_of_the_largest_norm(
    choices: dict[str, Any], make_model: MakeModel, tokenizer: Tokenizer
) -> None:
    model = make_model(vocab_size=tokenizer.vocab_size, **choices)
    layer = model.config.decoder_depth
    expected = norms_written_out(model, tokenizer, layer)
    source, target = tokenizer.encode([SOURCE])[0], tokenizer.encode_target([TARGET])[0]
    ids = torch.tensor([[*source, END_ID]]), torch.tensor([[START_ID, *target]])
    attentions = [layer.get_submodule("cross_attention") for layer in model.decoder.layers]
    *_, last = read_attentions(model, attentions, *ids)
    torch.testing.assert_close(
        last.shares()[0].double(), expected / expected.sum(1, keepdim=True), rtol=1e-5, atol=1e-6
    )
    batch = [PiecePair([*source, END_ID], target), PiecePair([*source * 2, END_ID], target[:2])]

    def links(*steps: AlignmentStep) -> list[tuple[int, int]]:
        # Whatever shares the batch.
        models = [model] * len(steps)
        found, mutual = linking.align_pieces(models, batch, controls=0, steps=steps)[0]
        shares = expected / expected.sum(1, keepdim=True)
        norms = shares[1:, :-1] if steps[0].reads else shares[:-1, :-1]
        assert mutual == [(i, j) for i, j in found if norms[:, i].argmax() == j]
        return found

    # The step that reads a piece, or the one that writes it; without `</s>`.
    reads, writes = AlignmentStep(layer, True), AlignmentStep(layer, False)
    assert links(reads) == [(i, j) for j, i in enumerate(expected[1:, :-1].argmax(1).tolist())]
    assert links(writes) == [(i, j) for j, i in enumerate(expected[:-1, :-1].argmax(1).tolist())]
    # Two equal models agree with each of them.
    assert links(reads, reads) == links(reads)
    # A control symbol is neither linked nor counted; final stops are linked to each other alone.
    with_control = PiecePair([source[0], *source, END_ID], target, stops=True)
    ((found, mutual),) = linking.align_pieces([model], [with_control], controls=1, steps=[reads])
    last = len(source) - 1
    assert [i == last for i, _ in found] == [False] * (len(target) - 1) + [True]
    assert min(i for i, _ in found) >= 0
    assert (last, len(target) - 1) in mutual


def word_for_word(vocab_size: int, *, distracted: bool) -> Transformer:
    """Build a model that writes the next id of each id of its source, in the same order.

    Half of the dimensions have the place and the others the word, and so have the heads. Layer 1
    of the decoder only looks: for the word that was read itself or, if `distracted`, for the one
    whose translation was read. Layer 2 writes the translation of the word in the same place; if
    `distracted`, it also adds more of the first place, on which no output depends.
    """
    torch.manual_seed(1)
    half = 64
    config = TransformerConfig(num_layers=2, d_model=2 * half, d_ff=8, num_heads=2, dropout=0.0)
    model: Any = new_transformer(config, vocab_size).eval()
    # Words are where the encoding of any place is about zero. They are as long as each other and
    # their sum is zero, so that no norm of a layer makes one louder.
    words, following = torch.zeros(vocab_size, half), torch.zeros(half, half)
    quarter = nn.functional.normalize(torch.randn(vocab_size, half // 4), dim=1)
    words[:, ::2] = torch.cat([quarter, -quarter], dim=1)
    turn = torch.linalg.qr(torch.randn(half // 4, half // 4)).Q
    following[::2, ::2] = torch.block_diag(turn, turn)
    for number in range(END_ID + 1, vocab_size):
        words[number] = following @ words[number - 1]  # the translation of the one before
    none, one = torch.zeros(half, half), torch.eye(half)
    subtracted, first_place = none.clone(), none.clone()
    subtracted[:, ::2] = -2 / half  # adds what norms have subtracted to a place
    first_place[1::2] = subtracted[1::2] + subtracted[1::2].roll(1, dims=1).neg()

    def set_blocks(matrix: nn.Linear, *of_four: Tensor) -> None:
        rows = torch.cat(of_four[:2], dim=1), torch.cat(of_four[2:], dim=1)
        matrix.weight.copy_(torch.cat(rows))

    with torch.no_grad():
        model.embedding.weight.copy_(torch.cat([torch.zeros(vocab_size, half), words], dim=1))
        for name, parameter in model.named_parameters():
            if name.endswith(("w_o.weight", "outer.weight")):
                parameter.mul_(1e-4)  # a layer returns what it reads
        looks, writes = (layer.cross_attention for layer in model.decoder.layers)
        set_blocks(looks.w_q, none, 4 * one, none, none)
        set_blocks(looks.w_k, none, 4 * (following if distracted else one), none, none)
        set_blocks(looks.w_v, none, one, none, none)
        set_blocks(writes.w_q, 30 * one, 30 * subtracted, none, 30 * first_place)
        set_blocks(writes.w_k, 8 * one, 8 * subtracted, 8 * one, 8 * subtracted)
        set_blocks(writes.w_v, none, one, one, none)
        set_blocks(writes.w_o, none, (64 if distracted else 0) * one, 8 * following, none)
    return model


@pytest.mark.parametrize("distracted", [False, True])
def test_the_step_is_chosen_that_names_the_pieces_which_a_translation_depends_on(
    tokenizer: Tokenizer, distracted: bool
) -> None:
    model = word_for_word(tokenizer.vocab_size, distracted=distracted)
    trained = TrainedModel(model, tokenizer, "en", "de")
    expected = AlignmentStep(1, reads=True) if distracted else AlignmentStep(2, reads=False)
    assert linking.choose_step(trained) == expected
    ids = torch.arange(10, 30, 2).tolist()
    pairs = [PiecePair([*ids, END_ID], [number + 1 for number in ids])]
    ((links, _),) = linking.align_pieces([model], pairs, controls=0, steps=[expected])
    assert links == [(i, i) for i in range(len(ids))]


@pytest.fixture(scope="module")
def translator(make_trained: MakeTrained) -> Translator:
    return new_translator(make_trained(), workers=2, sentences=True, beam_size=2)


def linked(found: Alignment) -> list[tuple[str, str]]:
    source, target = found.source, found.target
    return [
        (source[slice(*found.source_spans[i])], target[slice(*found.target_spans[j])])
        for i, j in found.pieces
    ]


def test_a_translation_is_aligned_segment_by_segment(translator: Translator) -> None:
    line = " 1) a man sees the sea.  nobody paints. 42"
    (translation,) = translator.translate([line])
    (found,) = translator.alignments([line], [translation])
    pairs = [(part, its.text) for _, part, its in translation.parts if part]
    assert [source for source, _ in pairs] == ["a man sees the sea.", "nobody paints."]
    expected = [("1", "1"), (")", ")")]
    for one in translator.alignments(*zip(*pairs, strict=True)):
        assert len(one.pieces) > 1
        expected += linked(one)
    assert linked(found) == [*expected, ("4", "4"), ("2", "2")]
    assert (found.source, found.target) == (line, translation.text)


TEXTS = [
    "man",
    "a man",
    "🐕",
    "☀️ ",
    "(a)",
    "1) ",
    "- ",
    "man@sea.en",
    "42",
    ". ",
    "。",
    "\t",
    " ",
    "\u2028",
]


@settings(deadline=None)
@given(st.lists(st.sampled_from(TEXTS), max_size=12).map("".join), st.booleans())
def test_parts_are_found_where_they_stand_also_if_what_is_copied_has_their_words(
    tokenizer: Tokenizer, line: str, by_sentence: bool
) -> None:
    (segments,) = make_segments(
        [line], tokenizer, limits=LengthLimits(12, 12, 0), by_sentence=by_sentence
    )
    output = [Candidate("man", -1.0, ["man"], False)]
    outputs = [output if len(segment.source_ids) > 1 else [] for segment in segments]
    translation = Translation.from_segments(segments, outputs)
    found = list(alignment.parts_of(Alignment(line, translation.text), translation.parts))
    parts = [(part, its.text) for _, part, its in translation.parts]
    assert [(one.source, one.target) for one in found[1::2]] == parts
    assert all(one.source.split() == one.target.split() for one in found[::2] if parts)
    for one in found:
        assert line.startswith(one.source, one.start)
        assert translation.text.startswith(one.target, one.target_start)


def test_words_have_the_links_of_their_pieces() -> None:
    source, target = "\u3000 a bc  d", "x yz\tü"
    spans = [(0, 1), (2, 3), (4, 5), (5, 6), (8, 9)]
    links = [(1, 1), (2, 2), (3, 0), (3, 3)]
    target_spans = [(0, 1), (2, 3), (3, 4), (5, 6)]
    found = Alignment(source, target, spans, target_spans, [*links, (4, 3)], links)
    assert str(found) == "1-1 2-0 2-1 2-2"  # U+3000 is a word, as in files of tokens


@pytest.mark.parametrize("line", ["", "  ", "42", "a man \u00b5 sees.", "\ufb01 \u2026 the sea"])
def test_any_line_has_an_alignment(translator: Translator, line: str) -> None:
    texts = translator.translate([line])[0], "nobody paints an apple.", "", line
    for text in texts:
        (found,) = translator.alignments([line], [text])
        assert all(line[slice(*span)].strip() == line[slice(*span)] for span in found.source_spans)
        words = len(line.split()), len(found.target.split())
        assert all(i < words[0] and j < words[1] for i, j in found.words)
    assert found.words == [(i, i) for i in range(words[0])]  # of a text with itself


def test_the_other_engine_and_long_texts_are_aligned(
    make_trained: MakeTrained, translator: Translator
) -> None:
    pytest.importorskip("ctranslate2")
    other = new_translator(make_trained(), engine="ctranslate2", max_source_tokens=8)
    texts = ["a man."], ["an apple."]
    assert other.alignments(*texts) == translator.alignments(*texts)
    (found,) = other.alignments([SOURCE * 9], [TARGET])
    assert max(i for i, _ in found.pieces) < 8


def test_a_step_is_chosen_whose_pairs_have_few_positions(make_trained: MakeTrained) -> None:
    trained = make_trained(positions=Positions.learned, max_learned_positions=6)
    known = KnownText([SOURCE, "a"], [TARGET, "a"])
    assert 6 < len(trained.tokenizer.encode([SOURCE])[0]) < 24
    for text in (None, known):
        step = linking.choose_step(trained, text)
        assert step is not None
        assert step.layer == 1


def test_the_choice_of_a_model_is_kept_in_its_folder(
    tmp_path: Path, make_trained: MakeTrained
) -> None:
    trained, folder = make_trained(num_layers=2), tmp_path / "model"
    save_model(folder, trained)
    assert load_model(folder).alignment is None
    for step in (AlignmentStep(1, reads=True), AlignmentStep(2, reads=False)):
        save_alignment(folder, step)
        loaded = load_model(folder)
        assert loaded.alignment == step
        # The translator aligns there.
        ids = trained.tokenizer.encode([SOURCE])[0], trained.tokenizer.encode_target([TARGET])[0]
        pair = PiecePair([*ids[0], END_ID], ids[1], stops=True)
        model = copy.deepcopy(trained.model)
        ((links, _),) = linking.align_pieces([model], [pair], controls=0, steps=[step])
        assert new_translator(loaded).alignments([SOURCE], [TARGET])[0].pieces == links
    save_alignment(folder, AlignmentStep(3, reads=False))
    with pytest.raises(UserError, match=r"alignment\.json: layer 3: the model has 2"):
        load_model(folder)
    assert linking.choose_step(trained) is not None  # which leaves the model as it is
    save_model(folder, trained)  # replaces it whole
    assert load_model(folder).alignment is None
