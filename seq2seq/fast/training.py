"""The fast forms of training, put in place by `FastForms`: rows, dropout, norms, graphs."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import Function, FunctionCtx
from torch.nn import functional as F

from seq2seq.batches import Batching, Rows
from seq2seq.device import Compute
from seq2seq.fast import replace_modules, rows
from seq2seq.fast.graphs import Graphs
from seq2seq.loss import Loss
from seq2seq.tokenizer import PADDING_ID
from seq2seq.transformer import MultiHeadAttention, Transformer
from seq2seq.update import Forms, StepNumbers
from seq2seq.zoo.modern import ModernAttention, ModernTransformer

# Elements of the logits in memory at a time: 32 MB of float32 on a CPU, close to its caches; 1 GB
# of bfloat16 on a GPU, for large matmuls.
_CHUNK_ELEMENTS = 8 * 2**20
_CHUNK_ELEMENTS_ON_GPU = 512 * 2**20


Chunk: TypeAlias = Callable[[Tensor, Tensor, float], tuple[Tensor, Tensor, Tensor]]


def loss_of_chunk(
    logits: Tensor, targets: Tensor, smoothing: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute loss, cross-entropy and gradient of logits (rows, V) and targets (rows,).

    Returns two sums and (rows, V), the softmax minus the target distribution, padding included.
    """
    share = smoothing / (logits.size(1) - 1)  # of each token but the reference
    gold_weight = 1.0 - smoothing - share
    targets = targets.unsqueeze(1)  # (rows, 1)
    counts = targets != PADDING_ID
    exact = torch.promote_types(logits.dtype, torch.float32)
    log_probabilities = logits.log_softmax(dim=-1, dtype=exact)  # (rows, V)
    gold = (log_probabilities.gather(1, targets) * counts).sum()
    everything = (log_probabilities.sum(dim=1, keepdim=True) * counts).sum()
    if torch.compiler.is_compiling():  # one kernel, where scattering would need two
        is_gold = torch.arange(logits.size(1), device=logits.device) == targets  # (rows, V)
        gradient = log_probabilities.exp() - share - gold_weight * is_gold
    else:
        gradient = log_probabilities.exp_().sub_(share)
        gradient.scatter_add_(1, targets, gradient.new_full(targets.shape, -gold_weight))
    smoothed = -(gold_weight * gold + share * everything)
    return smoothed, -gold, gradient.to(logits.dtype)


def projected_loss(
    states: Tensor,
    weight: Tensor,
    targets: Tensor,
    *,
    smoothing: float,
    bias: Tensor | None = None,
    chunk_elements: int | None = None,
    chunk: Chunk = loss_of_chunk,
) -> Loss:
    """Compute the label-smoothed loss and the cross-entropy of the logits `states @ weight.T`.

    Chunks of rows go through projection, loss and gradient while they are in the processor's
    cache. The matmuls run in the precision of autocast, the softmax and the sum of the weight's
    gradient in float32.

    Shapes: states (N, D), weight (V, D), targets (N,), bias (V,). Rows whose target is padding
    don't count. Both are sums over the target tokens, in nats; gradients flow through the first
    one alone. `chunk` is `loss_of_chunk`, or the same compiled.
    """
    if chunk_elements is None:
        chunk_elements = _CHUNK_ELEMENTS_ON_GPU if states.is_cuda else _CHUNK_ELEMENTS
    chunks = -(-len(states) * weight.size(0) // chunk_elements)
    chunk_rows = max(1, -(-len(states) // max(1, chunks)))  # all about equal
    if torch.is_autocast_enabled(states.device.type):
        states = states.to(torch.get_autocast_dtype(states.device.type))
    arguments = (states, weight, bias, targets, smoothing, chunk_rows, chunk)
    return Loss(*_ProjectedLoss.apply(*arguments))  # type: ignore[no-untyped-call]


class _ProjectedLoss(Function):
    """Computes the gradient along with the loss: both need the logits of a chunk."""

    @staticmethod
    def forward(
        ctx: FunctionCtx,
        states: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        smoothing: float,
        chunk_rows: int,
        chunk: Chunk,
    ) -> tuple[Tensor, Tensor]:
        exact = torch.promote_types(states.dtype, torch.float32)
        smoothed = torch.zeros((), dtype=exact, device=states.device)
        cross_entropy = torch.zeros_like(smoothed)
        states_gradient = torch.empty_like(states)  # (N, D)
        weight_gradient = torch.zeros(weight.shape, dtype=exact, device=weight.device)  # (V, D)
        low = weight.to(states.dtype)
        low_bias = None if bias is None else bias.to(states.dtype)
        bias_gradient = None if bias is None else torch.zeros_like(bias, dtype=exact)
        for first in range(0, len(states), chunk_rows):
            part = slice(first, first + chunk_rows)
            logits = F.linear(states[part], low, low_bias)  # (rows, V)
            of_chunk, gold, gradient = chunk(logits, targets[part], smoothing)
            smoothed, cross_entropy = smoothed + of_chunk, cross_entropy + gold
            # Padding has no gradient.
            counts = (targets[part] != PADDING_ID).to(states.dtype).unsqueeze(1)  # (rows, 1)
            if bias_gradient is not None:
                bias_gradient += (counts.t() @ gradient).squeeze(0)
            states_gradient[part] = gradient @ low * counts
            weight_gradient += gradient.t() @ (states[part] * counts)
        gradients: Any = (states_gradient, weight_gradient, bias_gradient)
        ctx.save_for_backward(*gradients)
        ctx.mark_non_differentiable(cross_entropy)
        return smoothed, cross_entropy

    @staticmethod
    def backward(ctx: FunctionCtx, scale: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        states, weight, bias = ctx.saved_tensors  # type: ignore[attr-defined]
        bias = None if bias is None else bias * scale
        return states * scale, weight * scale, bias, None, None, None, None


def random_keep_mask(x: Tensor, rate: float) -> Tensor:
    """Draw a mask of the shape and dtype of x: 0 with probability `rate`, else 1.

    PyTorch draws a random number for each element. Here each 64-bit number serves four elements,
    and the comparison writes the dtype of x: 4,600 x 512 elements take 1.5 ms instead of 14. The
    rate is rounded to a multiple of 2**-16.
    """
    seed = int(torch.randint(2**63 - 1, ()))
    generator = np.random.Generator(np.random.SFC64(seed))
    words = generator.integers(0, 2**64, -(-x.numel() // 4), dtype=np.uint64)
    bits = torch.from_numpy(words.view(np.int16))[: x.numel()].view(x.shape)
    threshold = round(rate * 2**16) - 2**15
    return torch.ge(bits, threshold, out=torch.empty_like(x))


class CpuDropout(nn.Dropout):
    """`nn.Dropout` with cheap random numbers, on a CPU."""

    def forward(self, x: Tensor) -> Tensor:
        """Drop elements of x, of any shape; in evaluation mode, return x itself."""
        if not self.training or self.p == 0.0:
            return x
        # In bfloat16 the scale itself would be rounded; as a number it multiplies in float32.
        return (x * random_keep_mask(x, self.p)).mul_(1.0 / (1.0 - self.p))


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


class GpuDropout(nn.Dropout):
    """`nn.Dropout` whose rate may rise without a new recording or compilation."""

    share: Tensor
    """Of the rate, (), on the GPU; see `Forms.begin_step`."""

    def forward(self, x: Tensor) -> Tensor:
        """Drop elements of x, of any shape; in evaluation mode, return x itself."""
        if not self.training or self.p == 0.0:
            return x
        rate = self.share * self.p
        mask = torch.rand_like(x, dtype=torch.float32) >= rate
        exact = torch.promote_types(x.dtype, torch.float32)
        return (x.to(exact) * mask / (1.0 - rate)).to(x.dtype)


def can_compile(device: torch.device) -> bool:
    """Return whether PyTorch has its compiler for this GPU; on a CPU it would gain nothing."""
    from torch.utils._triton import has_triton

    return device.type == "cuda" and has_triton()


@dataclass(eq=False, kw_only=True)
class FastForms(Forms):
    """The fast forms that suit the model and the device.

    The tokens of a batch are rows. On a GPU, a process computes all its micro-batches of a step at
    once, in one shape, as one graph; on a CPU, one micro-batch after the other, in one shape if
    oneDNN compiles its matmuls for AMX.
    """

    dropout: bool = True  # cheap masks
    residual: bool = True  # residual sums in autocast's precision
    compiled: bool = True  # layers and loss, where PyTorch has a compiler for the GPU

    def prepare(self, model: Transformer, batching: Batching, compute: Compute) -> None:
        """See `Forms.prepare`."""
        super().prepare(model, batching, compute)
        self.compiled = self.compiled and can_compile(compute.device)
        self.layout = choose_layout(model, compiled=self.compiled)
        self.joins = self.layout is not rows.GridLayout
        like = torch.empty(0, dtype=compute.dtype, device=compute.device)
        self.one_shape = self.joins or rows.is_compiled_by_onednn(like)
        # The compiler makes a program for each shape, up to a limit: no other batches are for it.
        self.compiled = self.compiled and self.one_shape
        self.recordings: Graphs | None = None
        self.shape: rows.Shape | None = None
        self.all_numbers = torch.zeros(len(StepNumbers()), device=compute.device)
        self.numbers = StepNumbers(*self.all_numbers.unbind())
        self._exchange_modules()
        self.chunk: Chunk = loss_of_chunk
        if self.compiled:
            for layer in (*self.model.encoder.layers, *self.model.decoder.layers):
                layer.compile(dynamic=False)
            self.chunk = torch.compile(loss_of_chunk, dynamic=False)

    def _exchange_modules(self) -> None:
        """Put the fast forms into the twin; parameters and their names don't change."""
        model, on_gpu = self.model, self.compute.on_gpu
        replace_modules(model, MultiHeadAttention, rows.RowAttention)
        replace_modules(model, ModernAttention, rows.PaddedAttention)
        if on_gpu and isinstance(model, ModernTransformer):
            model.use_equation_1(rows.fused_attention)
        if self.dropout:
            kind = GpuDropout if on_gpu else CpuDropout
            replace_modules(model, nn.Dropout, lambda plain: kind(plain.p))
            for module in model.modules():
                if isinstance(module, GpuDropout):
                    module.share = torch.as_tensor(self.numbers.dropout)
                # Fused attention reads the rate of its dropout on the host; no graph records it.
                elif on_gpu and isinstance(module, (MultiHeadAttention, ModernAttention)):
                    module.dropout = nn.Dropout(module.dropout.p)
            self.dropouts = {
                m: m.p
                for m in model.modules()
                if isinstance(m, nn.Dropout) and not isinstance(m, GpuDropout)
            }
        if self.residual:
            # Embedded tokens get the precision of autocast, and all norms keep it.
            replace_modules(model, nn.LayerNorm, ResidualNorm)
            model.dropout.register_forward_hook(_to_autocast_dtype)

    def reserve(self, most_tokens: tuple[int, int]) -> None:
        """See `Forms.reserve`."""
        # A table that grows would wait for the GPU, and have another address.
        longest, weight = self.batching.corpus.longest, self.model.embedding.weight
        self.model.positions(weight.new_empty(1, max(longest), weight.size(1)))
        if not self.one_shape:
            return
        source, target = (-(-tokens // 64) * 64 for tokens in most_tokens)
        self.shape = rows.Shape((source, target), None, None)
        if self.joins:
            # At most half as many pairs (see `cut`), then the sentences that fill up.
            fill = max(s // most + 1 for s, most in zip((source, target), longest, strict=True))
            self.shape = rows.Shape((source, target), min(most_tokens) // 2 + fill, longest)
            self.recordings = Graphs(self.compute.device)
        self.recorded: tuple[Tensor, rows.RowBatch] | None = None

    def begin_step(self, numbers: StepNumbers) -> StepNumbers:
        """See `Forms.begin_step`; on a GPU, the numbers lie where a graph finds them."""
        if not self.compute.on_gpu:
            return super().begin_step(numbers)
        # The GPU doesn't wait for a copy from pinned memory.
        self.all_numbers.copy_(torch.tensor(numbers).pin_memory(), non_blocking=True)
        super().begin_step(numbers)
        return self.numbers

    def collate(self, pairs: Rows) -> rows.Packed:
        """See `Forms.collate`."""
        packed = rows.pack(self.batching.corpus.tokens(pairs), self.shape)
        return packed.pin() if self.compute.on_gpu else packed

    def loss(self, batch: rows.RowBatch, smoothing: float) -> Loss:
        """See `Forms.loss`."""
        return projected_loss(
            rows.row_states(self.model, batch, self.layout),
            self.model.output_matrix,
            batch.target_output,
            smoothing=smoothing,
            bias=self.model.output_bias,
            chunk=self.chunk,
        )

    def run(self, key: str, function: Callable[..., None], *batch: rows.Packed) -> None:
        """See `Forms.run`."""
        if self.recordings is None:
            super().run(key, function, *batch)
            return
        inputs = list(map(self._in_place, batch))
        # The other batches add to the gradients of the first one: to those of its graph.
        if key == "add" and "begin" not in self.recordings.replays:
            function(*inputs)
        else:
            self.recordings.run(key, partial(function, *inputs))

    def _in_place(self, packed: rows.Packed) -> rows.RowBatch:
        """Copy a batch to where the graphs find it."""
        if self.recorded is None:
            ids = torch.zeros(len(packed.ids), dtype=torch.long, device=self.compute.device)
            self.recorded = ids, packed.divide(ids)
        ids, batch = self.recorded
        ids.copy_(packed.ids, non_blocking=True)
        return batch


def choose_layout(model: Transformer, *, compiled: bool) -> type[rows.Layout]:
    """Choose how rows attend to each other: by a compiled kernel, where it can do it."""
    config = model.config
    is_modern = isinstance(model, ModernTransformer)
    too_narrow = min(config.key_width, config.value_width) < 16
    if not compiled or is_modern or too_narrow or config.attention_dropout:
        return rows.GridLayout
    from seq2seq.fast.attention import FlexLayout

    return FlexLayout
