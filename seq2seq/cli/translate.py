"""`seq2seq translate`: a filter, N lines in, N lines out; or a document, and its translation.

What can be refused without PyTorch is refused here, before it is loaded. Behind this file, the
arguments are typed options and jobs.
"""

import argparse
import io
import logging
import os
import signal
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePath
from typing import NoReturn

from seq2seq.cli.messages import rank_and_size, report
from seq2seq.cli.text import check_output, open_input
from seq2seq.errors import UsageError, UserError
from seq2seq.text import COMPRESSIONS


def run(arguments: argparse.Namespace) -> int:
    """Translate lines of text, a document, or a folder of documents."""
    _check_options(arguments)
    rank, size = rank_and_size()
    one_by_one = rank == 0 and arguments.input == "-" and sys.stdin.isatty()
    if one_by_one and size > 1:
        raise UsageError("torchrun's processes don't answer line by line: give -i FILE")
    if one_by_one and arguments.resume:
        raise UsageError("--resume continues the translation of a file: give -i FILE")
    is_folder = Path(arguments.input).expanduser().is_dir()
    format_name = "" if is_folder else _document_format(arguments)
    _check_skipped(arguments.skip, is_folder=is_folder)
    if arguments.fuzzy and not is_folder and format_name != "po":
        raise UsageError("--fuzzy is for .po files: remove it")
    if is_folder or format_name:
        _check_document_options(arguments, is_folder=is_folder)
        if size > 1:
            raise UsageError("torchrun's processes translate lines: give documents to one process")
    if rank == 0:
        if not is_folder:
            _check_files(arguments)
        # Like Ctrl-C, it lets an incomplete output say where it is.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    else:  # the main process alone reads, writes and reports
        logging.getLogger("seq2seq").setLevel(logging.ERROR)
        if rank == 1 and arguments.resume:
            signal.signal(signal.SIGTERM, partial(_say_how_to_go_on, arguments.output))
    if is_folder or format_name:
        return _translate_documents(arguments, format_name)
    with open_input(arguments.input) if rank == 0 else io.BytesIO() as source:
        from seq2seq.cli.lines import LineFormat, LinesJob, answer_lines, translate_lines
        from seq2seq.cli.translation_options import translation_options

        line = LineFormat(scores=arguments.scores, candidates=arguments.nbest is not None)
        has_scores = line.scores or line.candidates
        job = LinesJob(
            models=arguments.model,
            classes=arguments.model_class,
            options=replace(translation_options(arguments), scores=has_scores),
            line=line,
            input=arguments.input,
            output=arguments.output,
            alignments=arguments.alignments,
            resume=arguments.resume,
            plain=arguments.format is None,
        )
        (answer_lines if one_by_one else translate_lines)(job, source)
    return 0


def _translate_documents(arguments: argparse.Namespace, format_name: str) -> int:
    """Translate a document of a format, or if that is empty, a folder."""
    from seq2seq.cli.documents import DocumentsJob, translate_document, translate_folder
    from seq2seq.cli.translation_options import translation_options

    job = DocumentsJob(
        models=arguments.model,
        classes=arguments.model_class,
        options=replace(translation_options(arguments), sentences=True),
        input=arguments.input,
        output=arguments.output,
        fuzzy=arguments.fuzzy,
    )
    if not format_name:
        return translate_folder(job, skip=arguments.skip, resume=arguments.resume)
    translate_document(job, format_name)
    return 0


def _say_how_to_go_on(output: str, number: int, _frame: object) -> NoReturn:
    """End where torchrun ends all processes: the main one may have been killed without a word."""
    report(
        f"{output}.resume.part: may have what was translated; the same command"
        " with --resume goes on"
    )
    os._exit(128 + number)  # without waiting for the threads


def _document_format(arguments: argparse.Namespace) -> str:
    """Return the format of the input; "" if it is lines of text."""
    if arguments.input == "-" and arguments.format is None:
        return ""
    from seq2seq.documents import FORMATS, find_format, named_format

    path = PurePath(arguments.input)
    bare = path.with_suffix("") if path.suffix.lower() in COMPRESSIONS else path
    if arguments.format not in (None, *FORMATS):
        raise UsageError(f"--format {arguments.format}: choose one of {', '.join(FORMATS)}")
    try:
        format_name: str = arguments.format or named_format(str(bare))
    except UserError as error:
        raise UserError(
            f"{arguments.input}: {error}; if its lines are text, add --format txt"
        ) from None
    if format_name in ("", "txt"):
        return ""
    named = find_format(PurePath(arguments.output).name)
    if arguments.format is None and named not in ("", format_name):
        raise UsageError(
            f"-o {arguments.output}: the translation is .{format_name}, as the document: name it so"
        )
    return format_name


def _check_options(arguments: argparse.Namespace) -> None:
    """Refuse options that exclude each other."""
    if arguments.nbest is not None and arguments.scores:
        raise UsageError("--nbest writes the scores already: remove --scores")
    if arguments.resume and arguments.output == "-":
        raise UsageError("--resume continues a file or folder: add -o")
    if arguments.resume and arguments.alignments is not None:
        raise UsageError("--resume continues one file: remove --alignments")


def _check_skipped(patterns: list[str], *, is_folder: bool) -> None:
    """Refuse `--skip` without a folder, and patterns that no file has."""
    if patterns and not is_folder:
        raise UsageError("--skip is for the files of a folder: remove it")
    for pattern in patterns:
        if not PurePath(pattern).parts:
            raise UsageError(f"--skip {pattern!r}: names nothing: write such as '*.pdf'")


def _check_document_options(arguments: argparse.Namespace, *, is_folder: bool) -> None:
    """Refuse options that are not for documents."""
    for name in ("alignments", "nbest", "scores"):
        if getattr(arguments, name) not in (None, False):
            raise UsageError(f"--{name} is for lines of text: remove it, or add --format txt")
    if arguments.resume and not is_folder:
        raise UsageError(
            "--resume is for lines of text and for folders: one document is written at its end, so"
            " remove --resume, or give the folder"
        )
    if is_folder and arguments.format is not None:
        raise UsageError("--format is for one document: in a folder, names say the formats")


def _check_files(arguments: argparse.Namespace) -> None:
    """Refuse an output that is the input, or the other output."""
    check_output(arguments.output, arguments.input)
    if arguments.alignments is not None:
        check_output(arguments.alignments, arguments.input)
        links, output = Path(arguments.alignments), Path(arguments.output)
        is_output = links.expanduser().resolve() == output.expanduser().resolve()
        if arguments.alignments == "-" or is_output:
            raise UsageError("--alignments needs a file of its own")
