"""Attention against equation 1 and section 3.2.2 written out, layers against PyTorch's own."""

import math
import threading
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from seq2seq.model import Transformer, TransformerConfig
from seq2seq.model.attention import (
    MultiHeadAttention,
    attention_weights,
    causal_mask,
    record_attention,
)
from seq2seq.model.layers import DecoderLayer, EncoderLayer

D_MODEL, HEADS = 12, 3
SIZES = {"d_model": D_MODEL, "num_heads": HEADS, "d_ff": 20, "dropout": 0.0}


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng([seed, *shape]).normal(size=shape))


def randomised(module: nn.Module) -> nn.Module:
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
    found = attention_weights(query, key, allowed) @ value
    for b in range(2):
        for h in range(3):
            expected = equation_1(query[b, h], key[b, h], value[b, h], allowed[b, 0])
            torch.testing.assert_close(found[b, h], expected, rtol=0, atol=1e-12)


def test_attention_weights_are_distributions_over_what_may_be_seen() -> None:
    allowed = torch.tensor([True, False, True])
    weights = attention_weights(random(1, 2, 4, 5), random(1, 2, 3, 5), allowed)
    torch.testing.assert_close(weights.sum(-1), torch.ones(1, 2, 4, dtype=torch.float64))
    assert (weights[..., 1] == 0).all()
    assert (weights[..., [0, 2]] > 0).all()


def test_causal_mask_lets_a_position_see_itself_and_what_is_before() -> None:
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
    attention = randomised(MultiHeadAttention(config).double())
    assert isinstance(attention, MultiHeadAttention)
    x, memory = random(2, 4, D_MODEL), random(2, 6, D_MODEL, seed=1)
    seen = memory if to_memory else x
    allowed = random(2, 1, 4, seen.size(1), seed=2) > -1
    allowed[..., 0] = True

    k, v = d_k or D_MODEL // HEADS, d_v or D_MODEL // HEADS
    # W^Q, W^K and W^V of all heads, one above the other.
    sizes = [HEADS * k, HEADS * k, HEADS * v]
    matrices = attention.projection.weight.split(sizes)
    biases = attention.projection.bias.split(sizes) if bias else [torch.zeros(n) for n in sizes]
    output_bias = attention.output.bias if bias else 0
    for b in range(2):
        heads = []
        for h in range(HEADS):
            rows = [slice(h * n, (h + 1) * n) for n in (k, k, v)]
            q_, k_, v_ = (
                inputs[b] @ matrix[row].T + bias_[row]
                for inputs, matrix, bias_, row in zip(
                    (x, seen, seen), matrices, biases, rows, strict=True
                )
            )
            heads.append(equation_1(q_, k_, v_, allowed[b, 0]))
        expected = torch.cat(heads, dim=1) @ attention.output.weight.T + output_bias
        found = attention(x, memory if to_memory else None, allowed)[b]
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def copy_attention(ours: MultiHeadAttention, theirs: nn.MultiheadAttention) -> list[tuple]:
    return [
        (ours.projection.weight, theirs.in_proj_weight),
        (ours.projection.bias, theirs.in_proj_bias),
        (ours.output.weight, theirs.out_proj.weight),
        (ours.output.bias, theirs.out_proj.bias),
    ]


def pairs_of_parameters(ours: nn.Module, theirs: nn.Module) -> list[tuple[Tensor, Tensor]]:
    """Each parameter of an encoder or decoder layer beside PyTorch's."""
    pairs = copy_attention(ours.self_attention, theirs.self_attn)
    modules = [
        (ours.after_self_attention.norm, theirs.norm1),
        (ours.feed_forward.inner, theirs.linear1),
        (ours.feed_forward.outer, theirs.linear2),
    ]
    if isinstance(ours, DecoderLayer):
        pairs += copy_attention(ours.cross_attention, theirs.multihead_attn)
        modules.append((ours.after_cross_attention.norm, theirs.norm2))
        modules.append((ours.after_feed_forward.norm, theirs.norm3))
    else:
        modules.append((ours.after_feed_forward.norm, theirs.norm2))
    for one, other in modules:
        pairs += [(one.weight, other.weight), (one.bias, other.bias)]
    assert len(pairs) == len(list(ours.parameters())) == len(list(theirs.parameters()))
    with torch.no_grad():
        for one, other in pairs:
            other.copy_(one)
    return pairs


PEER = {
    "d_model": D_MODEL, "nhead": HEADS, "dim_feedforward": 20, "dropout": 0.0,
    "activation": "relu", "layer_norm_eps": 1e-6, "batch_first": True, "norm_first": False,
    "dtype": torch.float64,
}  # fmt: skip
PADDING = torch.tensor([[False] * 6, [False] * 4 + [True] * 2])


def assert_same(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)


def test_encoder_layer_equals_pytorch_in_values_and_gradients() -> None:
    ours = randomised(EncoderLayer(TransformerConfig(**SIZES, attention_bias=True)).double())
    theirs = nn.TransformerEncoderLayer(**PEER)
    pairs = pairs_of_parameters(ours, theirs)
    x, peer_x = (random(2, 6, D_MODEL).requires_grad_() for _ in range(2))
    found = ours(x, ~PADDING[:, None, None])
    expected = theirs(peer_x, src_key_padding_mask=PADDING)
    assert_same(found, expected)
    for states in (found, expected):
        (states * random(2, 6, D_MODEL, seed=1))[~PADDING].sum().backward()
    assert_same(x.grad, peer_x.grad)
    for one, other in pairs:
        assert_same(one.grad, other.grad)
    assert_same(ours(x, None), theirs(peer_x))


def test_decoder_layer_equals_pytorch_in_values_and_gradients() -> None:
    ours = randomised(DecoderLayer(TransformerConfig(**SIZES, attention_bias=True)).double())
    theirs = nn.TransformerDecoderLayer(**PEER)
    pairs = pairs_of_parameters(ours, theirs)
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
    for one, other in pairs:
        assert_same(one.grad, other.grad)


SOURCE = torch.tensor([[5, 6, 7, 8, 3], [9, 4, 3, 0, 0]])
TARGET_INPUT = torch.tensor([[2, 7, 5, 4], [2, 8, 9, 0]])


def pytorch_weights(attention: MultiHeadAttention, inputs: tuple) -> Tensor:
    """The weights (B, H, T, S) that PyTorch computes from the same matrices and inputs."""
    x, memory, allowed = inputs
    seen = x if memory is None else memory
    theirs = nn.MultiheadAttention(
        x.size(-1), attention.num_heads, bias=False, batch_first=True, dtype=x.dtype
    )
    with torch.no_grad():
        theirs.in_proj_weight.copy_(attention.projection.weight)
    shape = (x.size(0), attention.num_heads, x.size(1), seen.size(1))
    mask = None if allowed is None else ~allowed.expand(shape).flatten(0, 1)
    return theirs(x, seen, seen, attn_mask=mask, average_attn_weights=False)[1]


def test_recorded_weights_are_pytorchs_in_the_order_of_figure_1(
    make_model: Callable[..., Transformer],
) -> None:
    model = make_model()
    in_order = [layer.self_attention for layer in model.encoder]
    for layer in model.decoder:
        in_order += [layer.self_attention, layer.cross_attention]
    inputs: dict[nn.Module, tuple] = {}
    for attention in in_order:
        attention.register_forward_pre_hook(lambda module, x: inputs.update({module: x}))
    logits = model(SOURCE, TARGET_INPUT)
    with record_attention() as recorded:
        assert torch.equal(model(SOURCE, TARGET_INPUT), logits)
    for found, attention in zip(recorded, in_order, strict=True):
        assert_same(found, pytorch_weights(attention, inputs[attention]))
    assert len({weights[0, 0, -1, 0].item() for weights in recorded}) == len(recorded)


def test_nothing_is_recorded_outside(make_model: Callable[..., Transformer]) -> None:
    model = make_model()
    attentions = 3 * model.config.num_layers
    with record_attention() as first, record_attention() as second:
        model(SOURCE, TARGET_INPUT)
    with pytest.raises(ZeroDivisionError), record_attention() as third:
        raise ZeroDivisionError
    model(SOURCE, TARGET_INPUT)
    assert [len(recorded) for recorded in (first, second, third)] == [0, attentions, 0]


def test_threads_record_their_own(make_model: Callable[..., Transformer]) -> None:
    model, counts = make_model(), []

    def record(source: Tensor) -> None:
        with record_attention() as recorded:
            together.wait()  # both record now
            model(source, TARGET_INPUT)
            together.wait()
        counts.append({weights.size(3) for weights in recorded[: model.config.num_layers]})
        assert len(recorded) == 3 * model.config.num_layers

    together = threading.Barrier(2, timeout=60)
    threads = [threading.Thread(target=record, args=(s,)) for s in (SOURCE, SOURCE[:, :4])]
    with record_attention() as recorded:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert (sorted(counts, key=max), recorded) == ([{4}, {5}], [])
