"""Count what a training step and a step of beam search ask of a GPU, without one.

    python scripts/benchmarks/count.py

The base model runs on the simulated device of `tests/cuda`: a training step as `seq2seq train`
runs it, with the paper's token budget, on tensors that have shapes and no numbers, and a step late
in a search. A kernel reads each tensor that it is given, and writes its results, once. A graph is
launched by the host as one piece; its kernels and their bytes are those without graphs.
"""

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seq2seq.data.encoded import EncodedCorpus, encode_ids, new_corpus
from seq2seq.data.tokenizer import END_ID, PADDING_ID, START_ID
from seq2seq.decoding.beam_search import beam_search
from seq2seq.decoding.config import SearchConfig
from seq2seq.decoding.static_search import StaticSearch
from seq2seq.device import Compute
from seq2seq.fast.decoder import Buffers
from seq2seq.fast.graphs import Graphs
from seq2seq.fast.training import PLAIN, TrainingKernels
from seq2seq.fast.translation import TranslationKernels, use_translation_kernels
from seq2seq.model import TransformerConfig
from seq2seq.storage.trained_model import new_transformer
from seq2seq.training.config import TrainingConfig
from seq2seq.training.trainer import Trainer

sys.path.append(str(Path(__file__).resolve().parents[2]))
from tests.cuda.device import journal
from tests.cuda.simulation import simulated

TRAINING = {
    "plain model": PLAIN,
    "fast forms, one micro-batch after the other": TrainingKernels(joined=False),
    "micro-batches joined (as `seq2seq train` runs)": TrainingKernels(),
}
PLAIN_SEARCH = TranslationKernels(packed=False, step=False)


def write_corpus(path: Path, sizes: argparse.Namespace) -> EncodedCorpus:
    """Write random pairs of about one length."""
    random = np.random.default_rng(1)
    sides: tuple[list[list[int]], list[list[int]]] = ([], [])
    for _ in range(60_000 // sizes.length):
        for side, drift in zip(sides, random.integers(-1, 2, 2), strict=True):
            side.append(random.integers(4, sizes.vocab_size, sizes.length - 1 + drift).tolist())
    with new_corpus(path) as write:
        write(encode_ids(*sides, sizes.vocab_size))
    return EncodedCorpus(path)


def count_training(
    corpus: EncodedCorpus, kernels: TrainingKernels, sizes: argparse.Namespace
) -> None:
    """Leave the second of two steps in the journal."""
    compute, training = Compute(torch.device("cuda"), torch.bfloat16), TrainingConfig()
    batching = training.batching(corpus, seed=1)
    config = TransformerConfig(num_layers=sizes.layers)
    model = new_transformer(config, sizes.vocab_size).to(compute.device).train()
    trainer = Trainer(model, batching, training, compute=compute, seed=1, kernels=kernels)
    if trainer.updater.joins:
        trainer.updater.joined = trainer.micro_batches
    batches = batching.epoch(0)
    trainer.start_update(batches[: trainer.micro_batches])
    journal.clear()
    trainer.start_update(batches[trainer.micro_batches : 2 * trainer.micro_batches])


def count_search(
    kernels: TranslationKernels, static: bool, graphs: bool, sizes: argparse.Namespace
) -> tuple[int, float, int]:
    """Return what the host launches in a step late in a search, its gigabytes and its waits."""
    torch.manual_seed(1)
    device, buffers = torch.device("cuda"), Buffers() if static else None
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


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--length", type=int, default=28, help="tokens of a sentence")
    parser.add_argument("--vocab-size", type=int, default=37_000)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--sentences", type=int, default=64, help="searched at once")
    parser.add_argument("--steps", type=int, default=10, help="tokens of a translation")
    parser.add_argument("--kernels", type=int, default=0, help="print as many, by their bytes")
    sizes = parser.parse_args()
    print("| a training step | kernels | GB | copies | waits |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder, simulated(shapes_alone=True):
        corpus = write_corpus(Path(folder) / "train.ids", sizes)
        for name, kernels in TRAINING.items():
            count_training(corpus, kernels, sizes)
            print(
                f"| {name} | {journal.kernels.total():,} | {journal.bytes.total() / 1e9:.1f} |"
                f" {len(journal.copies)} | {len(journal.waits)} |"
            )
            for kernel, size in journal.bytes.most_common(sizes.kernels):
                print(f"| &nbsp; {kernel} | {journal.kernels[kernel]:,} | {size / 1e9:.1f} | | |")
    print("\n| a step of beam search | kernels | GB | launched by the host | waits |")
    print("|---|---|---|---|---|")
    fast = TranslationKernels()
    with simulated():
        for name, forms, static in (
            ("plain model", PLAIN_SEARCH, False),
            ("fast forms, growing shapes", fast, False),
            ("fixed shapes", fast, True),
        ):
            count, size, waits = count_search(forms, static, False, sizes)
            print(f"| {name} | {count} | {size:.2f} | {count} | {waits} |", flush=True)
        launched, _, waits = count_search(fast, True, True, sizes)
    name = "and graphs (as `seq2seq translate` runs)"
    print(f"| {name} | {count} | {size:.2f} | {launched} | {waits} |")


if __name__ == "__main__":
    main()
