"""Exported graphs in ONNX Runtime against the model that they are written from."""

import copy
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from seq2seq.config import Activation, Positions, Start
from seq2seq.errors import UserError
from seq2seq.files import write_folder
from seq2seq.interop.export import write_ctranslate2, write_marian
from seq2seq.interop.marian_import import import_marian
from seq2seq.interop.onnx_folder import onnx_files, translation_settings, write_onnx
from seq2seq.interop.onnx_graph import Graph
from seq2seq.model_folder import TrainedModel, save_model
from seq2seq.tokenizer import START_ID, Tokenizer, TokenizerConfig
from seq2seq.transformer import Transformer
from tests import changes
from tests.conftest import MakeTrained, Result
from tests.interop.conftest import MakeFolder, edit_json
from tests.interop.onnx_sessions import Sessions, translate, translate_folder
from tests.models import ALL_MODERN, MODERN

# The libraries' own warnings.
pytestmark = pytest.mark.filterwarnings("ignore")

VARIANTS: list[dict[str, Any]] = [
    {},
    {"attention_bias": True, "output_bias": True},
    {"num_decoder_layers": 3, "tied_output": False, "positions": Positions.concatenated},
    {"shared_embedding": False, "start": Start.zero},
    {"shared_embedding": False, "tied_output": False, "positions": Positions.learned},
    {"layer_norm_epsilon": 0.1},
    {"d_k": 3, "d_v": 5},  # for the page; transformers.js can't
    *({"activation": each} for each in Activation if each is not Activation.relu),
    *MODERN,
    ALL_MODERN,
]


def batch(model: Transformer) -> tuple[Tensor, Tensor]:
    """Sources (3, 11), two of them padded, and targets (3, 7)."""
    generator = torch.Generator().manual_seed(1)
    source = torch.randint(4, model.embedding.num_embeddings, (3, 11), generator=generator)
    source[1, 6:] = source[2, 9:] = 0
    target = torch.randint(4, model.vocab_size, (3, 7), generator=generator)
    target[:, 0] = START_ID
    return source, target


@pytest.mark.parametrize("choices", VARIANTS, ids=str)
def test_the_graphs_have_the_models_logits_whatever_the_cache_has(
    make_trained: MakeTrained, tmp_path: Path, choices: dict[str, Any]
) -> None:
    trained = make_trained(**choices)
    write_folder(tmp_path / "onnx", onnx_files(trained, "fp32"))
    sessions, (source, target) = Sessions(tmp_path / "onnx"), batch(trained.model)
    with torch.no_grad():
        expected = trained.model(source, target).numpy()
    for steps in ((), (1,) * 6, (2, 1, 3)):
        found = sessions.logits(source.numpy(), target.numpy(), *steps)
        assert np.abs(found - expected).max() < 1e-4


def test_positions_are_exact_in_long_texts(make_trained: MakeTrained, tmp_path: Path) -> None:
    trained = make_trained()
    write_onnx(tmp_path / "onnx", trained)
    source = torch.randint(4, 60, (1, 1500), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = trained.model.encode(source, trained.model.source_mask(source))
    found = Sessions(tmp_path / "onnx").begin(source.numpy())["encoder_hidden_states"]
    assert np.abs(found - expected.numpy()).max() < 1e-5


# Eight-bit integers


def rounded(weight: Tensor) -> Tensor:
    """A matrix (outputs, inputs) in 255 levels, with a scale for each output."""
    scale = weight.abs().amax(1, keepdim=True) / 127
    return (weight / scale).round() * scale


def levels(x: Tensor) -> Tensor:
    """All of x in 256 levels, as ONNX defines DynamicQuantizeLinear."""
    scale = (x.max().clamp(min=0) - x.min().clamp(max=0)) / 255
    zero = (-x.min().clamp(max=0) / scale).round()
    return ((x / scale).round() + zero).clamp(0, 255).sub(zero) * scale


class IntegerLinear(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(levels(x), self.weight, self.bias)


def in_integers(model: Transformer) -> Transformer:
    """A copy that computes with rounded matrices and states, in float64."""
    model = copy.deepcopy(model).double()
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2 and "norm" not in name:
            parameter.data = rounded(parameter.data)
    for module in model.modules():
        if isinstance(module, nn.Linear):
            module.__class__ = IntegerLinear
    project = model.project
    model.project = lambda states: project(levels(states))  # type: ignore[method-assign]
    return model


@pytest.mark.parametrize(
    "choices", [{}, {"shared_embedding": False, "tied_output": False}], ids=str
)
def test_integers_are_those_of_rounded_matrices_and_states(
    make_trained: MakeTrained, tmp_path: Path, choices: dict[str, Any]
) -> None:
    trained = make_trained(**choices)
    write_onnx(tmp_path / "onnx", trained, "int8")
    source, target = batch(trained.model)
    with torch.no_grad():
        exact = trained.model(source, target)
        expected = in_integers(trained.model)(source, target)
    found = torch.from_numpy(Sessions(tmp_path / "onnx").logits(source.numpy(), target.numpy()))
    # A state between two levels may be rounded to the other one.
    assert (found - expected).abs().mean() < (exact - expected).abs().mean() / 10


def test_each_matrix_is_stored_once_in_as_many_bytes_as_it_has_elements(
    make_trained: MakeTrained, tmp_path: Path
) -> None:
    import onnx

    trained = make_trained()
    write_onnx(tmp_path / "onnx", trained, "int8")
    model = onnx.load(tmp_path / "onnx" / "onnx" / "decoder_model_merged_quantized.onnx")
    kinds = {each.name: each.data_type for each in model.graph.initializer}
    matrices = {name for name, p in trained.model.named_parameters() if p.dim() == 2}
    integers = {name for name, kind in kinds.items() if kind == onnx.TensorProto.UINT8}
    integers -= {name for name in integers if name.startswith("constant")}  # their zero
    assert integers == {name for name in matrices if not name.startswith("encoder")}
    assert len(kinds) == len(model.graph.initializer)


# Translations


@pytest.mark.parametrize("choices", [{}, ALL_MODERN, {"positions": Positions.learned}], ids=str)
def test_greedy_search_over_the_folder_writes_the_same_text(
    make_trained: MakeTrained, sentences: list[str], tmp_path: Path, choices: dict[str, Any]
) -> None:
    trained = make_trained(**choices)
    write_onnx(tmp_path / "onnx", trained)
    expected = translate(trained, sentences[::7])
    assert len(set(expected)) > 5
    assert translate_folder(tmp_path / "onnx", sentences[::7], "de") == expected


def test_the_settings_have_the_ids_that_stand_before_a_source(
    make_trained: MakeTrained, sentences: list[str], tmp_path: Path
) -> None:
    controls = ["<bt>", ">>de<<", ">>fr<<"]
    tokenizer = Tokenizer.train(sentences, TokenizerConfig(vocab_size=60), controls=controls)
    trained = TrainedModel(make_trained(seed=3).model, tokenizer, "en", "de")
    write_onnx(tmp_path / "onnx", trained)
    texts = [translate(trained, sentences[::9], to) for to in ("de", "fr")]
    assert texts[0] != texts[1]
    assert [translate_folder(tmp_path / "onnx", sentences[::9], to) for to in ("de", "fr")] == texts
    assert translation_settings(trained)["tags"] == {"<bt>": tokenizer.controls["<bt>"]}


def test_the_settings_have_the_limits_of_learned_positions(make_trained: MakeTrained) -> None:
    settings = translation_settings(
        make_trained(positions=Positions.learned, max_learned_positions=20)
    )
    # A source ends with `</s>`, and the decoder reads the start symbol before 19 tokens.
    assert (settings["max_source_tokens"], settings["max_target_tokens"]) == (19, 19)
    settings = translation_settings(make_trained())
    assert (settings["max_source_tokens"], settings["max_target_tokens"]) == (1023, 1073)


@pytest.mark.parametrize("longest", [20, 2000])
def test_hugging_faces_libraries_cut_a_source_at_the_last_learned_position(
    make_trained: MakeTrained, longest: int
) -> None:
    trained = make_trained(positions=Positions.learned, max_learned_positions=longest)
    content = onnx_files(trained, "fp32")["tokenizer_config.json"]
    assert isinstance(content, bytes)
    assert json.loads(content)["model_max_length"] == min(longest, 1024)


# Imported models


@pytest.mark.parametrize("pieces", [(">>por<<", ">>pob<<"), ()], ids=str)
def test_an_imported_model_with_one_vocabulary_is_exported(
    make_folder: MakeFolder, sentences: list[str], tmp_path: Path, pieces: tuple[str, ...]
) -> None:
    trained = import_marian(make_folder(pieces=pieces).path)
    write_onnx(tmp_path / "onnx", trained)
    lines = ["two small dogs", "Größe", "the long road home.", "zzz äöü >>por<< </s>"]
    to = "pob" if pieces else None
    found = translate_folder(tmp_path / "onnx", lines, to or "pt")
    assert found == translate(trained, lines, to)
    assert len(set(found)) > 2


def test_imported_models_of_which_no_tokenizer_can_be_written_are_refused(
    make_folder: MakeFolder, tmp_path: Path
) -> None:
    two = import_marian(make_folder(separate=True).path)
    with pytest.raises(UserError, match="source and target have a vocabulary each"):
        write_onnx(tmp_path / "onnx", two)

    def rename(vocabulary: dict[str, int]) -> None:
        for piece in "„“”‘’":
            vocabulary[piece * 2] = vocabulary.pop(piece)

    folder = make_folder().path
    edit_json(folder / "vocab.json", rename)
    with pytest.raises(UserError, match="Moses"):
        write_onnx(tmp_path / "onnx", import_marian(folder))
    assert not (tmp_path / "onnx").exists()


# Refusals


@pytest.mark.parametrize("change", [*changes.EDITS, *changes.SUBCLASSES], ids=changes.name_of)
def test_a_changed_model_is_never_exported_as_the_papers(
    change: changes.Change, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    with changes.changed(change) as make:
        model = changes.make_model(make)
        trained = TrainedModel(model, tokenizer, "en", "de")
        for write in (write_onnx, write_marian, write_ctranslate2):
            with pytest.raises(UserError):
                write(tmp_path / "exported", trained)


def test_an_edited_function_is_named(make_trained: MakeTrained, tmp_path: Path) -> None:
    with (
        changes.changed(changes.EDITS[0]),
        pytest.raises(UserError, match=r"transformer\.attention"),
    ):
        write_onnx(tmp_path / "onnx", make_trained())


@pytest.mark.parametrize("choices", [{"d_k": 3}, {"d_v": 5}, {"num_heads": 3, "d_k": 2, "d_v": 2}])
def test_heads_of_another_width_are_refused(
    make_trained: MakeTrained, tmp_path: Path, choices: dict[str, Any]
) -> None:
    with pytest.raises(UserError, match=r"transformers\.js's heads are d_model / num_heads wide"):
        write_onnx(tmp_path / "onnx", make_trained(**choices))


def test_a_graph_that_no_file_can_hold_is_refused_with_a_way_out(make_trained: MakeTrained) -> None:
    model = make_trained().model
    for precision, advice in (("fp32", "give --precision int8"), ("int8", "")):
        graph = Graph(model, precision)
        graph.product("x", model.output_matrix, None)
        with pytest.raises(UserError, match=f"the decoder has .*{advice}$"):
            graph.serialize("decoder", max_bytes=100)


def test_a_missing_library_is_named(
    make_trained: MakeTrained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(UserError, match=r"needs onnx: pip install 'seq2seq\[onnx\]'"):
        write_onnx(tmp_path / "onnx", make_trained())


# The command


@pytest.fixture
def model(make_trained: MakeTrained, tmp_path: Path) -> Path:
    save_model(tmp_path / "model", make_trained())
    (tmp_path / "model" / "README.md").write_text("# Card\n")
    return tmp_path / "model"


def test_the_command_writes_a_folder_by_the_names_that_transformers_js_looks_for(
    model: Path, seq2seq: Callable[..., Result], tmp_path: Path
) -> None:
    for words, suffix, dtype in (
        ([], "", "fp32"),
        (["--precision", "int8"], "_quantized", "q8"),
    ):
        folder = tmp_path / dtype
        result = seq2seq("export", "--model", model, "--to", "onnx", "-o", folder, *words)
        assert (result.code, result.out) == (0, f"{folder}\n")
        files = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
        assert files == {
            f"onnx/encoder_model{suffix}.onnx",
            f"onnx/decoder_model_merged{suffix}.onnx",
            *("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"),
            *("README.md", "manifest.json"),
        }
        config, tokenizer = (
            json.loads((folder / name).read_text())
            for name in ("config.json", "tokenizer_config.json")
        )
        assert config["transformers.js_config"] == {"dtype": dtype}
        inputs = [each.name for each in Sessions(folder).encoder.get_inputs()]
        assert tokenizer["model_input_names"] == inputs


def test_a_precision_is_refused_where_it_has_no_meaning(
    model: Path, seq2seq: Callable[..., Result], tmp_path: Path
) -> None:
    words = ("export", "--model", model, "--precision", "int8", "-o", tmp_path / "out")
    result = seq2seq(*words, "--to", "marian")
    assert (result.code, result.err.count("\n")) == (2, 1)
    assert "--precision is for --to onnx" in result.err
    assert not (tmp_path / "out").exists()


def test_an_ensemble_is_refused(
    model: Path, seq2seq: Callable[..., Result], tmp_path: Path
) -> None:
    words = ("export", "--model", model, "--model", model, "--to", "onnx", "-o", tmp_path / "out")
    result = seq2seq(*words)
    assert result.code == 2
    assert "given twice" in result.err
