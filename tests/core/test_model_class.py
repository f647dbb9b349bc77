"""Models of own classes: their folders give them back, or refuse them in one line."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from seq2seq.cli.model_class import import_class
from seq2seq.config import Norm, TransformerConfig
from seq2seq.decoding.translator import Translator
from seq2seq.errors import UserError
from seq2seq.interop.export import ctranslate2_files, write_marian
from seq2seq.model_folder import TrainedModel, class_name, load_model, new_transformer, save_model
from seq2seq.tokenizer import Tokenizer
from seq2seq.transformer import FeedForward, Transformer
from seq2seq.zoo.modern import ModernTransformer, RMSNorm
from tests.conftest import MakeTrained
from tests.models import SIZES, perturb
from tests.own_model import GATED, in_folder


class Shifted(Transformer):
    """Has the same weights, and other logits."""

    def decode(self, *inputs: torch.Tensor) -> torch.Tensor:
        return super().decode(*inputs) + 1


class Tied(Transformer):
    """Has one matrix under two names, and a buffer that is saved."""

    def __init__(self, config: TransformerConfig, **sizes: int) -> None:
        super().__init__(config, **sizes)
        self.output = nn.Linear(config.d_model, sizes["vocab_size"], bias=False)
        self.output.weight = self.embedding.weight
        self.register_buffer("scale", torch.ones(()))


class Modern(ModernTransformer):
    """A subclass of a variant, which has two vocabularies."""


def make_own(kind: type[Transformer], tokenizer: Tokenizer, **choices: object) -> TrainedModel:
    torch.manual_seed(1)
    config = TransformerConfig(**(SIZES | choices))
    model = new_transformer(config, tokenizer.vocab_size, model_class=kind)
    perturb(model)
    return TrainedModel(model.eval(), tokenizer, "en", "de")


def logits(model: Transformer) -> torch.Tensor:
    return model(torch.tensor([[4, 5, 3], [6, 3, 0]]), torch.tensor([[2, 7], [2, 8]]))


@pytest.mark.parametrize("kind", [Shifted, Tied, Modern])
def test_a_folder_gives_a_model_of_an_own_class_back(
    tmp_path: Path, tokenizer: Tokenizer, kind: type[Transformer]
) -> None:
    trained = make_own(kind, tokenizer, **({"norm": Norm.rms} if kind is Modern else {}))
    save_model(tmp_path, trained)
    random_state = torch.get_rng_state()
    loaded = load_model(tmp_path, kind)
    assert torch.equal(torch.get_rng_state(), random_state)
    assert type(loaded.model) is kind
    assert torch.equal(logits(loaded.model), logits(trained.model))
    outputs = [t.text for t in Translator.load(tmp_path, model_class=kind).translate(["a man."])]
    assert outputs == [t.text for t in Translator(trained).translate(["a man."])]


def test_a_folder_of_an_own_class_is_read_with_this_class_alone(
    tmp_path: Path, tokenizer: Tokenizer, make_trained: MakeTrained
) -> None:
    save_model(tmp_path / "own", make_own(Shifted, tokenizer))
    name = f"{__name__}.Shifted"
    assert json.loads((tmp_path / "own" / "config.json").read_text())["model_class"] == name
    for other in (None, Tied):
        with pytest.raises(UserError, match=f"{name}.*: if you have.* --model-class {name} "):
            load_model(tmp_path / "own", other)
    save_model(tmp_path / "paper", make_trained())
    assert "model_class" not in (tmp_path / "paper" / "config.json").read_text()
    with pytest.raises(UserError, match=r"no model of the class .*: remove --model-class"):
        load_model(tmp_path / "paper", Shifted)


class Own(FeedForward):
    """A layer of an own class."""


def exchange_layer(model: Transformer) -> None:
    model.encoder.layers[0].feed_forward = Own(model.config)


def exchange_norm(model: Transformer) -> None:
    model.decoder.layers[0].feed_forward_norm = RMSNorm(model.config.d_model, 1e-6)


def exchange_function(model: Transformer) -> None:
    model.encoder.layers[0].feed_forward.activation = torch.tanh


def relu(x: torch.Tensor) -> torch.Tensor:
    return x.clamp(-1, 1)


def exchange_function_of_this_name(model: Transformer) -> None:
    model.encoder.layers[0].feed_forward.activation = relu


def change_number(model: Transformer) -> None:
    model.encoder.layers[0].self_attention_norm.eps = 0.5


def add_layer(model: Transformer) -> None:
    model.encoder.layers.append(model.encoder.layers[0])


def share_layer(model: Transformer) -> None:
    model.decoder.layers[0].cross_attention = model.decoder.layers[0].self_attention


def widen(model: Transformer) -> None:
    model.encoder.layers[0].feed_forward.inner.weight = nn.Parameter(torch.zeros(9, 8))


def add_buffer(model: Transformer) -> None:
    model.register_buffer("table", torch.zeros(3))


def halve(model: Transformer) -> None:
    model.half()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (exchange_layer, "its encoder.layers.0.feed_forward is .*Own"),
        (exchange_norm, "its decoder.layers.0.feed_forward_norm is .*RMSNorm"),
        (exchange_function, "layers.0.feed_forward.activation is tanh, that of .* is relu"),
        (
            exchange_function_of_this_name,
            r"activation is .*test_model_class\.relu, that of .* is relu",
        ),
        (change_number, "layers.0.self_attention_norm.eps is 0.5, that of .* is 1e-06"),
        (add_layer, "its encoder.layers.1 is .*EncoderLayer, that of .* is absent"),
        (share_layer, r"cross_attention.w_q.weight is absent, that of .* is a parameter \(8, 8\)"),
        (widen, r"its encoder.layers.0.feed_forward.inner.weight is torch.float32 \(9, 8\)"),
        (add_buffer, "its table is .*, that of .* is absent"),
        (halve, r"embedding.weight is torch.float16 .* is torch.float32"),
    ],
)
def test_a_model_that_its_folder_would_not_give_back_is_not_saved(
    tmp_path: Path, tokenizer: Tokenizer, change: Callable[[Transformer], None], words: str
) -> None:
    for kind in (None, Shifted):
        trained = make_own(kind or Transformer, tokenizer)
        change(trained.model)
        with pytest.raises(UserError, match=f"can't be saved.*{words}.* of a subclass"):
            save_model(tmp_path / "model", trained)
        assert not list(tmp_path.iterdir())


class Masked(Transformer):
    """Has a buffer that no file of weights can hold."""

    mask = torch.tensor(True)

    def __init__(self, config: TransformerConfig, **sizes: int) -> None:
        super().__init__(config, **sizes)
        self.register_buffer("table", self.mask)


@pytest.mark.parametrize("mask", [torch.tensor(True), torch.tensor(-torch.inf)], ids=str)
def test_a_buffer_that_can_t_be_read_again_is_not_saved(
    tmp_path: Path, tokenizer: Tokenizer, mask: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Masked, "mask", mask)
    with pytest.raises(UserError, match=r"its table holds .* persistent=False"):
        save_model(tmp_path / "model", make_own(Masked, tokenizer))


class NeedsMore(Transformer):
    """Can't be called as a Transformer is."""

    def __init__(self, config: TransformerConfig, width: int) -> None:
        raise AssertionError(width)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (NeedsMore, "NeedsMore can't be made .*: TypeError: .*unexpected keyword"),
        (Shifted, "Shifted must be a subclass of .*ModernTransformer"),
    ],
)
def test_a_class_that_can_t_be_made_from_the_configuration_is_named(
    tokenizer: Tokenizer, kind: type[Transformer], words: str
) -> None:
    with pytest.raises(UserError, match=words):
        make_own(kind, tokenizer, norm=Norm.rms if kind is Shifted else Norm.layer)


def test_other_programs_get_no_model_of_an_own_class(
    tmp_path: Path, tokenizer: Tokenizer, make_trained: MakeTrained
) -> None:
    pytest.importorskip("ctranslate2")
    own, changed = make_own(Shifted, tokenizer), make_trained()
    exchange_layer(changed.model)
    for trained, words in ((own, "Shifted is yours"), (changed, "feed_forward is .*Own")):
        with pytest.raises(UserError, match=words):
            write_marian(tmp_path / "marian", trained)
        with pytest.raises(UserError, match=words):
            ctranslate2_files(trained)
    assert not list(tmp_path.iterdir())


def test_the_name_of_a_class_is_that_of_its_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "my_script.py"
    script.write_text("")
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(script), raising=False)
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    in_script = type("Mine", (Transformer,), {"__module__": "__main__"})
    assert class_name(in_script) == "my_script.Mine"
    in_folder(tmp_path, monkeypatch, "gated", GATED)
    assert class_name(import_class("gated.GatedTransformer")) == "gated.GatedTransformer"
    # An installed package comes before the current folder.
    (tmp_path / "seq2seq.py").write_text("raise SystemExit")
    assert import_class("seq2seq.zoo.modern.ModernTransformer") is ModernTransformer


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("GatedTransformer", "write module and class"),
        ("gated:GatedTransformer", "write module and class"),
        ("nowhere.GatedTransformer", "can't be imported .*: No module named 'nowhere'"),
        ("broken.GatedTransformer", "can't be imported .*: ZeroDivisionError"),
        ("gated.Gone", r"gated.py has no class Gone that is a subclass of .*\.Transformer"),
        ("gated.GatedFeedForward", "has no class GatedFeedForward"),
        ("gated.nn", "has no class nn"),
    ],
)
def test_a_name_that_is_no_class_of_models_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, words: str
) -> None:
    in_folder(tmp_path, monkeypatch, "gated", GATED)
    (tmp_path / "broken.py").write_text("1 / 0\n")
    with pytest.raises(UserError, match=f"--model-class {name}: .*{words}"):
        import_class(name)
