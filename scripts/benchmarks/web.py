"""Measure the size of exported pages, and the processor time of a sentence in Node.

    python scripts/benchmarks/web.py --text train.en.gz train.de.gz --node FOLDER

`npm install` was run in FOLDER, as `tests/README.md` says. Vocabularies are learned from the text;
weights are drawn, so that outputs have the maximum length, 15 tokens for sentences of 12.
"""

import argparse
import json
import subprocess
import tempfile
from itertools import chain, islice
from pathlib import Path

import torch
from torch import Tensor

from seq2seq.config import TransformerConfig
from seq2seq.interop.web import SETTINGS_FILE, write_web
from seq2seq.model_folder import TrainedModel, new_transformer
from seq2seq.text import read_text_lines
from seq2seq.tokenizer import Tokenizer, TokenizerConfig

SIZES = {
    "tiny": (TransformerConfig(num_layers=2, d_model=128, d_ff=512, num_heads=8), 2000),
    "small": (TransformerConfig(num_layers=3, d_model=256, d_ff=1024, num_heads=4), 8000),
    "base": (TransformerConfig(), 37000),
}
"""The configurations of `conf/model`, and usual sizes of their vocabularies."""
SENTENCES, SOURCE_TOKENS, EXTRA_TOKENS = 30, 12, 3


def export(folder: Path, config: TransformerConfig, vocab_size: int, text: list[Path]) -> Tokenizer:
    """Export a random model whose outputs have a fixed length."""
    lines = chain.from_iterable(map(read_text_lines, text))
    tokenizer = Tokenizer.train(lines, TokenizerConfig(vocab_size=vocab_size))
    torch.manual_seed(1)
    model = new_transformer(config, tokenizer.vocab_size)
    parameters = sum(map(Tensor.numel, model.parameters()))
    print(f"| {parameters / 1e6:.1f} | {tokenizer.vocab_size:,} ", end="", flush=True)
    write_web(folder, TrainedModel(model, tokenizer, "en", "de"))
    settings = json.loads((folder / SETTINGS_FILE).read_text())
    settings["model"]["max_extra_tokens"] = EXTRA_TOKENS
    (folder / SETTINGS_FILE).write_text(json.dumps(settings))
    return tokenizer


def milliseconds(folder: Path, node: Path, lines: list[str], beam: int) -> float:
    """Return the processor time for a sentence, once the code is compiled."""
    given = {
        "folder": str(folder),
        "nodeModules": str(node / "node_modules"),
        "lines": lines,
        "options": {"beam": beam, "sentences": False},
    }
    command = ["node", Path(__file__).with_suffix(".mjs")]
    done = subprocess.run(command, input=json.dumps(given), stdout=-1, text=True, check=True)
    return float(done.stdout) / len(lines)


def main() -> None:
    """Print a row for each size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", type=Path, nargs="+", required=True)
    parser.add_argument("--node", type=Path, required=True, help="has node_modules")
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    arguments = parser.parse_args()
    print("| | M parameters | vocabulary | model, MB | ms, beam 1 | ms, beam 4 |")
    for name in arguments.sizes:
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary) / "page"
            print(f"| {name} ", end="", flush=True)
            tokenizer = export(folder, *SIZES[name], arguments.text)
            files = [*folder.glob("onnx/*"), folder / "tokenizer.json", folder / SETTINGS_FILE]
            size = sum(file.stat().st_size for file in files)
            texts = read_text_lines(arguments.text[0])
            fits = (x for x in texts if len(tokenizer.encode([x])[0]) == SOURCE_TOKENS)
            lines = list(islice(fits, SENTENCES))
            times = [milliseconds(folder, arguments.node.resolve(), lines, beam) for beam in (1, 4)]
            print(f"| {size / 1e6:.1f} | {times[0]:.0f} | {times[1]:.0f} |", flush=True)


if __name__ == "__main__":
    main()
