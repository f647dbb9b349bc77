"""Measure the speed of translation, compared with Hugging Face's `generate` and CTranslate2.

Every system translates the same sentences with the same weights. Each measurement runs in a process
of its own, and the systems take turns:

    python scripts/benchmarks/decoding.py --model runs/mine --source test.en --reference test.de

The peers get the exported weights (`pip install '.[export]'`). Their length penalty is
length^alpha instead of ((5 + length) / 6)^alpha; BLEU shows whether the outputs are as good.
CTranslate2 runs with several settings, since the best one depends on the machine.
`--kernels` measures the gain of each fast form.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import turns

from seq2seq.decoding.options import TranslationOptions
from seq2seq.decoding.translator import Translator
from seq2seq.fast.decoder import TranslationKernels
from seq2seq.interop.export import write_ctranslate2, write_marian
from seq2seq.machine.resources import retain_freed_memory
from seq2seq.model_folder import TrainedModel, find_model, load_model
from seq2seq.score import score_all
from seq2seq.search import SearchConfig, pad
from seq2seq.text import read_text_lines
from seq2seq.tokenizer import END_ID, PADDING_ID, START_ID

ALPHA = 0.6
EXTRA_TOKENS = 50
HUGGING_FACE_BATCH = 64  # sentences

Translate = Callable[[list[str]], list[str]]
"""Sentences -> their translations."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """The work of every system."""

    model: str
    ctranslate2: str
    beam: int
    marian: str = ""
    source: str = ""
    sentences: int = 0
    single: int = 0


@dataclass(frozen=True)
class System(turns.System):
    """One line of the table; batches are in sentences for CTranslate2."""

    workers: int = 1
    threads: int = 1
    batch: int = 0
    engine: str = "native"
    """`TranslationOptions.engine`, for this project alone."""


OURS = (
    System("ours, fp32, 2 workers", "ours", "fp32", 2),
    System("ours, bf16, 2 workers", "ours", "bf16", 2),
    System("ours, fp32, 1 worker", "ours", "fp32"),
    System("engine ctranslate2, fp32, 2 workers", "ours", "fp32", 2, engine="ctranslate2"),
    System("engine ctranslate2, int8, 2 workers", "ours", "int8", 2, engine="ctranslate2"),
)
# This project without one of its fast forms, and the plain model without any.
KERNELS = tuple(
    row
    for precision in ("fp32", "bf16")
    for row in (
        System(f"ours, {precision}, 2 workers", "ours", precision, 2),
        System(f"{precision}, without packed matrices", "ours", precision, 2, without=("packed",)),
        System(f"{precision}, without the cheaper step", "ours", precision, 2, without=("step",)),
        System(f"{precision}, plain model", "ours", precision, 2, without=("packed", "step")),
    )
)
HUGGING_FACE = System("Hugging Face, fp32", "hugging_face", "fp32", 1, 2)
CTRANSLATE2 = tuple(
    System(
        f"CTranslate2, {precision}, {workers} x {threads}, {batch} a batch",
        "ctranslate2",
        precision,
        workers,
        threads,
        batch,
    )
    for precision in ("float32", "int8")
    for workers, threads in ((2, 1), (1, 2))
    for batch in (32, 64, 128, 256)
)


def ours(work: Work, system: System, trained: TrainedModel) -> Translate:
    """Make this project's decoder as `seq2seq translate` does."""
    retain_freed_memory()
    options = TranslationOptions(
        device="cpu",
        precision=system.precision,
        workers=system.workers,
        search=SearchConfig(beam_size=work.beam, alpha=ALPHA),
        engine=system.engine,
        scores=False,
    )
    translator = Translator(
        trained, options, TranslationKernels(**dict.fromkeys(system.without, False))
    )

    def translate(lines: list[str]) -> list[str]:
        return [translation.text for translation in translator.translate(lines)]

    return translate


def hugging_face(work: Work, system: System, trained: TrainedModel) -> Translate:
    """`MarianMTModel.generate`, the sentences sorted by length."""
    from transformers import MarianMTModel

    torch.set_num_threads(system.threads)
    model = MarianMTModel.from_pretrained(work.marian).eval()

    def translate(lines: list[str]) -> list[str]:
        sources = [[*ids, END_ID] for ids in trained.tokenizer.encode(lines)]
        order = sorted(range(len(lines)), key=lambda i: -len(sources[i]))
        outputs: list[list[int]] = [[] for _ in lines]
        for first in range(0, len(order), HUGGING_FACE_BATCH):
            batch = order[first : first + HUGGING_FACE_BATCH]
            ids = pad([sources[i] for i in batch])
            with torch.inference_mode():
                rows = model.generate(
                    input_ids=ids,
                    attention_mask=ids != PADDING_ID,
                    num_beams=work.beam,
                    do_sample=False,
                    length_penalty=ALPHA,
                    max_length=ids.size(1) + EXTRA_TOKENS,
                )
            for i, row in zip(batch, rows.tolist(), strict=True):
                outputs[i] = [t for t in row if t not in (PADDING_ID, START_ID, END_ID)]
        return trained.tokenizer.decode(outputs)

    return translate


def ctranslate2(work: Work, system: System, trained: TrainedModel) -> Translate:
    """CTranslate2's own `Translator`."""
    import ctranslate2 as library

    translator = library.Translator(
        work.ctranslate2,
        compute_type=system.precision,
        inter_threads=system.workers,
        intra_threads=system.threads,
    )
    pieces = trained.tokenizer.pieces(list(range(trained.model.vocab_size)))
    ids_of = {piece: number for number, piece in enumerate(pieces)}

    def translate(lines: list[str]) -> list[str]:
        sources = [trained.tokenizer.pieces(ids) for ids in trained.tokenizer.encode(lines)]
        results = translator.translate_batch(
            sources,
            beam_size=work.beam,
            length_penalty=ALPHA,
            max_batch_size=system.batch,
            max_decoding_length=max(map(len, sources), default=0) + EXTRA_TOKENS,
            suppress_sequences=[["<pad>"], ["<s>"]],
        )
        outputs = [[ids_of[piece] for piece in result.hypotheses[0]] for result in results]
        return trained.tokenizer.decode(outputs)

    return translate


MAKERS = {"ours": ours, "hugging_face": hugging_face, "ctranslate2": ctranslate2}


def measure(work: Work, system: System) -> dict[str, Any]:
    """Translate all sentences at once, then some one by one."""
    trained = load_model(find_model(Path(work.model)))
    lines = list(read_text_lines(work.source))[: work.sentences]
    translate = MAKERS[system.make](work, system, trained)
    translate(lines[:32])
    started = time.perf_counter()
    texts = translate(lines)
    seconds = time.perf_counter() - started
    alone = []
    for line in lines[: work.single]:
        started = time.perf_counter()
        translate([line])
        alone.append(1000 * (time.perf_counter() - started))
    return {
        "sentences": len(lines) / seconds,
        "tokens": sum(len(ids) + 1 for ids in trained.tokenizer.encode(texts)) / seconds,
        "median": statistics.median(alone),
        "slow": sorted(alone)[int(0.95 * len(alone))],
        "peak": turns.peak_memory() / 2**20,
        "texts": texts,
    }


def print_table(results: turns.Results[System], beam: int, references: list[str]) -> None:
    """Print medians over the rounds, and the range of the speed."""
    print(
        f"\n{'Greedy' if beam == 1 else f'Beam {beam}'}\n\n"
        "| | sentences/s | range | tokens/s | one sentence, ms | 95 % within | peak MiB | BLEU |\n"
        "|---|---|---|---|---|---|---|---|"
    )
    speed = {}
    for system, rounds in results.items():
        middle = turns.medians(rounds)
        speeds = [r["sentences"] for r in rounds]
        speed[system] = middle["sentences"]
        bleu = score_all(rounds[0]["texts"], [references])[0].value
        print(
            f"| {system.name} | {middle['sentences']:.0f} | {min(speeds):.0f} to"
            f" {max(speeds):.0f} | {middle['tokens']:,.0f} | {middle['median']:.0f} |"
            f" {middle['slow']:.0f} | {middle['peak']:,.0f} | {bleu:.2f} |"
        )
    best = {(s.make, s.precision): s for s in sorted(speed, key=speed.__getitem__)}
    for system in speed:
        for peer in best.values():
            if system.make == "ours" and peer.make != "ours":
                print(f"\n{system.name}: {speed[system] / speed[peer]:.2f} times {peer.name}")


def main() -> None:
    """Run the rounds and print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", help="a run or model folder")
    parser.add_argument("--source", help="text to translate")
    parser.add_argument("--reference", help="its translation")
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--single", type=int, default=100, help="sentences timed one by one")
    parser.add_argument("--beam", type=int, nargs="+", default=[4, 1])
    turns.add_round_options(parser)
    turns.add_kernel_options(parser)
    arguments = parser.parse_args()
    if arguments.measure:
        turns.measure_given(arguments.measure, Work, System, measure)
        return
    if not (arguments.model and arguments.source and arguments.reference):
        parser.error("--model, --source and --reference are needed")
    table = KERNELS if arguments.kernels else (*OURS, HUGGING_FACE, *CTRANSLATE2)
    systems = turns.select(parser, table, arguments.only)
    if find_spec("ctranslate2") is None:
        print("CTranslate2 is not installed: left out\n")
        systems = [s for s in systems if "ctranslate2" not in (s.make, s.engine)]
    references = list(read_text_lines(arguments.reference))[: arguments.sentences]
    with tempfile.TemporaryDirectory() as folder:
        trained = load_model(find_model(Path(arguments.model)))
        marian, exported = Path(folder, "marian"), Path(folder, "ctranslate2")
        if any(system.make == "hugging_face" for system in systems):
            write_marian(marian, trained)
        if any(system.make == "ctranslate2" for system in systems):
            write_ctranslate2(exported, trained)
        for beam in arguments.beam:
            work = Work(
                model=arguments.model,
                marian=str(marian),
                ctranslate2=str(exported),
                source=arguments.source,
                sentences=arguments.sentences,
                single=min(arguments.single, arguments.sentences),
                beam=beam,
            )
            show = partial(print_table, beam=beam, references=references)
            turns.measure_in_turn(__file__, work, systems, arguments.rounds, show)


if __name__ == "__main__":
    main()
