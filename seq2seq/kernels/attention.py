"""PyTorch's fused attention, in place of the plain equation 1, for a GPU.

It never stores the (T, S) weights. On a CPU its backward pass in bf16 takes three times as long as
two products and a softmax (27 ms instead of 8 for 4,096 x 512).
"""

from torch import Tensor, nn
from torch.nn import functional as F

from seq2seq.kernels.parts import Parts
from seq2seq.model.transformer import MultiHeadAttention, attention


def fused_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, dropout: nn.Module
) -> Tensor:
    """Compute `model.transformer.attention`; dropout must be an `nn.Dropout`."""
    assert isinstance(dropout, nn.Dropout)
    if dropout._forward_pre_hooks:  # a hook reads the weights, which the fused kernel never stores
        return attention(query, key, value, mask, dropout)
    rate = dropout.p if dropout.training else 0.0
    return F.scaled_dot_product_attention(query, key, value, mask, rate)


class FusedAttention(MultiHeadAttention):
    """Multi-head attention by the fused kernel, sharing the parameters of a plain module."""

    def __init__(self, plain: MultiHeadAttention) -> None:
        nn.Module.__init__(self)
        self.num_heads = plain.num_heads
        self.w_q, self.w_k, self.w_v, self.w_o = plain.w_q, plain.w_k, plain.w_v, plain.w_o
        self.dropout = plain.dropout

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor | Parts) -> Tensor:
        """See `MultiHeadAttention.forward`; `Parts` are of several batches at once."""
        output: Tensor
        if not isinstance(mask, Tensor):
            assert isinstance(self.dropout, nn.Dropout)
            rate = self.dropout.p if self.dropout.training else 0.0
            projected = self.w_q(x), self.w_k(memory), self.w_v(memory)
            output = self.w_o(mask.attend(*projected, self.num_heads, rate))
            return output
        query = self.split_heads(self.w_q(x))  # (B, H, T, K)
        key = self.split_heads(self.w_k(memory))  # (B, H, S, K)
        value = self.split_heads(self.w_v(memory))  # (B, H, S, d_v)
        heads = fused_attention(query, key, value, mask, self.dropout)  # (B, H, T, d_v)
        output = self.w_o(self.concatenate_heads(heads))
        return output
