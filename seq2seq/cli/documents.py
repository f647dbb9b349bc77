"""`seq2seq translate` for documents: one, or a folder of them."""

import argparse
import json
import sys
from functools import partial
from pathlib import Path
from typing import NoReturn

from tqdm import tqdm

from seq2seq.cli.lines import made_by, progress_bar
from seq2seq.cli.text import file_name, open_input, open_output, report
from seq2seq.cli.translation_options import load_translator
from seq2seq.decoding.translation import OutputWarnings
from seq2seq.decoding.translator import Translator
from seq2seq.documents.document import Languages
from seq2seq.documents.folder import MADE, FolderTranslation, read_document
from seq2seq.documents.formats import read_file
from seq2seq.documents.translate import translate_file
from seq2seq.errors import UsageError, UserError
from seq2seq.tokenizer import UNNAMED

INCOMPLETE = 3
"""The exit code if a folder has documents that can't be translated, or that a user has edited."""


def translate_documents(arguments: argparse.Namespace, format_name: str) -> int:
    """Translate a document of a format, or if that is empty, a folder; report what to check."""
    if not format_name:
        _check_folders(arguments)
    translator = load_translator(arguments)
    complete = True
    with progress_bar(arguments, " texts", hidden=False) as bar:
        translate = partial(_translate, arguments, translator, bar)
        if format_name:
            name = file_name(arguments.input)
            with open_input(arguments.input) as source:
                content, warnings = translate(name, read_document(source, name), format_name)
            if not warnings.lines:
                report(f"{name}: nothing in it is to be translated")
            with open_output(arguments.output) as output:
                output.write(content)
                output.flush()
        else:
            folder, made = Path(arguments.input).expanduser(), Path(arguments.output).expanduser()
            model_and_options = json.dumps(made_by(arguments, translator), sort_keys=True)
            tell = partial(_tell, bar)
            skip = arguments.skip
            work = FolderTranslation(folder, made, translate, model_and_options, tell, skip)
            complete, warnings = work.run(), work.warnings
    report(str(warnings))
    return 0 if complete else INCOMPLETE


def _tell(bar: "tqdm[NoReturn]", message: str) -> None:
    """Report a message; on a terminal, the bar is drawn again below it."""
    if sys.stderr.isatty():
        bar.clear()
    report(message)


def _check_folders(arguments: argparse.Namespace) -> None:
    """Refuse an output into which a folder can't be translated."""
    folder = Path(arguments.input).expanduser().resolve()
    output = Path(arguments.output).expanduser().resolve()
    if arguments.output == "-":
        raise UsageError(f"{arguments.input}: is a folder: give another for its translation: -o")
    if output == folder or folder in output.parents:
        raise UserError(f"{arguments.output}: is in the folder that is translated: choose another")
    is_begun = (output / MADE).exists()
    output.mkdir(parents=True, exist_ok=True)
    if any(output.iterdir()) and not (arguments.resume and is_begun):
        advice = "choose a new one"
        if is_begun:
            advice += ", or add --resume to bring its translations up to date"
        raise UserError(f"{arguments.output}: is not an empty folder: {advice}")


def _translate(
    arguments: argparse.Namespace,
    translator: Translator,
    bar: "tqdm[NoReturn]",
    name: str,
    content: bytes,
    format_name: str,
) -> tuple[bytes, OutputWarnings]:
    # A source without a name is not to be detected.
    source_language = translator.source_language or UNNAMED[1]
    languages = Languages(source_language, translator.target_language)
    file = read_file(name, content, languages, format_name, fuzzy=arguments.fuzzy)
    before = bar.n

    def show(count: int, segments: int) -> None:
        bar.total = before + segments
        bar.update(before + count - bar.n)

    return translate_file(file, translator, show)
