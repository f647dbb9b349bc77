"""Training on the simulated GPU: the CPU's numbers, in few waits."""

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor, nn

from seq2seq.batches import make_batching
from seq2seq.config import TrainingConfig, TransformerConfig
from seq2seq.device import Compute
from seq2seq.encoded_corpus import EncodedCorpus, PairIndices
from seq2seq.errors import OutOfMemoryError
from seq2seq.fast.attention import FlexLayout
from seq2seq.fast.fused import DecoderWithOneProjection, ReluInMatmul
from seq2seq.fast.graphs import Graphs
from seq2seq.fast.rows import GridLayout
from seq2seq.fast.training import (
    FastModel,
    GpuDropout,
    ResidualNorm,
    StepNumbers,
    can_compile,
    choose_layout,
    loss_by_sums,
    projected_loss,
)
from seq2seq.fast.updates import FastUpdater, fit_memory
from seq2seq.model_folder import TrainedModel, new_transformer
from seq2seq.run.checkpoint import restore_checkpoint, save_checkpoint
from seq2seq.run.training import TrainingRun
from seq2seq.run.validation import SetShare
from seq2seq.tokenizer import Tokenizer
from seq2seq.trainer import Trainer
from seq2seq.update import DivergenceError
from tests.changes import WithoutDropout
from tests.core.records import train
from tests.cuda.device import Journal, inside
from tests.cuda.graph import recorder
from tests.models import ALL_MODERN, perturb
from tests.toy import encoded_corpus, update

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
V = 60


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> EncodedCorpus:
    return encoded_corpus(tmp_path_factory.mktemp("corpus") / "train.ids", V, 120)


def make_trainer(
    corpus: EncodedCorpus,
    device: torch.device,
    dtype: torch.dtype = torch.bfloat16,
    **choices: Any,
) -> Trainer:
    tokens = {"source_tokens": 96, "target_tokens": 96, "micro_batch_tokens": 48}
    config = TrainingConfig(**tokens, warmup_steps=10, dropout_warmup_steps=3)
    sizes = {"num_layers": 2, "d_model": 16, "d_ff": 24, "num_heads": 2, "dropout": 0.0}
    sizes |= {"d_k": 16, "d_v": 16}
    torch.manual_seed(1)
    model = new_transformer(TransformerConfig(**(sizes | choices)), V).to(device)
    compute, batching = Compute(device, dtype), make_batching(config, corpus, seed=1)
    return Trainer(FastUpdater(model, batching, config, compute=compute, seed=1))


def steps_of(trainer: Trainer, count: int) -> list[list[PairIndices]]:
    epoch = trainer.batching.epoch(0)
    return [epoch[i : i + 2] for i in range(0, 2 * count, 2)]


def without_graphs(trainer: Trainer) -> Trainer:
    trainer.updater.graphs.works = False
    return trainer


def weights_of(trainer: Trainer) -> list[Tensor]:
    return [inside(parameter).detach().clone() for parameter in trainer.model.parameters()]


@pytest.mark.parametrize(
    ("choices", "dtype"),
    [
        ({}, torch.bfloat16),
        ({}, torch.float32),
        ({"d_k": 3, "d_v": 5}, torch.bfloat16),
        (ALL_MODERN, torch.float32),
    ],
    ids=["rows", "float32", "narrow heads", "modern"],
)
def test_updates_are_those_of_the_cpu_and_never_wait(
    corpus: EncodedCorpus, journal: Journal, choices: dict[str, Any], dtype: torch.dtype
) -> None:
    trainers = [make_trainer(corpus, device, dtype, **choices) for device in (CPU, CUDA)]
    for trainer in trainers:
        fit_memory(trainer.updater, 0)
    journal.clear()
    # Graphs are recorded in the second step that needs them, and start the third.
    steps = steps_of(trainers[0], 4)
    for step in steps:
        expected, found = (update(trainer, step) for trainer in trainers)
        assert found.smoothed == pytest.approx(expected.smoothed, rel=1e-2)
        assert found.gradient_norm == pytest.approx(expected.gradient_norm, rel=0.1)
    assert not journal.waits, Counter(journal.waits)
    # Losses and norm are read once a step, whatever the number of micro-batches.
    assert journal.given_meanwhile == [0] * len(steps)
    if dtype is torch.float32:
        torch.testing.assert_close(*map(weights_of, trainers), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("parameters", [{}, {"bias": False}, {"elementwise_affine": False}])
def test_a_norm_on_a_gpu_has_the_epsilon_of_the_plain_one(parameters: dict[str, bool]) -> None:
    x = torch.randn(5, 16)
    plain = nn.LayerNorm(16, eps=0.5, **parameters)
    perturb(plain)
    expected = plain(x)
    found = ResidualNorm(plain.to(CUDA))(x.to(CUDA))
    torch.testing.assert_close(inside(found), expected)


@pytest.mark.parametrize("most", [None, 40], ids=["whole", "in parts"])
def test_graphs_do_what_single_kernels_do(
    corpus: EncodedCorpus, journal: Journal, most: int | None
) -> None:
    """With dropout, whose rate rises, to the bit; a step then starts two graphs, or some more."""
    rates = {"dropout": 0.3, "relu_dropout": 0.1}
    single, graphs = (make_trainer(corpus, CUDA, **rates) for _ in range(2))
    for trainer in (single, graphs):
        if most is not None:
            trainer.updater.set_most_tokens((most, most))
    without_graphs(single)
    before = recorder.replays
    steps = steps_of(single, 5)  # the rate is what it should be after three
    for step in steps:
        expected = update(single, step)
        journal.clear()
        found = update(graphs, step)
        assert (found.smoothed, found.gradient_norm) == (expected.smoothed, expected.gradient_norm)
        assert not journal.waits, Counter(journal.waits)
        # One copy of each batch, one of the step's numbers; all of them pinned.
        assert journal.copies == 1 + len(graphs.updater.collate(step).batches)
    torch.testing.assert_close(*map(weights_of, (single, graphs)), rtol=0, atol=0)
    batches = [len(single.updater.collate(step).batches) for step in steps]
    assert (max(batches) > 1) == (most is not None)
    assert recorder.replays - before > sum(batches[3:]) + len(steps) - 3
    assert graphs.updater.graphs.works


def test_products_are_in_bf16_and_every_dropout_works(
    corpus: EncodedCorpus, journal: Journal
) -> None:
    rates = {"dropout": 0.1, "attention_dropout": 0.1, "relu_dropout": 0.1}
    for chosen in (rates, {"dropout": 0.1, "relu_dropout": 0.1}):
        trainers = [make_trainer(corpus, device, **chosen) for device in (CPU, CUDA)]
        journal.clear()
        expected, found = (update(trainer, steps_of(trainer, 1)[0]) for trainer in trainers)
        assert found.smoothed == pytest.approx(expected.smoothed, rel=0.2)
        assert all(p.grad is not None and p.grad.is_cuda for p in trainers[1].model.parameters())
        # But for the simulated attention itself.
        assert journal.products[torch.bfloat16] > 60


@pytest.mark.parametrize("name", ["dropout", "attention_dropout", "relu_dropout"])
@pytest.mark.parametrize("choices", [{}, ALL_MODERN], ids=["paper", "modern"])
def test_each_dropout_begins_at_none_and_rises(
    corpus: EncodedCorpus, choices: dict[str, Any], name: str
) -> None:
    """That of attention's weights, too, which a kernel does within attention."""
    smoothed = []
    for rate, warmup in ((0.0, 10**9), (0.9, 10**9), (0.9, 1)):
        trainer = make_trainer(corpus, CUDA, torch.float32, **choices, **{name: rate})
        trainer.config.dropout_warmup_steps = warmup
        smoothed.append(update(trainer, steps_of(trainer, 1)[0]).smoothed)
    without, at_first, later = smoothed
    assert at_first == pytest.approx(without, rel=1e-5)
    assert later != pytest.approx(without, rel=1e-4)


@pytest.mark.parametrize(
    ("choices", "programs"),
    [({}, 6), ({"attention_dropout": 0.1}, 0), ({"d_k": 3}, 0), (ALL_MODERN, 0)],
    ids=["one shape", "attention's dropout", "narrow heads", "modern"],
)
def test_only_what_has_one_shape_is_compiled(
    corpus: EncodedCorpus,
    monkeypatch: pytest.MonkeyPatch,
    choices: dict[str, Any],
    programs: int,
) -> None:
    """The compiler makes a program of its own for each shape, and gives up after eight."""
    compiled: list[object] = []
    monkeypatch.setattr(nn.Module, "compile", lambda module, **_: compiled.append(module))
    monkeypatch.setattr(
        torch, "compile", lambda function, **_: compiled.append(function) or function
    )
    trainer = make_trainer(corpus, CUDA, **choices)
    assert len(compiled) == programs  # two layers on each side, dropout, the loss
    for step in steps_of(trainer, 2):
        update(trainer, step)


def test_a_model_without_dropout_of_embeddings_is_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled: list[object] = []
    monkeypatch.setattr(nn.Module, "compile", lambda module, **_: compiled.append(module))
    config = TransformerConfig(num_layers=2, d_model=32, d_ff=24, num_heads=2)
    model = new_transformer(config, V, model_class=WithoutDropout).to(CUDA)
    fast = FastModel(model, Compute(CUDA, torch.bfloat16)).model
    assert compiled == [*fast.encoder.layers, *fast.decoder.layers]


def test_recording_that_fails_leaves_a_training_without_graphs(
    corpus: EncodedCorpus, monkeypatch: pytest.MonkeyPatch, warned: list[str]
) -> None:
    single, failing = (make_trainer(corpus, CUDA, dropout=0.3) for _ in range(2))
    without_graphs(single)
    error = RuntimeError("CUDA error: operation not permitted\nCompile with ...")
    monkeypatch.setattr(torch.cuda, "graph", mock.Mock(side_effect=error))
    for step in steps_of(single, 4):
        expected, found = (update(trainer, step) for trainer in (single, failing))
        assert found.smoothed == expected.smoothed
    reason = "CUDA error: operation not permitted"
    assert warned == [f"CUDA graphs don't work here, so it takes longer: {reason}"]
    torch.testing.assert_close(*map(weights_of, (single, failing)), rtol=0, atol=0)


def test_the_reason_why_a_recording_has_failed_is_said_before_the_gpu_is_used_again(
    monkeypatch: pytest.MonkeyPatch, warned: list[str]
) -> None:
    illegal = RuntimeError("CUDA error: an illegal memory access was encountered")
    monkeypatch.setattr(torch.cuda, "graph", mock.Mock(side_effect=RuntimeError("the reason")))
    monkeypatch.setattr(torch.cuda, "current_device", mock.Mock(side_effect=illegal))
    graphs = Graphs(CUDA)
    graphs.run("a key", list)
    with pytest.raises(RuntimeError, match="an illegal memory access"):
        graphs.run("a key", list)
    assert warned == ["CUDA graphs don't work here, so it takes longer: the reason"]


def test_recording_that_fails_in_the_middle_leaves_dropout_as_it_was(
    corpus: EncodedCorpus, warned: list[str]
) -> None:
    single, failing = (make_trainer(corpus, CUDA, dropout=0.3) for _ in range(2))
    without_graphs(single)
    recorded: list[bool] = []

    def reads_a_number(*_: object) -> None:
        recorded.append(recorder.graph is not None)
        if recorded[-1]:
            torch.ones((), device="cuda").item()

    failing.updater.fast.model.decoder.layers[0].register_forward_hook(reads_a_number)
    for step in steps_of(single, 4):
        expected, found = (update(trainer, step) for trainer in (single, failing))
        assert found.smoothed == expected.smoothed
    assert recorded == [False, True, False, False, False]
    reason = "operation not permitted when stream is capturing: item"
    assert warned == [f"CUDA graphs don't work here, so it takes longer: {reason}"]
    torch.testing.assert_close(*map(weights_of, (single, failing)), rtol=0, atol=0)


def test_forms_on_trial_compute_the_same(
    corpus: EncodedCorpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    chosen = "relu_in_matmul,loss_by_sums,rows_of_128,autotune,keys_and_values_at_once"
    chosen += ",hashed_dropout"
    for names in ("", chosen):
        monkeypatch.setenv("SEQ2SEQ_TRIALS", names)
        trainer = make_trainer(corpus, CUDA, torch.float32)
        updates = [update(trainer, step) for step in steps_of(trainer, 3)]
        found.append([(each.smoothed, each.gradient_norm) for each in updates])
        multiple = 128 if names else 64
        assert all(rows % multiple == 0 for rows in trainer.updater.shape.rows)
        model = trainer.updater.fast.model
        assert isinstance(model.encoder.layers[0].feed_forward, ReluInMatmul) == bool(names)
        assert isinstance(model.decoder, DecoderWithOneProjection) == bool(names)
        dropouts = [module for module in model.modules() if isinstance(module, GpuDropout)]
        assert {module.is_hashed for module in dropouts} == {bool(names)}
        assert (trainer.updater.fast.chunk is loss_by_sums) == bool(names)
    torch.testing.assert_close(torch.tensor(found[0]), torch.tensor(found[1]), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("chunks", [1, 5])
def test_the_gradient_of_the_weight_is_summed_in_float32_by_fewer_kernels(
    journal: Journal, monkeypatch: pytest.MonkeyPatch, chunks: int
) -> None:
    torch.manual_seed(1)
    states, matrix = torch.randn(10, 16).to(CUDA), torch.randn(V, 16)
    targets, elements = torch.randint(0, V, (10,)).to(CUDA), 10 * V // chunks
    gradients, kernels = [], []
    for names in ("", "sums_in_matmul"):
        monkeypatch.setenv("SEQ2SEQ_TRIALS", names)
        weight = matrix.to(CUDA).requires_grad_()
        journal.clear()
        with Compute(CUDA, torch.bfloat16).autocast():
            loss = projected_loss(states, weight, targets, smoothing=0.1, chunk_elements=elements)
        kernels.append(journal.kernels.total())
        loss.smoothed.backward()
        gradients.append(inside(weight.grad))
    assert kernels[0] - kernels[1] == chunks
    torch.testing.assert_close(*gradients, rtol=1e-2, atol=1e-2)
    rounded = [bool((gradient.bfloat16() == gradient).all()) for gradient in gradients]
    assert rounded == [chunks == 1, False]  # each product is, without the trial


def test_the_gpu_has_the_next_update_while_the_metrics_of_one_are_read(
    corpus: EncodedCorpus, journal: Journal
) -> None:
    """All of them are read before they are recorded or saved."""
    unread: list[int] = []
    trainer = make_trainer(corpus, CUDA)
    trainer.config.max_steps, trainer.config.log_steps = 7, 4
    trainer.config.checkpoint_steps = 6
    update(trainer, trainer.batching.epoch(0)[:2])
    journal.clear()
    running = trainer.updater.started
    records = train(trainer, save=lambda: unread.append(len(running)))
    assert not journal.waits, Counter(journal.waits)
    # Steps 2 to 7, of which 4, 6 and 7 are recorded. While others are read, the next one runs.
    assert len(journal.given_meanwhile) == 6
    assert unread == [0, 0]
    assert [step for step, metrics in records.all if "train/loss" in metrics] == [4, 6, 7]


def test_a_training_goes_on_from_its_checkpoint(
    corpus: EncodedCorpus, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    first, second = (make_trainer(corpus, CUDA, torch.bfloat16) for _ in range(2))
    batches = first.batching.epoch(0)
    update(first, batches[:2])
    trained = TrainedModel(first.model, tokenizer, "a", "b")
    folder = save_checkpoint(tmp_path, 1, trained, first.optimizer, {"step": 1})
    restore_checkpoint(folder, second.model, second.optimizer)
    for state in second.optimizer.state.values():
        assert all(value.is_cuda for value in state.values())
    second.progress.step = 1
    expected, found = (update(trainer, batches[2:4]) for trainer in (first, second))
    assert found.smoothed == expected.smoothed
    assert found.gradient_norm == expected.gradient_norm
    torch.testing.assert_close(*map(weights_of, (first, second)), rtol=0, atol=0)


@pytest.mark.parametrize("damaged", [[3], [3, 4]], ids=["one", "both"])
def test_no_update_is_done_after_one_that_is_not_finite(
    corpus: EncodedCorpus, damaged: list[int]
) -> None:
    """The next one is started before the host can know of it, and may not be finite either."""
    trainer = make_trainer(corpus, CUDA)
    before: list[list[Tensor]] = []
    set_numbers = trainer.updater.fast.set_numbers

    def damage(numbers: StepNumbers) -> StepNumbers:
        before.append(weights_of(trainer))
        is_damaged = len(before) in damaged
        return set_numbers(numbers._replace(target_tokens=0.0) if is_damaged else numbers)

    trainer.updater.fast.set_numbers = damage
    with pytest.raises(DivergenceError, match="step 3: the loss"):
        train(trainer, save=lambda: pytest.fail("saved"))
    assert trainer.progress.step == 2
    assert len(before) == 4  # a fourth update was started
    torch.testing.assert_close(weights_of(trainer), before[2], rtol=0, atol=0)


@pytest.mark.parametrize(
    ("width", "kilobytes", "layout"),
    [(64, 99, FlexLayout), (128, 227, FlexLayout), (128, 99, GridLayout), (512, 227, GridLayout)],
)
def test_heads_too_wide_for_a_card_attend_within_padded_sentences(
    monkeypatch: pytest.MonkeyPatch, width: int, kilobytes: int, layout: type
) -> None:
    card = SimpleNamespace(shared_memory_per_block_optin=kilobytes * 1024)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: card)
    config = TransformerConfig(num_layers=1, d_model=8, d_ff=8, num_heads=1, d_k=width, d_v=16)
    assert choose_layout(new_transformer(config, V).to("cuda"), compiled=True) is layout


def test_a_compiler_that_fails_is_found_out_before_the_training(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("torch.utils._triton.has_triton", lambda: True)
    can_compile.cache_clear()
    assert can_compile(CUDA)
    can_compile.cache_clear()

    def fails(*_: object) -> None:
        raise RuntimeError("Failed to find C compiler\nset CC")

    monkeypatch.setattr(torch, "compile", lambda *_, **__: fails)
    assert not can_compile(CUDA)
    assert not can_compile(CUDA)
    reason = "PyTorch's compiler doesn't work here, so training takes longer: Failed to find C"
    assert [message.startswith(reason) for message in caplog.messages] == [True]
    can_compile.cache_clear()


def test_a_validation_that_needs_memory_gets_that_of_the_updates(corpus: EncodedCorpus) -> None:
    """The updates after it are those that would have been without it."""
    usual, released = (make_trainer(corpus, CUDA) for _ in range(2))
    batches, fits = released.batching.epoch(0), []

    def validate_share(*_: object) -> list[SetShare]:
        fits.append(not released.updater.graphs.replays)
        if not fits[-1]:
            raise OutOfMemoryError("out of memory")
        return []

    run = SimpleNamespace(
        needs_memory=False,
        trainer=released,
        candidate=lambda: released.model,
        world=None,
        validate_share=validate_share,
    )
    for first in range(0, 12, 2):
        expected, found = (update(each, batches[first : first + 2]) for each in (usual, released))
        assert found.smoothed == expected.smoothed
        if first in (4, 8):
            assert released.updater.graphs.replays or run.needs_memory
            assert TrainingRun.validate(run) == []
    assert fits == [False, True, True]
    torch.testing.assert_close(*map(weights_of, (usual, released)), rtol=0, atol=0)
