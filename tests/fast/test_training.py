"""The fast forms of training: what is put in place, attention, precision, dropout."""

import copy
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from seq2seq.batches import Batching
from seq2seq.config import Positions, TrainingConfig, TransformerConfig
from seq2seq.decoder import override
from seq2seq.device import Compute
from seq2seq.errors import UsageError
from seq2seq.fast.fused import (
    DecoderWithOneProjection,
    JoinedProjections,
    ReluInMatmul,
    can_put_relu_in_matmul,
    fused_attention,
    project_memory_once,
)
from seq2seq.fast.rows import make_host_batch
from seq2seq.fast.training import (
    CpuDropout,
    FastModel,
    GpuDropout,
    choose_layout,
    hashed_numbers,
    loss_by_sums,
    loss_of_chunk,
    random_keep_mask,
)
from seq2seq.fast.trials import on_trial
from seq2seq.fast.updates import FastUpdater
from seq2seq.transformer import FeedForward, MultiHeadAttention, Transformer, attention
from tests.conftest import MakeModel
from tests.models import ALL_MODERN
from tests.toy import encoded_corpus


class HashedDropout(GpuDropout):
    is_hashed = True


LEARNED = {"positions": Positions.learned, "max_learned_positions": 20}


@pytest.fixture
def batching(tmp_path: Path) -> Batching:
    corpus = encoded_corpus(tmp_path / "train.ids", 11, 30)
    return Batching(corpus, source_tokens=64, target_tokens=64, seed=1)


def heads() -> list[Tensor]:
    """Query (3, 2, 4, 6), key and value (3, 2, 5, 6)."""
    torch.manual_seed(1)
    shapes = (3, 2, 4, 6), (3, 2, 5, 6), (3, 2, 5, 6)
    return [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


MASK = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [1, 0, 0, 0, 0]]).bool()[:, None, None]


def test_fused_attention_is_the_plain_one() -> None:
    results = []
    for form in (attention, fused_attention):
        inputs = heads()
        out = form(*inputs, MASK, nn.Dropout(0.5).eval())
        out.tanh().sum().backward()
        results.append([out, *(x.grad for x in inputs)])
    torch.testing.assert_close(*results, rtol=1e-9, atol=1e-11)


def test_hooks_read_the_weights_of_fused_attention() -> None:
    recorded: list[Tensor] = []
    dropout = nn.Dropout(0.0)
    dropout.register_forward_pre_hook(lambda _, inputs: recorded.append(inputs[0]))
    with_hook = fused_attention(*heads(), MASK, dropout)
    torch.testing.assert_close(with_hook, fused_attention(*heads(), MASK, nn.Dropout(0.0)))
    assert [weights.shape for weights in recorded] == [(3, 2, 4, 5)]


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_the_loss_by_sums_is_that_of_the_log_probabilities(dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    logits = (10 * torch.randn(50, 300)).to(dtype)
    targets = torch.randint(0, 300, (50,)) * (torch.rand(50) < 0.8)  # 0 is padding
    found = loss_by_sums(logits, targets, 0.1)
    rtol = 1e-12 if dtype is torch.float64 else 1e-5
    torch.testing.assert_close(found, loss_of_chunk(logits, targets, 0.1), rtol=rtol, atol=rtol)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_relu_in_the_matmul_is_the_plain_one(dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    config = TransformerConfig(d_model=16, d_ff=40)
    plain = FeedForward(config).to(torch.float32 if dtype is torch.bfloat16 else dtype)
    fused = copy.deepcopy(plain)
    assert can_put_relu_in_matmul(fused)
    override(fused, ReluInMatmul)
    x = torch.randn(2, 7, 16).to(dtype)
    results = []
    for form in (plain, fused):
        given = x.clone().requires_grad_()
        with Compute(dtype=dtype).autocast():
            out = form(given)
        out.tanh().sum().backward()
        results.append([out, given.grad, *(p.grad for p in form.parameters())])
    tolerance = 1e-12 if dtype is torch.float64 else 2e-2
    torch.testing.assert_close(*results, rtol=tolerance, atol=tolerance)


def test_only_the_papers_relu_is_put_in_the_matmul() -> None:
    config = TransformerConfig(d_model=16, d_ff=40)
    gelu, low_rank = FeedForward(config), FeedForward(config)
    gelu.activation, low_rank.inner = nn.functional.gelu, nn.Linear(16, 40, bias=False)
    own = type("Own", (FeedForward,), {})(config)
    assert not any(map(can_put_relu_in_matmul, (gelu, low_rank, own, nn.Linear(2, 2))))


def joined(model: Transformer) -> Transformer:
    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            override(module, JoinedProjections)
    project_memory_once(model)
    return model


@pytest.mark.parametrize("choices", [{}, {"attention_bias": True, "d_v": 5}], ids=str)
def test_the_keys_and_values_of_all_layers_are_those_of_each(
    make_model: MakeModel, choices: dict[str, Any]
) -> None:
    results = []
    source, target = torch.randint(4, 11, (3, 7)), torch.randint(4, 11, (3, 5))
    for model in (
        make_model(vocab_size=11, **choices),
        joined(make_model(vocab_size=11, **choices)),
    ):
        logits = model(source, target)
        logits.tanh().sum().backward()
        results.append([logits, *(p.grad for p in model.parameters())])
    assert isinstance(model.decoder, DecoderWithOneProjection)
    torch.testing.assert_close(*results, rtol=1e-9, atol=1e-11)


def test_other_decoders_project_memory_layer_by_layer(make_model: MakeModel) -> None:
    other, separate = make_model(), make_model()
    other.decoder.layers[1].__class__ = type("Own", (type(other.decoder.layers[1]),), {})
    for model in (other, make_model(**ALL_MODERN)):
        assert not isinstance(joined(model).decoder, DecoderWithOneProjection)
    project_memory_once(separate)  # its projections are matmuls of their own
    assert not isinstance(separate.decoder, DecoderWithOneProjection)


def test_trials_that_are_mistyped_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEQ2SEQ_TRIALS", "loss_by_sum,autotune,blocks")
    with pytest.raises(UsageError, match=r"TRIALS=blocks,loss_by_sum: not among .*loss_by_sums"):
        on_trial("autotune")


@pytest.mark.parametrize(
    ("choices", "compiled", "layout"),
    [
        ({"d_k": 16, "d_v": 32}, True, "FlexLayout"),
        ({"d_k": 16, "d_v": 8}, True, "GridLayout"),
        ({"d_k": 16, "d_v": 32}, False, "GridLayout"),
        ({"d_k": 16, "d_v": 16, "attention_dropout": 0.1}, True, "GridLayout"),
        (ALL_MODERN | {"d_k": 16, "d_v": 16}, True, "GridLayout"),
    ],
    ids=str,
)
def test_attention_is_by_a_kernel_that_can_do_it(
    make_model: MakeModel,
    monkeypatch: pytest.MonkeyPatch,
    choices: dict[str, Any],
    compiled: bool,
    layout: str,
) -> None:
    monkeypatch.setattr("seq2seq.fast.training._widest_heads", lambda _: 64)
    assert choose_layout(make_model(**choices), compiled=compiled).__name__ == layout


@pytest.mark.parametrize("choices", [{}, LEARNED, ALL_MODERN], ids=["paper", "learned", "modern"])
def test_the_fast_model_shares_all_parameters_and_the_model_stays_plain(
    make_model: MakeModel, choices: dict[str, Any]
) -> None:
    model = make_model(dropout=0.1, **choices).train()
    before = copy.deepcopy(model).eval()
    fast = FastModel(model, Compute())
    shared = dict(fast.model.named_parameters())
    assert list(shared) == [name for name, _ in model.named_parameters()]
    assert all(shared[name] is parameter for name, parameter in model.named_parameters())
    assert repr(model) == repr(before)
    assert not any(module.training for module in model.modules())
    assert all(module.training for module in fast.model.modules())
    assert list(fast.dropouts.values()) == [
        module.p for module in model.modules() if isinstance(module, nn.Dropout)
    ]
    assert CpuDropout in {type(module) for module in fast.dropouts}


needs_g = pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")


@pytest.mark.parametrize(
    "backend", ["eager", pytest.param("inductor", marks=[pytest.mark.slow, needs_g])]
)
@pytest.mark.integration
@pytest.mark.filterwarnings("ignore")
def test_all_layers_of_a_kind_are_one_program_for_all_batches(
    make_model: MakeModel, batching: Batching, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    torch._dynamo.reset()
    compile_module = nn.Module.compile
    monkeypatch.setattr(
        nn.Module, "compile", lambda module, **chosen: compile_module(module, backend=backend)
    )
    monkeypatch.setattr("seq2seq.fast.training.can_compile", lambda device: True)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: True)
    compute = Compute(dtype=torch.bfloat16)
    plain, fast = make_model().float(), make_model().float()
    losses = []
    before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    for model, compiled in ((plain, False), (fast, True)):
        options = {"compute": compute, "seed": 1, "compiled": compiled}
        updater = FastUpdater(model, batching, TrainingConfig(), **options)
        for pairs in batching.epoch(0)[:3]:
            batch = updater.host_batch(pairs).to(compute.device)
            with compute.autocast():
                loss = updater.fast.loss(batch, 0.1).smoothed
            loss.backward()
            losses.append(loss.item())
    assert losses[3:] == pytest.approx(losses[:3], rel=0.01)
    # The encoder's, the decoder's, those of dropout on either side, and of a chunk of the loss.
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= before + 7


@pytest.mark.filterwarnings("ignore")
def test_dropout_that_rises_is_not_compiled_again() -> None:
    torch._dynamo.reset()
    dropout = GpuDropout(0.8).train()
    dropout.share = torch.zeros(())
    compiled = torch.compile(dropout, backend="eager")
    before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    x = torch.ones(2**16)
    for share in (0.0, 0.25, 1.0):
        dropout.share.fill_(share)
        dropped = compiled(x)
        assert (dropped == 0).double().mean().item() == pytest.approx(0.8 * share, abs=0.02)
        assert dropped.mean().item() == pytest.approx(1.0, abs=0.05)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == before + 1
    assert torch.equal(dropout.eval()(x), x)


def test_sums_between_layers_are_in_the_precision_of_autocast(
    make_model: MakeModel, batching: Batching
) -> None:
    states: dict[torch.dtype, set[torch.dtype]] = {}
    losses = []
    for dtype in (torch.bfloat16, torch.float32):
        fast = FastModel(make_model().float(), Compute(dtype=dtype))
        seen = states.setdefault(dtype, set())
        for layer in (*fast.model.encoder.layers, *fast.model.decoder.layers):
            layer.register_forward_hook(
                lambda _, inputs, output, seen=seen: seen.update((inputs[0].dtype, output.dtype))
            )
        batch = make_host_batch(batching.corpus.tokens(batching.epoch(0)[0])).to(
            torch.device("cpu")
        )
        with fast.compute.autocast():
            losses.append(fast.loss(batch, 0.1).smoothed.item())
    assert states == {dtype: {dtype} for dtype in states}
    assert losses[0] == pytest.approx(losses[1], rel=0.02)


def hashed_keep_mask(x: Tensor, rate: float) -> Tensor:
    return (hashed_numbers(x) >= rate).to(x.dtype)


@pytest.mark.parametrize("draw", [random_keep_mask, hashed_keep_mask])
@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_elements_are_dropped_at_the_rate_and_independently_of_their_neighbors(
    draw: Callable[[Tensor, float], Tensor], rate: float
) -> None:
    torch.manual_seed(1)
    mask = draw(torch.empty(2**20, dtype=torch.float64), rate)
    assert set(mask.tolist()) == {0.0, 1.0}
    dropped, variance = (mask == 0).double() - rate, rate * (1 - rate)
    for distance in (1, 2, 3, 4, 5, 64, 512):
        together = (dropped[distance:] * dropped[:-distance]).mean().item()
        assert abs(together) < 5 * variance / 2**10
    quarters = dropped.view(-1, 4).mean(dim=0)  # each of the four that share a random number
    assert (quarters.abs() < 5 * math.sqrt(variance / 2**18)).all()


def test_hashed_numbers_are_uniform_and_independent_of_those_of_other_layers() -> None:
    torch.manual_seed(1)
    numbers, others = (hashed_numbers(torch.empty(2**10, 2**10)).flatten() for _ in "12")
    assert (numbers.dtype, numbers.min() >= 0, numbers.max() < 1) == (torch.float32, True, True)
    for digits in (numbers * 256, numbers * 2**24 % 256):  # the first eight bits, and the last
        counts = torch.bincount(digits.long(), minlength=256).double()
        assert abs(((counts - 2**12).square() / 2**12).sum() - 255) < 5 * math.sqrt(2 * 255)
    for distance in (0, 1, 2, 2**10):
        product = (numbers[distance:] - 0.5) * (others[: len(others) - distance] - 0.5)
        assert abs(product.mean()) < 5 / 12 / 2**10


def test_hardly_any_element_is_kept_at_a_rate_of_almost_one() -> None:
    torch.manual_seed(1)
    assert random_keep_mask(torch.empty(2**10), 1 - 1e-6).sum() < 5


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_mask_of_any_shape_has_that_of_its_input(dtype: torch.dtype) -> None:
    for shape in [(1,), (3,), (2, 3, 5), (4, 4), (0, 3)]:
        mask = random_keep_mask(torch.empty(shape, dtype=dtype), 0.5)
        assert (mask.shape, mask.dtype) == (shape, dtype)
        assert set(mask.flatten().tolist()) <= {0.0, 1.0}
    torch.manual_seed(3)  # the last of seven elements are dropped as often as the first
    masks = torch.stack([random_keep_mask(torch.empty(7, dtype=dtype), 0.5) for _ in range(2000)])
    assert ((masks == 0).double().mean(dim=0) - 0.5).abs().max() < 5 * 0.5 / math.sqrt(2000)


@pytest.mark.parametrize("kind", [CpuDropout, GpuDropout, HashedDropout])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_is_kept_and_its_gradient_have_the_mean_of_what_there_was(
    kind: type[nn.Dropout], dtype: torch.dtype
) -> None:
    """The scale 1 / 0.9 is not a number of bfloat16: rounded, it would be 0.9984 of that."""
    torch.manual_seed(1)
    dropout = kind(0.1).train()
    dropout.share = torch.ones(())
    x = torch.rand(2**18).to(dtype).requires_grad_()
    dropped = dropout(x)
    gradient = torch.rand(2**18).to(dtype)
    dropped.backward(gradient)
    kept = dropped != 0
    assert kept.double().mean().item() == pytest.approx(0.9, abs=5 * 0.3 / 2**9)
    assert torch.equal(kept, x.grad != 0)
    for before, after in ((x, dropped), (gradient, x.grad)):
        ratio = after[kept].double().sum() / before[kept].double().sum()
        assert ratio.item() == pytest.approx(1 / 0.9, rel=2e-4)


def test_dropout_has_gradients_where_it_has_values_and_does_nothing_in_evaluation() -> None:
    x = torch.ones(101, requires_grad=True)
    assert CpuDropout(0.5).eval()(x) is x
    assert CpuDropout(0.0).train()(x) is x
    torch.manual_seed(4)
    kept = CpuDropout(0.4).train()(x)
    kept.sum().backward()
    assert torch.equal(x.grad, kept.detach())
    assert 0 < (kept == 0).sum() < 101
