"""Tokens alone as rows, filled up to few numbers, against the plain model of padded batches."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from seq2seq.data.batching import Batch
from seq2seq.device import Compute
from seq2seq.fast import replace_modules
from seq2seq.fast.rows import fill_up, token_states
from seq2seq.fast.training import PLAIN, FastAttention, TrainingKernels, use_training_kernels
from seq2seq.model import Transformer
from seq2seq.model.transformer import MultiHeadAttention
from seq2seq.training.loss import BatchLoss
from tests.fast.test_joined import V, make_batches, of_all_kinds

MakeModel = Callable[..., Transformer]


def loss_and_gradients(model: Transformer, batch: Batch, *, rows: bool) -> list[torch.Tensor]:
    model.zero_grad()
    smoothed, cross_entropy = BatchLoss(model, 0.1, chunked=rows, rows=rows)(batch)
    smoothed.backward()
    return [smoothed, cross_entropy, *(p.grad for p in model.parameters() if p.grad is not None)]


@pytest.mark.parametrize("elements", [2**20, 1], ids=["one", "several"])
@of_all_kinds
def test_rows_have_the_loss_and_the_gradient_of_the_padded_batch(
    make_model: MakeModel,
    monkeypatch: pytest.MonkeyPatch,
    choices: dict[str, Any],
    elements: int,
) -> None:
    monkeypatch.setattr("seq2seq.fast.loss._CHUNK_ELEMENTS", elements)
    plain, fast = (make_model(vocab_size=V, max_learned_positions=99, **choices) for _ in "12")
    replace_modules(fast, MultiHeadAttention, FastAttention)
    # 64 tokens, so that the row of zeros begins another multiple; and 84.
    full, padded = torch.randint(4, V, (8, 8)), torch.randint(4, V, (10, 9))
    padded[3:, 7:] = 0
    larger = [Batch(ids, ids.roll(1, 1), ids) for ids in (full, padded)]
    for batch in [*make_batches(), *larger]:
        expected = loss_and_gradients(plain, batch, rows=False)
        found = loss_and_gradients(fast, batch, rows=True)
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("small", [0, 2**19], ids=["attention in bf16", "attention in float32"])
def test_rows_are_as_exact_as_the_padded_batch_in_bf16(
    make_model: MakeModel, monkeypatch: pytest.MonkeyPatch, small: int
) -> None:
    monkeypatch.setattr("seq2seq.fast.rows._SMALL", small)
    batch = make_batches()[0]
    exact = loss_and_gradients(make_model(vocab_size=V), batch, rows=False)

    def error(*, rows: bool) -> float:
        model = make_model(vocab_size=V).float()
        use_training_kernels(model, TrainingKernels(rows=rows), Compute(dtype=torch.bfloat16))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = loss_and_gradients(model, batch, rows=rows)
        return sum(((f - e).norm() / e.norm()).item() for f, e in zip(found, exact, strict=True))

    assert error(rows=True) < 1.5 * error(rows=False)


def test_batches_of_many_shapes_have_few_numbers_of_rows(make_model: MakeModel) -> None:
    model = make_model(vocab_size=V).train()
    use_training_kernels(model, TrainingKernels(rows=True), Compute(dtype=torch.bfloat16))
    shapes = set()
    for module in model.modules():
        if isinstance(module, nn.Linear):
            module.register_forward_hook(lambda _, inputs, output: shapes.add(output.shape[:-1]))
    for batch in make_batches():
        token_states(model, batch)
    assert shapes == {(1, 64)}


def test_few_rows_are_filled_up() -> None:
    assert [fill_up(rows) for rows in (1, 64, 65, 4096, 4097)] == [64, 64, 128, 4096, 4224]
    for rows in range(1024, 2**17, 1001):
        assert rows <= fill_up(rows) < rows + max(64, rows / 31)
    assert len({fill_up(rows) for rows in range(24_000, 26_000)}) < 6


def test_rows_are_for_bf16_on_a_cpu_and_every_dropout_works(make_model: MakeModel) -> None:
    low = Compute(dtype=torch.bfloat16)
    model = make_model()
    assert TrainingKernels(rows=True).rows_on(low, model)
    assert not TrainingKernels(rows=True).rows_on(Compute(), model)
    assert not TrainingKernels(rows=True).rows_on(
        Compute(torch.device("cuda"), torch.bfloat16), model
    )
    assert not PLAIN.rows_on(low, model)
    for name in ("dropout", "attention_dropout", "relu_dropout"):
        model = make_model(vocab_size=V, **{name: 0.5})
        use_training_kernels(model, TrainingKernels(rows=True), low)
        batch = make_batches()[0]
        exact = token_states(model, batch)[0]
        torch.testing.assert_close(token_states(model, batch)[0], exact)
        assert not torch.equal(token_states(model.train(), batch)[0], exact), name
