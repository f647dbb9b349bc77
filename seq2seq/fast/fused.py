"""Equation 1 by one kernel of PyTorch's, which never stores the weights."""

from torch import Tensor, nn
from torch.nn import functional as F

from seq2seq.decoder import override
from seq2seq.transformer import MultiHeadAttention, Transformer, attention


def fused_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, dropout: nn.Module
) -> Tensor:
    """Compute `transformer.attention`; dropout must be an `nn.Dropout`."""
    assert isinstance(dropout, nn.Dropout)
    if dropout._forward_pre_hooks:  # a hook reads the weights, which the fused kernel never stores
        return attention(query, key, value, mask, dropout)
    rate = dropout.p if dropout.training else 0.0
    return F.scaled_dot_product_attention(query, key, value, mask, rate)


class FusedAttention(MultiHeadAttention):
    """Equation 1 by one kernel."""

    def equation_1(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        """See `MultiHeadAttention.equation_1`."""
        return fused_attention(query, key, value, mask, self.dropout)


def use_fused_attention(model: Transformer) -> None:
    """Compute equation 1 by one kernel in the attentions that compute it as the paper's do."""
    for module in model.modules():
        if isinstance(module, MultiHeadAttention) and has_equation_1(module):
            override(module, FusedAttention)


def has_equation_1(module: MultiHeadAttention) -> bool:
    """Return whether an attention computes equation 1 as the paper's do."""
    return type(module).equation_1 is MultiHeadAttention.equation_1
