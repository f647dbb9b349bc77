"""Layers against PyTorch's own."""

import numpy as np
import torch
from torch import Tensor, nn

from seq2seq.model import TransformerConfig
from seq2seq.model.transformer import (
    DecoderLayer,
    EncoderLayer,
    MultiHeadAttention,
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


def copy_attention(ours: MultiHeadAttention, theirs: nn.MultiheadAttention) -> None:
    projections = (ours.w_q, ours.w_k, ours.w_v)
    theirs.in_proj_weight.copy_(torch.cat([w.weight for w in projections]))
    theirs.in_proj_bias.copy_(torch.cat([w.bias for w in projections]))
    theirs.out_proj.weight.copy_(ours.w_o.weight)
    theirs.out_proj.bias.copy_(ours.w_o.bias)


@torch.no_grad()
def copy_layer(ours: nn.Module, theirs: nn.Module) -> None:
    """Give PyTorch's layer the parameters of ours."""
    copy_attention(ours.self_attention, theirs.self_attn)
    norms = [ours.self_attention_norm, ours.feed_forward_norm]
    if isinstance(ours, DecoderLayer):
        copy_attention(ours.cross_attention, theirs.multihead_attn)
        norms.insert(1, ours.cross_attention_norm)
    theirs.linear1.load_state_dict(ours.feed_forward.inner.state_dict())
    theirs.linear2.load_state_dict(ours.feed_forward.outer.state_dict())
    for number, norm in enumerate(norms, start=1):
        getattr(theirs, f"norm{number}").load_state_dict(norm.state_dict())
    sizes = [sum(p.numel() for p in layer.parameters()) for layer in (ours, theirs)]
    assert sizes[0] == sizes[1]


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
    copy_layer(ours, theirs)
    x, peer_x = (random(2, 6, D_MODEL).requires_grad_() for _ in range(2))
    found = ours(x, ~PADDING[:, None, None])
    expected = theirs(peer_x, src_key_padding_mask=PADDING)
    assert_same(found, expected)
    for states in (found, expected):
        (states * random(2, 6, D_MODEL, seed=1))[~PADDING].sum().backward()
    assert_same(x.grad, peer_x.grad)
    assert_same(ours.feed_forward.inner.weight.grad, theirs.linear1.weight.grad)


def test_decoder_layer_equals_pytorch_in_values_and_gradients() -> None:
    ours = randomized(DecoderLayer(TransformerConfig(**SIZES, attention_bias=True)).double())
    theirs = nn.TransformerDecoderLayer(**PEER)
    copy_layer(ours, theirs)
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
    assert_same(ours.feed_forward.inner.weight.grad, theirs.linear1.weight.grad)
