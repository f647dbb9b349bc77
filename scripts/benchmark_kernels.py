"""Measure single parts of a step on a GPU: attention, the loss of a chunk, a step of beam search.

    python scripts/benchmark_kernels.py --device cuda

The sizes are the base model's; attention and loss are measured forward and backward together.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn import functional as F

from seq2seq.data.tokenizer import END_ID, PADDING_ID, START_ID
from seq2seq.decoding.beam_search import beam_search
from seq2seq.decoding.config import SearchConfig
from seq2seq.decoding.static_search import StaticSearch
from seq2seq.fast.graphs import Buffers, Graphs
from seq2seq.fast.loss import can_compile, compiled_loss, loss_and_gradient
from seq2seq.fast.topk import TopK, compiled_topk, topk_in_chunks
from seq2seq.fast.translation import TranslationKernels, use_translation_kernels
from seq2seq.model import TransformerConfig
from seq2seq.storage.trained_model import new_transformer

Row = tuple[str, float]
"""What was measured, and its milliseconds."""


def milliseconds(function: Callable[[], object], device: torch.device, times: int) -> float:
    """Return the mean time of a call, after three to warm up."""
    for _ in range(3):
        function()
    wait(device)
    started = time.perf_counter()
    for _ in range(times):
        function()
    wait(device)
    return 1000 * (time.perf_counter() - started) / times


def wait(device: torch.device) -> None:
    """Wait for the GPU, if it is one."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def attention(sizes: argparse.Namespace, device: torch.device) -> Iterator[Row]:
    """Self-attention of sentences of one length, by each kernel that PyTorch has."""
    sentences, length = max(1, sizes.tokens // sizes.length), sizes.length
    shape, dtype = (sentences, 8, length, 64), torch.bfloat16
    query, key, value = (
        torch.randn(shape, device=device, dtype=dtype, requires_grad=True) for _ in range(3)
    )
    mask = torch.ones(length, length, dtype=torch.bool, device=device).tril()
    rows = [x.detach().transpose(1, 2).flatten(0, 1).requires_grad_() for x in (query, key, value)]
    ends = torch.arange(sentences + 1, dtype=torch.int32, device=device) * length

    def masked() -> None:
        F.scaled_dot_product_attention(query, key, value, mask).sum().backward()

    def causal() -> None:
        F.scaled_dot_product_attention(query, key, value, is_causal=True).sum().backward()

    def packed() -> None:
        from torch.nn.attention.varlen import varlen_attn

        found: Any = varlen_attn(*rows, ends, ends, length, length, window_size=(-1, 0))
        found.sum().backward()

    def flexible() -> None:
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        blocks = create_block_mask(
            lambda b, h, q, k: q >= k, None, None, length, length, device=str(device)
        )
        compiled = torch.compile(flex_attention) if can_compile(device) else flex_attention
        found: Any = compiled(query, key, value, block_mask=blocks)
        found.sum().backward()

    for name, form in (
        ("masked", masked),
        ("causal", causal),
        ("packed (varlen)", packed),
        ("flex, its mask made each time", flexible),
    ):
        try:
            yield f"attention {shape}, {name}", milliseconds(form, device, sizes.times)
        except Exception as error:  # each kernel has its own demands on hardware and version
            print(f"attention, {name}: {str(error).splitlines()[0][:200]}")


def loss(sizes: argparse.Namespace, device: torch.device) -> Iterator[Row]:
    """The loss of a chunk of logits and its gradient."""
    tokens = max(1, sizes.tokens * 7 // 25)
    logits = torch.randn(tokens, sizes.vocab_size, device=device, dtype=torch.bfloat16)
    targets = torch.randint(sizes.vocab_size, (tokens, 1), device=device)
    forms = {"operation by operation": loss_and_gradient}
    if can_compile(device):
        forms["compiled"] = compiled_loss()
    for name, form in forms.items():
        name = f"loss of {tokens:,} x {sizes.vocab_size:,} logits, {name}"
        yield name, milliseconds(lambda form=form: form(logits, targets, 0.1), device, sizes.times)


@torch.inference_mode()
def search(sizes: argparse.Namespace, device: torch.device) -> Iterator[Row]:
    """A step of beam search, of batches of two sizes; no output of random weights ends early."""
    config, dtype = TransformerConfig(num_layers=sizes.layers), torch.bfloat16
    on_gpu, compiles = device.type == "cuda", can_compile(device)
    forms: list[tuple[str, bool, bool, TopK]] = [
        ("growing shapes", False, False, topk_in_chunks),
        ("fixed shapes", True, False, topk_in_chunks),
        *([("graphs", True, True, topk_in_chunks)] if on_gpu else []),
        *([("graphs, candidates compiled", True, True, compiled_topk())] if compiles else []),
    ]
    for sentences in sizes.sentences:
        source = torch.randint(4, sizes.vocab_size, (sentences, sizes.length), device=device)
        max_lengths = torch.full((sentences,), sizes.length, device=device)
        for name, static, graphs, topk in forms:
            torch.manual_seed(1)
            model = new_transformer(config, sizes.vocab_size).to(device, dtype).eval()
            buffers = Buffers() if static else None
            decoder = use_translation_kernels(model, dtype, TranslationKernels(), buffers)
            find: Callable[..., object] = beam_search
            if buffers is not None:
                find = StaticSearch(buffers, Graphs(device) if graphs else None, topk)

            def run(find: Callable[..., object] = find, decoder: Any = decoder) -> None:
                find(
                    decoder.step,
                    decoder.begin(source),  # noqa: B023  used before the next round
                    max_lengths,  # noqa: B023
                    SearchConfig(),
                    start_id=START_ID,
                    end_id=END_ID,
                    suppressed_ids=(PADDING_ID, START_ID),
                )

            per_search = milliseconds(run, device, 2)
            yield f"search step, {sentences} sentences, {name}", per_search / (sizes.length + 1)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--tokens", type=int, default=26_012, help="tokens of a training step")
    parser.add_argument("--length", type=int, default=28, help="tokens of a sentence")
    parser.add_argument("--sentences", type=int, nargs="+", default=[1, 64, 512], help="searched")
    parser.add_argument("--vocab-size", type=int, default=37_000)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--times", type=int, default=20)
    sizes = parser.parse_args()
    device = torch.device(sizes.device)
    print("| | ms |\n|---|---|")
    for measured in (attention, loss, search):
        for name, found in measured(sizes, device):
            print(f"| {name} | {found:.2f} |", flush=True)


if __name__ == "__main__":
    main()
