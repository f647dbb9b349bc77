"""Positions against their formulas, term by term; embeddings against section 3.4."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from seq2seq.config import Positions, TransformerConfig
from seq2seq.decoder import DecoderCache, IncrementalDecoder, copy_sharing_parameters, step_with
from seq2seq.errors import UserError
from seq2seq.model_folder import make_transformer
from seq2seq.transformer import PositionalEncoding, Transformer, sinusoids
from tests.models import perturb


@pytest.mark.parametrize("d_model", [2, 6, 512])
def test_sinusoids_are_those_of_section_3_5(d_model: int) -> None:
    table = sinusoids(70, d_model)
    assert table.shape == (70, d_model)
    for position in (0, 1, 2, 33, 69):
        for i in range(d_model // 2):
            angle = position / math.pow(10000, 2 * i / d_model)
            assert table[position, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-13)
            assert table[position, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-13)


def embedding_model(**choices: Any) -> Transformer:
    sizes = {"num_layers": 1, "d_model": 16, "d_ff": 8, "num_heads": 2, "dropout": 0.0}
    config = TransformerConfig(**sizes, **choices)
    torch.manual_seed(1)
    model = make_transformer(config, vocab_size=9).double()
    perturb(model)
    return model


def embed_in_step(model: Transformer, token_ids: Tensor, place: int) -> Tensor:
    cache = DecoderCache([], torch.empty(0), torch.empty(0), length=place)
    decoder = IncrementalDecoder(copy_sharing_parameters(model))
    with step_with(cache):
        return decoder.model.embed(token_ids[:, place : place + 1])


@pytest.mark.parametrize("positions", list(Positions))
def test_the_newest_token_of_a_step_gets_its_own_position(positions: Positions) -> None:
    token_ids = torch.arange(400).remainder(9).unsqueeze(0)
    whole = embedding_model(positions=positions).embed(token_ids)
    made = embedding_model(positions=positions)  # its table grows on the way
    for place in (0, 1, 200, 255, 256, 399):
        found = embed_in_step(made, token_ids, place)
        torch.testing.assert_close(found, whole[:, [place]], rtol=0, atol=0)


def test_a_position_beyond_the_last_learned_one_is_refused() -> None:
    made = embedding_model(positions=Positions.learned, max_learned_positions=5)
    token_ids = torch.tensor([[4, 8, 4, 4, 4]])
    embed_in_step(made, token_ids, 4)
    with pytest.raises(UserError, match=r"sequence has 6 tokens.*only 5"):
        embed_in_step(made, torch.cat((token_ids, token_ids), dim=1), 5)
    with pytest.raises(UserError, match=r"sequence has 6 tokens.*only 5"):
        made.embed(torch.zeros(1, 6, dtype=torch.long))


def test_positions_are_those_of_any_length_in_the_precision_of_the_model() -> None:
    """Whatever the lengths and the precision that a model has met before."""
    model = embedding_model().float()
    table = sinusoids(1100, 16)
    with torch.no_grad():
        model.embedding.weight.zero_()
        for length in (256, 257, 513, 3, 1026, 1027):
            embedded = model.embed(torch.full((1, length), 5))[0]
            torch.testing.assert_close(embedded, table[:length].float(), rtol=0, atol=1e-6)
        assert torch.equal(model.double().embed(torch.full((1, 513), 5))[0], table[:513])


def test_a_table_that_another_thread_shortens_is_not_used() -> None:
    class Shared(PositionalEncoding):
        def __setattr__(self, name: str, value: object) -> None:
            super().__setattr__(name, value)
            if name == "table" and isinstance(value, torch.Tensor):
                super().__setattr__(name, value[:1])  # what the other thread needs

    positions = Shared()
    torch.testing.assert_close(positions(torch.zeros(1, 300, 16)), sinusoids(300, 16).float())
