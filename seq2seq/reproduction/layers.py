"""Sections 3.1 and 5.4: residuals, norms and dropout around the sublayers."""

import copy
import math

import torch
from torch import Tensor, nn

from seq2seq.model import Transformer
from seq2seq.model.transformer import FeedForward, MultiHeadAttention
from seq2seq.reproduction.detail import Finding, Subject, detail
from seq2seq.reproduction.trace import Trace, mode, trace


class StructureError(Exception):
    """A layer that does not consist of LayerNorm(x + Dropout(Sublayer(x)))."""


@detail(
    "residual, norm, dropout (3.1, 5.4)",
    paper="LayerNorm(x + Dropout(Sublayer(x))); dropout on embedding + position, both stacks",
    tensor2tensor="the same",
)
def residual_norm_dropout(subject: Subject) -> Finding:
    """Compare the input of each norm with the outputs of the norm and the sublayer before it."""
    try:
        rates = dropout_rates(subject.model)
    except StructureError as error:
        return Finding.both(str(error), False)
    shown = ", ".join(f"{rate:.3g}" for rate in rates)
    if len(rates) > 1:
        return Finding.both(f"dropout at unequal rates: {shown}", False)
    norms = sum(isinstance(module, nn.LayerNorm) for module in subject.model.modules())
    return Finding.both(
        f"LayerNorm(x + Dropout(Sublayer(x))) at {norms} of {norms} norms, each giving mean 0 and"
        f" variance 1; dropout {shown} on both sums of embedding and position",
        True,
    )


def dropout_rates(model: Transformer) -> list[float]:
    """Measure the distinct dropout rates of sublayers and embeddings.

    Raises:
        StructureError: if a layer does not consist of LayerNorm(x + Dropout(Sublayer(x))).
    """
    rates = set()
    for noisy, exact in zip(trace(model, training=True), trace(model, training=False), strict=True):
        for dropped, whole in [(noisy.embedded, exact.embedded), *_residual_sums(noisy)]:
            rates.add(round(_dropout_rate(dropped, whole), 3))
    return sorted(rates)


def _residual_sums(stack: Trace) -> list[tuple[Tensor, Tensor]]:
    """Return, for each norm, its input minus x, and Sublayer(x)."""
    sums = []
    x, sublayer = stack.embedded, None
    for event in stack.events[: stack.layers_end + 1]:
        if isinstance(event.module, nn.LayerNorm):
            if sublayer is None:
                raise StructureError(
                    "a norm stands before its sublayer: x + Sublayer(LayerNorm(x)), Pre-LN"
                )
            _check_normalized(event.module, event.output)
            sums.append((event.inputs[0] - x, sublayer))
            x, sublayer = event.output, None
        elif isinstance(event.module, MultiHeadAttention | FeedForward):
            if not torch.equal(event.inputs[0], x):
                raise StructureError("a sublayer does not read the output of the norm before it")
            sublayer = event.output
        elif not torch.equal(event.output, x):
            raise StructureError("a layer does not end with a norm")
    return sums


def _check_normalized(norm: nn.LayerNorm, output: Tensor) -> None:
    gain, bias = norm.weight.double(), norm.bias.double()
    if gain.abs().min() <= 1e-3:
        return  # an element multiplied by almost 0 can't be recovered
    normalized = (output.double() - bias) / gain
    if normalized.mean(-1).abs().max() > 1e-3 or (
        (normalized.var(-1, correction=0) - 1).abs().max() > 1e-2
    ):
        raise StructureError("a norm's output does not have mean 0 and variance 1")


def _dropout_rate(dropped: Tensor, whole: Tensor) -> float:
    """Compute the rate from the factor on the kept elements; the share of zeros must agree."""
    large = whole.abs() > 1e-2 * whole.abs().max()
    ratio = (dropped[large] / whole[large]).double()
    kept = ratio[ratio.abs() > 0.5]
    if len(kept):
        factor = float(kept.median())
        rate, zeros = 1.0 - 1.0 / factor, 1.0 - len(kept) / len(ratio)
        chance = 6.0 * math.sqrt(max(0.0, rate * (1.0 - rate)) / len(ratio))
        if (
            float((kept - factor).abs().max()) < 2e-2 * factor
            and -1e-3 < rate < 1.0
            and abs(rate - zeros) <= chance + 1e-3
        ):
            return abs(rate)
    raise StructureError("a norm's input is not x + Dropout(Sublayer(x))")


@detail("norm after the last layer (3.1)", paper="none", tensor2tensor="none")
def norm_after_the_last_layer(subject: Subject) -> Finding:
    """Compare the outputs of encoder and decoder with those of their last layers."""
    stacks = zip(("encoder", "decoder"), trace(subject.model, training=False), strict=True)
    for name, stack in stacks:
        after = stack.events[stack.layers_end + 1 :]
        if any(isinstance(event.module, nn.LayerNorm) for event in after):
            return Finding.both(f"the {name} has a norm after its last layer", False)
        if not torch.equal(stack.events[stack.layers_end].output, stack.result):
            return Finding.both(f"the {name} changes its last layer's output", False)
    return Finding.both("none: both stacks return their last layer's output", True)


@detail("dropout on attention and ReLU (5.4)", paper="none", tensor2tensor="0 and 0")
def inner_dropout(subject: Subject) -> Finding:
    """Compare the output of each sublayer in training with that in evaluation."""
    random = set()
    for stack in trace(subject.model, training=True):
        for event in stack.events:
            attention = isinstance(event.module, MultiHeadAttention)
            if attention or isinstance(event.module, FeedForward):
                with mode(event.module, training=False):
                    exact = event.module(*event.inputs)
                if not torch.allclose(exact, event.output, atol=1e-5):
                    random.add("attention weights" if attention else "ReLU")
    if random:
        return Finding.both(f"dropout on {' and '.join(sorted(random))}", False)
    return Finding.both("none: sublayers give the same in training as in evaluation", True)


@detail("LayerNorm's epsilon", paper=None, tensor2tensor="1e-6, inside the root, biased variance")
def norm_epsilon(subject: Subject) -> Finding:
    """Normalize vectors of tiny variance v: epsilon = v / (variance of the output) - v."""
    norms = [module for module in subject.model.modules() if isinstance(module, nn.LayerNorm)]
    found = sorted({_epsilon(norm) for norm in norms})
    remarks = {remark for _, remark in found if remark}
    right = len(found) == 1 and not remarks and math.isclose(found[0][0], 1e-6, rel_tol=1e-3)
    values = ", ".join(f"{value:.3g}" for value, _ in found)
    remark = ", ".join(sorted(remarks)) or "inside the root, biased variance"
    return Finding.both(f"{values}, {remark}", right)


def _epsilon(norm: nn.LayerNorm) -> tuple[float, str]:
    """Measure epsilon, to three digits, and describe any difference from tensor2tensor's norm."""
    plain = copy.deepcopy(norm).double()
    with torch.no_grad():
        nn.init.ones_(plain.weight)
        nn.init.zeros_(plain.bias)
        x = torch.linspace(-1.0, 1.0, plain.weight.numel(), dtype=torch.float64)
        x /= x.std(correction=0)

        def output_variance(variance: float) -> float:
            return float(plain(x * math.sqrt(variance)).var(correction=0))

        small, smaller = (v / output_variance(v) - v for v in (1e-5, 1e-7))
        biased = abs(output_variance(1e6) - 1.0) < 1e-6
    inside = math.isclose(small, smaller, rel_tol=1e-3)
    remarks = ["" if inside else "not inside the root", "" if biased else "unbiased variance"]
    return float(f"{smaller:.3g}"), ", ".join(filter(None, remarks))
