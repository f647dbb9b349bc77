"""`seq2seq translate` for lines of text, in chunks by several threads and processes."""

import argparse
import hashlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from tqdm import tqdm

from seq2seq import __version__
from seq2seq.cli.text import check_text, decode_lines, open_output, report, report_damaged
from seq2seq.cli.translation_options import translation_options
from seq2seq.decoding import many
from seq2seq.decoding.resume import models_sha256, resumable_output
from seq2seq.decoding.translation import OutputWarnings, Translation
from seq2seq.decoding.translator import Translator
from seq2seq.machine.processes import Processes
from seq2seq.machine.resources import retain_freed_memory
from seq2seq.text import count_lines, iterate_lines, open_binary

# Options that change no output.
_NO_EFFECT = {"command", "debug", "model", "input", "output", "resume", "skip", "workers"}
_LOG_SECONDS = 60.0
_LOG_FORMAT = "{n_fmt} of {total_fmt}{unit}, {rate_noinv_fmt}, {remaining} left"


def translate_lines(arguments: argparse.Namespace, source: BinaryIO, *, one_by_one: bool) -> None:
    """Translate the lines of a stream, each as it comes if `one_by_one`.

    All of torchrun's processes call it; the main one reads, writes and reports.
    """
    world = Processes.from_environment()
    with world.process_group(many.DAY):
        options = many.options_of_rank(world, translation_options(arguments))
        translator = Translator.load(arguments.model, options)
        retain_freed_memory()
        output = partial(_chunk_output, arguments, translator)
        if one_by_one:
            answer = partial(output, translator.translate_chunk)
            _write(arguments, source, translator, partial(map, answer), one_by_one=True)
            return
        with (
            translator.chunk_workers() as workers,
            many.workers_of_all(world, [partial(output, worker) for worker in workers]) as all_,
        ):
            if world.is_main:
                _write(
                    arguments, source, translator, partial(many.in_order, all_), one_by_one=False
                )


def _write(
    arguments: argparse.Namespace,
    source: BinaryIO,
    translator: Translator,
    translate: Callable[[Iterable[many.Chunk]], Iterator[many.ChunkOutput]],
    *,
    one_by_one: bool,
) -> None:
    """Read the input in chunks, write their translations, and report what to check in them."""
    raw_lines = iterate_lines(source, keep_returns=True)
    if not one_by_one:
        raw_lines = check_text(arguments.input, raw_lines, plain=arguments.format is None)
    elif sys.stderr.isatty():
        raw_lines = _with_prompt(raw_lines)
    damaged: list[int] = []
    lines = decode_lines(raw_lines, damaged)
    chunks = many.make_chunks(lines, 1 if one_by_one else translator.chunk_lines)
    bar = progress_bar(arguments, " lines", hidden=one_by_one)
    total = OutputWarnings()
    if arguments.resume:
        with resumable_output(arguments.output, made_by(arguments, translator)) as resumable, bar:
            bar.n = bar.initial = resumable.progress.lines
            for chunk in translate(resumable.remaining(chunks)):
                resumable.write(chunk.text, chunk.warnings)
                bar.update(chunk.warnings.lines)
            total = resumable.progress.warnings
    else:
        with (
            open_output(arguments.output) as output,
            open_output(arguments.alignments or os.devnull) as alignments,
            bar,
        ):
            for chunk in translate(chunks):
                for stream, content in ((output, chunk.text), (alignments, chunk.links)):
                    stream.write(content)
                    if one_by_one:
                        stream.flush()
                total += chunk.warnings
                bar.update(chunk.warnings.lines)
            output.flush()
    report_damaged(arguments.input, damaged)
    report(str(total))


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


def _chunk_output(
    arguments: argparse.Namespace,
    translator: Translator,
    translate: Callable[[many.Chunk], list[Translation]],
    chunk: many.Chunk,
) -> many.ChunkOutput:
    """Translate a chunk; return what is written, and counted."""
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
    return many.ChunkOutput(written.encode(), links.encode(), warnings)


def _format(number: int, translation: Translation, arguments: argparse.Namespace, end: str) -> str:
    if not arguments.scores:
        return translation.text + end
    # Byte pieces can produce a tab, which would begin another column.
    columns = [(c.score, c.text.replace("\t", " ")) for c in translation.candidates] or [(0.0, "")]
    if arguments.nbest is None:
        return f"{translation.score:.6f}\t{columns[0][1]}{end}"
    return "".join(f"{number}\t{text}\t{score:.6f}{end}" for score, text in columns)


def made_by(arguments: argparse.Namespace, translator: Translator) -> dict[str, Any]:
    """Return all that an output is made by; with an equal one, --resume continues it."""
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


class _LineAMinute(tqdm):  # type: ignore[type-arg]
    """A bar for a log."""

    monitor_interval = 0

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        """Write a line, unless it is to clear the bar."""
        if msg is None:
            report(str(self))


def progress_bar(arguments: argparse.Namespace, unit: str, *, hidden: bool) -> "tqdm[NoReturn]":
    """Make a bar on standard error, unless the output goes there too, or log a line a minute."""
    on_terminal = sys.stderr.isatty()
    hidden = hidden or (on_terminal and arguments.output == "-" and sys.stdout.isatty())
    # Only the lines of a file can be counted beforehand, for the remaining time.
    is_file = unit == " lines" and Path(arguments.input).expanduser().is_file()
    total = None if hidden or not is_file else count_lines(arguments.input)
    if on_terminal or hidden:
        return tqdm(total=total, unit=unit, disable=hidden)
    return _LineAMinute(
        total=total,
        unit=unit,
        leave=False,
        bar_format=_LOG_FORMAT,
        delay=_LOG_SECONDS,
        mininterval=_LOG_SECONDS,
        miniters=1,
    )
