"""Folders of format 1: every tensor finds its place, and they are read as strictly as new ones."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import Tensor

from seq2seq.data.tokenizer import Tokenizer
from seq2seq.errors import UserError
from seq2seq.files.atomic import write_folder
from seq2seq.model import Transformer, TransformerConfig
from seq2seq.model.config import Positions
from seq2seq.storage.checkpoint import newest_good, restore_checkpoint
from seq2seq.storage.format_1 import expected_weights, rename_weights
from seq2seq.storage.model_folder import load_model
from seq2seq.storage.trained_model import new_transformer
from seq2seq.training.optimizer import make_adam

# What the last version with format 1 named a model of one layer, and in which order.
ATTENTION = [
    ("projection.weight", (22, 8)),
    ("projection.bias", (22,)),
    ("output.weight", (8, 10)),
    ("output.bias", (8,)),
]
NORM = [("norm.weight", (8,)), ("norm.bias", (8,))]
FEED_FORWARD = [
    ("inner.weight", (12, 8)),
    ("inner.bias", (12,)),
    ("outer.weight", (8, 12)),
    ("outer.bias", (8,)),
]
ENCODER = [("self_attention", ATTENTION), ("after_self_attention", NORM)]
DECODER = [*ENCODER, ("memory_attention", ATTENTION), ("after_memory_attention", NORM)]
LAST = [("feed_forward", FEED_FORWARD), ("after_feed_forward", NORM)]
SHAPES = {
    "embedding.weight": (60, 8),
    "embedding.positions.weight": (9, 8),
    **{
        f"{side}.0.{sublayer}.{name}": shape
        for side, sublayers in (("encoder", [*ENCODER, *LAST]), ("decoder", [*DECODER, *LAST]))
        for sublayer, parameters in sublayers
        for name, shape in parameters
    },
}
CONFIG = TransformerConfig(
    num_layers=1,
    d_model=8,
    d_ff=12,
    num_heads=2,
    d_k=3,
    d_v=5,
    attention_bias=True,
    positions=Positions.learned,
    max_learned_positions=9,
)
Change = Callable[[dict[str, Tensor]], object]


def numbered(shapes: dict[str, tuple[int, ...]], first: float = 0.0) -> dict[str, Tensor]:
    """Tensors of these shapes in which no number occurs twice."""
    tensors = {}
    for name, shape in shapes.items():
        size = int(torch.Size(shape).numel())
        tensors[name] = torch.arange(first, first + size).view(shape)
        first += size
    return tensors


WEIGHTS = numbered(SHAPES)
MOMENTS = {
    f"{number}.{moment}": value
    for number, name in enumerate(SHAPES)
    for moment, value in (
        ("step", torch.tensor(3.0)),
        ("exp_avg", -WEIGHTS[name] - 0.5),
        ("exp_avg_sq", WEIGHTS[name] + 0.5),
    )
}


def new_model() -> Transformer:
    torch.manual_seed(1)
    return new_transformer(CONFIG, 60)


def write_checkpoint(
    run: Path, tokenizer: Tokenizer, weights: dict[str, Tensor], moments: dict[str, Tensor]
) -> Path:
    config = {
        "format": 1,
        "source_language": "en",
        "target_language": "de",
        "model": asdict(CONFIG),
    }
    folder = run / "checkpoints" / "step_00000003"
    files = {
        "model.safetensors": safetensors.torch.save(weights),
        "config.json": json.dumps(config, default=lambda choice: choice.value).encode(),
        "tokenizer.model": tokenizer.model_bytes,
        "optimizer.safetensors": safetensors.torch.save(moments),
        "progress.json": b'{"step": 3}',
    }
    write_folder(folder, files)
    return folder


def assert_in_place(found: dict[str, Tensor], before: dict[str, Tensor]) -> None:
    """Each row of the model is the one that format 1 kept for it."""
    for side, attentions in (
        ("encoder", {"self_attention": "self_attention"}),
        ("decoder", {"self_attention": "self_attention", "cross_attention": "memory_attention"}),
    ):
        for today, then in attentions.items():
            for kind in ("weight", "bias"):
                joined = before[f"{side}.0.{then}.projection.{kind}"]
                name = f"{side}.layers.0.{today}"
                # Two heads: d_k = 3 for queries and keys, d_v = 5 for values.
                for letter, rows in (("q", joined[:6]), ("k", joined[6:12]), ("v", joined[12:])):
                    assert torch.equal(found[f"{name}.w_{letter}.{kind}"], rows)
                expected = before[f"{side}.0.{then}.output.{kind}"]
                assert torch.equal(found[f"{name}.w_o.{kind}"], expected)
                expected = before[f"{side}.0.after_{then}.norm.{kind}"]
                assert torch.equal(found[f"{name}_norm.{kind}"], expected)
        for kind in ("weight", "bias"):
            name = f"{side}.layers.0.feed_forward"
            for matrix in ("inner", "outer"):
                expected = before[f"{side}.0.feed_forward.{matrix}.{kind}"]
                assert torch.equal(found[f"{name}.{matrix}.{kind}"], expected)
            expected = before[f"{side}.0.after_feed_forward.norm.{kind}"]
            assert torch.equal(found[f"{name}_norm.{kind}"], expected)
    assert torch.equal(found["embedding.weight"], before["embedding.weight"])
    assert torch.equal(found["positions.weight"], before["embedding.positions.weight"])


def test_the_names_shapes_and_order_are_those_that_format_1_wrote() -> None:
    expected = expected_weights(new_model().state_dict(), CONFIG)
    assert [(name, tuple(value.shape)) for name, value in expected.items()] == list(SHAPES.items())


def test_every_number_finds_its_place_once() -> None:
    model = new_model().state_dict()
    renamed = rename_weights(WEIGHTS, model, CONFIG)
    assert {name: value.shape for name, value in renamed.items()} == {
        name: value.shape for name, value in model.items()
    }
    assert_in_place(renamed, WEIGHTS)
    elements = torch.cat([value.flatten() for value in renamed.values()])
    assert torch.equal(elements.sort().values, torch.arange(float(len(elements))))
    assert len({value.untyped_storage().data_ptr() for value in renamed.values()}) == len(renamed)


def test_a_checkpoint_of_format_1_is_loaded_and_restored(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    folder = write_checkpoint(tmp_path, tokenizer, WEIGHTS, MOMENTS)
    assert newest_good(tmp_path, pytest.fail) == folder
    trained = load_model(folder)
    assert trained.model.config == CONFIG
    assert_in_place(trained.model.state_dict(), WEIGHTS)
    model = new_model()
    adam = make_adam(model)
    assert restore_checkpoint(folder, model, adam) == {"step": 3}
    assert_in_place(model.state_dict(), WEIGHTS)
    states = {name: adam.state[parameter] for name, parameter in model.named_parameters()}
    for moment in ("exp_avg", "exp_avg_sq"):
        before = {name: MOMENTS[f"{n}.{moment}"] for n, name in enumerate(SHAPES)}
        assert_in_place({name: state[moment] for name, state in states.items()}, before)
    assert {float(state["step"]) for state in states.values()} == {3.0}
    # Adam counts each parameter's steps in place.
    assert len({state["step"].data_ptr() for state in states.values()}) == len(states)


def remove(name: str) -> Change:
    return lambda tensors: tensors.pop(name)


def add(name: str, like: str) -> Change:
    return lambda tensors: tensors.update({name: tensors[like].clone()})


def transpose(name: str) -> Change:
    return lambda tensors: tensors.update({name: tensors[name].t().contiguous()})


PROJECTION = "decoder.0.memory_attention.projection.weight"


@pytest.mark.parametrize(
    "change",
    [
        remove(PROJECTION),
        add("more", PROJECTION),
        add("decoder.layers.0.cross_attention.w_q.weight", PROJECTION),
        add("decoder.0.cross_attention.projection.weight", PROJECTION),
        transpose(PROJECTION),
        lambda tensors: tensors.update({PROJECTION: tensors[PROJECTION][:-1]}),
        lambda tensors: tensors.update({PROJECTION: tensors[PROJECTION].double()}),
    ],
)
def test_other_weights_are_refused_in_one_line(
    tmp_path: Path, tokenizer: Tokenizer, change: Change
) -> None:
    weights = dict(WEIGHTS)
    change(weights)
    folder = write_checkpoint(tmp_path, tokenizer, weights, MOMENTS)
    with pytest.raises(UserError, match="not the weights of its configuration") as error:
        load_model(folder)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (remove("0.step"), "not the moments of its configuration"),
        (add(f"{len(SHAPES)}.step", "0.step"), "not the moments of its configuration"),
        (add("embedding.weight.step", "0.step"), "not the moments of its configuration"),
        (transpose("2.exp_avg"), "not the moments of its configuration"),
        (lambda tensors: tensors.update({"2.step": torch.tensor(-1.0)}), "negative values"),
        (lambda tensors: tensors.update({"2.step": torch.tensor(torch.nan)}), "not finite"),
    ],
)
def test_other_moments_are_refused_in_one_line(
    tmp_path: Path, tokenizer: Tokenizer, change: Change, says: str
) -> None:
    moments = dict(MOMENTS)
    change(moments)
    folder = write_checkpoint(tmp_path, tokenizer, WEIGHTS, moments)
    model = new_model()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(UserError, match=says) as error:
        restore_checkpoint(folder, model, make_adam(model))
    assert "\n" not in str(error.value)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_today_s_names_in_a_folder_of_format_1_are_refused(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    folder = write_checkpoint(tmp_path, tokenizer, new_model().state_dict(), MOMENTS)
    with pytest.raises(UserError, match="not the weights of its configuration"):
        load_model(folder)
