"""`seq2seq attention`: the attention weights of one sentence pair, as a picture or as numbers."""

import argparse
from pathlib import Path

from seq2seq.cli.text import check_output, print_json
from seq2seq.cli.translation_options import add_control_options, translation_options
from seq2seq.errors import UsageError

EXAMPLES = """\
example:
  seq2seq attention --model runs/captions --source "A dog runs in the snow." -o attention.svg
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `seq2seq attention`."""
    parser.add_argument("--model", required=True, metavar="RUN", help="run or model folder")
    parser.add_argument("--source", required=True, metavar="TEXT", help="text to translate")
    parser.add_argument("--target", metavar="TEXT", help="its translation (default: the model's)")
    parser.add_argument(
        "--kind",
        choices=("encoder", "decoder", "cross"),
        default="cross",
        help="source to source, target to target, or target to source (default cross)",
    )
    parser.add_argument("--layer", metavar="N", help="counted from 1, or all (default: the last)")
    parser.add_argument(
        "--head", default="all", metavar="N", help="counted from 1, or all (default all)"
    )
    add_control_options(parser)
    output = parser.add_mutually_exclusive_group(required=True)
    output.add_argument("-o", "--output", metavar="FILE", help="a picture: .svg, .png or .pdf")
    output.add_argument("--json", action="store_true", help="write pieces and weights to stdout")


def run(arguments: argparse.Namespace) -> int:
    """Write the attention weights of one sentence pair."""
    from seq2seq.decoding.alignment import FORMATS, draw_heads
    from seq2seq.decoding.translator import Translator
    from seq2seq.text import create_binary

    file_format = "" if arguments.json else Path(arguments.output).suffix[1:].lower()
    if not arguments.json and file_format not in FORMATS:
        raise UsageError(f"{arguments.output}: unknown picture format: choose .svg, .png or .pdf")
    if not arguments.json:
        check_output(arguments.output)
    translator = Translator.load(arguments.model, translation_options(arguments))
    maps = translator.attention(arguments.source, arguments.target)
    record = maps.record(arguments.kind, arguments.layer, arguments.head)
    if arguments.json:
        print_json(record, indent=None)
        return 0
    weights = getattr(maps, arguments.kind)
    panels = {
        f"layer {layer}, head {head}": weights[layer - 1, head - 1]
        for layer in record["layers"]
        for head in record["heads"]
    }
    with create_binary(arguments.output) as picture:
        picture.write(draw_heads(panels, record["rows"], record["columns"], file_format))
    print(arguments.output)
    return 0
