"""`seq2seq translate` for documents: one, or a folder of them."""

import argparse
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, NoReturn

from seq2seq.cli.text import file_name, open_input, open_output, report
from seq2seq.errors import UsageError, UserError

if TYPE_CHECKING:
    from tqdm import tqdm

    from seq2seq.decoding.translation import OutputWarnings
    from seq2seq.decoding.translator import Translator

_FOR_LINES = ("alignments", "interactive", "nbest", "prefix", "scores")
INCOMPLETE = 3
"""The exit code if a folder has documents that can't be translated, or that a user has to edit."""


def document_format(arguments: argparse.Namespace) -> str:
    """Return the format of the input; "" if it is lines of text."""
    if arguments.input == "-" and arguments.format is None:
        return ""
    from seq2seq.documents.formats import FORMATS, find_format
    from seq2seq.documents.lines import is_plain
    from seq2seq.text import COMPRESSIONS

    path = PurePath(arguments.input)
    bare = path.with_suffix("") if path.suffix.lower() in COMPRESSIONS else path
    format_name: str = arguments.format or find_format(bare.name)
    if format_name not in ("", *FORMATS):
        raise UsageError(f"--format {format_name}: choose one of {', '.join(FORMATS)}")
    if not format_name and not is_plain(bare.name):
        raise UserError(
            f"{arguments.input}: documents of {bare.suffix} can't be translated: extract the text,"
            f" or save it as one of {', '.join(FORMATS)}; if its lines are text, add --format txt"
        )
    if format_name in ("", "txt"):
        return ""
    named = find_format(PurePath(arguments.output).name)
    if arguments.format is None and named not in ("", format_name):
        raise UsageError(
            f"-o {arguments.output}: the translation is .{format_name}, as the document: name it so"
        )
    return format_name


def check_options(arguments: argparse.Namespace, *, is_folder: bool) -> None:
    """Refuse options that are for lines; sentences are translated one by one."""
    for name in _FOR_LINES if is_folder else (*_FOR_LINES, "resume"):
        if getattr(arguments, name) not in (None, False):
            raise UsageError(f"--{name} is for lines of text: remove it, or add --format txt")
    if is_folder and arguments.format is not None:
        raise UsageError("--format is for one document: in a folder, names say the formats")
    arguments.sentences = True


def translate_documents(
    arguments: argparse.Namespace,
    translator: "Translator",
    format_name: str,
    made_by: str,
    bar: "tqdm[NoReturn]",
) -> "tuple[OutputWarnings, bool]":
    """Translate a document of a format, or if that is empty, a folder.

    Returns what to check, and whether all is up to date.
    """
    from seq2seq.documents.folder import FolderTranslation, read_document

    translate = partial(_translate, arguments, translator, bar)
    if not format_name:
        folder, made = Path(arguments.input).expanduser(), Path(arguments.output).expanduser()
        work = FolderTranslation(folder, made, translate, made_by, report)
        complete = work.run()
        return work.warnings, complete
    name = file_name(arguments.input)
    with open_input(arguments.input) as source:
        content, warnings = translate(name, read_document(source, name), format_name)
    if not warnings.lines:
        report(f"{name}: nothing in it is to be translated")
    with open_output(arguments.output) as output:
        output.write(content)
        output.flush()
    return warnings, True


def check_folders(arguments: argparse.Namespace) -> None:
    """Refuse an output for which a folder can't be translated into."""
    from seq2seq.documents.folder import LOCK, MADE
    from seq2seq.files import remove_leftovers

    folder = Path(arguments.input).expanduser().resolve()
    output = Path(arguments.output).expanduser().resolve()
    if arguments.output == "-":
        raise UsageError(f"{arguments.input}: is a folder: give another for its translation: -o")
    if output == folder or folder in output.parents:
        raise UserError(f"{arguments.output}: is in the folder that is translated: choose another")
    is_begun = (output / MADE).exists()
    if arguments.resume and not is_begun:
        remove_leftovers(output)
    is_empty = output.is_dir() and all(path.name == LOCK for path in output.iterdir())
    is_fit = is_empty or (arguments.resume and is_begun)
    if output.exists() and not is_fit:
        raise UserError(
            f"{arguments.output}: is not an empty folder"
            + (
                ": choose a new one, or add --resume to bring its translations up to date"
                if is_begun
                else f", and has no {MADE}, so it is no translation of a folder: choose a new one"
            )
        )
    output.mkdir(parents=True, exist_ok=True)


def _translate(
    arguments: argparse.Namespace,
    translator: "Translator",
    bar: "tqdm[NoReturn]",
    name: str,
    content: bytes,
    format_name: str,
) -> "tuple[bytes, OutputWarnings]":
    from seq2seq.documents.document import Languages
    from seq2seq.documents.formats import read_file
    from seq2seq.documents.translate import translate_file
    from seq2seq.tokenizer import UNNAMED

    # A source without a name is not to be detected.
    source_language = translator.source_language or UNNAMED[1]
    languages = Languages(source_language, translator.target_language)
    file = read_file(name, content, languages, format_name, fuzzy=arguments.fuzzy)
    before = bar.n

    def show(count: int, segments: int) -> None:
        bar.total = before + segments
        bar.update(before + count - bar.n)

    return translate_file(file, translator, show)
