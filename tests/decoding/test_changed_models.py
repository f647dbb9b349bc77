"""Alignments and attention maps of changed models are those of the changed code."""

import contextlib
import copy
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn

from seq2seq import transformer
from seq2seq.config import TransformerConfig
from seq2seq.decoding.linking import PiecePair, align_pieces, choose_step, find_step
from seq2seq.errors import UserError
from seq2seq.model_folder import AlignmentStep, TrainedModel
from seq2seq.tokenizer import END_ID, PADDING_ID, START_ID, UNKNOWN_ID, Tokenizer
from seq2seq.transformer import DecoderLayer, MultiHeadAttention, Transformer
from tests.changes import (
    CONFIG,
    EDITS,
    SUBCLASSES,
    Change,
    OwnAttention,
    attention_without_split,
    changed,
    gated_attention,
    name_of,
    sigmoid_attention,
)
from tests.decoding.translators import new_translator
from tests.models import perturb

SOURCE, TARGET = "a man sees the sea", "nobody paints an apple"
STEP = AlignmentStep(2, reads=False)


class MeanOfMemory(nn.Module):
    """A layer's view of the source without attention."""

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        weights = mask.squeeze(1).float()  # (B, 1, S)
        return x * (weights @ memory / weights.sum(dim=2, keepdim=True))


class LayerWithMean(DecoderLayer):
    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        self.cross_attention = MeanOfMemory()  # type: ignore[assignment]


class SharedLayers(Transformer):
    """One layer of the decoder, twice."""

    def __init__(self, config: TransformerConfig, **sizes: int) -> None:
        super().__init__(config, **sizes)
        self.decoder.layers[1] = self.decoder.layers[0]


class RepeatedMemory(Transformer):
    """A source of twice as many positions."""

    def encode(self, source: Tensor, source_mask: Tensor) -> Tensor:
        memory = super().encode(source, source_mask)
        return torch.cat((memory, memory), dim=1)  # (B, 2 S, D)

    def decode(self, target_input: Tensor, memory: Tensor, source_mask: Tensor) -> Tensor:
        return super().decode(target_input, memory, source_mask.repeat(1, 1, 1, 2))


MORE = [
    Change(transformer, "DecoderLayer", LayerWithMean),
    Change(transformer, "Transformer", RepeatedMemory),
]
USUAL = Change(transformer, "attention", transformer.attention)
UNREAD = (
    gated_attention, attention_without_split, OwnAttention, LayerWithMean, RepeatedMemory,
)  # fmt: skip


@contextlib.contextmanager
def changed_model(change: Change, tokenizer: Tokenizer) -> Iterator[TrainedModel]:
    with contextlib.ExitStack() as stack:
        make = stack.enter_context(changed(change))
        torch.manual_seed(1)
        sizes = {"vocab_size": tokenizer.vocab_size, "padding_id": PADDING_ID, "start_id": START_ID}
        model = make(TransformerConfig(**CONFIG), **sizes)
        perturb(model)
        if isinstance(change.value, type):  # it goes on in this model alone
            stack.close()
        yield TrainedModel(model.eval(), tokenizer, "en", "de", STEP)


def losses_of_outputs(model: Transformer, source: list[int], target: list[int]) -> Tensor:
    """Compute the share of its probability that each target piece loses (T, S), one by one."""

    def probabilities(source: list[int]) -> Tensor:
        logits = model(torch.tensor([source]), torch.tensor([[START_ID, *target]]))[0, :-1]
        return logits.double().softmax(dim=1)[range(len(target)), target]

    whole, losses = probabilities(source), []
    for place in range(len(source) - 1):
        without = probabilities([*source[:place], UNKNOWN_ID, *source[place + 1 :]])
        losses.append(1 - (without / whole).clamp(max=1))
    return torch.stack(losses, dim=1)


def losses_of_attention(model: Transformer, source: list[int], target: list[int]) -> Tensor:
    """Compute the share of the attention's output (T, S) that is lost without a value."""
    module = model.decoder.layers[STEP.layer - 1].get_submodule("cross_attention")
    assert isinstance(module, transformer.MultiHeadAttention)
    outputs: list[Tensor] = []
    module.register_forward_hook(lambda _, inputs, output: outputs.append(output[0]))
    equation_1 = module.equation_1
    for place in (None, *range(len(source))):

        def without(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, place=place) -> Tensor:
            value = value.clone()
            if place is not None:
                value[:, :, place] = 0
            return equation_1(query, key, value, mask)

        module.equation_1 = without  # type: ignore[method-assign]
        model(torch.tensor([source]), torch.tensor([[START_ID, *target]]))
    norms = torch.stack([outputs[0] - other for other in outputs[1:]], dim=1).norm(dim=2)
    return (norms / norms.sum(dim=1, keepdim=True))[:-1, :-1]


@pytest.mark.parametrize("change", [*EDITS, *SUBCLASSES, *MORE], ids=name_of)
def test_a_piece_is_linked_to_the_source_piece_that_the_changed_model_depends_on(
    change: Change, tokenizer: Tokenizer, caplog: pytest.LogCaptureFixture
) -> None:
    is_read = change.value not in UNREAD
    source = [*tokenizer.encode([SOURCE])[0], END_ID]
    target = tokenizer.encode_target([TARGET])[0]
    with changed_model(change, tokenizer) as trained, torch.no_grad():
        expected = (losses_of_attention if is_read else losses_of_outputs)(
            copy.deepcopy(trained.model), source, target
        )
        step = find_step(trained)
        pairs = [PiecePair(source, target)]
        ((links, mutual),) = align_pieces([trained.model], pairs, controls=0, steps=[step])
    assert step == (STEP if is_read else None)
    assert links == [(i, j) for j, i in enumerate(expected.argmax(1).tolist())]
    assert mutual == [(i, j) for i, j in links if expected[:, i].argmax() == j]
    said = [m for m in caplog.messages if "left out in turn" in m]
    assert len(said) == (0 if is_read else 1)
    assert all(change.value.__name__ in m or change.name in m for m in said)


def test_a_layer_that_is_used_twice_is_read_as_two_layers(tokenizer: Tokenizer) -> None:
    found = []
    for change in (Change(transformer, "Transformer", SharedLayers), USUAL):
        with changed_model(change, tokenizer) as trained:
            layers = trained.model.decoder.layers
            layers[1].load_state_dict(layers[0].state_dict())
            found.append(new_translator(trained).alignments([SOURCE], [TARGET])[0].pieces)
    assert found[0] == found[1]


@pytest.mark.parametrize("change", [EDITS[0], SUBCLASSES[0]], ids=name_of)
def test_translations_by_a_changed_model_are_aligned(change: Change, tokenizer: Tokenizer) -> None:
    with changed_model(change, tokenizer) as trained:
        translator = new_translator(replace(trained, alignment=None))
        lines = [f"{SOURCE}.", "", "nobody paints."]
        translations = translator.translate(lines)
        aligned = translator.alignments(lines, translations)
        assert (choose_step(trained) is None) == (change.value in UNREAD)
    for translation, alignment in zip(translations, aligned, strict=True):
        assert (alignment.pieces != []) == (translation.text != "")
    assert any(alignment.pieces for alignment in aligned)


def test_an_ensemble_of_models_of_which_one_can_be_read_is_aligned(tokenizer: Tokenizer) -> None:
    own_change = Change(transformer, "MultiHeadAttention", OwnAttention)
    own, usual = changed_model(own_change, tokenizer), changed_model(USUAL, tokenizer)
    with own as first, usual as second, torch.no_grad():
        translator = new_translator([first, second])
        assert translator.alignment_steps() == [None, STEP]
        (found,) = translator.alignments([SOURCE], [TARGET])
    assert [j for _, j in found.pieces] == list(range(len(found.target_spans)))


class WatchedAttention(MultiHeadAttention):
    """Keeps the threads in which attentions get another class."""

    threads: ClassVar[list[threading.Thread]] = []

    def __setattr__(self, name: str, value: object) -> None:
        if name == "__class__":
            self.threads.append(threading.current_thread())
        super().__setattr__(name, value)


def test_attentions_have_the_class_that_reads_them_before_threads_align(
    tokenizer: Tokenizer,
) -> None:
    change = Change(transformer, "MultiHeadAttention", WatchedAttention)
    lines = [f"{SOURCE} {SOURCE}", SOURCE, "a child", "nobody"]
    with changed_model(change, tokenizer) as trained:
        translator = new_translator(trained, workers=2, batch_tokens=8)
        aligned = translator.alignments(lines, [TARGET] * len(lines))
    assert all(alignment.pieces for alignment in aligned)
    assert set(WatchedAttention.threads) == {threading.main_thread()}


def test_the_weights_of_an_edited_attention_are_drawn(tokenizer: Tokenizer) -> None:
    with changed_model(Change(transformer, "attention", sigmoid_attention), tokenizer) as trained:
        maps = new_translator(trained).attention(SOURCE, TARGET)
    assert maps.cross.shape[1:] == (2, len(maps.target_input), len(maps.source))
    assert not torch.allclose(maps.cross.sum(-1), torch.ones(()))
    assert ((maps.cross > 0) & (maps.cross < 1)).all()


@pytest.mark.parametrize("change", [SUBCLASSES[0], MORE[0]], ids=name_of)
def test_an_attention_without_weights_is_refused_in_one_line(
    change: Change, tokenizer: Tokenizer
) -> None:
    with changed_model(change, tokenizer) as trained:
        translator = new_translator(trained)
        if change.value is OwnAttention:  # it calls `equation_1`
            assert translator.attention(SOURCE, TARGET).cross.isfinite().all()
        else:
            with pytest.raises(UserError, match="MeanOfMemory has no weights to draw"):
                translator.attention(SOURCE, TARGET)
