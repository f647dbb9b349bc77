"""`seq2seq translate` for lines of text: read a chunk, translate it, write it, count."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO, NoReturn, TypeAlias

from tqdm import tqdm

from seq2seq.cli.messages import report, report_damaged
from seq2seq.cli.model_class import load_models
from seq2seq.cli.progress import progress_bar
from seq2seq.cli.text import check_text, decode_lines, open_output
from seq2seq.decoding import many
from seq2seq.decoding.many import Chunk, ChunkOutput, make_chunks
from seq2seq.decoding.options import TranslationOptions
from seq2seq.decoding.translation import OutputWarnings, Translation
from seq2seq.decoding.translator import Translator
from seq2seq.machine.processes import from_environment
from seq2seq.machine.resources import retain_freed_memory
from seq2seq.text import iterate_lines


@dataclass(frozen=True, kw_only=True)
class LineFormat:
    """The form of the output: for each line its translation, or its candidates or samples."""

    scores: bool = False
    candidates: bool = False
    """Whether all candidates are written, with their scores and the number of the line."""

    def format(self, number: int, translation: Translation, end: str) -> str:
        """Return what is written for a line, counted from 0."""
        if not (self.scores or self.candidates):
            return translation.text + end
        # Byte pieces can produce a tab, which would begin another column.
        columns = [(c.score, c.text.replace("\t", " ")) for c in translation.candidates]
        columns = columns or [(0.0, "")]
        if not self.candidates:
            return f"{translation.score:.6f}\t{columns[0][1]}{end}"
        return "".join(f"{number}\t{text}\t{score:.6f}{end}" for score, text in columns)


@dataclass(frozen=True, kw_only=True)
class LinesJob:
    """A text to translate line by line, and where its translation goes."""

    models: Sequence[str]
    classes: Sequence[str]
    """The names of the models' own classes."""
    options: TranslationOptions
    line: LineFormat
    input: str
    output: str
    alignments: str | None = None
    resume: bool = False
    plain: bool = True
    """Whether markup, data and programs are refused."""


_Translate: TypeAlias = Callable[[Iterable[Chunk]], Iterator[ChunkOutput]]


def translate_lines(job: LinesJob, source: BinaryIO) -> None:
    """Translate the lines of a stream.

    All of torchrun's processes call it; the main one reads, writes and reports.
    """
    world = from_environment()
    with world.process_group(many.DAY):
        options = many.options_of_rank(world, job.options)
        translator = Translator(load_models(job.models, job.classes), options)
        retain_freed_memory()
        translate = partial(_translate_chunk, job, translator)
        with (
            translator.chunk_workers() as own_workers,
            many.workers_of_all(world, [partial(translate, w) for w in own_workers]) as workers,
        ):
            if world.is_main:
                damaged: list[int] = []
                lines = iterate_lines(source, keep_returns=True)
                lines = check_text(job.input, lines, plain=job.plain)
                chunks = make_chunks(decode_lines(lines, damaged), translator.chunk_lines)
                in_order = partial(many.in_order, workers)
                if job.resume:
                    warnings = _continue(job, translator, chunks, in_order)
                else:
                    warnings = _begin(job, chunks, in_order)
                report_damaged(job.input, damaged)
                report(str(warnings))


def answer_lines(job: LinesJob, source: BinaryIO) -> None:
    """Translate the lines that a user types, each before the next is read."""
    translator = Translator(load_models(job.models, job.classes), job.options)
    retain_freed_memory()
    damaged: list[int] = []
    lines = iterate_lines(source, keep_returns=True)
    if sys.stderr.isatty():
        lines = _with_prompt(lines)
    chunks = make_chunks(decode_lines(lines, damaged), 1)
    answer = partial(_translate_chunk, job, translator, translator.translate_chunk)
    warnings = _begin(job, chunks, partial(map, answer), one_by_one=True)
    report_damaged(job.input, damaged)
    report(str(warnings))


def _begin(
    job: LinesJob, chunks: Iterator[Chunk], translate: _Translate, *, one_by_one: bool = False
) -> OutputWarnings:
    """Write a translation from its beginning, and the links between its words."""
    with (
        open_output(job.output) as output,
        open_output(job.alignments or os.devnull) as links,
        progress_bar(" lines", job.output, job.input, hidden=one_by_one) as bar,
    ):

        def write(chunk: ChunkOutput) -> None:
            for stream, content in ((output, chunk.text), (links, chunk.links)):
                stream.write(content)
                if one_by_one:
                    stream.flush()

        warnings = _write_chunks(translate(chunks), write, bar)
        output.flush()
    return warnings


def _continue(
    job: LinesJob, translator: Translator, chunks: Iterator[Chunk], translate: _Translate
) -> OutputWarnings:
    """Go on where an earlier process was stopped; return the counts of all lines."""
    from seq2seq.decoding.resume import made_by, resumable_output

    nbest = job.options.search.nbest if job.line.candidates else None
    made = made_by(job.models, job.options, translator, scores=job.line.scores, nbest=nbest)
    with (
        resumable_output(job.output, made) as part,
        progress_bar(" lines", job.output, job.input) as bar,
    ):
        bar.n = bar.initial = part.progress.lines
        _write_chunks(translate(part.remaining(chunks)), part.write, bar)
        return part.progress.warnings


def _write_chunks(
    chunks: Iterator[ChunkOutput], write: Callable[[ChunkOutput], None], bar: "tqdm[NoReturn]"
) -> OutputWarnings:
    """Write chunks as they are translated, and count what to check in them."""
    total = OutputWarnings()
    for chunk in chunks:
        write(chunk)
        total += chunk.warnings
        bar.update(chunk.warnings.lines)
    return total


def _translate_chunk(
    job: LinesJob,
    translator: Translator,
    translate: Callable[[Chunk], list[Translation]],
    chunk: Chunk,
) -> ChunkOutput:
    """Translate a chunk; return what is written, and counted."""
    written, links, warnings = "", "", OutputWarnings()
    translations = translate(chunk)
    pairs = zip(chunk.lines, translations, strict=True)
    for number, (line, translation) in enumerate(pairs, chunk.first_line):
        end = "\r\n" if line.endswith("\r") else "\n"
        written += job.line.format(number - 1, translation, end)
        warnings.count(line, translation, f"line {number:,}")
    if job.alignments is not None:
        for alignment in translator.alignments(chunk.lines, translations):
            links += f"{alignment}\n"
    return ChunkOutput(written.encode(), links.encode(), warnings)


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
