"""Count what compiling whole layers would save a GPU beyond their ends, without one.

    python scripts/count_compiled.py

PyTorch's compiler, here on a CPU, plans the kernels of the end of a sublayer and of whole layers of
the base model, forward and backward, and says what each reads and writes. The rest of a layer whose
ends alone are compiled is counted as `count_kernels.py` does. Products, attention and the casts of
weights, which are the same in both forms, are left out.

The plans are read from inside PyTorch 2.13.
"""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest import mock

import torch
from count_kernels import counted_end
from torch import Tensor, nn
from torch._inductor import config as compiler
from torch._inductor.scheduler import Scheduler

from seq2seq.fast import replace_modules
from seq2seq.fast.training import (
    AddAndNorm,
    FusedAttention,
    add_and_norm,
    compiled_add_and_norm,
    fuse_sublayer_ends,
)
from seq2seq.model import Transformer, TransformerConfig
from seq2seq.model.transformer import MultiHeadAttention
from seq2seq.storage.trained_model import new_transformer
from tests.cuda.device import journal
from tests.cuda.simulation import simulated

SAME = ("mm", "addmm", "_to_copy", "scaled_dot_product_attention", "attention_backward", "randint")
"""Kernels that compiling a layer leaves as they are."""
CASTS = ("prims.convert_element_type", "aten.permute")


@torch.library.custom_op("count_compiled::attend", mutates_args=())
def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Take the place of attention, into which the compiler does not see either."""
    return query.clone()


@torch.library.custom_op("count_compiled::attend_backward", mutates_args=())
def attend_backward(
    gradient: Tensor, query: Tensor, key: Tensor, value: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Take the place of its gradient."""
    return query.clone(), key.clone(), value.clone()


attend.register_fake(lambda query, key, value: torch.empty_like(query))
attend_backward.register_fake(
    lambda gradient, query, key, value: tuple(map(torch.empty_like, (query, key, value)))
)
attend.register_autograd(
    lambda ctx, gradient: attend_backward(gradient.contiguous(), *ctx.saved_tensors),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


class OpaqueAttention(FusedAttention):
    """The products of attention around `attend`."""

    def forward(self, x: Tensor, memory: Tensor, mask: Any) -> Tensor:
        """See `MultiHeadAttention.forward`."""
        heads: Tensor = attend(self.w_q(x), self.w_k(memory), self.w_v(memory))
        output: Tensor = self.w_o(heads)
        return output


def uncompiled_end(rate: float, epsilon: float) -> AddAndNorm:
    """Take the place of `compiled_add_and_norm`."""
    return partial(add_and_norm, rate=rate, epsilon=epsilon)


@contextmanager
def planned() -> Iterator[list[int]]:
    """Collect the bytes of each kernel that the compiler plans, without products and casts."""
    found: list[int] = []
    codegen = Scheduler.codegen

    def collect(scheduler: Scheduler, *arguments: Any) -> Any:
        for node in scheduler.nodes:
            parts = [part.node for part in node.get_nodes()]
            origins = {str(origin.target) for part in parts for origin in part.get_origins()}
            if any("Extern" in type(part).__name__ for part in node.get_nodes()):
                continue
            if not all(name.startswith(CASTS) for name in origins):
                found.append(node.get_read_write_buffers_sizes())
        return codegen(scheduler, *arguments)

    with (
        mock.patch.object(Scheduler, "codegen", collect),
        compiler.patch(fx_graph_cache=False),
    ):
        yield found


def layers_of(model: Transformer) -> dict[str, nn.Module]:
    """Return a layer of each kind."""
    return {"encoder": model.encoder.layers[0], "decoder": model.decoder.layers[0]}


def inputs_of(name: str, tokens: int, config: TransformerConfig, device: str) -> list[Tensor]:
    """Make what a layer reads: its states, those of the encoder, and masks."""
    count = 1 if name == "encoder" else 2
    shape, dtype = (1, tokens, config.d_model), torch.bfloat16
    states = [torch.zeros(shape, dtype=dtype, device=device) for _ in range(count)]
    masks = [torch.ones(1, 1, 1, 1, dtype=torch.bool, device=device)] * count
    return [*(x.requires_grad_() for x in states), *masks]


def with_compiled_ends(tokens: int, config: TransformerConfig) -> dict[str, tuple[int, float]]:
    """Count the kernels and bytes of each layer whose ends are compiled."""
    norm, keys = nn.LayerNorm(config.d_model), torch.tensor([5, -7], dtype=torch.int32)
    end = compiled_add_and_norm(0.1, norm.eps)
    with planned() as of_end:
        x, y = inputs_of("decoder", tokens, config, "cpu")[:2]
        end(x, y, norm.weight, norm.bias, keys).backward(torch.ones_like(x))
    counts = {}
    with simulated(shapes_alone=True):
        model = new_transformer(config, 100).to("cuda").train()
        replace_modules(model, MultiHeadAttention, FusedAttention)
        fuse_sublayer_ends(model, counted_end)
        for name, layer in layers_of(model).items():
            inputs = inputs_of(name, tokens, config, "cuda")
            gradient = torch.ones_like(inputs[0])
            journal.clear()
            with torch.autocast("cuda", torch.bfloat16):
                layer(*inputs).backward(gradient)
            kinds = [k for k in journal.bytes if k not in SAME and not k.startswith("compiled")]
            ends = 2 if name == "encoder" else 3
            counts[name] = (
                sum(journal.kernels[kind] for kind in kinds) + ends * len(of_end),
                sum(journal.bytes[kind] for kind in kinds) + ends * sum(of_end),
            )
    return counts


def compiled_whole(tokens: int, config: TransformerConfig) -> dict[str, tuple[int, float]]:
    """Count the kernels and bytes of each layer that is compiled as a whole."""
    model = new_transformer(config, 100).train()
    replace_modules(model, MultiHeadAttention, OpaqueAttention)
    fuse_sublayer_ends(model, uncompiled_end)
    counts = {}
    for name, layer in layers_of(model).items():
        compiled = torch.compile(layer, fullgraph=True)
        inputs = inputs_of(name, tokens, config, "cpu")
        with planned() as found, torch.autocast("cpu", torch.bfloat16):
            compiled(*inputs).backward(torch.ones_like(inputs[0]))
        counts[name] = len(found), sum(found)
    return counts


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tokens", type=int, default=4096, help="of each side")
    tokens, config = parser.parse_args().tokens, TransformerConfig(num_layers=1)
    state = 2 * tokens * config.d_model  # bytes
    print("| a layer | compiled | kernels | states read and written |\n|---|---|---|---|")
    for form, count in (("its ends", with_compiled_ends), ("whole", compiled_whole)):
        for name, (kernels, size) in count(tokens, config).items():
            print(f"| of the {name} | {form} | {kernels} | {size / state:.1f} |", flush=True)


if __name__ == "__main__":
    main()
