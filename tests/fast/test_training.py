"""The fast forms of a training against the plain model: values, gradients, names."""

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
    FusedAttention,
    TrainingKernels,
    use_training_kernels,
)
from seq2seq.model import Transformer
from seq2seq.model.transformer import MultiHeadAttention
from tests.fast.gradients import SOURCE, TARGET, values_and_gradients

MakeModel = Callable[..., Transformer]
CPU = torch.device("cpu")


@pytest.mark.parametrize(
    "choices",
    [{}, {"attention_bias": True}, {"d_k": 3, "d_v": 5}, {"attention_dropout": 0.5}],
    ids=str,
)
def test_fused_attention_is_the_plain_one(make_model: MakeModel, choices: dict[str, Any]) -> None:
    plain, fused = make_model(**choices), make_model(**choices)
    replace_modules(fused, MultiHeadAttention, FusedAttention)
    assert list(fused.state_dict()) == list(plain.state_dict())
    expected, found = values_and_gradients(plain), values_and_gradients(fused)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-9, atol=1e-11)


def test_fused_attention_is_as_exact_as_the_plain_one_in_bf16(make_model: MakeModel) -> None:
    exact = values_and_gradients(make_model())
    plain, fused = make_model().bfloat16(), make_model().bfloat16()
    replace_modules(fused, MultiHeadAttention, FusedAttention)

    def error(model: Transformer) -> float:
        found = values_and_gradients(model)
        return sum(((found[n] - v).norm() / v.norm()).item() for n, v in exact.items())

    assert error(fused) < 1.5 * error(plain)


def test_hooks_read_the_weights_of_fused_attention(make_model: MakeModel) -> None:
    model = make_model()
    replace_modules(model, MultiHeadAttention, FusedAttention)
    recorded: list[Tensor] = []
    hook = model.encoder.layers[0].self_attention.dropout.register_forward_pre_hook(
        lambda _, inputs: recorded.append(inputs[0])
    )
    with_hook = model(SOURCE, TARGET)
    hook.remove()
    torch.testing.assert_close(with_hook, model(SOURCE, TARGET))
    assert [weights.shape for weights in recorded] == [(2, 2, 5, 5)]


@pytest.mark.parametrize(
    ("device", "fast"), [("cpu", CpuDropout), ("cuda", FusedAttention)], ids=str
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
