"""Import a random model of an OPUS-MT model's size, and compare its speed with other programs.

    python scripts/benchmarks/importing.py opus-mt/en-mg

The folder needs config.json, source.spm, target.spm and vocab.json; weights are drawn. All outputs
have the same number of tokens, so that all programs do the same work.
"""

import argparse
import json
import tempfile
import time
import warnings
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path

import torch
import turns

from seq2seq.decoding.options import TranslationOptions
from seq2seq.decoding.translator import Translator
from seq2seq.interop.export import write_ctranslate2
from seq2seq.interop.marian_import import import_marian
from seq2seq.model_folder import save_model
from seq2seq.search import SearchConfig

SENTENCES, SOURCE_TOKENS, EXTRA_TOKENS, BEAM = 100, 12, 8, 4
CORPUS = Path(__file__).parents[2] / "data" / "everyday" / "train.en"


def make_folder(vocabularies: Path, folder: Path) -> None:
    """Save a random model that never ends an output by itself."""
    import transformers

    settings = json.loads((vocabularies / "config.json").read_text())
    torch.manual_seed(1)
    model = transformers.MarianMTModel(transformers.MarianConfig(**settings))
    with torch.no_grad():
        model.final_logits_bias[0, settings["eos_token_id"]] = -50.0
    model.save_pretrained(folder)
    for name in ("source.spm", "target.spm", "vocab.json", "tokenizer_config.json"):
        (folder / name).write_bytes((vocabularies / name).read_bytes())


def import_once(folder: Path, output: Path) -> None:
    """Import in this process; print seconds, and the peak of its memory in MB."""
    before = turns.peak_memory() // 2**20
    start = time.perf_counter()
    save_model(output, import_marian(folder))
    seconds = time.perf_counter() - start
    peak = turns.peak_memory() // 2**20
    print(f"import: {seconds:.1f} s, peak memory {peak} MB ({before} before)")


def measure(folder: Path, temporary: Path) -> None:
    """Translate the same sentences with each program, and print sentences per second."""
    import ctranslate2
    import transformers

    trained = import_marian(folder)
    tokenizer = trained.tokenizer
    lines = CORPUS.read_text().splitlines()
    lines = [x for x in lines if len(tokenizer.encode([x])[0]) == SOURCE_TOKENS][:SENTENCES]
    length = SOURCE_TOKENS + EXTRA_TOKENS
    options = TranslationOptions(
        device="cpu",
        workers=torch.get_num_threads(),
        search=SearchConfig(beam_size=BEAM, max_extra_tokens=EXTRA_TOKENS),
    )
    ours = Translator(trained, options)
    their_tokenizer = transformers.MarianTokenizer.from_pretrained(folder)
    theirs = transformers.MarianMTModel.from_pretrained(folder).eval()
    write_ctranslate2(temporary / "ct2", trained)
    ct2 = ctranslate2.Translator(
        str(temporary / "ct2"),
        compute_type="float32",
        inter_threads=torch.get_num_threads(),
        intra_threads=1,
    )

    def by_transformers(some: list[str]) -> int:
        batch = their_tokenizer(some, return_tensors="pt", padding=True)
        outputs = theirs.generate(
            **batch, num_beams=BEAM, max_new_tokens=length, min_new_tokens=length, do_sample=False
        )
        their_tokenizer.batch_decode(outputs, skip_special_tokens=True)
        return outputs.size(1) - 1

    def by_ctranslate2(some: list[str]) -> int:
        sources = [tokenizer.source_pieces(ids) for ids in tokenizer.encode(some)]
        results = ct2.translate_batch(sources, beam_size=BEAM, max_decoding_length=length)
        return len(results[0].hypotheses[0])

    def by_us(some: list[str]) -> int:
        return len(ours.translate(some)[0].candidates[0].pieces)

    programs: dict[str, Callable[[list[str]], int]] = {
        "seq2seq": by_us,
        "transformers": by_transformers,
        "CTranslate2": by_ctranslate2,
    }
    for name, translate in programs.items():
        translate(lines[:4])
        start = time.perf_counter()
        tokens = translate(lines)
        rate = len(lines) / (time.perf_counter() - start)
        print(f"{name}: {rate:.1f} sentences/s, beam {BEAM}, {tokens} tokens each", flush=True)


def main() -> None:
    """Measure the import in a process of its own, then the translation."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "marian"
        make_folder(arguments.folder, folder)
        own = get_context("spawn").Process(target=import_once, args=(folder, Path(name, "model")))
        own.start()
        own.join()
        if own.exitcode:
            raise SystemExit("the import has failed")
        measure(folder, Path(name))


if __name__ == "__main__":
    main()
