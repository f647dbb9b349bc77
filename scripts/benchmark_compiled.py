"""Measure what compiling brings on a CPU: in a training step, and in the search's candidates.

    python scripts/benchmark_compiled.py --model runs/mine --source test.en

All forms run in one process and one thread, in turns. Times are those of the processor, so that
other processes hardly count. The first calls, which compile, are timed apart, by the clock; what an
earlier form has compiled is not compiled again.
"""

import argparse
import logging
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmark_training import write_corpus
from training_systems import SIZES

from seq2seq.data.encoded import EncodedCorpus
from seq2seq.data.lines import read_text_lines
from seq2seq.decoding.beam_search import beam_search
from seq2seq.decoding.config import SearchConfig, TranslationOptions
from seq2seq.decoding.translator import Translator
from seq2seq.device import Compute
from seq2seq.fast.loss import compiled_loss
from seq2seq.fast.process import retain_freed_memory
from seq2seq.fast.topk import TopK, compiled_topk, plain_topk, topk_in_chunks
from seq2seq.fast.training import fuse_sublayer_ends
from seq2seq.model import TransformerConfig
from seq2seq.storage.checkpoint import find_model
from seq2seq.storage.model_folder import load_model
from seq2seq.storage.trained_model import new_transformer
from seq2seq.training.config import TrainingConfig
from seq2seq.training.trainer import Trainer

TRAINING = {
    "as it is": (),
    "the loss of a chunk compiled": ("loss",),
    "the ends of sublayers compiled": ("ends",),
    "both": ("loss", "ends"),
}
CANDIDATES: dict[str, Callable[[], TopK]] = {
    "in chunks, as it is": lambda: topk_in_chunks,
    "all at once": lambda: plain_topk,
    "compiled": compiled_topk,
}
DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}
WARM_UP = 4
"""Steps of each form that are not measured; sizes differ from one to the next."""


def trainer_of(
    corpus: EncodedCorpus, sizes: argparse.Namespace, parts: Sequence[str], dtype: torch.dtype
) -> Trainer:
    """Make the trainer of `seq2seq train`, with parts compiled."""
    torch.manual_seed(1)
    training = TrainingConfig(source_tokens=sizes.tokens, target_tokens=sizes.tokens)
    batching = training.batching(corpus, seed=1)
    model = new_transformer(TransformerConfig(**SIZES[sizes.size]), sizes.vocab_size).train()
    trainer = Trainer(model, batching, training, compute=Compute(dtype=dtype), seed=1)
    if "loss" in parts:
        trainer.updater.loss.chunk_loss_fn = compiled_loss()
    if "ends" in parts:
        fuse_sublayer_ends(model)
    return trainer


def in_turns(
    forms: dict[str, Callable[[int], object]], rounds: int, steps: int
) -> dict[str, list[float]]:
    """Return the seconds of `form(i)` for i below `steps`, of each form in each round."""
    seconds: dict[str, list[float]] = {name: [] for name in forms}
    for number in range(rounds):
        # The one that begins differs.
        names = list(forms)[number % len(forms) :] + list(forms)[: number % len(forms)]
        for name in names:
            started = time.process_time()
            for i in range(steps):
                forms[name](i)
            seconds[name].append(time.process_time() - started)
    return seconds


def print_table(title: str, first: dict[str, float], seconds: dict[str, list[float]]) -> None:
    """Print the times of all rounds, compared with the first form's in the same round."""
    print(f"\n| {title} | first calls, s | processor time, s | range | of the first line |")
    print("|---|---|---|---|---|")
    base = next(iter(seconds.values()))
    for name, found in seconds.items():
        ratio = statistics.median(a / b for a, b in zip(found, base, strict=True))
        print(
            f"| {name} | {first[name]:.1f} | {statistics.median(found):.2f} |"
            f" {min(found):.2f} to {max(found):.2f} | {ratio:.2f} |",
            flush=True,
        )


def measure_training(sizes: argparse.Namespace) -> None:
    """Print the times of training steps in each precision."""
    with tempfile.TemporaryDirectory() as folder:
        text = argparse.Namespace(source=None, target=None, vocab_size=sizes.vocab_size)
        corpus = EncodedCorpus(write_corpus(text, Path(folder)))
        for dtype in (DTYPES[name] for name in sizes.precision):
            forms: dict[str, Callable[[int], object]] = {}
            first = {}
            for name in sizes.forms:
                parts = TRAINING[name]
                trainer = trainer_of(corpus, sizes, parts, dtype)
                epoch = trainer.batching.epoch(0)

                def step(i: int, trainer: Trainer = trainer, epoch: Any = epoch) -> None:
                    count = trainer.micro_batches
                    trainer.update(epoch[i * count : (i + 1) * count])

                started = time.perf_counter()
                for i in range(WARM_UP):
                    step(i)
                first[name] = time.perf_counter() - started
                forms[name] = step
            title = f"{sizes.steps} steps of {sizes.size} in {str(dtype).removeprefix('torch.')}"
            print_table(title, first, in_turns(forms, sizes.rounds, sizes.steps))


def measure_search(arguments: argparse.Namespace) -> None:
    """Print the times of translating the text, and whether all find the same."""
    trained = load_model(find_model(Path(arguments.model)))
    lines = list(read_text_lines(arguments.source))[: arguments.sentences]
    for beam in arguments.beam:
        torch.compiler.reset()  # PyTorch compiles a function for eight kinds of inputs at most
        forms: dict[str, Callable[[int], object]] = {}
        first, texts = {}, []
        for name, make_topk in CANDIDATES.items():
            search = SearchConfig(beam_size=beam)
            options = TranslationOptions(device="cpu", precision="fp32", workers=1, search=search)
            translator = Translator(trained, options)
            translator.own_engine.beam_search = partial(beam_search, topk=make_topk())
            started = time.perf_counter()
            texts.append([found.text for found in translator.translate(lines)])
            first[name] = time.perf_counter() - started
            forms[name] = lambda _, translator=translator: translator.translate(lines)
        different = [int(np.sum([a != b for a, b in zip(t, texts[0], strict=True)])) for t in texts]
        title = f"{len(lines)} sentences, beam {beam}"
        print_table(title, first, in_turns(forms, arguments.rounds, 1))
        print(f"\nTranslations that differ from those of the first line: {different[1:]}")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size", choices=SIZES, default="small", help="of the trained model")
    parser.add_argument("--vocab-size", type=int, default=8000)
    parser.add_argument("--tokens", type=int, default=4096, help="tokens of each side per step")
    parser.add_argument("--forms", choices=TRAINING, nargs="+", default=list(TRAINING))
    parser.add_argument("--precision", choices=DTYPES, nargs="*", default=list(DTYPES))
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--model", help="a run or model folder, whose search is measured too")
    parser.add_argument("--source", help="text to translate")
    parser.add_argument("--sentences", type=int, default=100)
    parser.add_argument("--beam", type=int, nargs="+", default=[4])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    retain_freed_memory()
    logging.disable()
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache  # empty, so that the first calls compile
        measure_training(arguments)
        if arguments.model:
            measure_search(arguments)


if __name__ == "__main__":
    main()
