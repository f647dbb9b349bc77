"""`seq2seq export`: write a trained model for another program."""

import argparse
from pathlib import Path

from seq2seq.cli.text import print_path
from seq2seq.errors import UsageError, UserError
from seq2seq.files import read_regular_file
from seq2seq.interop.export import write_ctranslate2, write_marian
from seq2seq.interop.onnx_folder import write_onnx
from seq2seq.interop.web import write_web
from seq2seq.model_folder import (
    CARD_FILE,
    MAX_CARD_BYTES,
    find_model,
    load_model,
    read_class_name,
)


def run(arguments: argparse.Namespace) -> int:
    """Export a model with its card, if it has one, and print its folder."""
    if arguments.precision and arguments.to not in ("onnx", "web"):
        raise UsageError(
            f"--precision is for --to onnx and web, not for --to {arguments.to}: remove it"
        )
    if arguments.library and arguments.to != "web":
        raise UsageError(f"--library is for --to web, not for --to {arguments.to}: remove it")
    folder = Path(arguments.output).expanduser()
    if folder.exists():
        raise UserError(f"{folder}: already exists; choose another folder")
    model = find_model(Path(arguments.model))
    if (name := read_class_name(model)) is not None:
        raise UserError(f"{model}: is of the class {name}, which no other program computes")
    trained = load_model(model)
    card, path = None, model / CARD_FILE
    if path.is_file():
        card = read_regular_file(path, MAX_CARD_BYTES)
    match arguments.to:
        case "web":
            library = Path(arguments.library) if arguments.library else None
            write_web(
                folder, trained, arguments.precision or "int8", node_modules=library, card=card
            )
        case "onnx":
            write_onnx(folder, trained, arguments.precision or "fp32", card=card)
        case "ctranslate2":
            write_ctranslate2(folder, trained, card=card)
        case "marian":
            write_marian(folder, trained, card=card)
    print_path(folder)
    return 0
