"""Count what a step of training, and one of beam search, asks of a GPU, without one.

    python scripts/benchmarks/count.py

The base model runs on the simulated device of `tests/cuda`, late in a search. A kernel reads each
tensor that it is given, and writes its results, once. A graph is launched by the host as one piece;
its kernels and their bytes are those without graphs. An update has none of the layers' kernels,
which are compiled: it has what a second layer does not add to.
"""

import argparse
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from seq2seq.batches import make_batching
from seq2seq.config import TrainingConfig, TransformerConfig
from seq2seq.device import Compute
from seq2seq.encoded_corpus import EncodedCorpus
from seq2seq.fast.decoder import TranslationKernels, use_translation_kernels
from seq2seq.fast.graphs import Buffers, Graphs
from seq2seq.fast.search import StaticSearch
from seq2seq.fast.updates import FastUpdater
from seq2seq.files import temporary_folder
from seq2seq.model_folder import new_transformer
from seq2seq.search import SearchConfig, beam_search
from seq2seq.tokenizer import END_ID, PADDING_ID, START_ID

sys.path.append(str(Path(__file__).resolve().parents[2]))
from tests.cuda.device import journal
from tests.cuda.simulation import simulated
from tests.toy import encoded_corpus

CUDA = torch.device("cuda")
PLAIN_SEARCH = TranslationKernels(packed=False, step=False)


def count_search(
    kernels: TranslationKernels, static: bool, graphs: bool, sizes: argparse.Namespace
) -> tuple[int, float, int]:
    """Return what the host launches in a step late in a search, its gigabytes and its waits."""
    torch.manual_seed(1)
    device, buffers = CUDA, Buffers() if static else None
    config = TransformerConfig(num_layers=sizes.layers)
    model = new_transformer(config, sizes.vocab_size).to(device).bfloat16().eval()
    decoder = use_translation_kernels(model, torch.bfloat16, kernels, buffers)
    search: Callable[..., object] = beam_search
    if buffers is not None:
        search = StaticSearch(buffers, Graphs(device) if graphs else None)
    source = torch.randint(4, sizes.vocab_size, (sizes.sentences, sizes.length)).to(device)
    max_lengths = torch.full((sizes.sentences,), sizes.steps).to(device)
    before: list[tuple[int, int, int]] = []

    def step(tokens: Tensor, state: Any) -> Tensor:
        before.append((journal.kernels.total(), sum(journal.bytes.values()), len(journal.waits)))
        return decoder.step(tokens, state)

    with torch.inference_mode():
        for _ in range(2 if graphs else 1):
            journal.clear()
            search(
                step,
                decoder.begin(source),
                max_lengths,
                SearchConfig(),
                start_id=START_ID,
                end_id=END_ID,
                suppressed_ids=(PADDING_ID, START_ID),
            )
    if graphs:  # between two reads, the host launches a graph and what is not in it
        launched = 1 + int(statistics.median(journal.given_meanwhile))
        return launched, 0.0, len(journal.waits) // sizes.steps
    kernels_of, bytes_of, waits = (
        after - earlier for earlier, after in zip(*before[-3:-1], strict=True)
    )
    return kernels_of, bytes_of / 1e9, waits


def count_update(corpus: EncodedCorpus, sizes: argparse.Namespace, layers: int) -> tuple[int, int]:
    """Return the kernels and the bytes of an update of a model with some layers, not compiled."""
    torch.manual_seed(1)
    config = TrainingConfig(source_tokens=sizes.tokens, target_tokens=sizes.tokens)
    model = new_transformer(TransformerConfig(num_layers=layers), sizes.vocab_size).to(CUDA)
    batching, compute = make_batching(config, corpus, seed=1), Compute(CUDA, torch.bfloat16)
    updater = FastUpdater(model, batching, config, compute=compute, seed=1)
    batches = updater.collate(batching.epoch(0)[:1])
    updater.update(1, batches)  # makes Adam's moments
    journal.clear()
    updater.update(2, batches)
    return journal.kernels.total(), sum(journal.bytes.values())


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--length", type=int, default=28, help="tokens of a sentence")
    parser.add_argument("--vocab-size", type=int, default=37_000)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--sentences", type=int, default=64, help="searched at once")
    parser.add_argument("--steps", type=int, default=10, help="tokens of a translation")
    parser.add_argument("--tokens", type=int, default=256, help="of each side of an update")
    sizes = parser.parse_args()
    print("| a step of beam search | kernels | GB | launched by the host | waits |")
    print("|---|---|---|---|---|")
    fast = TranslationKernels()
    with simulated(), temporary_folder() as folder:
        for name, forms, static in (
            ("plain model", PLAIN_SEARCH, False),
            ("fast forms, growing shapes", fast, False),
            ("fixed shapes", fast, True),
        ):
            count, size, waits = count_search(forms, static, False, sizes)
            print(f"| {name} | {count} | {size:.2f} | {count} | {waits} |", flush=True)
        launched, _, waits = count_search(fast, True, True, sizes)
        corpus = encoded_corpus(folder / "corpus", sizes.vocab_size, sizes.tokens)
        (kernels, size_of_one), (with_two, size_of_two) = (
            count_update(corpus, sizes, layers) for layers in (1, 2)
        )
        kernels, gigabytes = 2 * kernels - with_two, (2 * size_of_one - size_of_two) / 1e9
    name = "and graphs (as `seq2seq translate` runs)"
    print(f"| {name} | {count} | {size:.2f} | {launched} | {waits} |")
    print(
        f"\n| an update, {sizes.tokens} + {sizes.tokens} tokens | kernels | GB |\n|---|---|---|\n"
        f"| without its layers | {kernels} | {gigabytes:.2f} |"
    )


if __name__ == "__main__":
    main()
