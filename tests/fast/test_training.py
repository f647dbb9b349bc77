"""The fast forms of training against the plain model: values, gradients, names, masks."""

import math
import shutil
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from seq2seq.device import Compute
from seq2seq.fast import replace_modules
from seq2seq.fast.training import (
    PLAIN,
    CpuDropout,
    FastAttention,
    TrainingKernels,
    compile_layers,
    fused_attention,
    random_keep_mask,
    use_training_kernels,
)
from seq2seq.model import Transformer
from seq2seq.model.transformer import MultiHeadAttention
from tests.models import ALL_MODERN

MakeModel = Callable[..., Transformer]
SOURCE = torch.tensor([[4, 5, 6, 7, 3], [8, 9, 3, 0, 0]])
TARGET = torch.tensor([[2, 9, 8, 7], [2, 10, 2, 0]])


def values_and_gradients(
    model: Transformer, source: Tensor = SOURCE, target: Tensor = TARGET
) -> dict[str, Tensor]:
    model.zero_grad()
    logits = model(source, target)
    (logits.double().tanh() * torch.arange(logits.size(-1))).sum().backward()
    return {"logits": logits.detach()} | {n: p.grad for n, p in model.named_parameters()}


@pytest.mark.parametrize(
    "choices", [{"attention_bias": True}, {"d_k": 3, "d_v": 5, "attention_dropout": 0.5}], ids=str
)
def test_fused_attention_is_the_plain_one(make_model: MakeModel, choices: dict[str, Any]) -> None:
    plain, fused = make_model(**choices), make_model(**choices)
    replace_modules(fused, MultiHeadAttention, FastAttention)
    assert list(fused.state_dict()) == list(plain.state_dict())
    expected, found = values_and_gradients(plain), values_and_gradients(fused)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-9, atol=1e-11)


def test_fused_attention_is_as_exact_as_the_plain_one_in_bf16(make_model: MakeModel) -> None:
    exact = values_and_gradients(make_model())
    plain, fused = make_model().bfloat16(), make_model().bfloat16()
    replace_modules(fused, MultiHeadAttention, FastAttention)

    def error(model: Transformer) -> float:
        found = values_and_gradients(model)
        return sum(((found[n] - v).norm() / v.norm()).item() for n, v in exact.items())

    assert error(fused) < 2 * error(plain)


def test_hooks_read_the_weights_of_fused_attention(make_model: MakeModel) -> None:
    model = make_model()
    replace_modules(model, MultiHeadAttention, FastAttention)
    recorded: list[Tensor] = []
    hook = model.encoder.layers[0].self_attention.dropout.register_forward_pre_hook(
        lambda _, inputs: recorded.append(inputs[0])
    )
    with_hook = model(SOURCE, TARGET)
    hook.remove()
    torch.testing.assert_close(with_hook, model(SOURCE, TARGET))
    assert [weights.shape for weights in recorded] == [(2, 2, 5, 5)]


needs_g = pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")


@pytest.mark.parametrize(
    "backend", ["eager", pytest.param("inductor", marks=[pytest.mark.slow, needs_g])]
)
@pytest.mark.integration
@pytest.mark.filterwarnings("ignore")
def test_all_layers_of_a_kind_are_one_program_for_all_shapes(
    make_model: MakeModel, backend: str
) -> None:
    torch._dynamo.reset()
    plain, compiled = make_model(), make_model()
    replace_modules(compiled, MultiHeadAttention, FastAttention)
    compile_layers(compiled, backend)
    assert list(compiled.state_dict()) == list(plain.state_dict())
    before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    for pairs, source_length, target_length in ((3, 7, 5), (4, 9, 5), (2, 6, 11)):
        source = torch.randint(4, 11, (pairs, source_length))
        source[0, 3:] = 0
        target = torch.randint(4, 11, (pairs, target_length))
        found = values_and_gradients(compiled, source, target)
        for name, value in values_and_gradients(plain, source, target).items():
            torch.testing.assert_close(found[name], value, rtol=1e-7, atol=1e-9)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == before + 2


@pytest.mark.parametrize(
    ("device", "fast"), [("cpu", CpuDropout), ("cuda", FastAttention)], ids=str
)
def test_fast_forms_are_put_in_place_unless_plain_is_chosen(
    make_model: MakeModel, device: str, fast: type[nn.Module]
) -> None:
    model, plain = make_model(dropout=0.1), make_model(dropout=0.1)
    use_training_kernels(model, TrainingKernels(), Compute(torch.device(device)))
    use_training_kernels(plain, PLAIN, Compute(torch.device(device)))
    assert fast in {type(module) for module in model.modules()}
    assert fast not in {type(module) for module in plain.modules()}
    assert list(model.state_dict()) == list(plain.state_dict())
    assert not any(module.training for module in model.modules())  # as it was
    rates = [module.p for module in model.modules() if isinstance(module, nn.Dropout)]
    assert rates == [module.p for module in plain.modules() if isinstance(module, nn.Dropout)]


@pytest.mark.parametrize("choices", [ALL_MODERN, {"bias": False}], ids=str)
def test_a_modern_model_has_the_fast_forms_that_compute_the_same(
    make_model: MakeModel, choices: dict[str, Any]
) -> None:
    plain, fast, on_gpu = (
        make_model(**choices),
        make_model(**choices),
        Compute(torch.device("cuda")),
    )
    use_training_kernels(fast, TrainingKernels(), on_gpu)
    expected, found = values_and_gradients(plain), values_and_gradients(fast)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-9, atol=1e-11)
    assert fast.encoder.layers[0].self_attention.equation_1 is fused_attention
    assert not TrainingKernels().join_on(on_gpu, fast)
    assert TrainingKernels().join_on(on_gpu, make_model())


def test_sums_between_layers_are_in_the_precision_of_autocast(make_model: MakeModel) -> None:
    model = make_model().float()
    states: list[torch.dtype] = []
    for layer in (*model.encoder.layers, *model.decoder.layers):
        layer.register_forward_hook(
            lambda _, inputs, output: states.extend([inputs[0].dtype, output.dtype])
        )
    with torch.autocast("cpu", dtype=torch.bfloat16):
        wide = model(SOURCE, TARGET)
    assert set(states) == {torch.float32}
    states.clear()
    use_training_kernels(model, TrainingKernels(attention=False, dropout=False), Compute())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = model(SOURCE, TARGET)
    assert set(states) == {torch.bfloat16}
    assert (low - wide).norm() < 0.05 * wide.norm()
    states.clear()
    model(SOURCE, TARGET)
    assert set(states) == {torch.float32}  # without autocast nothing is cast


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_elements_are_dropped_at_the_rate_and_the_mean_is_kept(rate: float) -> None:
    torch.manual_seed(1)
    mask = random_keep_mask(torch.empty(2**20, dtype=torch.float64), rate)
    assert set(mask.tolist()) == {0.0, 1 / (1 - rate)}
    deviation = math.sqrt(rate * (1 - rate) / len(mask))
    assert abs((mask == 0).double().mean().item() - rate) < 5 * deviation
    assert abs(mask.mean().item() - 1) < 5 * deviation / (1 - rate)


def test_neighbors_are_dropped_independently() -> None:
    torch.manual_seed(2)
    dropped = (random_keep_mask(torch.empty(2**20), 0.3) == 0).double() - 0.3
    for distance in (1, 2, 3, 4, 5, 64):
        together = (dropped[distance:] * dropped[:-distance]).mean().item()
        assert abs(together) < 5 * 0.21 / 2**10
    quarters = dropped.view(-1, 4).mean(dim=0)  # each of the four that share a random number
    assert (quarters.abs() < 5 * math.sqrt(0.21 / 2**18)).all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_mask_of_any_shape_has_that_of_its_input(dtype: torch.dtype) -> None:
    for shape in [(1,), (3,), (2, 3, 5), (4, 4), (0, 3)]:
        mask = random_keep_mask(torch.empty(shape, dtype=dtype), 0.5)
        assert (mask.shape, mask.dtype) == (shape, dtype)
        assert set(mask.flatten().tolist()) <= {0.0, 2.0}
    torch.manual_seed(3)  # the last of seven elements are dropped as often as the first
    masks = torch.stack([random_keep_mask(torch.empty(7, dtype=dtype), 0.5) for _ in range(2000)])
    assert ((masks == 0).double().mean(dim=0) - 0.5).abs().max() < 5 * 0.5 / math.sqrt(2000)


def test_dropout_has_gradients_where_it_has_values_and_does_nothing_in_evaluation() -> None:
    x = torch.ones(101, requires_grad=True)
    assert CpuDropout(0.5).eval()(x) is x
    assert CpuDropout(0.0).train()(x) is x
    torch.manual_seed(4)
    kept = CpuDropout(0.4).train()(x)
    kept.sum().backward()
    assert torch.equal(x.grad, kept.detach())
    assert 0 < (kept == 0).sum() < 101
