"""`seq2seq import`: convert a model trained with Marian to a model folder."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from seq2seq.cli.options import add_options
from seq2seq.errors import UserError

if TYPE_CHECKING:
    from seq2seq.model_folder import TrainedModel


EXAMPLES = """\
FOLDER is one of Hugging Face's, with config.json, model.safetensors or pytorch_model.bin,
source.spm, target.spm and vocab.json; or Marian's own, with an .npz, a vocabulary in YAML,
source.spm and target.spm. Nothing in it is executed.

examples:
  seq2seq import opus-mt-en-mg -o runs/en-mg
  seq2seq translate --model runs/en-mg < test.en > test.out.mg
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `seq2seq import`."""
    parser.add_argument("folder", metavar="FOLDER", help="folder of the Marian model")
    add_options(parser, {"-o --output MODEL": "a new folder"}, required=True)
    options = {
        "--punctuation auto|moses|none": "typographic punctuation before translating: moses"
        " replaces it, auto does so if the model knows less than half of it (default auto)",
        "--positions transformers|marian": "sinusoids as transformers computes them, or as Marian"
        " trained the model with, which differ slightly (default: as in the program that wrote the"
        " folder)",
    }
    add_options(parser, options)
    parser.set_defaults(punctuation="auto")


def run(arguments: argparse.Namespace) -> int:
    """Import a model with its card, or else a short one, and say what it is."""
    from seq2seq.files import add_file
    from seq2seq.interop.marian_import import import_marian
    from seq2seq.interop.pair_tokenizer import Punctuation
    from seq2seq.model_folder import CARD_FILE, read_card, save_model, translate_command
    from seq2seq.report.card import card_of_model
    from seq2seq.sizes import Positions

    folder, output = Path(arguments.folder), Path(arguments.output)
    if output.exists():
        raise UserError(f"{output}: already exists; choose another folder")
    if not folder.is_dir():
        raise UserError(
            f"{folder}: no folder of this name; fetch one with hf download NAME --local-dir FOLDER"
        )
    punctuation = None if arguments.punctuation == "auto" else Punctuation(arguments.punctuation)
    choices = {"transformers": Positions.sinusoidal, "marian": Positions.concatenated, None: None}
    trained = import_marian(folder, punctuation=punctuation, positions=choices[arguments.positions])
    if (folder / CARD_FILE).exists():  # it names the license
        card = read_card(folder)
    else:
        origin = f"imported from {folder.absolute().name}, a model of Marian"
        card = card_of_model(trained, output.absolute().name, origin)
    save_model(output, trained)
    add_file(output, CARD_FILE, card)
    print(_describe(trained))
    print(f"next: {translate_command(str(output), trained.target_languages)}")
    return 0


def _describe(trained: "TrainedModel") -> str:
    from seq2seq.interop.pair_tokenizer import PairTokenizer, Punctuation

    config, tokenizer = trained.model.config, trained.tokenizer
    assert isinstance(tokenizer, PairTokenizer)
    languages = " -> ".join(filter(None, (trained.source_language, trained.target_language)))
    parameters = sum(parameter.numel() for parameter in trained.model.parameters())
    lines = [
        f"marian: {config.num_layers}+{config.decoder_depth} layers, d_model {config.d_model},"
        f" {config.activation.value}, {tokenizer.vocab_size:,} pieces, {parameters:,} parameters"
        + (f", {languages}" if languages else "")
    ]
    if tokenizer.controls:
        codes = ", ".join(piece[2:-2] for piece in list(tokenizer.controls)[:10])
        more = ", ..." if len(tokenizer.controls) > 10 else ""
        lines.append(f"target languages: {codes}{more}; choose one with translate --to")
    unknown = " ".join(tokenizer.unknown_punctuation())
    if tokenizer.config.punctuation is Punctuation.moses:
        lines.append("punctuation: normalized as Moses does before translating")
    elif unknown:
        lines.append(
            f"punctuation: unknown to the model: {unknown}; --punctuation moses replaces it"
        )
    return "\n".join(lines)
