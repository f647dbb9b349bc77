"""`seq2seq translate`: a filter, N lines in, N lines out."""

import argparse
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from seq2seq.cli.search_options import add_search_options, choose_search, read_prefixes

if TYPE_CHECKING:
    from seq2seq.decoding.translation import Translation

_EXAMPLES = """\
examples:
  echo "A dog runs in the snow." | seq2seq translate --model runs/captions
  seq2seq translate --model runs/captions -i test.en --sample --top-k 20 --temperature 0.7
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `seq2seq translate`."""
    parser.epilog = _EXAMPLES
    parser.add_argument("--model", required=True, metavar="RUN", help="run or model folder")
    parser.add_argument(
        "-i",
        "--input",
        default="-",
        metavar="FILE",
        help="also .gz, .xz, .zst, .bz2; default: stdin",
    )
    parser.add_argument(
        "-o",
        "--output",
        default="-",
        metavar="FILE",
        help="also compressed; FILE.*.part until it is whole; default: stdout",
    )
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
        help="fp32 (default: the text does not depend on the batch), bf16, int8 (on a CPU) or auto:"
        " bf16 where it is faster, else fp32",
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
    from tqdm import tqdm

    from seq2seq.data.lines import (
        count_lines,
        create_binary,
        decode_leniently,
        iterate_lines,
        open_binary,
    )
    from seq2seq.decoding.health import Health
    from seq2seq.decoding.translator import Translator
    from seq2seq.errors import UsageError
    from seq2seq.kernels.memory import retain_freed_memory

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
    retain_freed_memory()
    health = Health()
    replaced = 0
    waiting: deque[str] = deque()  # lines whose translations have not come yet
    with ExitStack() as files:
        source: BinaryIO = sys.stdin.buffer
        if arguments.input != "-":
            source = files.enter_context(open_binary(arguments.input))
        output: BinaryIO = sys.stdout.buffer
        if arguments.output != "-":
            output = files.enter_context(create_binary(arguments.output))
        shown = sys.stderr.isatty() and not (arguments.output == "-" and sys.stdout.isatty())
        # Only a file can be counted beforehand; without a count there is no time left to tell.
        total = count_lines(arguments.input) if shown and _is_file(arguments.input) else None
        bar = files.enter_context(tqdm(total=total, unit=" lines", disable=not shown))

        def lines() -> Iterator[str]:
            nonlocal replaced
            for raw in iterate_lines(source):
                line, damaged = decode_leniently(raw)
                replaced += damaged
                waiting.append(line)
                yield line

        prefixes = read_prefixes(arguments)
        translations = translator.translate_stream(lines(), prefixes=prefixes)
        for number, translation in enumerate(translations):
            output.write(_format(number, translation, arguments).encode())
            health.count(waiting.popleft(), translation)
            bar.update()
        output.flush()
    if replaced:
        print(
            f"seq2seq: lines that were not valid UTF-8: {replaced:,}; what could not be read was"
            " replaced by U+FFFD",
            file=sys.stderr,
        )
    print(f"seq2seq: {health}", file=sys.stderr)
    return 0


def _is_file(path: str) -> bool:
    return Path(path).expanduser().is_file()


def _format(number: int, translation: "Translation", arguments: argparse.Namespace) -> str:
    if arguments.nbest is not None:
        return (
            "".join(
                f"{number}\t{_column(candidate.text)}\t{candidate.score:.6f}\n"
                for candidate in translation.candidates
            )
            or f"{number}\t\t0.000000\n"
        )
    if arguments.scores:
        return f"{translation.score:.6f}\t{_column(translation.text)}\n"
    return f"{translation.text}\n"


def _column(text: str) -> str:
    # A tab, which byte pieces can spell, would begin another column.
    return text.replace("\t", " ")
