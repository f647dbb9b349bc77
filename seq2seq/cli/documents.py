"""`seq2seq translate` for documents: one, or a folder of them."""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NoReturn

from tqdm import tqdm

from seq2seq.cli.messages import file_name, report
from seq2seq.cli.model_class import load_models
from seq2seq.cli.progress import progress_bar
from seq2seq.cli.text import open_input, open_output
from seq2seq.controls import UNNAMED
from seq2seq.decoding.options import TranslationOptions
from seq2seq.decoding.resume import made_by
from seq2seq.decoding.translation import OutputWarnings
from seq2seq.decoding.translator import Translator
from seq2seq.documents.document import File, Languages
from seq2seq.documents.folder import MADE, FolderTranslation, read_document
from seq2seq.documents.formats import read_file
from seq2seq.documents.translate import translate_file
from seq2seq.errors import UsageError, UserError
from seq2seq.machine.resources import retain_freed_memory

INCOMPLETE = 3
"""The exit code if a folder has documents that can't be translated, or that a user has edited."""


@dataclass(frozen=True, kw_only=True)
class DocumentsJob:
    """A document or a folder of documents, and where its translation goes."""

    models: Sequence[str]
    classes: Sequence[str]
    """The names of the models' own classes."""
    options: TranslationOptions
    input: str
    output: str
    fuzzy: bool = False
    """Whether fuzzy entries of catalogues are translated."""

    def load_translator(self) -> Translator:
        """Load the models, which translate together."""
        retain_freed_memory()
        return Translator(load_models(self.models, self.classes), self.options)


def translate_document(job: DocumentsJob, format_name: str) -> None:
    """Translate a document of a format, and report what to check."""
    translator, name = job.load_translator(), file_name(job.input)
    with open_input(job.input) as source:
        document = read_document(source, name)
    file = _read(job, translator, name, document, format_name)
    # Opened before the work, which would be lost if it can't be.
    with open_output(job.output) as output, progress_bar(" texts", job.output) as bar:
        content, warnings = translate_file(file, translator, _shown_by(bar))
        if not warnings.lines:
            report(f"{name}: nothing in it is to be translated")
        output.write(content)
        output.flush()
    report(str(warnings))


def translate_folder(job: DocumentsJob, *, skip: Sequence[str], resume: bool) -> int:
    """Translate the documents of a folder, or bring their translations up to date.

    Returns the exit code.
    """
    folder, output = Path(job.input).expanduser(), Path(job.output).expanduser()
    _check_folders(job, resume=resume)
    translator = job.load_translator()
    with progress_bar(" texts", job.output) as bar:
        translate = partial(_translate, job, translator, bar)
        made = made_by(job.models, job.options, translator, fuzzy=job.fuzzy)
        model_and_options = json.dumps(made, sort_keys=True)
        tell = partial(_tell, bar)
        work = FolderTranslation(folder, output, translate, model_and_options, tell, skip)
        complete = work.run()
    report(str(work.warnings))
    return 0 if complete else INCOMPLETE


def _tell(bar: "tqdm[NoReturn]", message: str) -> None:
    """Report a message; on a terminal, the bar is drawn again below it."""
    if sys.stderr.isatty():
        bar.clear()
    report(message)


def _check_folders(job: DocumentsJob, *, resume: bool) -> None:
    """Refuse an output into which a folder can't be translated."""
    folder, output = (Path(path).expanduser().resolve() for path in (job.input, job.output))
    if job.output == "-":
        raise UsageError(f"{job.input}: is a folder: give another for its translation: -o")
    if output == folder or folder in output.parents:
        raise UserError(f"{job.output}: is in the folder that is translated: choose another")
    is_begun = (output / MADE).exists()
    output.mkdir(parents=True, exist_ok=True)
    if any(output.iterdir()) and not (resume and is_begun):
        advice = "choose a new one"
        if is_begun:
            advice += ", or add --resume to bring its translations up to date"
        raise UserError(f"{job.output}: is not an empty folder: {advice}")


def _translate(
    job: DocumentsJob,
    translator: Translator,
    bar: "tqdm[NoReturn]",
    name: str,
    content: bytes,
    format_name: str,
) -> tuple[bytes, OutputWarnings]:
    file = _read(job, translator, name, content, format_name)
    return translate_file(file, translator, _shown_by(bar))


def _read(
    job: DocumentsJob, translator: Translator, name: str, content: bytes, format_name: str
) -> File:
    # A source language without a name is not to be detected.
    source_language = translator.source_language or UNNAMED[1]
    languages = Languages(source_language, translator.target_language)
    return read_file(name, content, languages, format_name, fuzzy=job.fuzzy)


def _shown_by(bar: "tqdm[NoReturn]") -> Callable[[int, int], None]:
    """Return what shows how many more texts are translated."""
    before = bar.n

    def show(count: int, segments: int) -> None:
        bar.total = before + segments
        bar.update(before + count - bar.n)

    return show
