"""`seq2seq translate`: a filter, N lines in, N lines out."""

import argparse
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from seq2seq.cli.search_options import add_search_options, choose_search, read_prefixes

if TYPE_CHECKING:
    from seq2seq.decoding.translator import Translation

_EXAMPLES = """\
examples:
  echo "A dog runs in the snow." | seq2seq translate --model runs/captions
  seq2seq translate --model runs/captions -i test.en --sample --top-k 20 --temperature 0.7
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `seq2seq translate`."""
    parser.epilog = _EXAMPLES
    parser.add_argument("--model", required=True, metavar="RUN", help="run or model folder")
    parser.add_argument("-i", "--input", default="-", metavar="FILE", help="default: stdin")
    parser.add_argument("-o", "--output", default="-", metavar="FILE", help="default: stdout")
    add_search_options(parser)
    parser.add_argument(
        "--nbest",
        type=int,
        metavar="K",
        help="write K translations a line, as number, text and score between tabs",
    )
    parser.add_argument(
        "--scores", action="store_true", help="write each translation's score before it, with a tab"
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, ... (default auto)")
    parser.add_argument(
        "--precision",
        default="fp32",
        help="fp32 (default: the text does not depend on the batch), bf16 or auto",
    )
    parser.add_argument(
        "--batch-tokens",
        type=int,
        default=2048,
        metavar="N",
        help="source tokens translated at once, padding counted (default 2048)",
    )
    parser.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="batches translated side by side (default: one a core, on a GPU one)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Translate a file.

    Raises:
        UserError: no model, no input, or a choice that can't be met.
    """
    from seq2seq.data.lines import decode_leniently, iterate_lines, open_binary
    from seq2seq.decoding.translator import Translator
    from seq2seq.device import keep_freed_memory
    from seq2seq.errors import UsageError

    if arguments.batch_tokens < 1:
        raise UsageError(f"--batch-tokens {arguments.batch_tokens}: must be at least 1")
    search = choose_search(arguments)
    translator = Translator.load(
        arguments.model,
        search,
        device=arguments.device,
        precision=arguments.precision,
        batch_tokens=arguments.batch_tokens,
        workers=arguments.workers,
    )
    keep_freed_memory()
    replaced = cut = 0
    with ExitStack() as files:
        source: BinaryIO = sys.stdin.buffer
        if arguments.input != "-":
            source = files.enter_context(open_binary(Path(arguments.input)))
        output: BinaryIO = sys.stdout.buffer
        if arguments.output != "-":
            output = files.enter_context(_create(Path(arguments.output)))

        def lines() -> Iterator[str]:
            nonlocal replaced
            for raw in iterate_lines(source):
                line, damaged = decode_leniently(raw)
                replaced += damaged
                yield line

        prefixes = read_prefixes(arguments)
        translations = translator.translate_stream(lines(), prefixes=prefixes)
        for number, translation in enumerate(translations):
            output.write(_format(number, translation, arguments).encode())
            cut += translation.source_cut
        output.flush()
    if replaced:
        print(
            f"seq2seq: {replaced} lines were not valid UTF-8; what could not be read was"
            " replaced by U+FFFD",
            file=sys.stderr,
        )
    if cut:
        print(f"seq2seq: {cut} lines were too long; their ends were left out", file=sys.stderr)
    return 0


def _create(path: Path) -> BinaryIO:
    from seq2seq.errors import UserError

    try:
        return path.open("wb")
    except OSError as error:
        raise UserError(f"{path}: can't be written: {error.strerror}") from error


def _format(number: int, translation: "Translation", arguments: argparse.Namespace) -> str:
    if arguments.nbest is not None:
        return (
            "".join(
                f"{number}\t{candidate.text}\t{candidate.score:.6f}\n"
                for candidate in translation.candidates
            )
            or f"{number}\t\t0.000000\n"
        )
    score = f"{translation.score:.6f}\t" if arguments.scores else ""
    return f"{score}{translation.text}\n"
