"""Attention against equation 1 and section 3.2.2 written out, layers against PyTorch's own."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from seq2seq.model import TransformerConfig
from seq2seq.model.transformer import (
    DecoderLayer,
    EncoderLayer,
    MultiHeadAttention,
    attention,
    causal_mask,
)

D_MODEL, HEADS = 12, 3
SIZES = {"d_model": D_MODEL, "num_heads": HEADS, "d_ff": 20, "dropout": 0.0}


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng([seed, *shape]).normal(size=shape))


def randomized(module: nn.Module) -> nn.Module:
    with torch.no_grad():
        for index, parameter in enumerate(module.parameters()):
            parameter.copy_(0.5 * random(*parameter.shape, seed=index))
    return module


def equation_1(query: Tensor, key: Tensor, value: Tensor, allowed: Tensor) -> Tensor:
    """softmax(Q K^T / sqrt(d_k)) V, one number after the other; (T, K), (S, K), (S, d_v)."""
    rows = []
    for q, may in zip(query.tolist(), allowed.tolist(), strict=True):
        exponentials = [
            math.exp(sum(a * b for a, b in zip(q, k, strict=True)) / math.sqrt(len(q))) if ok else 0
            for k, ok in zip(key.tolist(), may, strict=True)
        ]
        weights = [e / sum(exponentials) for e in exponentials]
        columns = zip(*value.tolist(), strict=True)
        rows.append([sum(w * v for w, v in zip(weights, c, strict=True)) for c in columns])
    return torch.tensor(rows, dtype=torch.float64)


def test_attention_is_equation_1() -> None:
    query, key, value = random(2, 3, 4, 5), random(2, 3, 6, 5), random(2, 3, 6, 7)
    allowed = random(2, 1, 4, 6, seed=1) > -0.5
    allowed[..., 0] = True
    found = attention(query, key, value, allowed, nn.Identity())
    for b in range(2):
        for h in range(3):
            expected = equation_1(query[b, h], key[b, h], value[b, h], allowed[b, 0])
            torch.testing.assert_close(found[b, h], expected, rtol=0, atol=1e-12)


def test_weights_are_distributions_over_what_may_be_attended_to() -> None:
    allowed = torch.tensor([True, False, True])
    identity = torch.eye(3, dtype=torch.float64).expand(1, 2, 3, 3)  # the values: weights come out
    weights = attention(random(1, 2, 4, 5), random(1, 2, 3, 5), identity, allowed, nn.Identity())
    torch.testing.assert_close(weights.sum(-1), torch.ones(1, 2, 4, dtype=torch.float64))
    assert (weights[..., 1] == 0).all()
    assert (weights[..., [0, 2]] > 0).all()


def test_dropout_is_on_the_weights() -> None:
    halved = nn.Module()
    halved.forward = lambda weights: weights * torch.tensor([0.0, 2.0, 2.0])  # type: ignore[method-assign]
    query, key, value = random(1, 2, 4, 5), random(1, 2, 3, 5), random(1, 2, 3, 3)
    everything = torch.tensor(True)
    weights = attention(
        query, key, torch.eye(3).double().expand(1, 2, 3, 3), everything, nn.Identity()
    )
    expected = 2.0 * weights[..., 1:] @ value[..., 1:, :]
    torch.testing.assert_close(attention(query, key, value, everything, halved), expected)


def test_the_causal_mask_lets_a_position_attend_to_itself_and_those_before() -> None:
    assert causal_mask(5, torch.device("cpu")).tolist() == [
        [s <= t for s in range(5)] for t in range(5)
    ]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("d_k", "d_v"), [(None, None), (5, 7), (6, 1)])
@pytest.mark.parametrize("to_memory", [False, True])
def test_multi_head_attention_is_section_3_2_2(
    d_k: int | None, d_v: int | None, bias: bool, to_memory: bool
) -> None:
    config = TransformerConfig(**SIZES, d_k=d_k, d_v=d_v, attention_bias=bias)
    ours = randomized(MultiHeadAttention(config).double())
    x, other = random(2, 4, D_MODEL), random(2, 6, D_MODEL, seed=1)
    memory = other if to_memory else x
    allowed = random(2, 1, 4, memory.size(1), seed=2) > -1
    allowed[..., 0] = True

    k, v = d_k or D_MODEL // HEADS, d_v or D_MODEL // HEADS
    found = ours(x, memory, allowed)
    for b in range(2):
        heads = []
        for h in range(HEADS):
            q_, k_, v_ = (
                inputs[b] @ w.weight[h * width : (h + 1) * width].T
                + (w.bias[h * width : (h + 1) * width] if bias else 0)
                for inputs, w, width in (
                    (x, ours.w_q, k), (memory, ours.w_k, k), (memory, ours.w_v, v)
                )
            )  # fmt: skip
            heads.append(equation_1(q_, k_, v_, allowed[b, 0]))
        expected = torch.cat(heads, dim=1) @ ours.w_o.weight.T + (ours.w_o.bias if bias else 0)
        torch.testing.assert_close(found[b], expected, rtol=0, atol=1e-12)


def attention_pairs(
    ours: MultiHeadAttention, theirs: nn.MultiheadAttention
) -> list[tuple[Tensor, Tensor]]:
    weights, biases = theirs.in_proj_weight.chunk(3), theirs.in_proj_bias.chunk(3)
    projections = (ours.w_q, ours.w_k, ours.w_v)
    return [
        *((w.weight, weight) for w, weight in zip(projections, weights, strict=True)),
        *((w.bias, bias) for w, bias in zip(projections, biases, strict=True)),
        (ours.w_o.weight, theirs.out_proj.weight),
        (ours.w_o.bias, theirs.out_proj.bias),
    ]


def layer_pairs(ours: nn.Module, theirs: nn.Module) -> list[tuple[Tensor, Tensor]]:
    """Each parameter of an encoder or decoder layer beside PyTorch's, which becomes equal."""
    pairs = attention_pairs(ours.self_attention, theirs.self_attn)
    modules = [
        (ours.self_attention_norm, theirs.norm1),
        (ours.feed_forward.inner, theirs.linear1),
        (ours.feed_forward.outer, theirs.linear2),
    ]
    if isinstance(ours, DecoderLayer):
        pairs += attention_pairs(ours.cross_attention, theirs.multihead_attn)
        modules.append((ours.cross_attention_norm, theirs.norm2))
        modules.append((ours.feed_forward_norm, theirs.norm3))
    else:
        modules.append((ours.feed_forward_norm, theirs.norm2))
    for one, other in modules:
        pairs += [(one.weight, other.weight), (one.bias, other.bias)]
    assert len(pairs) == len(list(ours.parameters()))
    assert sum(one.numel() for one, _ in pairs) == sum(p.numel() for p in theirs.parameters())
    with torch.no_grad():
        for one, other in pairs:
            other.copy_(one)
    return pairs


def assert_same_gradients(ours: nn.Module, theirs: nn.Module) -> None:
    """Gradients of PyTorch's joined projections are compared part by part."""
    gradients = {name: p.grad for name, p in theirs.named_parameters()}
    for module, name in (("self_attention", "self_attn"), ("cross_attention", "multihead_attn")):
        if hasattr(ours, module):
            mine = getattr(ours, module)
            joined = [mine.w_q, mine.w_k, mine.w_v]
            assert_same(
                torch.cat([w.weight.grad for w in joined]), gradients[f"{name}.in_proj_weight"]
            )
            assert_same(torch.cat([w.bias.grad for w in joined]), gradients[f"{name}.in_proj_bias"])
            assert_same(mine.w_o.weight.grad, gradients[f"{name}.out_proj.weight"])
    assert_same(ours.feed_forward.inner.weight.grad, gradients["linear1.weight"])
    assert_same(ours.feed_forward.outer.bias.grad, gradients["linear2.bias"])
    assert_same(ours.self_attention_norm.weight.grad, gradients["norm1.weight"])


PEER = {
    "d_model": D_MODEL, "nhead": HEADS, "dim_feedforward": 20, "dropout": 0.0,
    "activation": "relu", "layer_norm_eps": 1e-6, "batch_first": True, "norm_first": False,
    "dtype": torch.float64,
}  # fmt: skip
PADDING = torch.tensor([[False] * 6, [False] * 4 + [True] * 2])


def assert_same(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)


def test_encoder_layer_equals_pytorch_in_values_and_gradients() -> None:
    ours = randomized(EncoderLayer(TransformerConfig(**SIZES, attention_bias=True)).double())
    theirs = nn.TransformerEncoderLayer(**PEER)
    layer_pairs(ours, theirs)
    x, peer_x = (random(2, 6, D_MODEL).requires_grad_() for _ in range(2))
    found = ours(x, ~PADDING[:, None, None])
    expected = theirs(peer_x, src_key_padding_mask=PADDING)
    assert_same(found, expected)
    for states in (found, expected):
        (states * random(2, 6, D_MODEL, seed=1))[~PADDING].sum().backward()
    assert_same(x.grad, peer_x.grad)
    assert_same_gradients(ours, theirs)


def test_decoder_layer_equals_pytorch_in_values_and_gradients() -> None:
    ours = randomized(DecoderLayer(TransformerConfig(**SIZES, attention_bias=True)).double())
    theirs = nn.TransformerDecoderLayer(**PEER)
    layer_pairs(ours, theirs)
    x, peer_x = (random(2, 5, D_MODEL).requires_grad_() for _ in range(2))
    memory, peer_memory = (random(2, 6, D_MODEL, seed=1).requires_grad_() for _ in range(2))
    causal = causal_mask(5, x.device)
    found = ours(x, memory, causal, ~PADDING[:, None, None])
    expected = theirs(peer_x, peer_memory, tgt_mask=~causal, memory_key_padding_mask=PADDING)
    assert_same(found, expected)
    for states in (found, expected):
        (states * random(2, 5, D_MODEL, seed=2)).sum().backward()
    assert_same(x.grad, peer_x.grad)
    assert_same(memory.grad, peer_memory.grad)
    assert_same_gradients(ours, theirs)
