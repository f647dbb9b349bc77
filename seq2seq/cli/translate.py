"""`seq2seq translate`: a filter, N lines in, N lines out; or a document, and its translation."""

import argparse
import signal
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from itertools import islice, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn, TypeVar

from seq2seq.cli.documents import (
    check_folders,
    check_options,
    document_format,
    translate_document,
    translate_folder,
)
from seq2seq.cli.text import check_output, check_text, open_input, report, report_replaced
from seq2seq.cli.translation_options import (
    add_models_option,
    add_sampling_options,
    add_search_options,
    translation_options,
)
from seq2seq.errors import UsageError, UserError

if TYPE_CHECKING:
    from tqdm import tqdm

    from seq2seq.decoding.translation import Translation
    from seq2seq.decoding.translator import Translator


T = TypeVar("T")

_LOG_SECONDS = 60.0
_LOG_FORMAT = "{n_fmt} of {total_fmt}{unit}, {rate_noinv_fmt}, {remaining} left"


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
            report(f"line {number}: {reason}")
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
  seq2seq translate --model runs/captions -i film.en.srt -o film.de.srt
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
        help="text to translate, a document (.srt, .html, .po, .docx, ...) or a folder of them;"
        " also .gz, .xz, .zst, .bz2 (default: stdin)",
    )
    parser.add_argument(
        "--format",
        help="format of a document whose name doesn't say it, such as srt; txt is lines of text",
    )
    parser.add_argument(
        "--fuzzy", action="store_true", help="translate the fuzzy entries of a .po file, too"
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
    add_search_options(parser)
    parser.add_argument(
        "--prefix",
        metavar="FILE",
        help="the beginning of each translation, one per line; blank for none",
    )
    parser.add_argument(
        "--nbest",
        type=int,
        metavar="K",
        help="write K translations per line: number, text and score, separated by tabs; in the"
        " text, tabs become spaces",
    )
    parser.add_argument(
        "--alignments",
        metavar="FILE",
        help="write which words of source and translation belong together, such as 0-0 1-2",
    )
    parser.add_argument(
        "--scores", action="store_true", help="write the score and a tab before each translation"
    )
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
    from seq2seq.data.lines import open_binary

    if arguments.nbest is not None and arguments.scores:
        raise UsageError("--nbest writes the scores already: remove --scores")
    is_folder = Path(arguments.input).expanduser().is_dir()
    chosen = "" if is_folder else document_format(arguments)
    if chosen or is_folder:
        check_options(arguments)
    if is_folder:
        check_folders(arguments)
    check_output(arguments.output, arguments.input, arguments.prefix)
    if arguments.alignments is not None:
        check_output(arguments.alignments, arguments.input, arguments.prefix)
        if arguments.alignments == "-" or _same_file(arguments.alignments, arguments.output):
            raise UsageError("--alignments needs a file of its own")
    if arguments.prefix is not None:
        open_binary(arguments.prefix).close()
    # Like Ctrl-C, it lets an incomplete output say where it is.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if chosen or is_folder:
        return _translate_documents(arguments, chosen)
    with open_input(arguments.input) as source:
        return _translate_lines(arguments, source)


def _translate_documents(arguments: argparse.Namespace, chosen: str) -> int:
    from seq2seq.decoding.translator import Translator
    from seq2seq.fast.process import retain_freed_memory

    translator = Translator.load(arguments.model, translation_options(arguments, arguments.model))
    retain_freed_memory()
    with _progress_bar(arguments, " texts", hidden=False) as bar:
        if chosen:
            warnings = translate_document(arguments, translator, chosen, bar)
        else:
            warnings = translate_folder(arguments, translator, bar)
    report(str(warnings))
    return 0


def _translate_lines(arguments: argparse.Namespace, source: BinaryIO) -> int:
    from seq2seq.data.lines import create_binary, iterate_lines, read_text_lines
    from seq2seq.decoding.translation import OutputWarnings
    from seq2seq.decoding.translator import Translator
    from seq2seq.fast.process import retain_freed_memory

    from_terminal = arguments.input == "-" and sys.stdin.isatty()
    one_by_one = arguments.interactive or from_terminal
    translator = Translator.load(arguments.model, translation_options(arguments, arguments.model))
    retain_freed_memory()
    warnings, first_lines = OutputWarnings(), dict[str, int]()
    raw_lines = iterate_lines(source, keep_returns=True)
    if from_terminal and sys.stderr.isatty():
        raw_lines = with_prompt(raw_lines)
    elif not one_by_one:
        raw_lines = check_text(arguments.input, raw_lines)
    lines = _Lines(raw_lines)
    prefixes = None if arguments.prefix is None else read_text_lines(arguments.prefix)
    to_stdout = arguments.output == "-"
    with (
        nullcontext(sys.stdout.buffer) if to_stdout else create_binary(arguments.output) as output,
        nullcontext()
        if arguments.alignments is None
        else create_binary(arguments.alignments) as links,
        _progress_bar(arguments, " lines", hidden=one_by_one) as bar,
    ):
        if one_by_one:
            translations = translate_one_by_one(translator, lines, prefixes)
        else:
            translations = translator.translate_stream(lines, prefixes)
        if links is not None:
            some = 1 if one_by_one else 1024
            translations = _align(translator, lines.waiting, translations, links, some)
        for number, translation in enumerate(translations):
            line = lines.waiting.popleft()
            end = "\r\n" if line.endswith("\r") else "\n"
            output.write(_format(number, translation, arguments, end).encode())
            if one_by_one:
                output.flush()
            warnings.count(line, translation)
            for kind, count in vars(warnings).items():
                if count:
                    first_lines.setdefault(kind, number + 1)
            bar.update()
        output.flush()
    report_replaced(arguments.input, lines.replaced, lines.first_replaced)
    report(warnings.describe(first_lines))
    return 0


def _same_file(path: str, other: str) -> bool:
    return Path(path).expanduser().resolve() == Path(other).expanduser().resolve()


def _align(
    translator: "Translator",
    lines: deque[str],
    translations: "Iterator[Translation]",
    output: BinaryIO,
    count: int,
) -> "Iterator[Translation]":
    """Write the alignments of translations and the lines that wait for them, `count` at a time."""
    while some := list(islice(translations, count)):
        for alignment in translator.alignments(list(islice(lines, len(some))), some):
            output.write(f"{alignment}\n".encode())
        output.flush()
        yield from some


class _Lines:
    """The lines of the input as they are read, decoded."""

    def __init__(self, raw_lines: Iterable[bytes]) -> None:
        self.raw_lines = raw_lines
        self.replaced = 0
        """Lines that were not valid UTF-8, or had NUL."""
        self.first_replaced = 0
        self.waiting: deque[str] = deque()
        """Lines not translated yet."""

    def __iter__(self) -> Iterator[str]:
        from seq2seq.data.lines import decode_leniently

        for number, raw in enumerate(self.raw_lines, start=1):
            line, replaced = decode_leniently(raw)
            self.replaced += replaced
            self.first_replaced = self.first_replaced or number * replaced
            self.waiting.append(line)
            yield line


def _progress_bar(arguments: argparse.Namespace, unit: str, *, hidden: bool) -> "tqdm[NoReturn]":
    """Make a bar on standard error, unless the output goes there too, or log a line a minute."""
    from tqdm import tqdm

    from seq2seq.data.lines import count_lines

    class LineAMinute(tqdm):  # type: ignore[type-arg]
        monitor_interval = 0

        def display(self, msg: str | None = None, pos: int | None = None) -> None:
            if msg is None:
                report(str(self))

    on_terminal = sys.stderr.isatty()
    hidden = hidden or (on_terminal and arguments.output == "-" and sys.stdout.isatty())
    # Only the lines of a file can be counted beforehand, for the remaining time.
    is_file = unit == " lines" and Path(arguments.input).expanduser().is_file()
    total = None if hidden or not is_file else count_lines(arguments.input)
    if on_terminal or hidden:
        return tqdm(total=total, unit=unit, disable=hidden)
    times: Any = {"delay": _LOG_SECONDS, "mininterval": _LOG_SECONDS, "miniters": 1}
    return LineAMinute(total=total, unit=unit, leave=False, bar_format=_LOG_FORMAT, **times)


def _format(
    number: int, translation: "Translation", arguments: argparse.Namespace, end: str
) -> str:
    if not arguments.scores and arguments.nbest is None:
        return translation.text + end
    # Byte pieces can produce a tab, which would begin another column.
    columns = [(c.score, c.text.replace("\t", " ")) for c in translation.candidates] or [(0.0, "")]
    if arguments.scores:
        return f"{translation.score:.6f}\t{columns[0][1]}{end}"
    return "".join(f"{number}\t{text}\t{score:.6f}{end}" for score, text in columns)
