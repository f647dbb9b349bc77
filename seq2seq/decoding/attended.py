"""Recorded attentions: their queries, keys and values, while a model computes by its own code.

A class in front of each `MultiHeadAttention` keeps the queries, keys and values that reach
`equation_1`. So a changed layer, an edited file or a subclass is read as it computes; an attention
that computes without `equation_1` can't be read.
"""

from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from seq2seq.decoder import override
from seq2seq.transformer import MultiHeadAttention, Transformer


@dataclass
class Attended:
    """One call of an attention."""

    module: "ReadAttention"
    query: Tensor
    """(B, H, T, K)."""
    key: Tensor
    """(B, H, S, K)."""
    value: Tensor
    """(B, H, S, d_v)."""
    mask: Tensor
    """Broadcastable to (B, H, T, S)."""
    output: Tensor | None = None
    """(B, T, D), None if another method than `forward` computed it."""

    def weights(self) -> Tensor:
        """Compute the weights (B, H, T, S) of the values by the module's own `equation_1`.

        Each value is replaced by the row of an identity matrix, so the weights are the sums.
        """
        one = torch.eye(self.key.size(2), device=self.key.device)
        values = one.expand(*self.key.shape[:2], -1, -1)  # (B, H, S, S)
        query, key = self.query.float(), self.key.float()
        return self.module.equation_1(query, key, values, self.mask)

    def shares(self) -> Tensor:
        """Compute the shares (B, T, S) of source positions in the output, apart from its bias.

        A share is the norm of sum_h weight_h(t, s) W_h^O value_h(s), divided by the sum of these
        norms over s.
        """
        heads, matrix = self.value.size(1), self.module.w_o.weight  # (D, H * d_v)
        output = matrix.view(len(matrix), heads, -1).permute(1, 2, 0)  # (H, d_v, D)
        transformed = (self.value @ output).float().transpose(1, 2)  # (B, S, H, D)
        # The squared norm of a weighted sum over heads needs their products with each other only.
        products = transformed @ transformed.transpose(2, 3)  # (B, S, H, H)
        weights = self.weights().permute(0, 3, 2, 1)  # (B, S, T, H)
        squares = (weights @ products * weights).sum(dim=3).clamp(min=0)  # (B, S, T)
        norms = squares.sqrt().transpose(1, 2)  # (B, T, S)
        return norms / norms.sum(dim=2, keepdim=True)

    def is_sum_of_shares(self, shape: Sequence[int]) -> bool:
        """Return whether `shares` (B, T, S) divides the output: W^O sum_s weight(t, s) value(s)."""
        if self.output is None or self.shares().shape != shape:
            return False
        heads = (self.weights() @ self.value).transpose(1, 2).flatten(2)  # (B, T, H * d_v)
        w_o = self.module.w_o
        found = nn.functional.linear(heads, w_o.weight, w_o.bias)
        return bool(((found - self.output).abs() <= 1e-4 * self.output.abs().max()).all())


class _Calls:
    """The calls that are kept, and how many are needed in all."""

    def __init__(self, modules: Iterable[nn.Module], needed: int | None) -> None:
        self.modules, self.needed = set(modules), needed
        self.calls: list[Attended] = []


_CALLS: ContextVar[_Calls | None] = ContextVar("calls", default=None)
"""The calls that this thread keeps; None while a model only computes."""


class _EnoughError(Exception):
    """Stops a model whose other layers are not needed."""


class ReadAttention(MultiHeadAttention):
    """Keeps what is attended to, if it is asked for in this thread."""

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        """See `MultiHeadAttention.forward`."""
        output = super().forward(x, memory, mask)
        kept = _CALLS.get()
        if kept is not None and self in kept.modules:
            for call in kept.calls[-1:]:
                if call.module is self:
                    call.output = output
            if len(kept.calls) == kept.needed:
                raise _EnoughError
        return output

    def equation_1(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        """See `MultiHeadAttention.equation_1`."""
        kept = _CALLS.get()
        if kept is not None and self in kept.modules:
            kept.calls.append(Attended(self, query, key, value, mask))
        return super().equation_1(query, key, value, mask)


def make_readable(modules: Iterable[nn.Module]) -> None:
    """Put `ReadAttention` in front of the classes of attentions; a second call does nothing.

    Two threads may not do this for the same module at the same time.
    """
    for module in modules:
        if isinstance(module, MultiHeadAttention):
            override(module, ReadAttention)


def read_attentions(
    model: Transformer,
    modules: Iterable[nn.Module],
    source: Tensor,
    target_input: Tensor,
    *,
    needed: int | None = None,
) -> list[Attended]:
    """Let a model read source (B, S) and target_input (B, T); return the calls of some attentions.

    After `needed` calls the rest of the model is not computed. Threads that share a model call
    `make_readable` before they start.
    """
    kept = _Calls(modules, needed)
    make_readable(kept.modules)
    token = _CALLS.set(kept)
    try:
        model(source, target_input)
    except _EnoughError:
        pass
    finally:
        _CALLS.reset(token)
    return kept.calls
