"""`seq2seq translate`: a filter, N lines in, N lines out."""

import argparse
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeVar

from seq2seq.cli.text import open_input, report_replaced
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
from seq2seq.errors import UsageError, UserError

if TYPE_CHECKING:
    from tqdm import tqdm

    from seq2seq.decoding.translation import Translation
    from seq2seq.decoding.translator import Translator


T = TypeVar("T")


def translate_one_by_one(
    translator: "Translator", lines: Iterable[str], prefixes: Iterable[str] | None
) -> "Iterator[Translation]":
    """Translate each line before the next is read.

    A line that can't be translated has a blank translation; the reason is printed.
    """
    from seq2seq.decoding.segments import pair_prefixes
    from seq2seq.decoding.translation import Translation
    from seq2seq.device import oom_as_user_error

    pairs = zip(lines, repeat("")) if prefixes is None else pair_prefixes(lines, prefixes)
    for number, (line, prefix) in enumerate(pairs, start=1):
        try:
            with oom_as_user_error():
                (translation,) = translator.translate([line], [prefix], first_line=number)
        except UserError as error:
            reason = str(error).removeprefix(f"line {number}: ")
            print(f"seq2seq: line {number}: {reason}", file=sys.stderr)
            translation = Translation([])
        yield translation


def with_prompt(lines: Iterable[T]) -> Iterator[T]:
    """Yield lines as the user types them; before each, print a prompt on standard error."""
    iterator = iter(lines)
    try:
        while True:
            print("> ", end="", file=sys.stderr, flush=True)
            try:
                line = next(iterator)
            except StopIteration:  # Ctrl-D
                print(file=sys.stderr)
                return
            yield line
    except KeyboardInterrupt:
        print(file=sys.stderr)
        raise


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
        help="text to translate, also .gz, .xz, .zst, .bz2 (default: stdin)",
    )
    parser.add_argument(
        "-o",
        "--output",
        default="-",
        metavar="FILE",
        help="translations, also compressed; FILE.*.part until complete (default: stdout)",
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
        "--scores", action="store_true", help="write the score and a tab before each translation"
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
    """Translate a file."""
    from seq2seq.data.lines import create_binary, iterate_lines, read_text_lines
    from seq2seq.decoding.translation import OutputWarnings
    from seq2seq.decoding.translator import Translator
    from seq2seq.fast.process import retain_freed_memory

    if arguments.nbest is not None and arguments.scores:
        raise UsageError("--nbest writes the scores already: remove --scores")
    from_terminal = arguments.input == "-" and sys.stdin.isatty()
    one_by_one = arguments.interactive or from_terminal
    translator = Translator.load(arguments.model, translation_options(arguments, arguments.model))
    retain_freed_memory()
    warnings = OutputWarnings()
    to_stdout = arguments.output == "-"
    with (
        open_input(arguments.input) as source,
        nullcontext(sys.stdout.buffer) if to_stdout else create_binary(arguments.output) as output,
        _progress_bar(arguments, hidden=one_by_one) as bar,
    ):
        typed = iterate_lines(source)
        lines = _Lines(with_prompt(typed) if from_terminal and sys.stderr.isatty() else typed)
        prefixes = None if arguments.prefix is None else read_text_lines(arguments.prefix)
        if one_by_one:
            translations = translate_one_by_one(translator, lines, prefixes)
        else:
            translations = translator.translate_stream(lines, prefixes)
        for number, translation in enumerate(translations):
            output.write(_format(number, translation, arguments).encode())
            if one_by_one:
                output.flush()
            warnings.count(lines.waiting.popleft(), translation)
            bar.update()
        output.flush()
    report_replaced(arguments.input, lines.replaced)
    print(f"seq2seq: {warnings}", file=sys.stderr)
    return 0


class _Lines:
    """The lines of the input as they are read, decoded."""

    def __init__(self, raw_lines: Iterable[bytes]) -> None:
        self.raw_lines = raw_lines
        self.replaced = 0
        """Lines that were not valid UTF-8, or had NUL."""
        self.waiting: deque[str] = deque()
        """Lines not translated yet."""

    def __iter__(self) -> Iterator[str]:
        from seq2seq.data.lines import decode_leniently

        for raw in self.raw_lines:
            line, replaced = decode_leniently(raw)
            self.replaced += replaced
            self.waiting.append(line)
            yield line


def _progress_bar(arguments: argparse.Namespace, *, hidden: bool) -> "tqdm[NoReturn]":
    """Make a bar on standard error, unless it is not a terminal, or the output goes there too."""
    from tqdm import tqdm

    from seq2seq.data.lines import count_lines

    shown = sys.stderr.isatty() and not (arguments.output == "-" and sys.stdout.isatty())
    shown = shown and not hidden
    # Only the lines of a file can be counted beforehand, for the remaining time.
    is_file = Path(arguments.input).expanduser().is_file()
    total = count_lines(arguments.input) if shown and is_file else None
    return tqdm(total=total, unit=" lines", disable=not shown)


def _format(number: int, translation: "Translation", arguments: argparse.Namespace) -> str:
    if not arguments.scores and arguments.nbest is None:
        return f"{translation.text}\n"
    # Byte pieces can produce a tab, which would begin another column.
    columns = [(c.score, c.text.replace("\t", " ")) for c in translation.candidates] or [(0.0, "")]
    if arguments.scores:
        return f"{translation.score:.6f}\t{columns[0][1]}\n"
    return "".join(f"{number}\t{text}\t{score:.6f}\n" for score, text in columns)
