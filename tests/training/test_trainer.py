"""The trainer against a plain loop, against itself in parts, and what ends it."""

import math
import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from seq2seq.data.batching import Batching, Indices
from seq2seq.data.encoded import EncodedCorpus, EncodedCorpusWriter
from seq2seq.data.tokenizer import PADDING_ID, START_ID, Tokenizer
from seq2seq.errors import UserError
from seq2seq.model import Transformer, TransformerConfig
from seq2seq.storage.checkpoint import (
    TrainedModel,
    new_transformer,
    restore_checkpoint,
    save_checkpoint,
)
from seq2seq.training.config import TrainingConfig
from seq2seq.training.progress import Progress
from seq2seq.training.trainer import Trainer

V = 60
PAIRS = 40


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> EncodedCorpus:
    path = tmp_path_factory.mktemp("corpus") / "train.arrow"
    chance = random.Random(1)
    sources = [[chance.randrange(4, V) for _ in range(chance.randint(1, 9))] for _ in range(PAIRS)]
    with EncodedCorpusWriter(path, V) as writer:
        writer.write(sources, [source[::-1] + source[:1] for source in sources])
    return EncodedCorpus(path)


class Equal(Batching):
    """Batches of as many pairs each, in another order each epoch."""

    def __init__(self, corpus: EncodedCorpus, pairs: int) -> None:
        super().__init__(corpus, source_tokens=100, target_tokens=100, seed=1)
        self.pairs = pairs

    def epoch(self, epoch: int) -> list[Indices]:
        order = np.random.default_rng(epoch).permutation(len(self.corpus))
        return list(order.reshape(-1, self.pairs))


class Notebook:
    """Stands for metrics and display."""

    def __init__(self) -> None:
        self.records: list[tuple[int, dict[str, float]]] = []

    def write(self, step: int, figures: Mapping[str, float]) -> None:
        self.records.append((step, dict(figures)))

    def of(self, name: str) -> list[float]:
        return [figures[name] for _, figures in self.records if name in figures]

    def draw(self) -> None: ...
    def show(self, *_: object) -> None: ...
    def log(self, *_: object) -> None: ...
    def checkpoint(self, *_: object) -> None: ...


def make_trainer(
    batching: Batching, *, dropout: float = 0.0, seed: int = 1, double: bool = False, **choices: Any
) -> Trainer:
    torch.manual_seed(seed)
    model = new_transformer(
        TransformerConfig(num_layers=1, d_model=16, d_ff=24, num_heads=2, dropout=dropout), V
    )
    # A step is `micro_batches` batches: the token counts are there to make that number.
    parts = {"source_tokens": 1, "target_tokens": 1, "micro_batch_tokens": 1}
    defaults = {"warmup_steps": 10, "max_steps": 20, "log_steps": 1, "checkpoint_minutes": None}
    return Trainer(
        model.double() if double else model,
        batching,
        TrainingConfig(**(parts | defaults | choices)),
        device=torch.device("cpu"),
        precision=torch.float32,
        seed=5,
    )


def train(
    trainer: Trainer,
    validate: Callable[[], dict[str, float]] = lambda: {"valid/bleu": 0.0},
    save: Callable[[bool], None] = lambda best: None,
) -> Notebook:
    notebook = Notebook()
    trainer.train(notebook, notebook, validate=validate, save=save)  # type: ignore[arg-type]
    return notebook


def weights_of(trainer: Trainer) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in trainer.model.state_dict().items()}


def assert_equal_to_the_bit(one: Trainer, other: Trainer) -> None:
    for name, value in one.model.state_dict().items():
        assert torch.equal(value, other.model.state_dict()[name]), name
    states = one.optimizer.state_dict()["state"], other.optimizer.state_dict()["state"]
    assert states[0].keys() == states[1].keys()
    for index, moments in states[0].items():
        for name, value in moments.items():
            assert torch.equal(value, states[1][index][name]), (index, name)


def padded(rows: list[list[int]]) -> torch.Tensor:
    longest = max(map(len, rows))
    return torch.tensor([row + [PADDING_ID] * (longest - len(row)) for row in rows])


def test_the_losses_are_those_of_a_plain_loop(corpus: EncodedCorpus) -> None:
    """Over two epochs: smoothing, normalisation, learning rate, Adam and the shifted targets."""
    batching = Batching(corpus, source_tokens=24, target_tokens=28, seed=3)
    trainer = make_trainer(batching, double=True)
    model = make_trainer(batching, double=True).model
    adam = torch.optim.Adam(
        model.parameters(), lr=0.0, betas=(0.9, 0.98), eps=1e-9, fused=False, foreach=False
    )
    batches = [indices for epoch in range(20) for indices in batching.epoch(epoch)][:20]
    assert len(batching.epoch(0)) < 20
    losses, perplexities = [], []
    for step, indices in enumerate(batches, start=1):
        targets = [corpus.target(int(i)).tolist() for i in indices]
        target_output = padded(targets).flatten()
        logits = model(
            padded([corpus.source(int(i)).tolist() for i in indices]),
            padded([[START_ID, *target[:-1]] for target in targets]),
        ).flatten(0, 1)
        tokens = target_output != PADDING_ID
        distribution = torch.full_like(logits, 0.1 / (V - 1))
        distribution[torch.arange(len(logits)), target_output] = 0.9
        loss = F.cross_entropy(logits[tokens], distribution[tokens])
        perplexities.append(F.cross_entropy(logits[tokens], target_output[tokens]).exp().item())
        losses.append(loss.item())
        adam.zero_grad()
        loss.backward()
        adam.param_groups[0]["lr"] = 16**-0.5 * min(step**-0.5, step * 10**-1.5)
        adam.step()
    notebook = train(trainer)
    assert notebook.of("train/loss") == pytest.approx(losses, abs=1e-9)
    assert notebook.of("train/perplexity") == pytest.approx(perplexities, rel=1e-9)
    for one, other in zip(trainer.model.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-8)


def test_parts_of_a_step_make_the_same_step(corpus: EncodedCorpus) -> None:
    whole = make_trainer(Equal(corpus, 20), double=True, max_steps=5)
    parts = make_trainer(Equal(corpus, 4), double=True, max_steps=5, source_tokens=5)
    assert (whole.config.micro_batches, parts.config.micro_batches) == (1, 5)
    losses = [train(trainer).of("train/loss") for trainer in (whole, parts)]
    assert losses[0] == pytest.approx(losses[1], abs=1e-10)
    for one, other in zip(whole.model.parameters(), parts.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-9)


def test_the_figures_are_those_of_the_steps(corpus: EncodedCorpus) -> None:
    trainer = make_trainer(Equal(corpus, 8), max_steps=5)
    notebook = train(trainer)
    batches = trainer.batching.epoch(0)
    for side in ("source", "target"):
        lengths = getattr(corpus, f"{side}_lengths")
        assert notebook.of(f"train/{side}_tokens") == [lengths[b].sum() for b in batches]
    rates = [16**-0.5 * step * 10**-1.5 for step in range(1, 6)]
    assert notebook.of("train/learning_rate") == pytest.approx(rates)


STEPS = 12  # of five batches an epoch: the third epoch is under way


@pytest.fixture(scope="module")
def uninterrupted(corpus: EncodedCorpus) -> Trainer:
    trainer = make_trainer(Equal(corpus, 8), dropout=0.2, max_steps=STEPS)
    train(trainer)
    return trainer


@pytest.mark.parametrize("step", [1, 4, 5, 10, 11])
def test_an_interrupted_training_ends_as_an_uninterrupted_one(
    corpus: EncodedCorpus, uninterrupted: Trainer, tokenizer: Tokenizer, tmp_path: Path, step: int
) -> None:
    first = make_trainer(Equal(corpus, 8), dropout=0.2, max_steps=step)
    saved: list[Path] = []

    def save(best: bool) -> None:
        trained = TrainedModel(first.model, tokenizer, "a", "b")
        progress = asdict(first.progress)
        saved.append(save_checkpoint(tmp_path, step, trained, first.optimizer, progress))

    train(first, save=save)
    second = make_trainer(Equal(corpus, 8), dropout=0.2, seed=99, max_steps=STEPS)
    second.progress = Progress(**restore_checkpoint(saved[0], second.model, second.optimizer))
    assert second.progress.step == step
    torch.manual_seed(step)
    saves: list[int] = []
    notebook = train(second, save=lambda best: saves.append(second.progress.step))
    assert [at for at, figures in notebook.records if "train/loss" in figures] == list(
        range(step + 1, STEPS + 1)
    )
    assert saves == [STEPS]
    assert_equal_to_the_bit(second, uninterrupted)


def test_dropout_depends_on_the_step_and_the_seed(corpus: EncodedCorpus) -> None:
    losses = []
    for seed in (5, 5, 6):
        trainer = make_trainer(Equal(corpus, 8), dropout=0.5, max_steps=2)
        trainer.seed = seed
        losses.append(train(trainer).of("train/loss"))
    assert losses[0] == losses[1]
    assert losses[0] != losses[2]


def test_a_loss_that_is_not_finite_stops_before_the_update(corpus: EncodedCorpus) -> None:
    good = make_trainer(Equal(corpus, 8), max_steps=3)
    train(good)
    bad = make_trainer(Equal(corpus, 8))
    update = bad.update

    def damaged(batches: list[Indices]) -> Any:
        if bad.progress.step == 3:  # as an overflow somewhere would
            bad.model.decode = lambda *a: Transformer.decode(bad.model, *a) * math.nan
        return update(batches)

    bad.update = damaged
    saves: list[bool] = []
    with pytest.raises(UserError, match=r"step 4: .*not finite") as error:
        train(bad, save=saves.append)
    assert "\n" not in str(error.value)
    assert not saves
    assert bad.progress.step == 3
    assert_equal_to_the_bit(bad, good)


def test_a_gradient_that_is_not_finite_stops_as_well(corpus: EncodedCorpus) -> None:
    trainer = make_trainer(Equal(corpus, 8))
    before = weights_of(trainer)
    weight = trainer.model.encoder.layers[0].feed_forward.inner.weight
    weight.register_hook(lambda gradient: gradient * math.inf)
    with pytest.raises(UserError, match=r"step 1: .*not finite"):
        train(trainer)
    assert all(torch.equal(before[n], v) for n, v in trainer.model.state_dict().items())


def test_steps_end_it_with_a_validation_and_a_save(corpus: EncodedCorpus) -> None:
    trainer = make_trainer(Equal(corpus, 8), max_steps=7, checkpoint_steps=3)
    bleu = iter([1.0, 3.0, 2.0])
    saves: list[tuple[int, bool]] = []
    notebook = train(
        trainer,
        validate=lambda: {"valid/bleu": next(bleu)},
        save=lambda best: saves.append((trainer.progress.step, best)),
    )
    assert saves == [(3, True), (6, True), (7, False)]
    assert notebook.of("valid/bleu") == [1.0, 3.0, 2.0]
    assert trainer.progress.ended == "at step 7 of 7"
    assert (trainer.progress.best_bleu, trainer.progress.best_step) == (3.0, 6)


def test_patience_ends_it(corpus: EncodedCorpus) -> None:
    trainer = make_trainer(Equal(corpus, 8), max_steps=None, patience=2, checkpoint_steps=2)
    bleu = iter([1.0, 2.0, 1.5, 2.5, 2.5, 0.0, 9.0])
    train(trainer, validate=lambda: {"valid/bleu": next(bleu)})
    assert trainer.progress.step == 12
    assert trainer.progress.best_step == 8
    assert "2 validations" in trainer.progress.ended


def test_minutes_end_it_and_checkpoints_come_by_the_clock(
    corpus: EncodedCorpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = make_trainer(
        Equal(corpus, 8), max_steps=None, max_minutes=10.0, checkpoint_minutes=4.0
    )
    clock = [0.0]
    update = trainer.update

    def minute(batches: list[Indices]) -> Any:
        clock[0] += 60
        return update(batches)

    def validate() -> dict[str, float]:
        clock[0] += 30
        return {"valid/bleu": 0.0}

    trainer.update = minute
    watch = SimpleNamespace(perf_counter=lambda: clock[0])
    monkeypatch.setattr("seq2seq.training.trainer.time", watch)
    saves: list[int] = []
    train(trainer, validate, lambda best: saves.append(trainer.progress.step))
    assert saves == [4, 8, 9]  # after 4.5, 9 and 10 minutes; the last takes half a minute more
    assert trainer.progress.seconds == 10 * 60 + 30
    assert "10.0 of 10 minutes" in trainer.progress.ended


def send(number: int) -> None:
    os.kill(os.getpid(), number)
    time.sleep(0.05)  # another thread may have been given it


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_during_a_step_saves_and_stops(corpus: EncodedCorpus, number: int) -> None:
    trainer = make_trainer(Equal(corpus, 8), max_steps=20)
    update = trainer.update

    def interrupted(batches: list[Indices]) -> Any:
        if trainer.progress.step == 3:
            send(number)
        return update(batches)

    trainer.update = interrupted
    trainer.progress.ended = "at step 0 of 0"  # as in a finished training that is given more
    before = signal.getsignal(number)
    saves: list[tuple[int, bool]] = []
    train(trainer, save=lambda best: saves.append((trainer.progress.step, best)))
    assert saves == [(4, False)]
    assert trainer.signal == number
    assert trainer.progress.ended == ""
    assert signal.getsignal(number) is before


@pytest.mark.parametrize("place", ["validate", "save"])
def test_a_signal_during_a_checkpoint_leaves_it_saved(corpus: EncodedCorpus, place: str) -> None:
    trainer = make_trainer(Equal(corpus, 8), max_steps=20, checkpoint_steps=5)
    saves: list[int] = []

    def validate() -> dict[str, float]:
        if place == "validate" and not trainer.signal:
            send(signal.SIGTERM)
        return {"valid/bleu": 1.0}

    def save(best: bool) -> None:
        if place == "save":
            send(signal.SIGTERM)
        assert best == (place == "save")
        saves.append(trainer.progress.step)

    train(trainer, validate, save)
    assert saves == [5]
    assert trainer.signal == signal.SIGTERM
    # A validation that was given up is made by the training that goes on.
    assert trainer.progress.validation_pending == (place == "validate")


def test_trying_the_largest_batch_changes_nothing(corpus: EncodedCorpus) -> None:
    batching = Batching(corpus, source_tokens=24, target_tokens=28, seed=3)
    tried, plain = (make_trainer(batching, dropout=0.3) for _ in range(2))
    numbers = torch.get_rng_state()
    tried.try_largest()
    assert torch.equal(numbers, torch.get_rng_state())
    assert all(parameter.grad is None for parameter in tried.model.parameters())
    for trainer in (tried, plain):
        train(trainer)
    assert_equal_to_the_bit(tried, plain)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A shell starts its background jobs with Ctrl-C ignored; here it counts as on a terminal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_a_second_signal_ends_it_at_once(corpus: EncodedCorpus) -> None:
    trainer = make_trainer(Equal(corpus, 8))
    before = signal.getsignal(signal.SIGINT)

    def save(best: bool) -> None:
        send(signal.SIGINT)
        send(signal.SIGINT)

    trainer.config.max_steps = 1
    with pytest.raises(KeyboardInterrupt):
        train(trainer, save=save)
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize(
    ("choices", "complaint"),
    [
        ({"source_tokens": 0}, "source_tokens=0"),
        ({"warmup_steps": 0}, "warmup_steps=0"),
        ({"max_minutes": -1.0}, "max_minutes=-1"),
        ({"label_smoothing": 1.0}, "label_smoothing=1.0"),
        ({"max_steps": None}, "nothing ends the training"),
        ({"keep_checkpoints": 4}, "average_checkpoints=5 are more"),
    ],
    ids=str,
)
def test_a_training_that_cannot_be_done_is_refused(choices: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        TrainingConfig(**choices)
