"""Residuals, norms and dropout (rows 1 to 4; sections 3.1 and 5.4), found by running the model."""

import copy
import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from seq2seq.model import Transformer
from seq2seq.model.attention import MultiHeadAttention
from seq2seq.model.layers import DecoderLayer, EncoderLayer, FeedForward
from seq2seq.reproduction.subject import Finding, Subject
from seq2seq.reproduction.trace import Event, Trace, mode, trace


def residual_norm_dropout(subject: Subject) -> Finding:
    """Row 1: each norm's input is x + Dropout(Sublayer(x)), x being the output of the last norm."""
    try:
        rates = measured_dropout(subject.model)
    except OddModelError as odd:
        return Finding(str(odd), False, False)
    if len(rates) > 1:
        return Finding(f"dropout at unequal rates: {_numbers(rates)}", False, False)
    norms = sum(isinstance(module, nn.LayerNorm) for module in subject.model.modules())
    return Finding(
        f"LayerNorm(x + Dropout(Sublayer(x))) at {norms} of {norms} norms, each giving mean 0 and"
        f" variance 1; dropout {_numbers(rates)} on both sums of embedding and position",
        True,
        True,
    )


class OddModelError(Exception):
    """The model is not made as in Figure 1."""


def measured_dropout(model: Transformer) -> list[float]:
    """The rates that are found on sublayers and embeddings; one, if all is well.

    Raises:
        OddModelError: a stack isn't made of LayerNorm(x + Dropout(Sublayer(x))).
    """
    rates = set()
    for stack, quiet in zip(trace(model, training=True), trace(model, training=False), strict=True):
        for added, whole in [(stack.embedded, quiet.embedded), *_sums(stack)]:
            rates.add(round(_dropout_rate(added, whole), 3))
    return sorted(rates)


def _sums(stack: Trace) -> Iterator[tuple[Tensor, Tensor]]:
    """For each norm what was added to its residual, and the sublayer's output."""
    x = stack.embedded
    sublayer: Event | None = None
    layers_to_go = sum(_is_layer(event) for event in stack.events)
    for event in stack.events:
        if isinstance(event.module, nn.LayerNorm):
            if sublayer is None:
                raise OddModelError(
                    "a norm stands before its sublayer: x + Sublayer(LayerNorm(x)), Pre-LN"
                )
            _check_normalised(event)
            yield event.inputs[0] - x, sublayer.output
            x, sublayer = event.output, None
        elif isinstance(event.module, MultiHeadAttention | FeedForward):
            if not torch.equal(event.inputs[0], x):
                raise OddModelError(
                    "a sublayer reads something else than the output of the norm before it"
                )
            sublayer = event
        elif _is_layer(event):
            if not torch.equal(event.output, x):
                raise OddModelError("a layer does not end with a norm")
            layers_to_go -= 1
            if not layers_to_go:
                return


def _is_layer(event: Event) -> bool:
    return isinstance(event.module, EncoderLayer | DecoderLayer)


def _check_normalised(event: Event) -> None:
    norm = event.module
    assert isinstance(norm, nn.LayerNorm)
    gain = norm.weight.double()
    plain = ((event.output.double() - norm.bias.double()) / gain)[..., gain.abs() > 1e-3]
    if len(gain) == plain.size(-1) and (
        plain.mean(-1).abs().max() > 1e-3 or (plain.var(-1, correction=0) - 1).abs().max() > 1e-2
    ):
        raise OddModelError("a norm's output has not mean 0 and variance 1")


def _dropout_rate(added: Tensor, whole: Tensor) -> float:
    """From the factor on what was kept; the share of zeros must agree with it."""
    large = whole.abs() > 1e-2 * whole.abs().max()
    ratio = (added[large] / whole[large]).double()
    kept = ratio[ratio.abs() > 0.5]
    factor = kept.median().item() if len(kept) else 1.0
    rate, zeros = 1.0 - 1.0 / factor, 1.0 - len(kept) / len(ratio)
    strays = (kept - factor).abs().max() if len(kept) else torch.tensor(1.0)
    if strays > 2e-2 * factor or abs(rate - zeros) > 0.04 or not -1e-3 < rate < 1:
        raise OddModelError("a norm's input is not x + Dropout(Sublayer(x))")
    return abs(rate)


def norm_after_the_last_layer(subject: Subject) -> Finding:
    """Row 2: a stack returns what its last layer returns, the very numbers."""
    for name, stack in zip(
        ("encoder", "decoder"), trace(subject.model, training=False), strict=True
    ):
        last = max(i for i, event in enumerate(stack.events) if _is_layer(event))
        if any(isinstance(event.module, nn.LayerNorm) for event in stack.events[last + 1 :]):
            return Finding(f"the {name} has a norm after its last layer", False, False)
        if not torch.equal(stack.events[last].output, stack.result):
            return Finding(f"the {name} changes its last layer's output", False, False)
    return Finding("none: both stacks return their last layer's output", True, True)


def inner_dropout(subject: Subject) -> Finding:
    """Row 3: in training a sublayer gives the same output as in evaluation."""
    random = set()
    for stack in trace(subject.model, training=True):
        for event in stack.events:
            if isinstance(event.module, MultiHeadAttention | FeedForward):
                with mode(event.module, training=False):
                    if not torch.allclose(event.module(*event.inputs), event.output, atol=1e-5):
                        attention = isinstance(event.module, MultiHeadAttention)
                        random.add("attention weights" if attention else "ReLU")
    if random:
        return Finding(f"dropout on {' and '.join(sorted(random))}", False, False)
    return Finding("none: sublayers give the same in training as in evaluation", True, True)


def norm_epsilon(subject: Subject) -> Finding:
    """Row 4: epsilon = variance / (variance of the output) - variance, where both are tiny."""
    norms = [module for module in subject.model.modules() if isinstance(module, nn.LayerNorm)]
    found = sorted({_epsilon(norm) for norm in norms})
    values = _numbers([value for value, _ in found])
    odd = {remark for _, remark in found if remark}
    same = len(found) == 1 and not odd and math.isclose(found[0][0], 1e-6, rel_tol=1e-3)
    remark = ", ".join(sorted(odd)) or "inside the root, biased variance"
    return Finding(f"{values}, {remark}", None, same)


def _epsilon(norm: nn.LayerNorm) -> tuple[float, str]:
    plain = copy.deepcopy(norm).double()
    with torch.no_grad():
        nn.init.ones_(plain.weight)
        nn.init.zeros_(plain.bias)
        x = torch.linspace(-1.0, 1.0, plain.weight.numel(), dtype=torch.float64)
        x /= x.std(correction=0)

        def variance_of_output(variance: float) -> float:
            return float(plain(x * math.sqrt(variance)).var(correction=0))

        small, smaller = (v / variance_of_output(v) - v for v in (1e-5, 1e-7))
        biased = abs(variance_of_output(1e6) - 1.0) < 1e-6
    inside = math.isclose(small, smaller, rel_tol=1e-3)
    remarks = ["" if inside else "not inside the root", "" if biased else "unbiased variance"]
    return float(f"{smaller:.3g}"), ", ".join(filter(None, remarks))


def _numbers(values: list[float]) -> str:
    return ", ".join(f"{value:.3g}" for value in values)
