"""`seq2seq import`: convert a model trained with Marian to a model folder."""

import argparse
from pathlib import Path

import torch

from seq2seq.errors import UserError, printable
from seq2seq.files import read_regular_file
from seq2seq.interop.marian_import import import_marian
from seq2seq.interop.pair_tokenizer import PairTokenizer
from seq2seq.model_folder import CARD_FILE, MAX_CARD_BYTES, TrainedModel, save_model
from seq2seq.report.card import card_of_model
from seq2seq.run.folder import translate_command


def run(arguments: argparse.Namespace) -> int:
    """Import a model with its card, or else a short one, and say what it is."""
    folder, output = Path(arguments.folder), Path(arguments.output).expanduser()
    if output.exists():
        raise UserError(f"{output}: already exists; choose another folder")
    if not folder.is_dir():
        raise UserError(
            f"{folder}: no folder of this name; fetch one with hf download NAME --local-dir FOLDER"
        )
    trained = import_marian(folder)
    if (folder / CARD_FILE).exists():  # it names the license
        card = read_regular_file(folder / CARD_FILE, MAX_CARD_BYTES)
    else:
        origin = f"imported from {folder.absolute().name}, a model of Marian"
        card = card_of_model(trained, output.absolute().name, origin)
    save_model(output, trained, card=card)
    print(printable(_describe(trained)))
    print(f"next: {translate_command(str(output), trained.target_languages)}")
    return 0


def _describe(trained: TrainedModel) -> str:
    config, tokenizer = trained.model.config, trained.tokenizer
    assert isinstance(tokenizer, PairTokenizer)
    languages = " -> ".join(filter(None, (trained.source_language, trained.target_language)))
    parameters = sum(map(torch.Tensor.numel, trained.model.parameters()))
    lines = [
        f"marian: {config.num_layers}+{config.decoder_depth} layers, d_model {config.d_model},"
        f" {config.activation.value}, {tokenizer.vocab_size:,} pieces, {parameters:,} parameters"
        + (f", {languages}" if languages else "")
    ]
    if tokenizer.controls:
        codes = ", ".join(piece[2:-2] for piece in list(tokenizer.controls)[:10])
        more = ", ..." if len(tokenizer.controls) > 10 else ""
        lines.append(f"target languages: {codes}{more}; choose one with translate --to")
    if tokenizer.config.punctuation == "moses":
        lines.append("punctuation: normalized as Moses does before translating")
    return "\n".join(lines)
