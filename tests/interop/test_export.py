"""Exported models against their originals, in the programs that they are for."""

import importlib.util
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from seq2seq.config import Activation, Positions, Start
from seq2seq.errors import UserError
from seq2seq.interop.export import write_ctranslate2, write_marian
from seq2seq.model_folder import TrainedModel
from seq2seq.tokenizer import END_ID, PADDING_ID, START_ID
from tests.conftest import MakeTrained
from tests.interop.conftest import greedy, transformers
from tests.models import ALL_MODERN

# The libraries' own warnings.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def trained(make_trained: MakeTrained) -> TrainedModel:
    return make_trained(layer_norm_epsilon=1e-5)


NEEDS_CTRANSLATE2 = pytest.mark.skipif(
    not importlib.util.find_spec("ctranslate2"), reason="needs ctranslate2"
)


@pytest.mark.parametrize(
    "choices",
    [
        {},
        {"start": Start.zero, "activation": Activation.swish, "output_bias": True},
        {"num_decoder_layers": 1, "activation": Activation.gelu, "tied_output": False},
        {"shared_embedding": False, "activation": Activation.quick_gelu},
        {"shared_embedding": False, "tied_output": False, "start": Start.zero},
    ],
    ids=str,
)
def test_marian_has_the_same_ids_logits_and_greedy_output(
    make_trained: MakeTrained, sentences: list[str], tmp_path: Path, choices: dict[str, object]
) -> None:
    trained = make_trained(layer_norm_epsilon=1e-5, **choices)
    write_marian(tmp_path / "marian", trained)
    tokenizer = transformers.MarianTokenizer.from_pretrained(tmp_path / "marian")
    model = transformers.MarianMTModel.from_pretrained(tmp_path / "marian").eval()
    few = sentences[::7]
    batch = tokenizer(few, return_tensors="pt", padding=True)
    ids = [[*ids, END_ID] for ids in trained.tokenizer.encode(few)]
    assert [row[row != PADDING_ID].tolist() for row in batch["input_ids"]] == ids

    target = torch.randint(4, trained.model.vocab_size, (len(few), 6))
    target[:, 0] = START_ID
    with torch.no_grad():
        found = model(**batch, decoder_input_ids=target).logits
        expected = trained.model(batch["input_ids"], target)
    compared = [i for i in range(expected.size(2)) if i != START_ID or choices.get("start") is None]
    assert (found - expected)[..., compared].abs().max() < 1e-4
    output = model.generate(**batch, num_beams=1, do_sample=False, max_new_tokens=8)
    pieces = [
        trained.tokenizer.pieces([i for i in row.tolist()[1:8] if i not in (PADDING_ID, END_ID)])
        for row in output
    ]
    assert pieces == greedy(trained, few, 7)


@pytest.mark.parametrize("control", [PADDING_ID, START_ID])
def test_marian_outputs_no_control_symbol_even_if_it_is_the_most_probable(
    trained: TrainedModel, sentences: list[str], tmp_path: Path, control: int
) -> None:
    with torch.no_grad():
        last = trained.model.decoder.layers[-1].feed_forward_norm
        trained.model.embedding.weight[control] *= 10
        last.bias.copy_(1e3 * trained.model.embedding.weight[control])
    write_marian(tmp_path / "marian", trained)
    model = transformers.MarianMTModel.from_pretrained(tmp_path / "marian").eval()
    (ids,) = trained.tokenizer.encode(sentences[:1])
    source = torch.tensor([[*ids, END_ID]])
    with torch.no_grad():
        first = model(source, decoder_input_ids=torch.tensor([[START_ID]])).logits
    assert first.argmax() == control
    output = model.generate(source, num_beams=1, do_sample=False, max_new_tokens=8)
    assert not {PADDING_ID, START_ID} & set(output[0, 1:].tolist())


@NEEDS_CTRANSLATE2
@pytest.mark.parametrize(
    "choices",
    [
        {"attention_bias": True},
        {"positions": Positions.learned, "max_learned_positions": 40},
        {"positions": Positions.concatenated},
        {"start": Start.zero, "activation": Activation.swish, "output_bias": True},
        {"num_decoder_layers": 1, "activation": Activation.gelu, "tied_output": False},
        {"shared_embedding": False, "activation": Activation.quick_gelu},
    ],
)
def test_ctranslate2_has_the_same_scores_and_greedy_output(
    make_trained: MakeTrained, sentences: list[str], tmp_path: Path, choices: dict[str, object]
) -> None:
    import ctranslate2

    trained = make_trained(**choices)
    write_ctranslate2(tmp_path / "ct2", trained)
    assert [path.name for path in tmp_path.iterdir()] == ["ct2"]
    translator = ctranslate2.Translator(str(tmp_path / "ct2"), compute_type="float32")
    few = sentences[::7]
    pieces = [trained.tokenizer.pieces(ids) for ids in trained.tokenizer.encode(few)]
    controls = [["<pad>"], ["<s>"]]
    found = translator.translate_batch(
        pieces, beam_size=1, max_decoding_length=7, suppress_sequences=controls
    )
    expected = greedy(trained, few, 7)
    assert [result.hypotheses[0] for result in found] == expected
    scores = translator.score_batch(pieces, expected)
    vocabulary = trained.tokenizer.pieces(list(range(trained.tokenizer.vocab_size)))
    ids_of = {piece: number for number, piece in enumerate(vocabulary)}
    for source, target, score in zip(pieces, expected, scores, strict=True):
        read = [START_ID, *(ids_of[piece] for piece in target)]
        with torch.no_grad():
            source_ids = torch.tensor([[*(ids_of[piece] for piece in source), END_ID]])
            exact = trained.model(source_ids, torch.tensor([read])).log_softmax(-1)[0]
        exact = exact.gather(1, torch.tensor([*read[1:], END_ID]).unsqueeze(1)).squeeze(1)
        assert (torch.tensor(score.log_probs) - exact).abs().max() < 1e-4


@pytest.mark.parametrize(
    ("write", "choices", "complaint"),
    [
        (write_marian, {"d_k": 3}, "heads"),
        (write_marian, {"positions": Positions.learned}, "learned positions"),
        pytest.param(
            write_ctranslate2,
            {"num_heads": 3, "d_k": 2, "d_v": 2},
            "heads",
            marks=NEEDS_CTRANSLATE2,
        ),
        (write_marian, ALL_MODERN, "norm_position=pre, .*, bias=false"),
        pytest.param(write_ctranslate2, {"bias": False}, "bias=false", marks=NEEDS_CTRANSLATE2),
    ],
)
def test_models_that_the_program_cannot_express_are_refused(
    make_trained: MakeTrained,
    tmp_path: Path,
    write: Callable[[Path, TrainedModel], None],
    choices: dict[str, object],
    complaint: str,
) -> None:
    with pytest.raises(UserError, match=complaint):
        write(tmp_path / "model", make_trained(**choices))
    assert not (tmp_path / "model").exists()


@NEEDS_CTRANSLATE2
@pytest.mark.parametrize("activation", Activation)
def test_every_activation_is_exported_or_named(
    make_trained: MakeTrained, tmp_path: Path, activation: Activation
) -> None:
    """An activation that the table of the export lacks would be a KeyError."""
    with suppress(UserError):
        write_ctranslate2(tmp_path / "ct2", make_trained(activation=activation))
        assert (tmp_path / "ct2").exists()
