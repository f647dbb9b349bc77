"""`seq2seq translate`: a filter, N lines in, N lines out."""

import argparse
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from seq2seq.cli.translation_options import (
    add_beam_options,
    add_control_options,
    add_device_options,
    add_engine_option,
    add_models_option,
    add_sampling_options,
    add_sentence_options,
    translation_options,
)

if TYPE_CHECKING:
    from seq2seq.decoding.translation import Translation

_EXAMPLES = """\
examples:
  echo "A dog runs in the snow." | seq2seq translate --model runs/captions
  seq2seq translate --model runs/captions -i test.en --sample --top-k 20 --temperature 0.7
  seq2seq translate --model runs/captions --model runs/second -i test.en -o test.out.de
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `seq2seq translate`."""
    parser.epilog = _EXAMPLES
    add_models_option(parser, required=True, help="run or model folder; repeat it for an ensemble")
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
        help="also compressed; named FILE.*.part until complete; default: stdout",
    )
    parser.add_argument(
        "--interactive",
        action="store_true",
        help="answer each line before the next is read, as on a terminal",
    )
    add_beam_options(parser)
    parser.add_argument(
        "--prefix",
        metavar="FILE",
        help="the beginning of each translation, one per line; blank for none",
    )
    parser.add_argument(
        "--nbest",
        type=int,
        metavar="K",
        help="write K translations per line: number, text and score, separated by tabs",
    )
    parser.add_argument(
        "--scores", action="store_true", help="write each translation's score and a tab before it"
    )
    add_control_options(parser)
    add_sentence_options(parser)
    add_engine_option(parser)
    add_device_options(parser)
    parser.add_argument(
        "--batch-tokens",
        type=int,
        metavar="N",
        help="source tokens of a batch, padding counted (default 2048; 16384 on a GPU)",
    )
    parser.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="batches translated in parallel (default: one per core; one on a GPU)",
    )
    add_sampling_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Translate a file.

    Raises:
        UsageError: if options don't go together.
        UserError: if the model or the input can't be read, the output can't be written, or a value
            is out of range.
    """
    from tqdm import tqdm

    from seq2seq.cli.interactive import translate_one_by_one, with_prompt
    from seq2seq.data.lines import (
        count_lines,
        create_binary,
        decode_leniently,
        iterate_lines,
        open_binary,
        read_text_lines,
    )
    from seq2seq.decoding.health import Health
    from seq2seq.decoding.translator import Translator
    from seq2seq.kernels.memory import retain_freed_memory

    from_terminal = arguments.input == "-" and sys.stdin.isatty()
    one_by_one = arguments.interactive or from_terminal
    prompts = from_terminal and sys.stderr.isatty()
    translator = Translator.load(arguments.model, translation_options(arguments, arguments.model))
    retain_freed_memory()
    health = Health()
    replaced = 0
    waiting: deque[str] = deque()  # lines not translated yet
    with ExitStack() as files:
        source: BinaryIO = sys.stdin.buffer
        if arguments.input != "-":
            source = files.enter_context(open_binary(arguments.input))
        output: BinaryIO = sys.stdout.buffer
        if arguments.output != "-":
            output = files.enter_context(create_binary(arguments.output))
        shown = sys.stderr.isatty() and not (arguments.output == "-" and sys.stdout.isatty())
        # Only the lines of a file can be counted beforehand, for the remaining time.
        total = count_lines(arguments.input) if shown and _is_file(arguments.input) else None
        shown = shown and not one_by_one
        bar = files.enter_context(tqdm(total=total, unit=" lines", disable=not shown))

        def lines() -> Iterator[str]:
            nonlocal replaced
            typed = iterate_lines(source)
            for raw in with_prompt(typed) if prompts else typed:
                line, damaged = decode_leniently(raw)
                replaced += damaged
                waiting.append(line)
                yield line

        prefixes = None if arguments.prefix is None else read_text_lines(arguments.prefix)
        if one_by_one:
            translations = translate_one_by_one(translator, lines(), prefixes)
        else:
            translations = translator.translate_stream(lines(), prefixes)
        for number, translation in enumerate(translations):
            output.write(_format(number, translation, arguments).encode())
            if one_by_one:
                output.flush()
            health.count(waiting.popleft(), translation)
            bar.update()
        output.flush()
    if replaced:
        print(
            f"seq2seq: lines that were not valid UTF-8: {replaced:,}; the invalid bytes were"
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
    # Byte pieces can produce a tab, which would begin another column.
    return text.replace("\t", " ")
