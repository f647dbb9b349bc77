"""Fast forms of the model's attention, dropout, norms and layers for training.

They stand in for `attention`, `nn.Dropout` and `nn.LayerNorm` in `model/transformer.py`;
`use_training_kernels` puts in place those that suit the device.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seq2seq.device import Compute
from seq2seq.fast import replace_modules
from seq2seq.fast.joined import JoinedLayout
from seq2seq.fast.packed import Attend
from seq2seq.fast.rows import RowLayout
from seq2seq.model.modern import ModernTransformer
from seq2seq.model.transformer import MultiHeadAttention, Transformer, attention


def fused_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, dropout: nn.Module
) -> Tensor:
    """Compute `model.transformer.attention`; dropout must be an `nn.Dropout`."""
    assert isinstance(dropout, nn.Dropout)
    if dropout._forward_pre_hooks:  # a hook reads the weights, which the fused kernel never stores
        return attention(query, key, value, mask, dropout)
    rate = dropout.p if dropout.training else 0.0
    return F.scaled_dot_product_attention(query, key, value, mask, rate)


class FastAttention(MultiHeadAttention):
    """Multi-head attention by another form of equation 1, or between rows.

    It shares the parameters of a plain module.
    """

    def __init__(self, plain: MultiHeadAttention, attend: Attend = fused_attention) -> None:
        self.__dict__.update(plain.__dict__)
        self.attend = attend

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor | JoinedLayout | RowLayout) -> Tensor:
        """See `MultiHeadAttention.forward`; a layout is the mask of rows (1, N, D)."""
        query, key, value = self.w_q(x), self.w_k(memory), self.w_v(memory)  # (B, T or S, H * K)
        if not isinstance(mask, Tensor):
            return self.w_o(mask.attend(query, key, value, self.num_heads, self.dropout))
        query, key, value = map(self.split_heads, (query, key, value))  # (B, H, T or S, K)
        heads = self.attend(query, key, value, mask, self.dropout)  # (B, H, T, d_v)
        return self.w_o(self.concatenate_heads(heads))  # (B, T, D)


def random_keep_mask(x: Tensor, rate: float) -> Tensor:
    """Draw a mask of the shape and dtype of x: 0 with probability `rate`, else 1 / (1 - rate).

    PyTorch draws a random number for each element. Here each 64-bit number serves four elements,
    and the comparison writes the dtype of x: 4,600 x 512 elements take 1.5 ms instead of 14. The
    rate is rounded to a multiple of 2**-16.
    """
    seed = int(torch.randint(2**63 - 1, ()))
    generator = np.random.Generator(np.random.SFC64(seed))
    words = generator.integers(0, 2**64, -(-x.numel() // 4), dtype=np.uint64)
    bits = torch.from_numpy(words.view(np.int16))[: x.numel()].view(x.shape)
    threshold = round(rate * 2**16) - 2**15
    return torch.ge(bits, threshold, out=torch.empty_like(x)).mul_(1.0 / (1.0 - rate))


class CpuDropout(nn.Dropout):
    """`nn.Dropout` with cheap random numbers, on a CPU."""

    def forward(self, x: Tensor) -> Tensor:
        """Drop elements of x, of any shape; in evaluation mode, return x itself."""
        if not self.training or self.p == 0.0:
            return x
        return x * random_keep_mask(x, self.p)


class ResidualNorm(nn.LayerNorm):
    """A norm whose output has the precision of its input, sharing the parameters of a plain one.

    A CPU's norm does so by itself. On a GPU autocast copies the input to float32, and without it
    the kernel wants weights in the precision of the input.
    """

    def __init__(self, plain: nn.LayerNorm) -> None:
        self.__dict__.update(plain.__dict__)

    def forward(self, x: Tensor) -> Tensor:
        """Normalize x (..., D)."""
        if not x.is_cuda:
            return super().forward(x)
        with torch.autocast("cuda", enabled=False):
            weight = self.weight.to(x.dtype)
            bias = None if self.bias is None else self.bias.to(x.dtype)
            return F.layer_norm(x, self.normalized_shape, weight, bias, self.eps)


def _to_autocast_dtype(_: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Tensor:
    device = output.device.type
    if torch.is_autocast_enabled(device):
        return output.to(torch.get_autocast_dtype(device))
    return output


def can_compile(device: torch.device) -> bool:
    """Return whether PyTorch has its compiler for this GPU; on a CPU it would gain nothing."""
    from torch.utils._triton import has_triton

    return device.type == "cuda" and has_triton()


def compile_layers(model: Transformer, backend: str = "inductor") -> None:
    """Compile each layer, in place: one program for the encoder's, one for the decoder's.

    The programs serve any number of sentences and tokens.
    """
    for layer in (*model.encoder.layers, *model.decoder.layers):
        layer.compile(dynamic=True, backend=backend)


@dataclass(frozen=True, kw_only=True)
class TrainingKernels:
    """The fast forms to use in training; without any, the plain model is trained."""

    attention: bool = True  # the fused kernel, on a GPU
    dropout: bool = True  # cheap masks, on a CPU
    residual: bool = True  # residual sums in autocast's precision
    loss: bool = True  # projection, loss and gradient in chunks
    joined: bool = True  # several micro-batches in one forward pass, on a GPU
    # Tokens alone, in few shapes of matmuls, in bf16 on a CPU. With AMX, compiling a shape takes
    # longer than multiplying; without, collecting the rows takes what it saves.
    rows: bool = field(default_factory=torch.cpu._is_amx_tile_supported)
    # Each layer compiled. Then they are not joined: each list of shapes would be compiled again.
    compiled: bool = False

    def join_on(self, compute: Compute, model: Transformer) -> bool:
        """Return whether micro-batches are joined, which needs the fast attention and loss."""
        fast = self.attention and self.loss and not self.compiled
        paper = not isinstance(model, ModernTransformer)
        return self.joined and fast and paper and compute.on_gpu

    def rows_on(self, compute: Compute, model: Transformer) -> bool:
        """Return whether tokens alone are rows of matmuls, which oneDNN compiles in bf16."""
        paper = not isinstance(model, ModernTransformer)
        low = compute.dtype is torch.bfloat16
        return (
            self.rows and self.loss and not self.compiled and paper and low and not compute.on_gpu
        )


PLAIN = TrainingKernels(
    **dict.fromkeys(("attention", "dropout", "residual", "loss", "joined", "rows"), False)
)


def use_training_kernels(model: Transformer, kernels: TrainingKernels, compute: Compute) -> None:
    """Put the fast forms into a model, in place; parameters and their names don't change."""
    if kernels.attention and compute.on_gpu:
        replace_modules(model, MultiHeadAttention, FastAttention)
        if isinstance(model, ModernTransformer):
            model.use_equation_1(fused_attention)
    if kernels.rows_on(compute, model):
        replace_modules(model, MultiHeadAttention, lambda m: FastAttention(m, attention))
    if kernels.dropout and not compute.on_gpu:
        replace_modules(model, nn.Dropout, lambda plain: CpuDropout(plain.p))
    if kernels.residual:
        # Embedded tokens get the precision of autocast, and all norms keep it.
        replace_modules(model, nn.LayerNorm, ResidualNorm)
        model.dropout.register_forward_hook(_to_autocast_dtype)
    if kernels.compiled:
        compile_layers(model)
