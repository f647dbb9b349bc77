"""The two sublayers and their first weights (rows 9 to 12; 3.2 and 3.3), against the formulas."""

import copy
import math

import torch
from torch import Tensor, nn

from seq2seq.model import Memory, Transformer
from seq2seq.model.attention import MultiHeadAttention
from seq2seq.model.layers import FeedForward
from seq2seq.reproduction.subject import Finding, Subject
from seq2seq.reproduction.trace import LENGTH, mode, random_tokens


def attention_biases(subject: Subject) -> Finding:
    """Row 9: without biases a vector of zeros stays one."""
    biased = []
    for module in _attentions(subject.model):
        with mode(module, training=False):
            zeros = torch.zeros(1, 1, subject.model.config.d_model)
            vectors = sum(p.dim() == 1 for p in module.parameters())
            biased.append(bool(vectors) or bool(module(zeros, None, None).any()))
    if all(biased):
        return Finding(f"biases in all {len(biased)} attentions", False, True)
    if any(biased):
        return Finding(f"biases in {sum(biased)} of {len(biased)} attentions", False, False)
    return Finding(f"none in {len(biased)} attentions", True, False)


def attention_formula(subject: Subject) -> Finding:
    """Row 10: every attention against the formula, head by head in float64, with a mask."""
    model = subject.model
    width = model.config.key_width
    scales = {
        f"1/sqrt(d_k) = {width**-0.5:.4g}": width**-0.5,
        "no scale": 1.0,
        "1/d_k": 1.0 / width,
        "1/sqrt(d_model)": model.config.d_model**-0.5,
    }
    found = {
        next((name for name, scale in scales.items() if _attends(module, scale)), "another formula")
        for module in _attentions(model)
    }
    right = found == set(list(scales)[:1])
    causal = _looks_only_back(model)
    return Finding(
        f"softmax(QK^T scaled)V, {', '.join(sorted(found))}; masked keys weigh 0;"
        f" targets see {'only what is before' if causal else 'what is to come'}",
        right and causal,
        right and causal,
    )


def _attentions(model: Transformer) -> list[MultiHeadAttention]:
    return [module for module in model.modules() if isinstance(module, MultiHeadAttention)]


def _attends(module: MultiHeadAttention, scale: float) -> bool:
    """Whether it computes Concat(head_1, ..., head_h) W^O with this factor on Q K^T."""
    exact = copy.deepcopy(module).double()
    with mode(exact, training=False):
        size = exact.projection.in_features
        x, memory = torch.randn(3, size).double(), torch.randn(4, size).double()
        seen = torch.tensor([True, True, False, True])
        weight, bias = exact.projection.weight, exact.projection.bias
        sizes = [exact.query_size, exact.query_size, exact.value_size]
        matrices = torch.split(weight, sizes)
        biases = torch.split(torch.zeros(len(weight)).double() if bias is None else bias, sizes)
        query, key, value = (
            (y @ matrix.T + b).chunk(exact.num_heads, dim=1)
            for y, matrix, b in zip((x, memory, memory), matrices, biases, strict=True)
        )
        heads = []
        for q, k, v in zip(query, key, value, strict=True):
            scores = (q @ k.T * scale).masked_fill(~seen, -math.inf)
            heads.append(scores.softmax(dim=1) @ v)
        wanted = torch.cat(heads, dim=1) @ exact.output.weight.T
        if exact.output.bias is not None:
            wanted = wanted + exact.output.bias
        return torch.allclose(exact(x[None], memory[None], seen[None, None, None])[0], wanted)


def _looks_only_back(model: Transformer) -> bool:
    with mode(model, training=False):
        memory: Memory = model.encode(random_tokens(model))
        one, other = random_tokens(model), random_tokens(model)
        half = LENGTH // 2
        other[:, :half] = one[:, :half]
        first, second = model.decode(one, memory)[:, :half], model.decode(other, memory)[:, :half]
        return torch.allclose(first, second, atol=1e-5)


def feed_forward_formula(subject: Subject) -> Finding:
    """Row 11: every feed-forward sublayer against the formula, in float64."""
    errors = []
    for module in subject.model.modules():
        if isinstance(module, FeedForward):
            exact = copy.deepcopy(module).double()
            with mode(exact, training=False):
                x = torch.randn(3, exact.inner.in_features).double()
                inner = (x @ exact.inner.weight.T + exact.inner.bias).clamp(min=0)
                wanted = inner @ exact.outer.weight.T + exact.outer.bias
                errors.append(float((exact(x[None])[0] - wanted).abs().max()))
    right = bool(errors) and max(errors) < 1e-9
    return Finding(
        f"max(0, xW1 + b1)W2 + b2, in {len(errors)} of {len(errors)} to {max(errors):.0e}"
        if right
        else "another formula",
        right,
        right,
    )


def initialisation(subject: Subject) -> Finding:
    """Row 12: bounds and deviations of a model before its first update."""
    model, odd = subject.fresh, set[str]()
    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            sizes = [module.query_size, module.query_size, module.value_size]
            for matrix in (*torch.split(module.projection.weight, sizes), module.output.weight):
                if not _is_glorot_uniform(matrix):
                    odd.add("attention")
        elif isinstance(module, FeedForward):
            if not all(map(_is_glorot_uniform, (module.inner.weight, module.outer.weight))):
                odd.add("feed-forward")
        elif isinstance(module, nn.LayerNorm):
            if not (bool((module.weight == 1).all()) and not module.bias.any()):
                odd.add("norms")
        elif isinstance(module, nn.Linear) and module.bias is not None and module.bias.any():
            odd.add("biases")
    deviation = float(model.embedding.weight.detach().std())
    if not math.isclose(deviation, model.config.d_model**-0.5, rel_tol=0.03):
        odd.add("embeddings")
    remark = f"otherwise: {', '.join(sorted(odd))}" if odd else "all as the code"
    return Finding(
        f"{remark}; embeddings' deviation {deviation:.4g}, d_model^-1/2 ="
        f" {model.config.d_model**-0.5:.4g}",
        None,
        not odd,
    )


def _is_glorot_uniform(matrix: Tensor) -> bool:
    bound = math.sqrt(6.0 / sum(matrix.shape))
    # A uniform distribution's fourth moment is 9/5 of its squared variance, a normal one's three.
    matrix = matrix.detach()
    variance, fourth = float(matrix.square().mean()), float(matrix.pow(4).mean())
    slack = 6.0 / math.sqrt(matrix.numel())
    return (
        float(matrix.abs().max()) <= bound * 1.0001
        and math.isclose(variance, bound**2 / 3.0, rel_tol=slack)
        and math.isclose(fourth / variance**2, 1.8, rel_tol=2 * slack)
    )
