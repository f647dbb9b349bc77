"""A change of the paper's file is obeyed by training and translation, fast forms or not."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from seq2seq import changes, transformer, update
from seq2seq.config import Positions, TransformerConfig
from seq2seq.decoder import IncrementalDecoder, computes_the_same
from seq2seq.decoding.ensemble import score_targets
from seq2seq.fast.rows import computes_the_same_for_rows
from seq2seq.fast.updates import FastUpdater, fit_memory, make_updater
from seq2seq.model_folder import make_transformer
from seq2seq.run.start import try_update
from seq2seq.tokenizer import START_ID
from seq2seq.transformer import MultiHeadAttention, Transformer
from seq2seq.update import RunningMean, Updater
from tests.changes import (
    CONFIG,
    EDITS,
    LONGEST,
    SUBCLASSES,
    Change,
    V,
    assert_obeyed,
    changed,
    hotter,
    losses_of,
    make_model,
    name_of,
    translations_by_prefixes,
    translations_of,
)
from tests.toy import encoded_corpus


@pytest.mark.parametrize("change", EDITS + SUBCLASSES, ids=name_of)
def test_a_change_is_obeyed(
    change: Change, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert_obeyed(change, tmp_path, caplog, "cpu")


def test_a_given_translation_is_scored_by_an_edited_forward() -> None:
    model, source, target = make_model(Transformer), [5, 9, 3], [7, 6, 4, 3]
    usual = score_targets([model], [(source, target)])[0].log_probability
    with changed(Change(Transformer, "forward", hotter)), torch.no_grad():
        logits = model(torch.tensor([source]), torch.tensor([[START_ID, *target[:-1]]]))[0]
        chosen = logits.log_softmax(dim=1)[range(4), target]
        found = score_targets([model], [(source, target)])[0].log_probability
    assert found == pytest.approx(float(chosen.sum()), abs=1e-4)
    assert found != pytest.approx(usual, abs=1e-2)


class Temperatures(MultiHeadAttention):
    """A temperature for each head."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(config)
        self.temperatures = nn.Parameter(torch.rand(config.num_heads, 1, 1))
        self.register_buffer("calls", torch.zeros(()), persistent=False)

    def equation_1(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        if self.training:
            self.calls += 1
        return super().equation_1(query * self.temperatures, key, value, mask)


def test_an_own_equation_has_its_parameters_and_buffers_in_a_training_in_bf16(
    tmp_path: Path,
) -> None:
    corpus = encoded_corpus(tmp_path / "train.ids", V, 40, LONGEST - 2)
    found = []
    for make in (Updater, make_updater):
        with changed(Change(transformer, "MultiHeadAttention", Temperatures)) as kind:
            model = make_model(kind)
        losses = losses_of(make, model, corpus, dtype=torch.bfloat16)
        assert all(calls > 0 for calls in model.buffers())
        found.append(losses)
    assert found[1] == pytest.approx(found[0], rel=2e-2)


class Counting(Transformer):
    """Counts the sentences that it has learned from."""

    def __init__(self, *config: TransformerConfig, **sizes: int) -> None:
        super().__init__(*config, **sizes)
        self.register_buffer("seen", torch.zeros(()))

    def encode(self, source: Tensor, source_mask: Tensor) -> Tensor:
        if self.training:
            self.count(len(source))
        return super().encode(source, source_mask)

    def count(self, sentences: int) -> None:
        self.seen += sentences


class Replacing(Counting):
    """Has another tensor after each batch."""

    def count(self, sentences: int) -> None:
        self.seen = self.seen + sentences


@pytest.mark.parametrize("kind", [Counting, Replacing])
def test_what_a_model_saves_of_its_training_is_that_of_the_updates_alone(
    tmp_path: Path, kind: type[Transformer]
) -> None:
    corpus = encoded_corpus(tmp_path / "train.ids", V, 40, LONGEST - 2)
    models = [make_model(kind) for _ in range(2)]

    def make(model: Transformer, *given: Any, **chosen: Any) -> Updater:
        updater = make_updater(model, *given, **chosen)
        (fit_memory if isinstance(updater, FastUpdater) else try_update)(updater, 0)
        return updater

    for model, form in zip(models, (Updater, make), strict=True):
        losses_of(form, model, corpus)
    assert models[0].seen == models[1].seen > 3


class Growing(Transformer):
    """Makes a buffer that isn't saved when it is first needed, and a larger one later."""

    def encode(self, source: Tensor, source_mask: Tensor) -> Tensor:
        if "ones" not in dict(self.named_buffers()) or len(self.ones) < len(source):
            self.register_buffer("ones", torch.ones(len(source)), persistent=False)
        return super().encode(source, source_mask)


def test_a_running_mean_needs_no_buffers_that_grow() -> None:
    model = make_model(Growing)
    mean = RunningMean(model)
    for count in (1, 2, 3):
        model(torch.full((count, 2), 5), torch.full((count, 1), START_ID))
        if count > 1:
            mean.model(torch.full((count - 1, 2), 5), torch.full((count - 1, 1), START_ID))
        mean.update(model, 0.5)


@pytest.mark.parametrize("positions", [1, 5, 30])
def test_a_changed_model_is_tried_within_its_learned_positions(positions: int) -> None:
    config = TransformerConfig(
        **CONFIG, positions=Positions.learned, max_learned_positions=positions
    )
    model = make_transformer(config, V)
    assert computes_the_same(IncrementalDecoder, model)
    assert computes_the_same_for_rows(model)


def test_the_digests_are_those_of_the_code() -> None:
    """Otherwise, test the fast forms, and write them: `python scripts/digests.py`."""
    modules = [importlib.import_module(f"seq2seq.{name}") for name in changes.MODULES]
    now = {key: digest for module in modules for key, digest in changes.digests(module).items()}
    assert now == changes.tested()
    assert changes.changed_functions(*changes.MODULES) == []


@pytest.mark.parametrize("name", changes.MODULES)
def test_in_an_edited_file_all_that_is_as_it_was_keeps_its_digests(
    name: str, tmp_path: Path
) -> None:
    """Another version of Python than this one may have written them."""
    path, edited = Path(importlib.import_module(f"seq2seq.{name}").__file__), tmp_path / "edited.py"
    edited.write_text(path.read_text() + "# edited\n")
    spec = importlib.util.spec_from_file_location(f"seq2seq.{name}", edited)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    now = changes.digests(module)
    assert [key for key in now if now[key] != changes.tested()[key]] == [f"{name}:file"]


def test_the_function_that_python_3_14_makes_of_annotations_is_no_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Own(Transformer):
        scale: float = 1.0

    for each in (nn.Module, Own):
        monkeypatch.setattr(each, "__annotate_func__", lambda _: {}, raising=False)
    assert changes.changed_classes(make_model(Own)) == [Own.__qualname__]


@pytest.mark.parametrize("name", ["typing_of_mine", "seq2seq.transformer_of_mine"])
def test_a_module_of_ones_own_may_have_a_name_that_begins_like_a_known_one(name: str) -> None:
    own = type("Own", (Transformer,), {"__module__": name})
    assert changes.changed_classes(make_model(own)) == ["Own"]


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.RAdam])
def test_an_optimizer_that_no_fast_form_can_stop_is_obeyed(
    make: Callable[..., Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    corpus = encoded_corpus(tmp_path / "train.ids", V, 40, LONGEST - 2)

    def make_adam(model: nn.Module) -> Any:
        return make(model.parameters(), lr=0.0)

    with changed(Change(update, "make_adam", make_adam)):
        plain = losses_of(Updater, make_model(Transformer), corpus)
        assert losses_of(make_updater, make_model(Transformer), corpus) == plain
    assert "update.make_adam() changed" in caplog.text


def times_three(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
    return 3 * output


def sums_to_the_left(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
    return output + output.cumsum(dim=1)


def set_activation(layer: Any) -> None:
    layer.feed_forward.activation = lambda x: x.relu().cumsum(dim=1)


CHANGED_OBJECTS: dict[str, Callable[[Any], object]] = {
    "a hook of a model": lambda model: model.register_forward_hook(times_three),
    "a hook of a layer": lambda m: m.decoder.layers[0].register_forward_hook(sums_to_the_left),
    "a hook of a projection": lambda model: [
        layer.self_attention.w_q.register_forward_hook(times_three)
        for layer in model.decoder.layers
    ],
    "a hook of dropout": lambda m: m.decoder.layers[0].dropout.register_forward_hook(times_three),
    "an activation": lambda model: set_activation(model.decoder.layers[0]),
    "a layer in two places": lambda m: m.decoder.layers.__setitem__(1, m.decoder.layers[0]),
}


@pytest.mark.parametrize("change", CHANGED_OBJECTS.values(), ids=CHANGED_OBJECTS)
def test_a_change_of_an_object_is_obeyed(change: Callable[[Any], object], tmp_path: Path) -> None:
    corpus = encoded_corpus(tmp_path / "train.ids", V, 40, LONGEST - 2)
    models = [make_model(Transformer) for _ in range(4)]
    for model in models:
        change(model)
    plain, fast = losses_of(Updater, models[0], corpus), losses_of(make_updater, models[1], corpus)
    assert fast == pytest.approx(plain, rel=1e-4)
    expected, found = translations_by_prefixes(models[2]), translations_of(models[3], "cpu")
    for ours, theirs in zip(found, expected, strict=True):
        assert [each.token_ids for each in ours] == [each.token_ids for each in theirs]
        assert [each.score for each in ours] == pytest.approx([e.score for e in theirs], abs=1e-4)
