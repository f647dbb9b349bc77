"""The model and the loss of training in less time: rows, dropout, norms, the loss in chunks."""

import copy
import logging
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import Function, FunctionCtx
from torch.nn import functional as F

from seq2seq.changes import changed_code, changed_functions, report_unused
from seq2seq.decoder import override
from seq2seq.device import Compute
from seq2seq.fast import replace_modules, rows
from seq2seq.fast.fused import (
    JoinedProjections,
    ReluInMatmul,
    can_put_relu_in_matmul,
    has_matrices,
    project_memory_once,
    use_fused_attention,
)
from seq2seq.fast.trials import on_trial
from seq2seq.loss import Loss, label_smoothed_loss
from seq2seq.tokenizer import PADDING_ID
from seq2seq.transformer import MultiHeadAttention, Transformer
from seq2seq.zoo.modern import ModernTransformer

logger = logging.getLogger("seq2seq")

# Elements of the logits in memory at a time: 32 MB of float32 on a CPU, close to its caches; 1 GB
# of bfloat16 on a GPU, for large matmuls.
_CHUNK_ELEMENTS = 8 * 2**20
_CHUNK_ELEMENTS_ON_GPU = 512 * 2**20


Number: TypeAlias = float | Tensor
ChunkLoss: TypeAlias = Callable[..., tuple[Tensor, Tensor, Tensor]]


def loss_of_chunk(
    logits: Tensor,
    targets: Tensor,
    smoothing: float,
    vocab_size: int | None = None,
    *,
    by_sums: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute loss, cross-entropy and gradient of logits (rows, V) and targets (rows,).

    Returns two sums and (rows, V), the softmax minus the target distribution, padding included.
    Columns from `vocab_size` on are no tokens, and have meaningless gradients. With `by_sums`, the
    log-probabilities are summed up from the logits.
    """
    no_tokens = None
    if vocab_size is not None:
        no_tokens = torch.arange(logits.size(1), device=logits.device) >= vocab_size  # (V,)
        logits = logits.masked_fill(no_tokens, -torch.inf)
    vocab_size = vocab_size or logits.size(1)
    share = smoothing / (vocab_size - 1)  # of each token but the reference
    gold_weight = 1.0 - smoothing - share
    targets = targets.unsqueeze(1)  # (rows, 1)
    counts = targets != PADDING_ID
    exact = torch.promote_types(logits.dtype, torch.float32)
    log_probabilities = logits.log_softmax(dim=-1, dtype=exact)  # (rows, V)
    gold = (log_probabilities.gather(1, targets) * counts).sum()
    summed = logits if by_sums else log_probabilities
    if no_tokens is not None:
        summed = summed.masked_fill(no_tokens, 0.0)
    sums = summed.sum(dim=1, keepdim=True, dtype=exact)  # (rows, 1)
    if by_sums:  # a row's logits and log-probabilities differ by one number, its normalizer
        sums = sums - vocab_size * (logits[:, :1].to(exact) - log_probabilities[:, :1])
    everything = (sums * counts).sum()
    if torch.compiler.is_compiling():  # one kernel, where scattering would need two
        is_gold = torch.arange(logits.size(1), device=logits.device) == targets  # (rows, V)
        gradient = log_probabilities.exp() - share - gold_weight * is_gold
    else:
        gradient = log_probabilities.exp_().sub_(share)
        gradient.scatter_add_(1, targets, gradient.new_full(targets.shape, -gold_weight))
    smoothed = -(gold_weight * gold + share * everything)
    return smoothed, -gold, gradient.to(logits.dtype)


def loss_by_sums(
    logits: Tensor, targets: Tensor, smoothing: float, vocab_size: int | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute `loss_of_chunk` with a pass over the logits less, once compiled."""
    return loss_of_chunk(logits, targets, smoothing, vocab_size, by_sums=True)


def projected_loss(
    states: Tensor,
    weight: Tensor,
    targets: Tensor,
    *,
    smoothing: float,
    bias: Tensor | None = None,
    chunk_elements: int | None = None,
    chunk: ChunkLoss = loss_of_chunk,
    aligned: bool = False,
) -> Loss:
    """Compute the label-smoothed loss and the cross-entropy of the logits `states @ weight.T`.

    Chunks of rows go through projection, loss and gradient while they are in the processor's
    cache. The matmuls run in the precision of autocast, the softmax and the sum of the weight's
    gradient in float32.

    Shapes: states (N, D), weight (V, D), targets (N,), bias (V,). Rows whose target is padding
    don't count. Both are sums over the target tokens, in nats; gradients flow through the first
    one alone. `chunk` is `loss_of_chunk`, or the same compiled. With `aligned`, a V that is no
    multiple of 8 is filled up: a GPU takes longer for matrices whose rows are not aligned.
    """
    if aligned and len(weight) % 8:
        chunk, filled = partial(chunk, vocab_size=len(weight)), -len(weight) % 64
        weight = F.pad(weight, (0, 0, 0, filled))
        bias = None if bias is None else F.pad(bias, (0, filled))
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
        chunk: ChunkLoss,
    ) -> tuple[Tensor, Tensor]:
        exact = torch.promote_types(states.dtype, torch.float32)
        smoothed = torch.zeros((), dtype=exact, device=states.device)
        cross_entropy = torch.zeros_like(smoothed)
        states_gradient = torch.empty_like(states)  # (N, D)
        weight_gradient = torch.zeros(weight.shape, dtype=exact, device=weight.device)  # (V, D)
        low = weight.to(states.dtype)
        low_bias = None if bias is None else bias.to(states.dtype)
        bias_gradient = None if bias is None else torch.zeros_like(bias, dtype=exact)
        in_matmul = states.is_cuda and states.dtype != exact and on_trial("sums_in_matmul")
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
            factors = gradient.t(), states[part] * counts  # (V, rows), (rows, D)
            if in_matmul:
                torch.addmm(weight_gradient, *factors, out_dtype=exact, out=weight_gradient)
            else:
                weight_gradient += torch.mm(*factors)
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
    rate is rounded to a multiple of 2**-16 below 1.
    """
    seed = int(torch.randint(2**63 - 1, ()))
    generator = np.random.Generator(np.random.SFC64(seed))
    words = generator.integers(0, 2**64, -(-x.numel() // 4), dtype=np.uint64)
    bits = torch.from_numpy(words.view(np.int16))[: x.numel()].view(x.shape)
    threshold = min(round(rate * 2**16), 2**16 - 1) - 2**15
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
            weight, bias = (None if p is None else p.to(x.dtype) for p in (self.weight, self.bias))
            return F.layer_norm(x, self.normalized_shape, weight, bias, self.eps)


def _embedding_dropout(model: Transformer) -> nn.Module | None:
    """Return the dropout of a model's embeddings, which a changed model may lack."""
    dropout = getattr(model, "dropout", None)
    return dropout if isinstance(dropout, nn.Module) else None


def _to_autocast_dtype(_: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Tensor:
    device = output.device.type
    if torch.is_autocast_enabled(device):
        return output.to(torch.get_autocast_dtype(device))
    return output


def hashed_numbers(x: Tensor) -> Tensor:
    """Draw float32 numbers from 0 to 1 in the shape of x, which are multiples of 2**-24.

    Each is a hash of its place, between whose rounds a random number is mixed in. Compiled, it is a
    dozen instructions in the kernel that needs it; PyTorch's generator, Philox, is some 80. The
    rounds are those of Wellons's `lowbias32` (2018), in signed integers.
    """
    # The compiler has each thread draw this number again, so there is only one.
    seed = torch.randint(-(2**63), 2**63 - 1, (1,), device=x.device)
    h = torch.arange(x.numel(), dtype=torch.int32, device=x.device).view(x.shape)
    h = h ^ seed.to(torch.int32)
    h = (h ^ (h.bitwise_right_shift(16) & 0xFFFF)) * 0x7FEB352D
    h = h ^ (seed >> 32).to(torch.int32)
    h = (h ^ (h.bitwise_right_shift(15) & 0x1FFFF)) * (0x846CA68B - 2**32)
    h = h ^ (h.bitwise_right_shift(16) & 0xFFFF)
    return (h.bitwise_right_shift(8) & 0xFFFFFF) * 2.0**-24


class GpuDropout(nn.Dropout):
    """`nn.Dropout` whose rate may rise without a new recording or compilation."""

    share: Tensor
    """A factor () of the rate, on the GPU; see `FastModel.set_numbers`."""
    is_hashed = False
    """Whether its random numbers are `hashed_numbers`."""

    def forward(self, x: Tensor) -> Tensor:
        """Drop elements of x, of any shape; in evaluation mode, return x itself."""
        if not self.training or self.p == 0.0:
            return x
        rate = self.share * self.p
        numbers = hashed_numbers(x) if self.is_hashed else torch.rand_like(x, dtype=torch.float32)
        mask = numbers >= rate
        exact = torch.promote_types(x.dtype, torch.float32)
        return (x.to(exact) * mask / (1.0 - rate)).to(x.dtype)


def changed_attention(model: Transformer) -> list[str]:
    """Return the changes of what fused attention computes in its own way."""
    names = ["attention()", "causal_mask()", "MultiHeadAttention"]
    names += ["Transformer.source_mask()", "Transformer.target_mask()"]
    repeated = tuple(f"transformer.{name}" for name in names)
    return [name for name in changed_code(model) if name.startswith(repeated)]


def changed_feed_forward(model: Transformer) -> list[str]:
    """Return the changes of what `ReluInMatmul` computes in its own way."""
    return [name for name in changed_code(model) if name.startswith("transformer.FeedForward")]


def changed_decoder(model: Transformer) -> list[str]:
    """Return the changes of what `DecoderWithOneProjection` computes in its own way."""
    return [name for name in changed_code(model) if name.startswith("transformer.Decoder")]


def changed_loss(model: Transformer) -> list[str]:
    """Return the changes of what `projected_loss` computes in its own way."""
    names = "forward", "project", "output_matrix"
    repeated = ("loss.", *(f"transformer.Transformer.{name}()" for name in names))
    changed = changed_code(model) + changed_functions("loss")
    return [name for name in changed if name.startswith(repeated)]


@cache
def can_compile(device: torch.device) -> bool:
    """Return whether PyTorch's compiler works for this GPU; on a CPU it would gain nothing.

    It is tried with a small function: it needs a C compiler and Python's header files, too.
    """
    from torch.utils._triton import has_triton

    if device.type != "cuda" or not has_triton():
        return False
    try:
        torch.compile(torch.square, dynamic=False)(torch.ones(8, device=device))
    except Exception as error:  # there are many, and no class for all
        reason = str(error).strip().splitlines()[0]
        logger.warning(f"PyTorch's compiler doesn't work here, so training takes longer: {reason}")
        return False
    return True


class StepNumbers(NamedTuple):
    """The numbers with which a step computes; on a GPU tensors (), where a graph finds them."""

    target_tokens: Number = 1.0
    """Target tokens of the whole step, in all processes."""
    rate: Number = 0.0
    """The learning rate (equation 3)."""
    dropout: Number = 1.0
    """Dropout's share of its rates."""
    mean_weight: Number = 0.0
    """The weight of the parameters in the running mean."""


class FastModel:
    """A copy of a model in training mode that shares its parameters, with fast modules and loss.

    The tokens of a batch are rows. The model itself stays as it is, to be validated and saved.
    """

    def __init__(
        self,
        model: Transformer,
        compute: Compute,
        *,
        dropout: bool = True,
        residual: bool = True,
        compiled: bool = True,
    ) -> None:
        model.eval()
        self.compute, self.dropout, self.residual = compute, dropout, residual
        shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
        self.model = copy.deepcopy(model, shared).train()
        own_attention, own_loss = changed_attention(model), changed_loss(model)
        if own_attention and compute.on_gpu:
            report_unused("fused attention", own_attention)
        if own_loss:
            report_unused("the loss by chunks", own_loss)
        self.own_attention, self.own_loss = bool(own_attention), bool(own_loss)
        compiled = compiled and can_compile(compute.device)
        self.layout = choose_layout(model, compiled=compiled and not self.own_attention)
        self.joins = self.layout is not rows.GridLayout
        """Whether all micro-batches of a process are computed at once, if they fit into memory."""
        like = torch.empty(0, dtype=compute.dtype, device=compute.device)
        self.one_shape = self.joins or rows.is_compiled_by_onednn(like)
        """Whether all batches are filled up to one shape."""
        # The compiler makes a program for each shape, up to a limit: no other batches are for it.
        self.compiled = compiled and self.one_shape
        self.numbers_on_gpu = torch.zeros(len(StepNumbers()), device=compute.device)
        self.numbers = StepNumbers(*self.numbers_on_gpu.unbind())
        self.dropouts = {m: m.p for m in self.model.modules() if isinstance(m, nn.Dropout)}
        """The modules whose rate is set in each step, and their rates after the warm-up."""
        self._exchange_modules()
        self.chunk: ChunkLoss = loss_of_chunk
        if self.compiled:
            self._compile()

    def _compile(self) -> None:
        """Compile the layers, a chunk of the loss, and dropout of the embeddings."""
        options: dict[str, Any] | None = None
        if on_trial("autotune"):  # the matmuls remain cuBLAS's
            options = {"max_autotune": True, "max_autotune_gemm_backends": "ATEN"}
        for layer in (*self.model.encoder.layers, *self.model.decoder.layers):
            layer.compile(dynamic=False, options=options)
        if (dropout := _embedding_dropout(self.model)) is not None:
            dropout.compile(dynamic=False)
        chunk = loss_by_sums if on_trial("loss_by_sums") else loss_of_chunk
        self.chunk = torch.compile(chunk, dynamic=False)

    def _exchange_modules(self) -> None:
        """Put fast modules in place; parameters and their names don't change."""
        model, on_gpu = self.model, self.compute.on_gpu
        if on_gpu and not self.own_attention:
            for module in model.modules():
                if type(module) is MultiHeadAttention and has_matrices(module):
                    override(module, JoinedProjections)
            if on_trial("keys_and_values_at_once") and not changed_decoder(model):
                project_memory_once(model)
            use_fused_attention(model)
        if on_gpu and on_trial("relu_in_matmul") and not changed_feed_forward(model):
            for module in filter(can_put_relu_in_matmul, model.modules()):
                override(module, ReluInMatmul)
        rows.read_rows(model)
        if self.dropout:
            kind = GpuDropout if on_gpu else CpuDropout
            replace_modules(
                model, nn.Dropout, lambda plain: plain if plain.p == 1.0 else kind(plain.p)
            )
            for module in model.modules():
                if isinstance(module, GpuDropout):
                    module.share = torch.as_tensor(self.numbers.dropout)
                    module.is_hashed = self.compiled and on_trial("hashed_dropout")
                # Fused attention reads the rate of its dropout on the host; no graph records it.
                elif isinstance(module, MultiHeadAttention) and isinstance(
                    module.dropout, GpuDropout
                ):
                    module.dropout = nn.Dropout(module.dropout.p)
            self.dropouts = {
                m: m.p
                for m in model.modules()
                if isinstance(m, nn.Dropout) and not isinstance(m, GpuDropout)
            }
        if self.residual:
            # Embedded tokens get the precision of autocast, and all norms keep it.
            replace_modules(model, nn.LayerNorm, ResidualNorm)
            if (dropout := _embedding_dropout(model)) is not None:
                dropout.register_forward_hook(_to_autocast_dtype)

    def set_numbers(self, numbers: StepNumbers) -> StepNumbers:
        """Set dropout's rates, and return the numbers, on a GPU from where a graph finds them."""
        for dropout, full_rate in self.dropouts.items():
            dropout.p = float(numbers.dropout) * full_rate
        if not self.compute.on_gpu:
            return numbers
        # The GPU doesn't wait for a copy from pinned memory.
        self.numbers_on_gpu.copy_(torch.tensor(numbers).pin_memory(), non_blocking=True)
        return self.numbers

    def loss(self, batch: rows.RowBatch, smoothing: float) -> Loss:
        """Compute the sums over the batch's target tokens."""
        if self.own_loss:
            logits = rows.row_logits(self.model, batch, self.layout)
            return label_smoothed_loss(
                logits, batch.target_output, smoothing=smoothing, padding_id=self.model.padding_id
            )
        return projected_loss(
            rows.row_states(self.model, batch, self.layout),
            self.model.output_matrix,
            batch.target_output,
            smoothing=smoothing,
            bias=self.model.output_bias,
            chunk=self.chunk,
            aligned=self.compiled,
        )


def _widest_heads(device: torch.device) -> int:
    """Return the widest heads whose tiles FlexAttention can keep in a multiprocessor's memory."""
    properties = torch.cuda.get_device_properties(device)
    memory = getattr(properties, "shared_memory_per_block_optin", 0)
    # 99 KB on cards for desktops, 163 KB on an A100, 227 KB on an H100.
    return 128 if memory >= 160 * 1024 else 64


def choose_layout(model: Transformer, *, compiled: bool) -> type[rows.Layout]:
    """Choose how rows attend to each other: by a compiled kernel, where it can do it."""
    config = model.config
    is_modern = isinstance(model, ModernTransformer)
    if not compiled or is_modern or config.attention_dropout:
        return rows.GridLayout
    widths = config.key_width, config.value_width
    if min(widths) < 16 or max(widths) > _widest_heads(model.embedding.weight.device):
        return rows.GridLayout
    from seq2seq.fast.attention import FlexLayout

    return FlexLayout
