"""Joined batches against the plain model, one batch after the other."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from seq2seq.data.batching import Batch
from seq2seq.fast import replace_modules
from seq2seq.fast.joined import join, joined_states
from seq2seq.fast.training import FastAttention
from seq2seq.model import Transformer
from seq2seq.model.config import Positions, Start
from seq2seq.model.transformer import MultiHeadAttention
from seq2seq.training.loss import BatchLoss

MakeModel = Callable[..., Transformer]
V, SHAPES = 23, [(3, 7, 5), (1, 2, 9), (4, 4, 1)]

of_all_kinds = pytest.mark.parametrize(
    "choices",
    [
        {"attention_bias": True, "start": Start.zero, "positions": Positions.learned},
        {"d_k": 3, "d_v": 5, "shared_embedding": False, "tied_output": False, "output_bias": True},
    ],
    ids=str,
)


def make_batches() -> list[Batch]:
    """Padded on both sides, on the target's alone, and not at all."""
    chance = torch.Generator().manual_seed(2)
    batches = []
    for pairs, source_length, target_length in SHAPES:
        source = torch.randint(4, V, (pairs, source_length), generator=chance)
        output = torch.randint(4, V, (pairs, target_length), generator=chance)
        batches.append(Batch(source, output.roll(1, 1), output))
    batches[0].source[1, 3:] = batches[0].target_output[2, 2:] = 0
    batches[1].target_output[0, 6:] = 0
    return batches


@of_all_kinds
def test_joined_batches_have_the_loss_and_the_gradient_of_single_ones(
    make_model: MakeModel, choices: dict[str, Any]
) -> None:
    plain, fast = (make_model(vocab_size=V, max_learned_positions=20, **choices) for _ in "12")
    losses = [BatchLoss(plain, 0.1, chunked=False)(batch).smoothed for batch in make_batches()]
    expected = torch.stack(losses).sum()
    expected.backward()

    replace_modules(fast, MultiHeadAttention, FastAttention)
    joined = join(make_batches()).to(torch.device("cpu"))
    found = BatchLoss(fast, 0.1, chunked=True)(joined).smoothed
    found.backward()
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=0)
    for one, other in zip(fast.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-7, atol=1e-9)


def test_every_dropout_of_joined_batches_drops(make_model: MakeModel) -> None:
    for name in ("dropout", "attention_dropout", "relu_dropout"):
        model = make_model(vocab_size=V, **{name: 0.5})
        replace_modules(model, MultiHeadAttention, FastAttention)
        joined = join(make_batches())
        exact = joined_states(model, joined)
        torch.testing.assert_close(joined_states(model, joined), exact)
        model.train()
        assert not torch.equal(joined_states(model, joined), exact), name
