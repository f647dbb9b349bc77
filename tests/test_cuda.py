"""Tests that need a GPU; skipped without one."""

import copy
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from seq2seq.batches import make_batching
from seq2seq.config import Positions, Start, TrainingConfig, TransformerConfig
from seq2seq.decoding.options import SamplingConfig, TranslationOptions
from seq2seq.decoding.translator import Translator
from seq2seq.device import Compute
from seq2seq.encoded_corpus import EncodedCorpus
from seq2seq.fast import training
from seq2seq.fast.decoder import TranslationKernels
from seq2seq.fast.graphs import Graphs
from seq2seq.fast.search import StaticSearch
from seq2seq.fast.updates import FastUpdater, fit_memory
from seq2seq.search import SearchConfig
from seq2seq.trainer import Trainer
from seq2seq.transformer import Transformer
from seq2seq.update import Updater
from tests.conftest import MakeModel, MakeTrained
from tests.toy import encoded_corpus, update

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def batch(vocab_size: int) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(1)
    source = torch.randint(4, vocab_size, (3, 7), generator=random)
    target = torch.randint(4, vocab_size, (3, 5), generator=random)
    source[1, 4:] = 0
    return source, target


@pytest.mark.parametrize(
    "choices",
    [
        {},
        {"attention_bias": True, "start": Start.zero, "positions": Positions.learned},
        {"d_k": 4, "d_v": 12, "positions": Positions.concatenated},
    ],
    ids=str,
)
def test_states_and_gradients_are_those_of_the_cpu(
    make_model: MakeModel, choices: dict[str, Any]
) -> None:
    model = make_model(d_model=16, d_ff=24, **choices)
    on_gpu = copy.deepcopy(model).cuda()
    source, target = batch(model.vocab_size)
    expected = model(source, target)
    found = on_gpu(source.cuda(), target.cuda())
    torch.testing.assert_close(found.cpu(), expected, rtol=0, atol=1e-9)
    expected.square().sum().backward()
    found.square().sum().backward()
    ours, theirs = ([p.grad.cpu() for p in each.parameters()] for each in (on_gpu, model))
    torch.testing.assert_close(ours, theirs, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize(
    "search",
    [
        SearchConfig(max_extra_tokens=4, nbest=2),
        SamplingConfig(nbest=2, top_k=5, top_p=0.9, max_extra_tokens=4),
    ],
    ids=["search", "sampling"],
)
def test_translations_equal_those_on_the_cpu(
    make_trained: MakeTrained, sentences: list[str], search: SearchConfig | SamplingConfig
) -> None:
    trained = make_trained()
    on_cpu, on_gpu = (
        Translator(trained, TranslationOptions(device=device, precision="fp32", search=search))
        for device in ("cpu", "cuda")
    )
    lines = ["", *sentences[:20]]
    for found, expected in zip(on_gpu.translate(lines), on_cpu.translate(lines), strict=True):
        assert [c.text for c in found.candidates] == [c.text for c in expected.candidates]
        for one, other in zip(found.candidates, expected.candidates, strict=True):
            assert one.score == pytest.approx(other.score, abs=1e-4)
    scores = (translator.log_probabilities(lines, lines) for translator in (on_gpu, on_cpu))
    for ours, theirs in zip(*scores, strict=True):
        assert ours.log_probability == pytest.approx(theirs.log_probability, abs=1e-3)
    ours, theirs = (one.attention(lines[1], lines[2]).cross for one in (on_gpu, on_cpu))
    torch.testing.assert_close(ours.cpu(), theirs, rtol=0, atol=1e-5)
    assert next(trained.model.parameters()).device.type == "cpu"


def test_steps_started_as_graphs_find_what_single_kernels_find(
    make_trained: MakeTrained, sentences: list[str]
) -> None:
    trained = make_trained()
    search, sentences = SearchConfig(max_extra_tokens=20), sentences[:12]
    options = TranslationOptions(device="cuda", precision="fp32", search=search)
    expected = Translator(trained, options, TranslationKernels(static=False)).translate(sentences)
    in_graphs = Translator(trained, options)
    for lines in (sentences, sentences[:1], sentences):
        for found, one in zip(in_graphs.translate(lines), expected, strict=False):
            assert found.text == one.text
            assert found.score == pytest.approx(one.score, abs=1e-4)
    assert isinstance(in_graphs.engine.static, StaticSearch)
    graphs = in_graphs.engine.static.graphs
    assert graphs is not None
    assert graphs.works
    assert graphs.replays


@pytest.mark.parametrize("kind", [SearchConfig, SamplingConfig])
def test_a_translator_in_bf16_gives_each_line_its_candidates(
    make_trained: MakeTrained, sentences: list[str], kind: type[SearchConfig | SamplingConfig]
) -> None:
    search = kind(max_extra_tokens=4)
    options = TranslationOptions(device="cuda", precision="bf16", search=search)
    found = Translator(make_trained(), options).translate(["", *sentences[:20]])
    assert [len(one.candidates) for one in found] == [0, *[1] * 20]


def test_fp32_is_not_tf32() -> None:
    a, b = torch.randn(512, 512).cuda(), torch.randn(512, 512).cuda()
    error = (a @ b).double() - a.double() @ b.double()
    assert error.abs().max() < 1e-3  # TF32's 10 bits would be off by some 1e-2


def test_after_a_recording_that_fails_there_are_random_numbers() -> None:
    device, ones = torch.device("cuda"), torch.ones(64, device="cuda")
    calls: list[Tensor] = []

    def reads_a_number() -> None:
        calls.append(F.dropout(ones, 0.5))
        if len(calls) == 2:
            ones.sum().item()

    graphs = Graphs(device)
    for _ in range(4):
        graphs.run("dropout", reads_a_number)
    assert not graphs.works
    assert len(calls) == 5  # the failed recording, and each call
    assert {0.0, 2.0} == set(F.dropout(torch.ones(512, device=device), 0.5).tolist())


@pytest.fixture
def corpus(tmp_path: Path) -> EncodedCorpus:
    return encoded_corpus(tmp_path / "corpus.ids", 20, 300)


def make_trainer(
    corpus: EncodedCorpus, config: TrainingConfig, form: Callable[..., Updater], **choices: Any
) -> Trainer:
    torch.manual_seed(1)
    sizes = TransformerConfig(**({"d_model": 64, "d_ff": 128, "num_heads": 4} | choices))
    model = Transformer(sizes, vocab_size=20, padding_id=0, start_id=2).cuda()
    compute = Compute(torch.device("cuda"), torch.bfloat16)
    batching = make_batching(config, corpus, seed=1)
    return Trainer(form(model, batching, config, compute=compute, seed=1))


@pytest.mark.filterwarnings("ignore")  # PyTorch's compiler warns of PyTorch's own code
@pytest.mark.parametrize(
    ("compiled", "most", "trials"),
    [
        (True, 9999, ""),
        (True, 128, ""),
        (False, 9999, ""),
        (True, 9999, "contiguous_blocks,rows_of_128,loss_by_sums,relu_in_matmul"),
        (True, 9999, "keys_and_values_at_once,sums_in_matmul"),
        (True, 9999, "autotune,blocks_of_64"),
    ],
    ids=["compiled", "in parts", "not compiled", "on trial", "at once", "autotuned"],
)
def test_fast_steps_are_those_of_the_plain_model(
    corpus: EncodedCorpus,
    monkeypatch: pytest.MonkeyPatch,
    compiled: bool,
    most: int,
    trials: str,
) -> None:
    monkeypatch.setenv("SEQ2SEQ_TRIALS", trials)
    if compiled and not training.can_compile(torch.device("cuda")):
        pytest.skip("PyTorch has no compiler for this GPU")
    found = []
    config = TrainingConfig(source_tokens=512, target_tokens=512, micro_batch_tokens=128)
    for form in (Updater, partial(FastUpdater, compiled=compiled)):
        trainer = make_trainer(corpus, config, form, num_layers=1, dropout=0.0)
        if isinstance(trainer.updater, FastUpdater):
            source, target = trainer.updater.most_tokens
            trainer.updater.set_most_tokens((min(most, source), min(most, target)))
            fit_memory(trainer.updater, 0)
        found.append([update(trainer, trainer.batching.epoch(n)[:4]) for n in range(4)])
    for expected, metrics in zip(*found, strict=True):
        assert metrics.smoothed == pytest.approx(expected.smoothed, rel=0.01)
        assert metrics.gradient_norm == pytest.approx(expected.gradient_norm, rel=0.05)
    assert isinstance(trainer.updater, FastUpdater)
    assert (trainer.updater.graphs is not None) == compiled
    if trainer.updater.graphs is not None:
        assert trainer.updater.graphs.works
        assert len(trainer.updater.graphs.replays) == (3 if most == 128 else 2)


def test_heads_too_wide_for_a_fused_kernel_train_as_the_plain_model(corpus: EncodedCorpus) -> None:
    """The row (A) of Table 3 with one head, as wide as the model."""
    config, found = TrainingConfig(source_tokens=128, target_tokens=128), []
    wide = {"num_layers": 1, "num_heads": 1, "d_k": 512, "d_v": 512, "dropout": 0.0}
    for form in (Updater, FastUpdater):
        trainer = make_trainer(corpus, config, form, **wide)
        found.append([update(trainer, trainer.batching.epoch(n)[:1]).smoothed for n in range(2)])
    assert found[1] == pytest.approx(found[0], rel=0.01)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("is_hashed", [False, True])
def test_compiled_dropout_has_one_mask_in_both_directions_and_draws_each_element_by_itself(
    dtype: torch.dtype, is_hashed: bool
) -> None:
    if not training.can_compile(torch.device("cuda")):
        pytest.skip("PyTorch has no compiler for this GPU")
    rate, count = 0.25, 2**20
    dropout = training.GpuDropout(rate).train()
    dropout.share, dropout.is_hashed = torch.ones((), device="cuda"), is_hashed
    x = torch.ones(count, dtype=dtype, device="cuda", requires_grad=True)
    dropped = torch.compile(dropout, dynamic=False)(x)
    dropped.sum().backward()
    assert x.grad is not None
    assert torch.equal(dropped.detach(), x.grad)
    is_dropped = (dropped.detach() == 0).double().cpu() - rate
    variance = rate * (1 - rate)
    assert abs(is_dropped.mean().item()) < 5 * (variance / count) ** 0.5
    for distance in (1, 2, 3, 4, 5, 64):
        together = (is_dropped[distance:] * is_dropped[:-distance]).mean().item()
        assert abs(together) < 5 * variance / count**0.5


@pytest.mark.filterwarnings("ignore")
def test_training_learns_and_is_repeated_to_the_bit(corpus: EncodedCorpus) -> None:
    ended = []
    for _ in range(2):
        config = TrainingConfig(source_tokens=256, target_tokens=256, warmup_steps=50)
        trainer = make_trainer(corpus, config, FastUpdater, num_layers=1)
        losses = []
        for epoch in range(40):
            for indices in trainer.batching.epoch(epoch):
                metrics = update(trainer, [indices])
                losses.append(metrics.smoothed / metrics.target_tokens)
        assert losses[-1] < 0.7 * losses[0]
        ended.append([losses, [parameter.tolist() for parameter in trainer.model.parameters()]])
    assert ended[0] == ended[1]
