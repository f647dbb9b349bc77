"""Imported models against `transformers`, which wrote their folders."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from seq2seq.config import Start
from seq2seq.errors import UserError
from seq2seq.interop.marian_import import import_marian
from seq2seq.model_folder import TrainedModel
from seq2seq.tokenizer import END_ID, PADDING_ID, START_ID
from tests.interop.conftest import MakeFolder, MarianFolder, edit_json, greedy, transformers

# The library's own warnings.
pytestmark = pytest.mark.filterwarnings("ignore")

KINDS: list[dict[str, Any]] = [
    {},
    {"activation_function": "relu", "encoder_layers": 3, "decoder_layers": 1},
    {"activation_function": "gelu", "seed": 3},
    {"separate": True},
    {"separate": True, "tie_word_embeddings": False, "encoder_layers": 1},
    {"tie_word_embeddings": False, "seed": 3},
    {"share_encoder_decoder_embeddings": False, "seed": 3},
]


def rows_of(trained: TrainedModel, folder: Path) -> tuple[Tensor, Tensor]:
    """The other program's id of each id here, for source and target; -1 where it has none."""
    tokenizer = trained.tokenizer
    vocabulary = json.loads((folder / "vocab.json").read_text())
    own = folder / "target_vocab.json"
    target = json.loads(own.read_text()) if own.exists() else vocabulary
    sources = tokenizer.source_pieces(list(range(tokenizer.source_vocab_size)))
    targets = tokenizer.pieces(list(range(tokenizer.vocab_size)))
    return (
        torch.tensor([vocabulary.get(piece, -1) for piece in sources]),
        torch.tensor([target.get(piece, -1) for piece in targets]),
    )


def exact_positions(model: Any) -> None:
    """The sinusoids in float64, which are saved in float32."""
    for stack in (model.model.encoder, model.model.decoder):
        length, d = stack.embed_positions.weight.shape
        position = torch.arange(length, dtype=torch.float64).unsqueeze(1)
        angle = position / 10000 ** (torch.arange(0, d, 2, dtype=torch.float64) / d)
        exact = torch.cat((angle.sin(), angle.cos()), dim=1)
        torch.testing.assert_close(stack.embed_positions.weight, exact, rtol=0, atol=1e-5)
        stack.embed_positions.weight = torch.nn.Parameter(exact, requires_grad=False)


def assert_same_logits(trained: TrainedModel, made: MarianFolder, tolerance: float) -> None:
    source_rows, target_rows = rows_of(trained, made.path)
    generator = torch.Generator().manual_seed(4)
    source = torch.randint(4, len(source_rows), (5, 9), generator=generator)
    source[:, -1] = END_ID
    source[1, 6:] = source[3, 2:] = PADDING_ID
    target = torch.randint(4, len(target_rows), (5, 7), generator=generator)
    target[:, 3] = 1  # unknown
    target[:, 0] = START_ID
    theirs = target_rows[target]
    theirs[:, 0] = made.model.config.decoder_start_token_id
    with torch.no_grad():
        expected = made.model(
            input_ids=source_rows[source],
            attention_mask=(source != PADDING_ID).long(),
            decoder_input_ids=theirs,
        ).logits
        found = trained.model.double()(source, target)
    compared = (target_rows >= 0).nonzero().squeeze(1)
    compared = compared[compared != PADDING_ID]
    assert len(compared) == expected.size(2) - 1
    difference = found[..., compared] - expected[..., target_rows[compared]]
    assert difference.abs().max() < tolerance


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_logits_are_those_of_transformers(make_folder: MakeFolder, kind: dict[str, Any]) -> None:
    made = make_folder(**kind)
    exact_positions(made.model)
    trained = import_marian(made.path)
    assert trained.model.config.start is Start.zero
    assert_same_logits(trained, made, 1e-9)


def test_the_target_of_a_folder_that_gives_one_size_has_that(make_folder: MakeFolder) -> None:
    made = make_folder(share_encoder_decoder_embeddings=False, seed=3)
    edit_json(made.path / "config.json", lambda config: config.pop("decoder_vocab_size"))
    exact_positions(made.model)
    assert_same_logits(import_marian(made.path), made, 1e-9)


def test_a_model_that_starts_with_a_symbol_keeps_it(make_folder: MakeFolder) -> None:
    made = make_folder(pieces=("<s>",))
    vocabulary = json.loads((made.path / "vocab.json").read_text())
    change = {"decoder_start_token_id": vocabulary["<s>"]}
    edit_json(made.path / "config.json", lambda config: config.update(change))
    made.model.config.decoder_start_token_id = vocabulary["<s>"]
    exact_positions(made.model)
    trained = import_marian(made.path)
    assert trained.model.config.start is Start.symbol
    assert trained.tokenizer.vocab_size == len(vocabulary)
    with torch.no_grad():
        trained.model.output_bias[START_ID] += (
            100.0 + made.model.final_logits_bias[0, vocabulary["<s>"]]
        )
    assert_same_logits(trained, made, 1e-9)


@pytest.mark.parametrize("kind", [KINDS[0], KINDS[4]], ids=str)
def test_greedy_outputs_are_those_of_transformers(
    make_folder: MakeFolder, kind: dict[str, Any], sentences: list[str]
) -> None:
    made = make_folder(**kind)
    tokenizer = transformers.MarianTokenizer.from_pretrained(made.path)
    lines = sentences[::9]
    trained = import_marian(made.path)
    to = "por" if trained.tokenizer.controls else None
    marked = [f">>{to}<< {line}" if to else line for line in lines]
    batch = tokenizer(marked, return_tensors="pt", padding=True)
    model = made.model.float()
    output = model.generate(**batch, num_beams=1, do_sample=False, max_new_tokens=12)
    end, padding = model.config.eos_token_id, model.config.pad_token_id
    expected = [
        [tokenizer.decoder[i] for i in row.tolist()[1:] if i not in (end, padding)]
        for row in output
    ]
    assert greedy(trained, lines, 11, to) == [pieces[:11] for pieces in expected]
    assert len({tuple(pieces) for pieces in expected}) > 3


def test_the_pieces_of_an_imported_model_are_not_sampled(make_folder: MakeFolder) -> None:
    tokenizer = import_marian(make_folder().path).tokenizer
    with pytest.raises(UserError, match="tokenizer of an imported model can't be sampled"):
        tokenizer.encode_sampled(["a man"], 0.1, seed=1)
