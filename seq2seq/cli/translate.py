"""`seq2seq translate`: a filter, N lines in, N lines out; or a document, and its translation."""

import argparse
import hashlib
import io
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn

from seq2seq import __version__
from seq2seq.cli.documents import (
    INCOMPLETE,
    check_folders,
    check_options,
    document_format,
    translate_documents,
)
from seq2seq.cli.main import rank_and_size
from seq2seq.cli.options import add_options
from seq2seq.cli.text import (
    check_output,
    check_text,
    decode_lines,
    open_input,
    open_output,
    report,
    report_damaged,
)
from seq2seq.cli.translation_options import (
    add_sampling_options,
    add_search_options,
    load_translator,
    translation_options,
)
from seq2seq.errors import UsageError, UserError

if TYPE_CHECKING:
    from tqdm import tqdm

    from seq2seq.decoding.many import Chunk, ChunkOutput
    from seq2seq.decoding.translation import Translation
    from seq2seq.decoding.translator import Translator


# Options that change no output. Prefixes are checked with the lines of the input.
_NO_EFFECT = {"command", "debug", "run", "model", "input", "output", "prefix", "resume", "workers"}
_LOG_SECONDS = 60.0
_LOG_FORMAT = "{n_fmt} of {total_fmt}{unit}, {rate_noinv_fmt}, {remaining} left"


def _answer(translator: "Translator", chunk: "Chunk") -> "list[Translation]":
    """Translate a chunk of one line; if that fails, it is blank, and the reason is printed."""
    from seq2seq.decoding.translation import Translation
    from seq2seq.device import oom_as_user_error

    try:
        with oom_as_user_error():
            return translator.translate(chunk.lines, chunk.prefixes, first_line=chunk.first_line)
    except UserError as error:
        prefix = f"line {chunk.first_line}: "
        report(prefix + str(error).removeprefix(prefix))
        return [Translation([])]


def _with_prompt(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield lines as the user types them; before each, print a prompt on standard error."""
    try:
        print("> ", end="", file=sys.stderr, flush=True)
        for line in lines:
            yield line
            print("> ", end="", file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        print(file=sys.stderr)
        raise
    print(file=sys.stderr)  # Ctrl-D


EXAMPLES = """\
examples:
  echo "A dog runs in the snow." | seq2seq translate --model runs/captions
  seq2seq translate --model runs/captions -i test.en --sample --top-k 20 --temperature 0.7
  seq2seq translate --model runs/captions -i film.en.srt -o film.de.srt
  seq2seq translate --model runs/captions --model runs/second -i test.en -o test.out.de
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `seq2seq translate`."""
    model = {"--model RUN ...": "run or model folder; repeat it for an ensemble"}
    add_options(parser, model, required=True)
    files = {
        "-i --input FILE": "text to translate, a document (.srt, .html, .po, .docx, ...) or a"
        " folder of them; also .gz, .xz, .zst, .bz2 (default: stdin)",
        "--format FORMAT": "format of a document whose name doesn't say it, such as srt; txt is"
        " lines of text",
        "--fuzzy": "translate the fuzzy entries of a .po file, too",
        "-o --output FILE": "translations, also compressed; of a folder, the folder to make;"
        " FILE.*.part until complete (default: stdout)",
        "--resume": "continue what this command, also with --resume, has left in FILE.resume.part;"
        " bring a folder of documents up to date",
        "--interactive": "answer each line before the next is read, as on a terminal",
    }
    add_options(parser, files)
    parser.set_defaults(input="-", output="-")
    add_search_options(parser)
    lines = {
        "--prefix FILE": "the beginning of each translation, one per line; blank for none",
        "--nbest K": "write K translations per line: number, text and score, separated by tabs; in"
        " the text, tabs become spaces",
        "--alignments FILE": "write which words of source and translation belong together, such as"
        " 0-0 1-2",
        "--scores": "write the score and a tab before each translation",
        "--batch-tokens N": "source tokens of a batch, padding counted (default 2048, or 4096 with"
        " ctranslate2; 16384 on a GPU)",
        "--workers N": "batches translated in parallel (default: one per core; one on a GPU)",
    }
    add_options(parser, lines, nbest=int, batch_tokens=int, workers=int)
    add_sampling_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Translate a file."""
    from seq2seq.text import open_binary

    if arguments.nbest is not None and arguments.scores:
        raise UsageError("--nbest writes the scores already: remove --scores")
    arguments.scores |= arguments.nbest is not None
    if arguments.resume and (arguments.output == "-" or arguments.interactive):
        raise UsageError("--resume continues a file or folder: add -o, and remove --interactive")
    if arguments.resume and arguments.alignments is not None:
        raise UsageError("--resume continues one file: remove --alignments")
    rank, size = rank_and_size()
    one_by_one = arguments.interactive or (rank == 0 and _from_terminal(arguments))
    if one_by_one and size > 1:
        raise UsageError(
            "torchrun's processes don't answer line by line: give -i FILE, or remove --interactive"
        )
    is_folder = Path(arguments.input).expanduser().is_dir()
    format_name = "" if is_folder else document_format(arguments)
    if format_name or is_folder:
        check_options(arguments, is_folder=is_folder)
        if size > 1:
            raise UsageError("torchrun's processes translate lines: give documents to one process")
    if rank > 0:  # the main process alone reads, writes and reports
        logging.getLogger("seq2seq").setLevel(logging.ERROR)
        return _translate_lines(arguments, io.BytesIO(), one_by_one=False)
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
    if format_name or is_folder:
        return _translate_documents(arguments, format_name)
    with open_input(arguments.input) as source:
        return _translate_lines(arguments, source, one_by_one=one_by_one)


def _translate_documents(arguments: argparse.Namespace, format_name: str) -> int:
    translator = load_translator(arguments)
    with _progress_bar(arguments, " texts", hidden=False) as bar:
        made_by = json.dumps(_made_by(arguments, translator), sort_keys=True)
        warnings, complete = translate_documents(arguments, translator, format_name, made_by, bar)
    report(str(warnings))
    return 0 if complete else INCOMPLETE


def _translate_lines(arguments: argparse.Namespace, source: BinaryIO, *, one_by_one: bool) -> int:
    from seq2seq.decoding.many import DAY, in_order, options_of_rank, workers_of_all
    from seq2seq.decoding.translator import Translator
    from seq2seq.machine.processes import Processes
    from seq2seq.machine.resources import retain_freed_memory

    world = Processes.from_environment()
    with world.process_group(DAY):
        options = options_of_rank(world, translation_options(arguments))
        translator = Translator.load(arguments.model, options)
        retain_freed_memory()
        output = partial(_chunk_output, arguments, translator)
        if one_by_one:
            answer = partial(output, partial(_answer, translator))
            _write(arguments, source, translator, partial(map, answer), one_by_one=True)
            return 0
        with (
            translator.chunk_workers() as workers,
            workers_of_all(world, [partial(output, worker) for worker in workers]) as all_,
        ):
            if world.is_main:
                _write(arguments, source, translator, partial(in_order, all_))
    return 0


def _from_terminal(arguments: argparse.Namespace) -> bool:
    return arguments.input == "-" and sys.stdin.isatty()


def _write(
    arguments: argparse.Namespace,
    source: BinaryIO,
    translator: "Translator",
    translate: "Callable[[Iterable[Chunk]], Iterator[ChunkOutput]]",
    *,
    one_by_one: bool = False,
) -> None:
    """Read the input in chunks, write their translations, and report what to check in them."""
    from seq2seq.decoding.many import make_chunks
    from seq2seq.decoding.resume import resumable_output
    from seq2seq.decoding.translation import OutputWarnings
    from seq2seq.text import iterate_lines, read_text_lines

    raw_lines = iterate_lines(source, keep_returns=True)
    if not one_by_one:
        raw_lines = check_text(arguments.input, raw_lines, plain=arguments.format is None)
    elif _from_terminal(arguments) and sys.stderr.isatty():
        raw_lines = _with_prompt(raw_lines)
    damaged: list[int] = []
    lines = decode_lines(raw_lines, damaged)
    prefixes = None if arguments.prefix is None else read_text_lines(arguments.prefix)
    chunks = make_chunks(lines, prefixes, 1 if one_by_one else translator.chunk_lines)
    bar = _progress_bar(arguments, " lines", hidden=one_by_one)
    total = OutputWarnings()
    if arguments.resume:
        made_by = _made_by(arguments, translator)
        with resumable_output(arguments.output, made_by) as resumable, bar:
            bar.n = bar.initial = resumable.progress.lines
            for done in translate(resumable.remaining(chunks)):
                resumable.write(done.text, done.warnings)
                bar.update(done.warnings.lines)
            total = resumable.progress.warnings
    else:
        with (
            open_output(arguments.output) as output,
            open_output(arguments.alignments or os.devnull) as alignments,
            bar,
        ):
            for done in translate(chunks):
                for stream, content in ((output, done.text), (alignments, done.links)):
                    stream.write(content)
                    if one_by_one:
                        stream.flush()
                total += done.warnings
                bar.update(done.warnings.lines)
            output.flush()
    report_damaged(arguments.input, damaged)
    report(str(total))


def _made_by(arguments: argparse.Namespace, translator: "Translator") -> dict[str, Any]:
    """Return all that an output is made by; with an equal one, --resume continues it."""
    from seq2seq.decoding.resume import models_sha256
    from seq2seq.text import open_binary

    options = {name: value for name, value in vars(arguments).items() if name not in _NO_EFFECT}
    if arguments.glossary is not None:
        with open_binary(arguments.glossary) as file:
            options["glossary"] = hashlib.sha256(file.read()).hexdigest()
    return {
        "model": models_sha256(arguments.model),
        "seq2seq": __version__,
        **options,
        **asdict(translator.search),
        "nbest": arguments.nbest,  # without it, text alone is written
        "device": translator.device.type,
        "dtype": str(next(translator.models[0].parameters()).dtype),
    }


def _same_file(path: str, other_path: str) -> bool:
    return Path(path).expanduser().resolve() == Path(other_path).expanduser().resolve()


def _progress_bar(arguments: argparse.Namespace, unit: str, *, hidden: bool) -> "tqdm[NoReturn]":
    """Make a bar on standard error, unless the output goes there too, or log a line a minute."""
    from tqdm import tqdm

    from seq2seq.text import count_lines

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


def _chunk_output(
    arguments: argparse.Namespace,
    translator: "Translator",
    translate: "Callable[[Chunk], list[Translation]]",
    chunk: "Chunk",
) -> "ChunkOutput":
    """Translate a chunk; return what is written, and counted."""
    from seq2seq.decoding.many import ChunkOutput
    from seq2seq.decoding.translation import OutputWarnings

    written, links, warnings = "", "", OutputWarnings()
    translations = translate(chunk)
    pairs = zip(chunk.lines, translations, strict=True)
    for number, (line, translation) in enumerate(pairs, chunk.first_line):
        end = "\r\n" if line.endswith("\r") else "\n"
        written += _format(number - 1, translation, arguments, end)
        warnings.count(line, translation, f"line {number:,}")
    if arguments.alignments is not None:
        for alignment in translator.alignments(chunk.lines, translations):
            links += f"{alignment}\n"
    return ChunkOutput(written.encode(), links.encode(), warnings)


def _format(
    number: int, translation: "Translation", arguments: argparse.Namespace, end: str
) -> str:
    if not arguments.scores:
        return translation.text + end
    # Byte pieces can produce a tab, which would begin another column.
    columns = [(c.score, c.text.replace("\t", " ")) for c in translation.candidates] or [(0.0, "")]
    if arguments.nbest is None:
        return f"{translation.score:.6f}\t{columns[0][1]}{end}"
    return "".join(f"{number}\t{text}\t{score:.6f}{end}" for score, text in columns)
