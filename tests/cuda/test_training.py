"""Training on the simulated GPU: the CPU's numbers, in few waits."""

import copy
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from seq2seq.data.batching import Batch
from seq2seq.data.encoded import EncodedCorpus
from seq2seq.data.tokenizer import Tokenizer
from seq2seq.device import Compute
from seq2seq.fast.training import TrainingKernels, use_training_kernels
from seq2seq.model import Transformer, TransformerConfig
from seq2seq.storage.checkpoint import restore_checkpoint, save_checkpoint
from seq2seq.storage.trained_model import TrainedModel, new_transformer
from seq2seq.training.config import TrainingConfig
from seq2seq.training.loss import BatchLoss, Loss
from seq2seq.training.step import DivergenceError
from seq2seq.training.trainer import Trainer
from tests.cuda.device import Journal, inside
from tests.toy import encoded_corpus
from tests.training.records import train

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
V = 50


def make_model(**choices: Any) -> Transformer:
    sizes = {"num_layers": 2, "d_model": 16, "d_ff": 24, "num_heads": 2, "dropout": 0.0}
    torch.manual_seed(1)
    return new_transformer(TransformerConfig(**(sizes | choices)), V).train()


def make_batch() -> Batch:
    chance = torch.Generator().manual_seed(1)
    source = torch.randint(4, V, (3, 7), generator=chance)
    output = torch.randint(4, V, (3, 5), generator=chance)
    source[1, 4:] = output[2, 3:] = 0
    return Batch(source, output.roll(1, 1), output)


def loss_of(plain: Transformer, compute: Compute) -> tuple[Any, Loss]:
    """A copy of the model with the gradients of a batch, and its loss."""
    model = copy.deepcopy(plain).to(compute.device)
    use_training_kernels(model, TrainingKernels(), compute)
    with compute.autocast():
        loss = BatchLoss(model, 0.1, chunked=True)(make_batch().to(compute.device))
    loss.smoothed.backward()
    return model, loss


def test_products_are_in_bf16_and_every_dropout_works(journal: Journal) -> None:
    rates = {"dropout": 0.1, "attention_dropout": 0.1, "relu_dropout": 0.1}
    _, expected = loss_of(make_model(**rates), Compute(CPU, torch.bfloat16))
    journal.clear()
    model, found = loss_of(make_model(**rates), Compute(CUDA, torch.bfloat16))
    assert found.smoothed.item() == pytest.approx(expected.smoothed.item(), rel=0.2)
    assert all(p.grad is not None and p.grad.is_cuda for p in model.parameters())
    assert set(journal.products) == {torch.bfloat16}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> EncodedCorpus:
    return encoded_corpus(tmp_path_factory.mktemp("corpus") / "train.ids", V, 120)


def make_trainer(
    corpus: EncodedCorpus, device: torch.device, dtype: torch.dtype = torch.float32
) -> Trainer:
    tokens = {"source_tokens": 96, "target_tokens": 96, "micro_batch_tokens": 48}
    config = TrainingConfig(**tokens, warmup_steps=10)
    batching = config.batching(corpus, seed=1)
    model = make_model().to(device)
    return Trainer(model, batching, config, compute=Compute(device, dtype), seed=1)


def test_updates_are_those_of_the_cpu_and_wait_rarely(
    corpus: EncodedCorpus, journal: Journal
) -> None:
    trainers = [make_trainer(corpus, device) for device in (CPU, CUDA)]
    for trainer in trainers:
        trainer.fit_memory()
    journal.clear()
    steps = [trainers[0].batching.epoch(0)[i : i + 2] for i in (0, 2, 4)]
    for step in steps:
        expected, found = (trainer.update(step) for trainer in trainers)
        assert found.smoothed == pytest.approx(expected.smoothed, rel=1e-4)
        assert found.gradient_norm == pytest.approx(expected.gradient_norm, rel=1e-3)
    assert trainers[1].updater.joined == 2
    assert not journal.waits, Counter(journal.waits)
    # Losses and norm are read once a step, whatever the number of micro-batches.
    assert journal.given_meanwhile == [0] * len(steps)
    for ours, theirs in zip(*(t.model.parameters() for t in trainers), strict=True):
        torch.testing.assert_close(theirs.detach().cpu(), ours.detach(), rtol=1e-3, atol=1e-4)


def test_the_gpu_has_the_next_update_while_the_metrics_of_one_are_read(
    corpus: EncodedCorpus, journal: Journal
) -> None:
    """All of them are read before they are recorded or saved."""
    records = []
    unread: list[int] = []
    for device in (CPU, CUDA):
        trainer = make_trainer(corpus, device)
        trainer.config.max_steps, trainer.config.log_steps = 7, 4
        trainer.config.checkpoint_steps = 6
        trainer.update(trainer.batching.epoch(0)[:2])
        journal.clear()
        running = trainer.updater.in_flight
        records.append(train(trainer, save=lambda running=running: unread.append(len(running))))
    assert not journal.waits, Counter(journal.waits)
    # Steps 2 to 7, of which 4, 6 and 7 are recorded.
    assert [given > 0 for given in journal.given_meanwhile] == [
        *(True, True, False),
        *(True, False),
        False,
    ]
    assert min(filter(None, journal.given_meanwhile)) > 100
    assert unread == [0, 0, 0, 0]
    assert [step for step, metrics in records[1].all if "train/loss" in metrics] == [4, 6, 7]
    for name in ("train/loss", "train/gradient_norm", "train/target_tokens"):
        assert records[1].of(name) == pytest.approx(records[0].of(name), rel=1e-3)


def test_a_training_goes_on_from_its_checkpoint(
    corpus: EncodedCorpus, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    first, second = (make_trainer(corpus, CUDA, torch.bfloat16) for _ in range(2))
    batches = first.batching.epoch(0)
    first.update(batches[:2])
    trained = TrainedModel(first.model, tokenizer, "a", "b")
    folder = save_checkpoint(tmp_path, 1, trained, first.optimizer, {"step": 1})
    restore_checkpoint(folder, second.model, second.optimizer)
    for state in second.optimizer.state.values():
        assert all(value.is_cuda for value in state.values())
    second.progress.step = 1
    expected, found = (trainer.update(batches[2:4]) for trainer in (first, second))
    assert found.smoothed == expected.smoothed
    assert found.gradient_norm == expected.gradient_norm
    for ours, theirs in zip(*(t.model.parameters() for t in (first, second)), strict=True):
        assert torch.equal(inside(ours), inside(theirs))


def test_no_update_is_done_after_one_that_is_not_finite(corpus: EncodedCorpus) -> None:
    """The next one is started before the host can know of it."""
    trainer = make_trainer(corpus, CUDA)
    weights: list[list[Tensor]] = []

    def damage(_: object, inputs: object, loss: Loss) -> Loss:
        weights.append([inside(p).clone() for p in trainer.model.parameters()])
        odd = trainer.progress.step == 2
        return loss._replace(smoothed=loss.smoothed * torch.nan) if odd else loss

    trainer.updater.loss.register_forward_hook(damage)
    with pytest.raises(DivergenceError, match="step 3: the loss"):
        train(trainer, save=lambda: pytest.fail("saved"))
    assert trainer.progress.step == 2
    assert len(weights) > 3 * trainer.micro_batches  # a fourth update was started
    for before, parameter in zip(
        weights[2 * trainer.micro_batches], trainer.model.parameters(), strict=True
    ):
        assert torch.equal(before, inside(parameter))
