"""Sections 3.1 to 3.3, 5.4: residuals, norms, dropout, attention, feed-forward, initialization."""

import copy
import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from seq2seq.fidelity.detail import Finding, Subject, detail, new_model
from seq2seq.fidelity.trace import FIRST_WORD, LENGTH, Trace, mode, random_tokens, trace
from seq2seq.sizes import Positions
from seq2seq.transformer import FeedForward, MultiHeadAttention, Transformer
from seq2seq.zoo.modern import ModernFeedForward


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
    """Measure the distinct dropout rates of sublayers and embeddings."""
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
                    "a norm comes before its sublayer: x + Sublayer(LayerNorm(x)), Pre-LN"
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
    gain = norm.weight.double()
    bias = 0.0 if norm.bias is None else norm.bias.double()
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
    """Compare the outputs of encoder and decoder with the outputs of their last layers."""
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
    remarks = {remark for _, remark in found}
    right = len(found) == 1 and remarks == {_NORM} and math.isclose(found[0][0], 1e-6, rel_tol=1e-3)
    values = ", ".join(f"{value:.3g}" for value, _ in found)
    return Finding.both(f"{values}, {', '.join(sorted(remarks))}", right)


_NORM = "inside the root, biased variance"


def _epsilon(norm: nn.LayerNorm) -> tuple[float, str]:
    """Measure epsilon, to three digits, and compare the norm with the formula."""
    plain = copy.deepcopy(norm).double()
    with torch.no_grad():
        nn.init.ones_(plain.weight)
        if plain.bias is not None:
            nn.init.zeros_(plain.bias)
        x = torch.linspace(-1.0, 1.0, plain.weight.numel(), dtype=torch.float64)
        x /= x.std(correction=0)
        epsilon = 1e-7 / float(plain(x * 1e-7**0.5).var(correction=0)) - 1e-7
        same = all(
            torch.allclose(plain(1.0 + x * v**0.5), x * (v / (v + epsilon)) ** 0.5, rtol=1e-4)
            for v in (1e-5, 1.0)
        )
        centered = torch.allclose(plain(x + 1.0), plain(x))
    remark = _NORM if same else "another norm" if centered else "the mean stays: RMSNorm"
    return float(f"{epsilon:.3g}"), remark


@detail("attention projections (3.2.2)", paper="no bias in the formula", tensor2tensor="biases")
def attention_biases(subject: Subject) -> Finding:
    """Change all parameters and project zeros: without biases, the results are zeros."""
    attentions = _attentions(subject.model)
    biased = 0
    for attention in map(copy.deepcopy, attentions):
        with mode(attention, training=False):
            for parameter in attention.parameters():
                parameter.add_(torch.rand_like(parameter))
            projections = (attention.w_q, attention.w_k, attention.w_v, attention.w_o)
            biased += any(bool(w(torch.zeros(1, w.in_features)).any()) for w in projections)
    here = f"biases in {biased} of {len(attentions)} attentions"
    return Finding(here, biased == 0, biased == len(attentions))


@detail(
    "attention (3.2.1)",
    paper="softmax(QK^T / sqrt(d_k)) V, mask -inf",
    tensor2tensor="the same with a large negative number",
)
def attention_formula(subject: Subject) -> Finding:
    """Compare every attention with the formula in float64, and check the causal mask."""
    model, config = subject.model, subject.model.config
    attends = all(map(_attends, _attentions(model)))
    rotary = config.positions is Positions.rotary
    other = "one with rotary positions" if rotary else "another"
    causal, heads, kv_heads = _is_causal(model), config.num_heads, config.kv_heads
    right = causal and attends and kv_heads == heads
    shared = "" if kv_heads == heads else f"; {heads} heads share {kv_heads} of keys and values"
    return Finding.both(
        f"{'softmax(QK^T / sqrt(d_k)) V' if attends else other}, mask -inf; a target attends to"
        f" {'itself and those before' if causal else 'those after it'}{shared}",
        right,
    )


def _attentions(model: Transformer) -> list[MultiHeadAttention]:
    return [module for module in model.modules() if isinstance(module, MultiHeadAttention)]


def _attends(attention: MultiHeadAttention) -> bool:
    """Return whether it computes Concat(head_1, ..., head_h) W^O of the formula."""
    exact = copy.deepcopy(attention).double()
    with mode(exact, training=False):
        d_model = exact.w_q.in_features
        x, memory = torch.randn(3, d_model).double(), torch.randn(4, d_model).double()
        mask = torch.tensor([True, True, False, True])
        queries = exact.w_q(x).chunk(exact.num_heads, dim=1)
        groups = exact.w_k.out_features // queries[0].size(1)  # as many as heads in the paper
        pairs = zip(*(w(memory).chunk(groups, dim=1) for w in (exact.w_k, exact.w_v)), strict=True)
        shared = [pair for pair in pairs for _ in range(exact.num_heads // groups)]
        heads = []
        for q, (k, v) in zip(queries, shared, strict=True):
            scores = (q @ k.T / math.sqrt(k.size(1))).masked_fill(~mask, -math.inf)
            heads.append(scores.softmax(dim=1) @ v)
        expected = exact.w_o(torch.cat(heads, dim=1))
        return torch.allclose(exact(x[None], memory[None], mask[None, None, None])[0], expected)


def _is_causal(model: Transformer) -> bool:
    """Return whether a change of the last tokens changes no state before them."""
    with mode(model, training=False):
        source, target_input = random_tokens(model), random_tokens(model)
        half, words = LENGTH // 2, model.vocab_size - FIRST_WORD
        changed = target_input.clone()
        changed[:, half:] = FIRST_WORD + (changed[:, half:] - FIRST_WORD + 1) % words
        mask = model.source_mask(source)
        memory = model.encode(source, mask)
        states, others = (model.decode(t, memory, mask) for t in (target_input, changed))
        same = torch.isclose(states, others, atol=1e-5).all(dim=2)  # (B, T)
        return bool(same[:, :half].all()) and not same[:, half:].any()


_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "max(0, xW1 + b1)": lambda x: x.clamp(min=0),
    "swish(xW1 + b1)": lambda x: x / (1 + (-x).exp()),
    "gelu(xW1 + b1)": lambda x: x * (1 + (x / math.sqrt(2)).erf()) / 2,
    "quick_gelu(xW1 + b1)": lambda x: x / (1 + (-1.702 * x).exp()),
}


@detail("feed-forward (3.3)", paper="max(0, xW1 + b1)W2 + b2", tensor2tensor="the same")
def feed_forward_formula(subject: Subject) -> Finding:
    """Compare every feed-forward network with the formula in float64."""
    errors, biased = defaultdict[str, list[float]](list), True
    for module in subject.model.modules():
        if isinstance(module, FeedForward):
            biased = biased and module.inner.bias is not None and module.outer.bias is not None
            exact = copy.deepcopy(module).double()
            with mode(exact, training=False):
                x = torch.randn(3, exact.inner.in_features).double()
                for name, hidden in _hidden_layers(exact, x).items():
                    difference = exact(x[None])[0] - exact.outer(hidden)
                    errors[name].append(float(difference.abs().max()))
    for name, found in errors.items():
        if max(found) < 1e-9:
            formula = f"{name}W2 + b2" if biased else f"{name}W2 + b2 without biases"
            shown = f"{formula}, in {len(found)} of {len(found)} to {max(found):.0e}"
            return Finding.both(shown, formula == "max(0, xW1 + b1)W2 + b2")
    return Finding.both("another formula", False)


def _hidden_layers(module: FeedForward, x: Tensor) -> dict[str, Tensor]:
    """Compute the hidden layer of x (B, D) by each formula."""
    inner = module.inner(x)
    if isinstance(module, ModernFeedForward) and module.gate is not None:
        gate = module.gate(x)
        return {"(swish(xWg + bg) * (xW1 + b1))": gate / (1 + (-gate).exp()) * inner}
    return {name: function(inner) for name, function in _ACTIVATIONS.items()}


@detail(
    "initialization",
    paper=None,
    tensor2tensor="matrices Glorot uniform, embeddings N(0, 1/d_model), norms 1 and 0, biases 0",
)
def initialization(subject: Subject) -> Finding:
    """Check the bounds and moments of a new model's parameters."""
    one_layer, others = replace(subject.model.config, num_layers=1), set[str]()
    model = new_model(one_layer, subject.training.init_std)
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            if not _is_glorot_uniform(module.weight.detach()):
                others.add("feed-forward" if "feed_forward" in name else "attention")
            if module.bias is not None and module.bias.any():
                others.add("biases")
        elif isinstance(module, nn.LayerNorm) and (
            bool((module.weight != 1).any()) or (module.bias is not None and module.bias.any())
        ):
            others.add("norms")
    deviation, expected = float(model.embedding.weight.detach().std()), model.config.d_model**-0.5
    if not math.isclose(deviation, expected, rel_tol=0.03):
        others.add("embeddings")
    remark = f"otherwise: {', '.join(sorted(others))}" if others else "all as in tensor2tensor"
    here = f"{remark}; embeddings' deviation {deviation:.4g}, d_model^-1/2 = {expected:.4g}"
    return Finding.both(here, not others)


def _is_glorot_uniform(matrix: Tensor) -> bool:
    bound = math.sqrt(6.0 / sum(matrix.shape))
    # A uniform distribution's fourth moment is 9/5 of its squared variance, a normal one's three.
    variance, fourth = float(matrix.square().mean()), float(matrix.pow(4).mean())
    slack = 6.0 / math.sqrt(matrix.numel())
    return (
        float(matrix.abs().max()) <= bound * 1.0001
        and math.isclose(variance, bound**2 / 3.0, rel_tol=slack)
        and math.isclose(fourth / variance**2, 1.8, rel_tol=2 * slack)
    )
