"""The loss that is compiled, before and after, against the plain one."""

import shutil
from collections.abc import Callable
from functools import partial

import pytest
import torch

from seq2seq.device import Compute
from seq2seq.fast.loss import (
    LossAndGradient,
    can_compile,
    compiled_loss,
    loss_and_gradient,
    projected_loss,
)
from seq2seq.fast.training import TrainingKernels, use_training_kernels
from seq2seq.model import Transformer
from seq2seq.model.transformer import causal_mask
from seq2seq.training.loss import label_smoothed_loss

V, D = 13, 6


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_loss_and_gradient_are_those_of_the_plain_loss(smoothing: float) -> None:
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(9, V, dtype=torch.float64, generator=generator).requires_grad_()
    targets = torch.randint(1, V, (9, 1), generator=generator)
    plain = label_smoothed_loss(logits, targets.squeeze(1), smoothing=smoothing, padding_id=0)
    plain.smoothed.backward()
    smoothed, cross_entropy, gradient = loss_and_gradient(logits.detach(), targets, smoothing)
    torch.testing.assert_close(smoothed, plain.smoothed.detach())
    torch.testing.assert_close(cross_entropy, plain.cross_entropy.detach())
    torch.testing.assert_close(gradient, logits.grad)


def check_chunks(compiled: LossAndGradient, dtype: torch.dtype, tolerance: float) -> None:
    """In chunks of 4 rows and a last one of 1 or 3."""
    generator = torch.Generator().manual_seed(2)
    for tokens in (9, 11):
        states, weight = (torch.randn(n, D, generator=generator) for n in (tokens, V))
        targets = torch.randint(1, V, (tokens,), generator=generator)
        found = []
        for of_chunk in (None, compiled):
            inputs = [states.clone().requires_grad_(), weight.clone().requires_grad_()]
            loss_of = partial(projected_loss, smoothing=0.1, padding_id=0, chunk_elements=4 * V)
            with torch.autocast("cpu", dtype, enabled=dtype is torch.bfloat16):
                losses = loss_of(*inputs, targets, of_chunk=of_chunk)
            losses[0].backward()
            found.append([*(loss.detach() for loss in losses), *(x.grad for x in inputs)])
        for one, other in zip(*found, strict=True):
            assert (one - other).norm() <= tolerance * other.norm()


def test_chunks_of_any_size_have_the_loss_of_the_plain_form() -> None:
    check_chunks(loss_and_gradient, torch.float32, 1e-6)
    check_chunks(loss_and_gradient, torch.bfloat16, 0.01)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
@pytest.mark.filterwarnings("ignore")
def test_what_is_compiled_computes_the_same() -> None:
    check_chunks(compiled_loss(), torch.float32, 1e-6)
    check_chunks(compiled_loss(), torch.bfloat16, 0.01)


@pytest.mark.integration
@pytest.mark.filterwarnings("ignore")
def test_a_layer_is_one_graph_for_all_shapes(make_model: Callable[..., Transformer]) -> None:
    """So it can be compiled: nothing in it needs Python between two operations."""
    model = make_model(dropout=0.1, attention_dropout=0.1).train()
    use_training_kernels(model, TrainingKernels(), Compute(torch.device("cuda")))
    graphs: list[object] = []

    def take(graph: torch.fx.GraphModule, inputs: object) -> Callable[..., object]:
        graphs.append(graph)
        return graph.forward

    layers = [model.encoder.layers[0], model.decoder.layers[0]]
    encode, decode = (
        torch.compile(layer, backend=take, fullgraph=True, dynamic=True) for layer in layers
    )
    for pairs, source, target in ((3, 7, 5), (2, 9, 4), (5, 4, 11)):
        memory, x = (torch.randn(pairs, n, 8, dtype=torch.float64) for n in (source, target))
        mask = torch.ones(pairs, 1, 1, source, dtype=torch.bool)
        found = decode(x, encode(memory, mask), causal_mask(target, x.device), mask)
        assert found.shape == x.shape
    assert len(graphs) == len(layers)


def test_nothing_is_compiled_on_a_cpu() -> None:
    assert not can_compile(torch.device("cpu"))
