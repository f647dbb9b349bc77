"""The trainer against a plain loop, against itself divided otherwise, and what ends it."""

import copy
import gc
import math
import signal
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seq2seq.batches import Batch, Batching
from seq2seq.config import TrainingConfig, TransformerConfig
from seq2seq.device import Compute, World
from seq2seq.encoded_corpus import EncodedCorpus, PairIndices
from seq2seq.errors import OutOfMemoryError, UserError
from seq2seq.fast.updates import FastUpdater, fit_memory
from seq2seq.loss import Loss
from seq2seq.model_folder import TrainedModel, new_transformer
from seq2seq.run.checkpoint import (
    progress_file,
    read_progress,
    restore_checkpoint,
    save_checkpoint,
    save_validation,
)
from seq2seq.run.resume import RunState
from seq2seq.run.start import try_update
from seq2seq.system import signals
from seq2seq.tokenizer import PADDING_ID, START_ID, Tokenizer
from seq2seq.trainer import Progress, Trainer
from seq2seq.transformer import Transformer
from seq2seq.update import Updater
from tests.core.records import V, make_trainer, train, trained_model
from tests.toy import encoded_corpus, update


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> EncodedCorpus:
    return encoded_corpus(tmp_path_factory.mktemp("corpus") / "train.ids", V, 40)


class Equal(Batching):
    """Batches of the same number of pairs, in another order each epoch."""

    def __init__(self, corpus: EncodedCorpus, pairs: int) -> None:
        super().__init__(corpus, source_tokens=1000, target_tokens=1000, seed=1)
        self.pairs = pairs

    def epoch(self, epoch: int) -> list[PairIndices]:
        order = np.random.default_rng(epoch).permutation(len(self.corpus))
        return list(order.reshape(-1, self.pairs))


def after_each_batch(trainer: Trainer, act: Callable[[], object]) -> None:
    """Call a function after the forward pass of each batch."""
    trained_model(trainer).decoder.register_forward_hook(lambda *_: act() and None)


def assert_equal_to_the_bit(one: Trainer, other: Trainer) -> None:
    for part in ("model", "optimizer"):
        found, expected = (getattr(trainer, part).state_dict() for trainer in (one, other))
        torch.testing.assert_close(found, expected, rtol=0, atol=0)


def padded(rows: list[list[int]]) -> torch.Tensor:
    longest = max(map(len, rows))
    return torch.tensor([row + [PADDING_ID] * (longest - len(row)) for row in rows])


@pytest.mark.parametrize("form", [Updater, FastUpdater])
def test_the_losses_are_those_of_a_plain_loop(corpus: EncodedCorpus, form: type[Updater]) -> None:
    """Over three epochs: smoothing, normalization, learning rate, Adam and the shifted targets."""
    batching = Batching(corpus, source_tokens=40, target_tokens=46, seed=3)
    scale = {"learning_rate_scale": 2.5}
    trainer = make_trainer(batching, double=True, form=form, **scale)
    model = make_trainer(batching, double=True).model
    adam = torch.optim.Adam(
        model.parameters(), lr=0.0, betas=(0.9, 0.98), eps=1e-9, fused=False, foreach=False
    )
    batches = [indices for epoch in range(20) for indices in batching.epoch(epoch)][:20]
    assert len(batching.epoch(0)) + len(batching.epoch(1)) < 20
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
        adam.param_groups[0]["lr"] = 2.5 * 16**-0.5 * min(step**-0.5, step * 10**-1.5)
        adam.step()
    records = train(trainer)
    assert records.of("train/loss") == pytest.approx(losses, abs=1e-9)
    assert records.of("train/perplexity") == pytest.approx(perplexities, rel=1e-9)
    lengths = [corpus.lengths(indices)[1].sum() for indices in batches]
    assert records.of("train/target_tokens") == lengths
    torch.testing.assert_close(trainer.model.state_dict(), model.state_dict(), rtol=0, atol=1e-8)


@pytest.mark.parametrize(
    ("form", "pairs", "micro_batches", "most"),
    [
        (Updater, 4, 5, None),
        (FastUpdater, 4, 5, None),
        (FastUpdater, 20, 1, 30),
        (FastUpdater, 4, 5, 13),
    ],
)
def test_a_divided_step_is_the_same_step(
    corpus: EncodedCorpus, form: type[Updater], pairs: int, micro_batches: int, most: int | None
) -> None:
    """In micro-batches of 4 pairs, in parts of some tokens, or both."""
    whole = make_trainer(Equal(corpus, 20), double=True, max_steps=5)
    divided = make_trainer(
        Equal(corpus, pairs),
        double=True,
        max_steps=5,
        source_tokens=micro_batches,
        form=form,
    )
    if most is not None:
        divided.updater.set_most_tokens((most, most))
    assert (whole.updater.micro_batches, divided.updater.micro_batches) == (1, micro_batches)
    losses = [train(trainer).of("train/loss") for trainer in (whole, divided)]
    assert losses[0] == pytest.approx(losses[1], abs=1e-10)
    states = (trainer.model.state_dict() for trainer in (whole, divided))
    torch.testing.assert_close(*states, rtol=0, atol=1e-9)


STEPS = 12  # an epoch has five batches
Part = Callable[[int], Trainer]


@pytest.fixture(scope="module", params=[1, 3], ids="{} batches a step".format)
def part(corpus: EncodedCorpus, request: pytest.FixtureRequest) -> Part:
    """Makes a training of some steps; of three batches, some end in the next epoch."""

    def make(max_steps: int, seed: int = 1) -> Trainer:
        choices = {"dropout_warmup_steps": 8, "source_tokens": request.param}
        batching = Equal(corpus, 8)
        return make_trainer(batching, dropout=0.2, seed=seed, max_steps=max_steps, **choices)

    return make


@pytest.fixture(scope="module")
def uninterrupted(part: Part) -> Trainer:
    trainer = part(STEPS)
    train(trainer)
    return trainer


@pytest.mark.parametrize("step", [1, 2, 5, 11])
def test_an_interrupted_training_ends_as_an_uninterrupted_one(
    part: Part, uninterrupted: Trainer, tokenizer: Tokenizer, tmp_path: Path, step: int
) -> None:
    first = part(step)
    saved: list[Path] = []

    def save() -> None:
        trained = TrainedModel(first.model, tokenizer, "a", "b")
        state = RunState(first.progress, {}, {}).to_json()
        saved.append(save_checkpoint(tmp_path, step, trained, first.optimizer, state))

    train(
        first,
        save=save,
        save_validation=lambda is_best: save_validation(
            saved[0], RunState(first.progress, {}, {}).to_json()
        ),
    )
    second = part(STEPS, seed=99)
    restore_checkpoint(saved[0], second.model, second.optimizer)
    now = RunState(second.progress, {}, {})
    second.progress = now.restored(progress_file(saved[0]), read_progress(saved[0]), {}).progress
    assert second.progress.step == step
    place = second.progress.epoch, second.progress.batch
    # After b batches, an epoch that has just ended is still the present one.
    assert place == (
        (step * first.updater.micro_batches - 1) // 5,
        (step * first.updater.micro_batches - 1) % 5 + 1,
    )
    torch.manual_seed(step)
    records = train(second)
    assert [at for at, metrics in records.all if "train/loss" in metrics] == list(
        range(step + 1, STEPS + 1)
    )
    assert records.saves == [STEPS]
    places = [(each.progress.epoch, each.progress.batch) for each in (second, uninterrupted)]
    assert places[0] == places[1]
    assert_equal_to_the_bit(second, uninterrupted)


@pytest.mark.parametrize(("form", "parts"), [(Updater, 1), (FastUpdater, 2)])
def test_dropout_differs_from_step_to_step_and_between_micro_batches_and_their_parts(
    corpus: EncodedCorpus, form: type[Updater], parts: int
) -> None:
    """The same pair again and again, by weights that don't change."""
    trainer = make_trainer(Equal(corpus, 20), form=form, dropout=0.5, learning_rate_scale=1e-30)
    pairs = np.zeros(20, dtype=int)
    if parts > 1:
        source, target = (10 * int(side[0]) for side in corpus.lengths(pairs))
        trainer.updater.set_most_tokens((source, target))
    masks: list[torch.Tensor] = []
    trained_model(trainer).encoder.layers[0].dropout.register_forward_hook(
        lambda module, inputs, output: masks.append(output == 0)
    )
    for _ in range(2):
        update(trainer, [pairs, pairs])
    of_parts = masks[::2]  # the layer drops out after each of its two sublayers
    assert len(of_parts) == 4 * parts
    for i, one in enumerate(of_parts):
        for other in of_parts[:i]:
            assert 0.3 < (one != other).double().mean() < 0.7


@pytest.mark.parametrize("form", [Updater, FastUpdater])
def test_dropout_rises_to_its_rates(corpus: EncodedCorpus, form: type[Updater]) -> None:
    choices = {"dropout": 0.4, "dropout_warmup_steps": 4, "max_steps": 6}
    trainer = make_trainer(Equal(corpus, 40), form=form, **choices)
    dropped: list[float] = []
    model = trained_model(trainer)
    for module in (model, model.decoder.layers[0]):
        module.dropout.register_forward_hook(
            lambda module, inputs, output: dropped.append((output == 0).double().mean().item())
        )
    train(trainer)
    # A step drops out after both embeddings, and after the three sublayers of the decoder's layer.
    steps = np.array(dropped).reshape(6, 5)
    for share, found in zip((0.1, 0.2, 0.3, 0.4, 0.4, 0.4), steps, strict=True):
        np.testing.assert_allclose(found, share, atol=0.05)


@pytest.mark.parametrize("form", [Updater, FastUpdater])
def test_a_gradient_that_is_not_finite_stops_before_the_update(
    corpus: EncodedCorpus, form: type[Updater]
) -> None:
    trainer = make_trainer(Equal(corpus, 8), form=form)
    before = copy.deepcopy(trainer.model.state_dict())
    weight = trainer.model.encoder.layers[0].feed_forward.inner.weight  # shared with a fast copy
    weight.register_hook(lambda gradient: gradient * math.inf)
    with pytest.raises(UserError, match=r"step 1: .*not finite"):
        train(trainer)
    assert trainer.progress.step == 0
    torch.testing.assert_close(trainer.model.state_dict(), before, rtol=0, atol=0)


def test_steps_end_it_with_a_save_and_a_validation(corpus: EncodedCorpus) -> None:
    trainer = make_trainer(Equal(corpus, 8), max_steps=7, checkpoint_steps=3)
    bleu = iter([1.0, 3.0, 2.0])
    saves: list[int] = []
    validations: list[tuple[int, bool]] = []

    def validate() -> dict[str, float]:
        assert saves[-1] == trainer.progress.step  # whole before anything else is tried
        return {"valid/bleu": next(bleu)}

    def save_validation(is_best: bool) -> None:
        assert not trainer.progress.validation_pending
        validations.append((trainer.progress.step, is_best))

    records = train(trainer, validate, lambda: saves.append(trainer.progress.step), save_validation)
    assert saves == [3, 6, 7]
    assert validations == [(3, True), (6, True), (7, False)]
    assert records.of("valid/bleu") == [1.0, 3.0, 2.0]
    assert trainer.progress.ended == "at step 7 of 7"
    assert (trainer.progress.best_score, trainer.progress.best_step) == (3.0, 6)


@pytest.mark.parametrize(
    ("select_by", "validations", "best"),
    [  # the score and the loss of each, until two are worse
        ("bleu", [(1.0, 5), (2.0, 5), (1.5, 5), (2.5, 5), (2.5, 5), (0.0, 5)], 4),
        ("bleu", [(0.0, 9), (0.0, 8), (0.0, 7), (0.0, 7), (0.0, 8)], 3),
        ("bleu", [(0.9, 9), (0.2, 8), (0.3, 7), (0.9, 8), (0.5, 7)], 3),
        ("bleu", [(30.004, 5), (30.001, 4), (30.003, 4), (30.0, 6)], 2),
        ("bleu", [(30.0, 5), (29.9, 4), (0.9, 3)], 1),
        ("chrf", [(20.0, 5), (25.0, 6), (24.0, 1), (25.0, 7)], 2),
        ("loss", [(9.0, 5), (1.0, 4), (8.0, 4.5), (30.0, 4)], 2),
    ],
)
def test_patience_ends_it_after_the_best_validation(
    corpus: EncodedCorpus, select_by: str, validations: list[tuple[float, float]], best: int
) -> None:
    choices = {"max_steps": None, "patience": 2, "checkpoint_steps": 2, "select_by": select_by}
    trainer = make_trainer(Equal(corpus, 8), **choices)
    scores = iter(validations)
    names = ("valid/chrf" if select_by == "chrf" else "valid/bleu", "valid/loss")
    train(trainer, validate=lambda: dict(zip(names, next(scores), strict=True)))
    assert trainer.progress.best_step == 2 * best
    assert trainer.progress.step == 2 * len(validations)
    assert "2 validations without a better one" in trainer.progress.ended


def test_minutes_end_it_and_checkpoints_come_by_the_clock(corpus: EncodedCorpus) -> None:
    """Each update takes a minute; the minutes of earlier starts count."""
    now, limits = [0.0], {"max_steps": None, "max_minutes": 24.0, "checkpoint_minutes": 4.0}
    trainer = make_trainer(Equal(corpus, 8), clock=lambda: now[0], **limits)
    trainer.progress = Progress(seconds=14 * 60.0, validated_seconds=12 * 60.0)

    def spend(seconds: float) -> None:
        now[0] += seconds

    def validate() -> dict[str, float]:
        spend(30)
        return {"valid/bleu": 0.0}

    after_each_batch(trainer, lambda: spend(60))
    records = train(trainer, validate)
    assert records.saves == [2, 6, 9]  # after 16, 20.5 and 24 minutes, validations not counted
    assert trainer.progress.seconds == 24.5 * 60
    assert trainer.progress.ended == "24.5 of 24 minutes are over"


@pytest.mark.parametrize("number", signals("SIGTERM", "SIGUSR1"), ids=lambda n: n.name)
def test_a_signal_during_a_step_saves_and_stops(corpus: EncodedCorpus, number: int) -> None:
    trainer = make_trainer(Equal(corpus, 8))

    def interrupt() -> None:
        if trainer.progress.step == 3:
            signal.raise_signal(number)

    after_each_batch(trainer, interrupt)
    trainer.progress.ended = "at step 0 of 0"  # as in a finished training that is given more
    before = signal.getsignal(number)
    assert train(trainer).saves == [4]
    assert trainer.signal == number
    assert trainer.progress.ended == ""
    assert signal.getsignal(number) is before


def test_the_end_does_not_wait_for_an_epoch_that_is_being_encoded(
    corpus: EncodedCorpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed, in_time = threading.Event(), []
    monkeypatch.setattr(corpus, "close", closed.set)
    batching = Equal(corpus, 8)
    first = batching.epoch(0)

    def epoch(number: int) -> list[PairIndices]:
        in_time.append(number == 0 or closed.wait(60))
        return first

    monkeypatch.setattr(batching, "epoch", epoch)
    train(make_trainer(batching, max_steps=5))  # an epoch: the next step waits for another one
    assert len(in_time) > 1
    assert all(in_time)


@pytest.mark.parametrize("place", ["save", "validate", "save_validation"])
def test_a_signal_during_a_checkpoint_leaves_it_saved(corpus: EncodedCorpus, place: str) -> None:
    trainer = make_trainer(Equal(corpus, 8), checkpoint_steps=5)
    calls: list[str] = []

    def call(name: str) -> None:
        calls.append(name)
        if name == place:
            signal.raise_signal(signal.SIGTERM)

    def validate() -> dict[str, float]:
        call("validate")
        return {"valid/bleu": 1.0}

    train(trainer, validate, lambda: call("save"), lambda is_best: call("save_validation"))
    assert calls == ["save", "validate", "save_validation"][: calls.index(place) + 1]
    assert trainer.progress.step == 5
    assert trainer.signal == signal.SIGTERM
    # The resumed training makes the validation that was interrupted.
    assert trainer.progress.validation_pending == (place != "save_validation")


class Switching(Transformer):
    """Adds one of two vectors to the states of a batch, by its first token."""

    def __init__(self, config: TransformerConfig, **sizes: int) -> None:
        super().__init__(config, **sizes)
        self.vectors = nn.ParameterList(torch.zeros(config.d_model) for _ in range(2))

    def decoder_states(self, source: Tensor, target_input: Tensor) -> Tensor:
        vector = self.vectors[int(source[0, 0]) % 2]
        return super().decoder_states(source, target_input) + vector


class OneOfTwo(World):
    """One of two processes, each in a thread."""

    size = 2

    def __init__(self, rank: int, barrier: threading.Barrier, shared: dict[int, Any]) -> None:
        self.rank, self.barrier, self.shared = rank, barrier, shared

    def gather_objects(self, value: Any) -> list[Any]:
        self.shared[self.rank] = value
        self.barrier.wait()
        values = [self.shared[rank] for rank in range(self.size)]
        self.barrier.wait()
        return values

    def gather(self, *values: float) -> list[list[float]]:
        return self.gather_objects(list(values))

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        sums = sum(self.gather_objects(torch.cat([tensor.flatten() for tensor in tensors])))
        parts = torch.split(sums, list(map(torch.Tensor.numel, tensors)))
        for tensor, part in zip(tensors, parts, strict=True):
            tensor.copy_(part.view_as(tensor))


@pytest.mark.parametrize("form", [Updater, FastUpdater])
def test_processes_that_use_other_parts_of_a_model_train_as_one_does(
    corpus: EncodedCorpus, form: type[Updater]
) -> None:
    batching = Equal(corpus, 4)
    steps = list(zip(batching.epoch(0)[::2], batching.epoch(0)[1::2], strict=True))
    firsts = [{int(corpus.source(pairs[0])[0]) % 2 for pairs in step} for step in steps]
    assert {0, 1} in firsts

    sizes = TransformerConfig(num_layers=1, d_model=16, d_ff=24, num_heads=2, dropout=0.0)
    torch.manual_seed(1)
    initial = new_transformer(sizes, V, model_class=Switching).double()

    def train_as(world: World) -> dict[str, Tensor]:
        model = copy.deepcopy(initial)
        parts: dict[str, Any] = {"compute": Compute(), "micro_batches": 2, "world": world}
        updater = form(model, batching, TrainingConfig(warmup_steps=10), seed=5, **parts)
        for number, step in enumerate(steps, start=1):
            updater.update(number, updater.collate(step))
        return model.state_dict()

    alone = train_as(World())
    barrier, shared = threading.Barrier(2, timeout=60), dict[int, Any]()
    with ThreadPoolExecutor(2) as threads:
        for found in threads.map(train_as, [OneOfTwo(rank, barrier, shared) for rank in range(2)]):
            torch.testing.assert_close(found, alone, rtol=0, atol=1e-8)


class Left(World):
    """The first of two processes, of which the other one leaves its validation by a signal."""

    has_left = False

    def gather(self, *values: float) -> list[list[float]]:
        others = [0.0, float(signal.SIGTERM * self.has_left)]
        return [list(values), others]

    def gather_objects(self, value: Any) -> list[Any]:
        self.has_left = True
        return [value, None]


def test_a_validation_that_another_process_has_left_is_still_to_be_made(
    corpus: EncodedCorpus,
) -> None:
    trainer = make_trainer(Equal(corpus, 8), checkpoint_steps=5, parts={"world": Left()})
    records = train(trainer, lambda: {"valid/bleu": 9.0}, save_validation=pytest.fail)
    assert records.of("valid/bleu") == []
    assert trainer.signal == signal.SIGTERM
    progress = trainer.progress
    assert (progress.step, progress.validation_pending) == (5, True)
    assert (progress.validated_step, progress.best_step, progress.best_score) == (0, 0, -1.0)


def test_what_is_recorded_of_several_updates_is_their_mean(corpus: EncodedCorpus) -> None:
    """Per token, per step, or of the last update; the last record has the two that are left."""
    every, fifth = (
        train(make_trainer(Equal(corpus, 8), max_steps=12, log_steps=steps)) for steps in (1, 5)
    )
    assert [step for step, metrics in fifth.all if "train/loss" in metrics] == [5, 10, 12]
    names = ("loss", "perplexity", "gradient_norm", "learning_rate", "source_tokens")
    of_each = {name: np.array(every.of(f"train/{name}")) for name in names}
    tokens = np.array(every.of("train/target_tokens"))
    of_each["perplexity"] = np.log(of_each["perplexity"])
    for i, part in enumerate((slice(0, 5), slice(5, 10), slice(10, 12))):
        weights, values = tokens[part], {name: x[part] for name, x in of_each.items()}
        expected = {
            "loss": np.average(values["loss"], weights=weights),
            "perplexity": np.exp(np.average(values["perplexity"], weights=weights)),
            "gradient_norm": values["gradient_norm"].mean(),
            "learning_rate": values["learning_rate"][-1],
            "source_tokens": values["source_tokens"].mean(),
            "target_tokens": weights.mean(),
        }
        found = {name: fifth.of(f"train/{name}")[i] for name in expected}
        assert found == pytest.approx(expected, rel=1e-6)


@pytest.mark.posix
@pytest.mark.parametrize("ignored", [False, True])
def test_hangups_do_not_end_a_save_and_stay_ignored_if_they_were(
    corpus: EncodedCorpus, ignored: bool
) -> None:
    """A terminal that closes sends one, and so does its shell; nohup ignores them."""
    trainer = make_trainer(Equal(corpus, 8), max_steps=3)

    def save() -> None:
        signal.raise_signal(signal.SIGHUP)
        signal.raise_signal(signal.SIGHUP)

    before = signal.getsignal(signal.SIGHUP)
    if ignored:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert train(trainer, save=save).saves == [3]
    finally:
        signal.signal(signal.SIGHUP, before)
    assert trainer.signal == (None if ignored else signal.SIGHUP)


@pytest.mark.parametrize(("form", "attempt"), [(Updater, try_update), (FastUpdater, fit_memory)])
def test_trying_what_fits_into_memory_changes_nothing(
    corpus: EncodedCorpus, form: type[Updater], attempt: Callable[[Any, int], float]
) -> None:
    batching = Batching(corpus, source_tokens=24, target_tokens=28, seed=3)
    tried, plain = (make_trainer(batching, form=form, dropout=0.3) for _ in range(2))
    rng_state = torch.get_rng_state()
    settings = tried.updater.settings()
    assert attempt(tried.updater, 0) > 0
    assert tried.updater.settings() == settings
    assert torch.equal(rng_state, torch.get_rng_state())
    assert all(parameter.grad is None for parameter in tried.model.parameters())
    for trainer in (tried, plain):
        train(trainer)
    assert_equal_to_the_bit(tried, plain)


def test_all_processes_compute_as_many_tokens_at_once_as_the_one_with_the_least_memory(
    corpus: EncodedCorpus,
) -> None:
    class Three(World):
        def gather(self, *values: float) -> list[list[float]]:
            return [list(values), [90.0, 31.0], [32.0, 95.0]]

    batching = Batching(corpus, source_tokens=100, target_tokens=100, seed=3)
    trainer = make_trainer(batching, parts={"world": Three()})
    fit_memory(trainer.updater, 0)
    assert trainer.updater.most_tokens == (32, 31)


def test_an_attempt_has_the_memory_that_the_failed_one_had(corpus: EncodedCorpus) -> None:
    """Not only when Python happens to collect garbage."""
    batching = Batching(corpus, source_tokens=100, target_tokens=100, seed=3)
    trainer = make_trainer(batching)
    losses, loss = [], trainer.updater.fast.loss

    def limited(batch: Batch, smoothing: float) -> Loss:
        assert all(taken() is None for taken in losses)
        taken = torch.empty(1000)
        losses.append(weakref.ref(taken))
        if len(losses) < 4:
            raise RuntimeError(f"CUDA out of memory for {len(taken)} numbers")
        return loss(batch, smoothing)

    trainer.updater.fast.loss = limited
    gc.collect()
    gc.disable()
    try:
        fit_memory(trainer.updater, 0)
    finally:
        gc.enable()
    assert len(losses) == 4


def test_a_micro_batch_that_does_not_fit_into_memory_is_refused_before_the_first_update(
    corpus: EncodedCorpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    batching = Batching(corpus, source_tokens=100, target_tokens=100, seed=3)
    trainer = make_trainer(batching, form=Updater)
    largest = max(batching.epoch(0), key=corpus.padded_tokens)

    def collate(batching: Batching, pairs: PairIndices) -> Any:
        assert np.array_equal(pairs, largest)
        raise MemoryError

    monkeypatch.setattr(Batching, "collate", collate)
    with pytest.raises(OutOfMemoryError, match="out of memory"):
        try_update(trainer.updater, 0)


def test_batches_are_halved_until_the_largest_fits(corpus: EncodedCorpus) -> None:
    batching = Batching(corpus, source_tokens=100, target_tokens=100, seed=3)
    tried: list[int] = []

    def attempt(trainer: Trainer, most: int) -> None:
        host_batch = trainer.updater.host_batch

        def limited(pairs: PairIndices) -> Any:
            tried.append(sum(int(side.sum()) for side in corpus.lengths(pairs)))
            if tried[-1] > most:
                raise MemoryError
            return host_batch(pairs)

        trainer.updater.host_batch = limited
        fit_memory(trainer.updater, 0)

    whole, limited, hopeless = (make_trainer(batching) for _ in range(3))
    attempt(whole, 999)
    most = tried[0] // 3
    attempt(limited, most)
    assert sum(limited.updater.most_tokens) < sum(batching.most_tokens) / 3
    for trainer in (whole, limited):
        update(trainer, batching.epoch(0)[:1])
    assert max(tried[-2:]) <= most
    longest = "a single pair of {} source and {} target".format(*corpus.longest)
    with pytest.raises(OutOfMemoryError, match=longest):
        attempt(hopeless, 1)
