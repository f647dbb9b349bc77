"""`seq2seq translate` for documents: one, or a folder of them."""

import argparse
import errno
import hashlib
import io
import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, BinaryIO, NoReturn

from seq2seq.cli.text import file_name, open_input, open_output, report
from seq2seq.errors import UsageError, UserError

if TYPE_CHECKING:
    from tqdm import tqdm

    from seq2seq.decoding.translation import OutputWarnings
    from seq2seq.decoding.translator import Translator

_UNSUPPORTED = frozenset("doc epub ods odp pdf pps ppt pptx rtf sgm xls xlsx".split())  # noqa: SIM905
_FOR_LINES = ("alignments", "interactive", "nbest", "prefix", "scores")
_MAX_BYTES = 2**28
INCOMPLETE = 3
"""The exit code if a folder has documents that can't be translated."""
# In the folder of the translations: the sums of each document and its translation.
_TRANSLATED = ".translated.json"


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


def check_options(arguments: argparse.Namespace) -> None:
    """Refuse options that are for lines; sentences are translated one by one."""
    is_folder = Path(arguments.input).expanduser().is_dir()
    for name in _FOR_LINES if is_folder else (*_FOR_LINES, "resume"):
        if getattr(arguments, name) not in (None, False):
            raise UsageError(f"--{name} is for lines of text: remove it, or add --format txt")
    arguments.sentences = True


def translate_documents(
    arguments: argparse.Namespace,
    translator: "Translator",
    format_name: str,
    made_by: str,
    bar: "tqdm[NoReturn]",
) -> "tuple[OutputWarnings, bool]":
    """Translate a document of the format `chosen`, or if that is empty, a folder.

    Returns what to check, and whether all documents were translated.
    """
    translate = partial(_translate, arguments, translator, bar)
    if not format_name:
        return _translate_folder(arguments, translate, made_by)
    with open_input(arguments.input) as source:
        content, warnings = translate(file_name(arguments.input), source, format_name)
    with open_output(arguments.output) as output:
        output.write(content)
        output.flush()
    return warnings, True


def _translate_folder(
    arguments: argparse.Namespace,
    translate: "Callable[[str, BinaryIO, str], tuple[bytes, OutputWarnings]]",
    made_by: str,
) -> "tuple[OutputWarnings, bool]":
    """Translate the documents in a folder and its folders, and copy all other files.

    What was translated before, by the same model and options, is kept.
    """
    from seq2seq.decoding.translation import OutputWarnings
    from seq2seq.documents.formats import find_format
    from seq2seq.files import remove_leftovers, write_file

    folder, output = Path(arguments.input).expanduser(), Path(arguments.output).expanduser()
    earlier = _read_sums(output)
    _write_sums(output, earlier)  # whatever ends this now, --resume goes on
    warnings, translated, unchanged, copied, refused = OutputWarnings(), 0, 0, 0, list[str]()
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        target = output / name
        if str(name) == _TRANSLATED:  # of a folder that is itself a translation
            continue
        if target.is_symlink():  # copied earlier: it may lead to the source
            target.unlink()
        if path.is_dir() and not path.is_symlink():
            target.mkdir(parents=True, exist_ok=True)
            remove_leftovers(target)
            continue
        format_name = "" if path.is_symlink() else find_format(path.name)
        try:
            if format_name:
                with path.open("rb") as source:
                    content = source.read(_MAX_BYTES + 1)
                source_sum = _sum(made_by.encode() + content)
                key = str(UserError(name))  # on one line, in UTF-8, whatever bytes it has
                before, now = earlier.get(key), _sum_of_file(target)
                is_edited = before is not None and now not in (before[1], _sum(b""), "")
                if before and before[0] == source_sum and (is_edited or now == before[1]):
                    unchanged += 1
                    continue
                if is_edited:
                    report(f"{target}: kept, as it was edited; remove it to have it made again")
                    refused.append(str(name))
                    continue
                content, warnings_of_file = translate(str(path), io.BytesIO(content), format_name)
                if target.is_dir():
                    raise IsADirectoryError(errno.EISDIR, "is a folder: move it away", str(target))
                write_file(target, content)
                shutil.copymode(path, target)
                earlier[key] = source_sum, _sum(content)
                _write_sums(output, earlier)
                warnings_of_file.first = {
                    kind: f"{name}, {where}" for kind, where in warnings_of_file.first.items()
                }
                warnings += warnings_of_file
                translated += 1
                continue
            if path.suffix[1:].lower() in _UNSUPPORTED:
                raise UserError(f"{path}: documents of {path.suffix} can't be translated")
        except UserError as error:
            report(f"{error}; copied as it is")
            refused.append(str(name))
        except OSError as error:
            if error.filename not in (str(path), str(target)):
                raise
            report(f"{error.filename}: {error.strerror}")
            refused.append(str(name))
            continue
        target.unlink(missing_ok=True)
        shutil.copy2(path, target, follow_symlinks=False)
        copied += 1
    report(
        f"documents: {translated:,} translated, {unchanged:,} kept;"
        f" files: {copied:,} copied as they are"
    )
    if refused:
        more = f" and {len(refused) - 20:,} more" if len(refused) > 20 else ""
        report(f"not translated: {', '.join(refused[:20])}{more}")
    return warnings, not refused


def _read_sums(output: Path) -> dict[str, tuple[str, str]]:
    from seq2seq.files import parse_json, read_regular_file

    path = output / _TRANSLATED
    if not path.exists():
        return {}
    sums: dict[str, tuple[str, str]] = parse_json(
        path, read_regular_file(path, _MAX_BYTES), dict[str, tuple[str, str]]
    )
    return sums


def _write_sums(output: Path, sums: dict[str, tuple[str, str]]) -> None:
    from seq2seq.files import write_file

    write_file(output / _TRANSLATED, json.dumps(sums).encode())


def _sum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _sum_of_file(path: Path) -> str:
    return _sum(path.read_bytes()) if path.is_file() else ""


def check_folders(arguments: argparse.Namespace) -> None:
    """Refuse an output for which a folder can't be translated into."""
    from seq2seq.files import remove_leftovers

    folder = Path(arguments.input).expanduser().resolve()
    output = Path(arguments.output).expanduser().resolve()
    if arguments.output == "-":
        raise UsageError(f"{arguments.input}: is a folder: give another for its translation: -o")
    if output == folder or folder in output.parents:
        raise UserError(f"{arguments.output}: is in the folder that is translated: choose another")
    if arguments.resume:
        remove_leftovers(output)
    is_begun = arguments.resume and (output / _TRANSLATED).exists()
    if output.exists() and not is_begun and (not output.is_dir() or any(output.iterdir())):
        raise UserError(
            f"{arguments.output}: is not an empty folder: choose a new one, or add --resume if it"
            " has earlier translations of this folder"
        )
    output.mkdir(parents=True, exist_ok=True)


def _translate(
    arguments: argparse.Namespace,
    translator: "Translator",
    bar: "tqdm[NoReturn]",
    name: str,
    source: BinaryIO,
    format_name: str,
) -> "tuple[bytes, OutputWarnings]":
    from seq2seq.corpus import UNNAMED
    from seq2seq.documents.document import Languages
    from seq2seq.documents.formats import read_file
    from seq2seq.documents.translate import translate_file

    content = source.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        raise UserError(f"{name}: is larger than {_MAX_BYTES >> 20} MiB: divide it")
    # A source without a name is not to be detected.
    source_language = translator.source_language or UNNAMED[1]
    languages = Languages(source_language, translator.target_language)
    file = read_file(name, content, languages, format_name, fuzzy=arguments.fuzzy)
    before = bar.n

    def show(count: int, segments: int) -> None:
        bar.total = before + segments
        bar.update(before + count - bar.n)

    return translate_file(file, translator, show)
