"""`seq2seq attention`: the attention weights of one sentence pair, as a picture or as numbers."""

import argparse
from pathlib import Path

from seq2seq.cli.text import print_json
from seq2seq.cli.translation_options import (
    add_control_options,
    translation_options,
)

_EXAMPLE = """\
example:
  seq2seq attention --model runs/captions --source "A dog runs in the snow." -o attention.svg
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `seq2seq attention`."""
    parser.epilog = _EXAMPLE
    parser.add_argument("--model", required=True, metavar="RUN", help="run or model folder")
    parser.add_argument("--source", required=True, metavar="TEXT", help="text to translate")
    parser.add_argument("--target", metavar="TEXT", help="its translation (default: the model's)")
    parser.add_argument(
        "--kind",
        choices=("encoder", "decoder", "cross"),
        default="cross",
        help="source to source, target to target, or target to source (default cross)",
    )
    parser.add_argument(
        "--layer",
        type=_number_or_all,
        metavar="N",
        help="counted from 1, or all (default: the last)",
    )
    parser.add_argument(
        "--head",
        type=_number_or_all,
        default="all",
        metavar="N",
        help="counted from 1, or all (default all)",
    )
    add_control_options(parser)
    output = parser.add_mutually_exclusive_group(required=True)
    output.add_argument("-o", "--output", metavar="FILE", help="a picture: .svg, .png or .pdf")
    output.add_argument("--json", action="store_true", help="write pieces and weights to stdout")


def run(arguments: argparse.Namespace) -> int:
    """Write the attention weights of one sentence pair."""
    from seq2seq.data.lines import create_binary
    from seq2seq.decoding.attention import FORMATS, draw_heads
    from seq2seq.decoding.translator import Translator
    from seq2seq.errors import UsageError, UserError

    file_format = "" if arguments.json else Path(arguments.output).suffix[1:].lower()
    if not arguments.json and file_format not in FORMATS:
        raise UsageError(f"{arguments.output}: unknown picture format: choose .svg, .png or .pdf")
    translator = Translator.load(arguments.model, translation_options(arguments))
    config = translator.models[0].config
    depth = config.num_layers if arguments.kind == "encoder" else config.decoder_depth
    layers = _select("layer", arguments.layer or str(depth), depth)
    heads = _select("head", arguments.head, config.num_heads)
    target = arguments.target
    if target is None:
        target = translator.translate([arguments.source])[0].text
        if not target:
            raise UserError("the source or its translation is blank: give --target")
    maps = translator.attention(arguments.source, target)
    if arguments.json:
        print_json(maps.record(arguments.kind, layers, heads), indent=None)
        return 0
    weights = getattr(maps, arguments.kind)
    panels = {
        f"layer {layer}, head {head}": weights[layer - 1, head - 1]
        for layer in layers
        for head in heads
    }
    rows, columns = maps.sides(arguments.kind)
    with create_binary(arguments.output) as picture:
        picture.write(draw_heads(panels, rows, columns, file_format))
    print(arguments.output)
    return 0


def _number_or_all(word: str) -> str:
    if word != "all" and not (word.isascii() and word.isdecimal()):
        raise argparse.ArgumentTypeError(f"must be a number or all, not {word!r}")
    return word


def _select(noun: str, choice: str, count: int) -> list[int]:
    from seq2seq.errors import UserError

    if choice == "all":
        return list(range(1, count + 1))
    # int() refuses numbers of thousands of digits.
    if len(choice) > 9 or not 1 <= int(choice) <= count:
        raise UserError(f"--{noun} {choice}: must be from 1 to {count} for this model")
    return [int(choice)]
