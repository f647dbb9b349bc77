"""Sections 3.2 and 3.3: attention, the feed-forward network, and the initial weights."""

import copy
import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from seq2seq.model import Transformer
from seq2seq.model.transformer import FeedForward, MultiHeadAttention
from seq2seq.reproduction.detail import Finding, Subject, detail, new_model
from seq2seq.reproduction.synthetic import FIRST_WORD
from seq2seq.reproduction.trace import LENGTH, mode, random_tokens


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
    formulas = {
        "softmax(QK^T / sqrt(d_k)) V": config.key_width**-0.5,
        "softmax(QK^T) V": 1.0,
        "softmax(QK^T / d_k) V": 1.0 / config.key_width,
        "softmax(QK^T / sqrt(d_model)) V": config.d_model**-0.5,
    }
    found = {
        next((name for name, scale in formulas.items() if _attends(attention, scale)), "another")
        for attention in _attentions(model)
    }
    causal = _is_causal(model)
    right = causal and found == {"softmax(QK^T / sqrt(d_k)) V"}
    return Finding.both(
        f"{', '.join(sorted(found))}, mask -inf; a target attends to"
        f" {'itself and those before' if causal else 'those after it'}",
        right,
    )


def _attentions(model: Transformer) -> list[MultiHeadAttention]:
    return [module for module in model.modules() if isinstance(module, MultiHeadAttention)]


def _attends(attention: MultiHeadAttention, scale: float) -> bool:
    """Return whether it computes Concat(head_1, ..., head_h) W^O with this factor on Q K^T."""
    exact = copy.deepcopy(attention).double()
    with mode(exact, training=False):
        d_model = exact.w_q.in_features
        x, memory = torch.randn(3, d_model).double(), torch.randn(4, d_model).double()
        mask = torch.tensor([True, True, False, True])
        heads = []
        columns = [w.chunk(exact.num_heads, dim=1) for w in (exact.w_q(x), exact.w_k(memory))]
        for q, k, v in zip(*columns, exact.w_v(memory).chunk(exact.num_heads, dim=1), strict=True):
            scores = (q @ k.T * scale).masked_fill(~mask, -math.inf)
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
    errors: dict[str, list[float]] = {name: [] for name in _ACTIVATIONS}
    for module in subject.model.modules():
        if isinstance(module, FeedForward):
            exact = copy.deepcopy(module).double()
            with mode(exact, training=False):
                x = torch.randn(3, exact.inner.in_features).double()
                inner = x @ exact.inner.weight.T + exact.inner.bias
                for name, found in errors.items():
                    hidden = _ACTIVATIONS[name](inner)
                    expected = hidden @ exact.outer.weight.T + exact.outer.bias
                    found.append(float((exact(x[None])[0] - expected).abs().max()))
    for name, found in errors.items():
        if max(found) < 1e-9:
            shown = f"{name}W2 + b2, in {len(found)} of {len(found)} to {max(found):.0e}"
            return Finding.both(shown, name == "max(0, xW1 + b1)")
    return Finding.both("another formula", False)


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
            bool((module.weight != 1).any()) or bool(module.bias.any())
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
