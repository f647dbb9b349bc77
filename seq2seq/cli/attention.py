"""`seq2seq attention`: the attention weights of one sentence pair, as a picture or as numbers."""

import argparse
from itertools import product
from pathlib import Path

from seq2seq.cli.model_class import load_models
from seq2seq.cli.text import check_output, print_json, print_path
from seq2seq.cli.translation_options import translation_options
from seq2seq.decoding.attention import FORMATS, draw_heads
from seq2seq.decoding.translator import Translator
from seq2seq.errors import UsageError
from seq2seq.text import create_binary


def run(arguments: argparse.Namespace) -> int:
    """Write the attention weights of one sentence pair."""
    file_format = "" if arguments.json else Path(arguments.output).suffix[1:].lower()
    if not arguments.json and file_format not in FORMATS:
        raise UsageError(f"{arguments.output}: unknown picture format: choose .svg, .png or .pdf")
    if not arguments.json:
        check_output(arguments.output)
    translator = Translator(
        load_models([arguments.model], arguments.model_class), translation_options(arguments)
    )
    maps = translator.attention(arguments.source, arguments.target)
    record = maps.record(arguments.kind, arguments.layer, arguments.head)
    if arguments.json:
        print_json(record, indent=None)
        return 0
    weights = getattr(maps, arguments.kind)
    panels = {}
    for layer, head in product(record["layers"], record["heads"]):
        panels[f"layer {layer}, head {head}"] = weights[layer - 1, head - 1]
    with create_binary(arguments.output) as picture:
        picture.write(draw_heads(panels, record["rows"], record["columns"], file_format))
    print_path(arguments.output)
    return 0
