"""A folder of documents translated into another, and brought up to date the next night.

`.translated.jsonl` in the folder of translations has a line for each file that was made, before it
is written. A file that is not what its line says is a user's, and stays until it is removed.
"""

import errno
import hashlib
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO, TypeAlias

from msgspec import DecodeError
from msgspec.json import decode, encode

from seq2seq.decoding.resume import lock
from seq2seq.decoding.translation import OutputWarnings
from seq2seq.documents.formats import find_format
from seq2seq.errors import UserError
from seq2seq.files import copy_file, errors_as_user_errors, remove_leftovers, write_file

MADE = ".translated.jsonl"
_MAX_BYTES = 2**28
_UNSUPPORTED = frozenset("doc epub ods odp pdf pps ppt pptx rtf sgm xls xlsx".split())  # noqa: SIM905
_FATAL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)

Translate: TypeAlias = Callable[[str, bytes, str], tuple[bytes, OutputWarnings]]
"""Called with a document's name, its content and its format."""


@dataclass(frozen=True)
class Made:
    """What a file was made of, and what it is: SHA-256 sums, or where a link leads."""

    name: str
    document: str
    made_by: str
    """The model and the options; "" if it is a copy."""
    content: str


@dataclass
class FolderTranslation:
    """Translates the documents in a folder and its folders, and copies all other files."""

    folder: Path
    output: Path
    translate: Translate
    made_by: str
    report: Callable[[str], None]
    made: dict[str, list[Made]] = field(default_factory=dict)
    """The lines of each name: a file may still be what one of the earlier ones says."""
    warnings: OutputWarnings = field(default_factory=OutputWarnings)
    translated: int = 0
    kept: int = 0
    copied: int = 0
    refused: list[str] = field(default_factory=list)
    """Why files are not up to date."""

    def run(self) -> bool:
        """Bring all files up to date, and return whether all are."""
        path = self.output / MADE
        if path.is_symlink():  # lines would be added to a file elsewhere
            raise UserError(f"{path}: is a link: move it away")
        with errors_as_user_errors(path), path.open("ab") as self._record:
            lock(path, self._record)
            self.made = _read(path)
            self._record.write(b"\n")  # ends a line that a crash has cut short
            try:
                self._update_folders()
                write_file(path, b"\n".join(encode(lines[-1]) for lines in self.made.values()))
            except BaseException:
                self.report(
                    f"{self.output}: {self.translated:,} documents translated until now; the same"
                    " command with --resume goes on"
                )
                raise
        self.report(
            f"documents: {self.translated:,} translated, {self.kept:,} kept;"
            f" files: {self.copied:,} copied as they are; not up to date: {len(self.refused):,}"
        )
        for reason in self.refused:
            self.report(reason)
        return not self.refused

    def _update_folders(self) -> None:
        for parent, folders, files in os.walk(self.folder, onerror=self._refuse):
            relative = Path(parent).relative_to(self.folder)
            output = self.output / relative
            remove_leftovers(output)
            for name in sorted((*folders, *files)):
                if name == MADE:  # it is itself a translation
                    continue
                try:
                    self._update(str(relative / name))
                except (OSError, UserError) as error:
                    self._refuse(error, Path(parent, name))
            made = filter(Path.is_dir, map(output.joinpath, folders))
            folders[:] = sorted(path.name for path in made if not path.is_symlink())

    def _refuse(self, error: OSError | UserError, path: Path | None = None) -> None:
        """Note why a file is not up to date, unless no other can be, either.

        The path is for an error that has none, such as one of a disk.
        """
        cause = error.__cause__ or error
        if isinstance(cause, OSError) and cause.errno in _FATAL:
            raise error
        if isinstance(error, OSError):
            error = UserError(f"{error.filename or path}: {error.strerror}")
        self.refused.append(str(error))

    def _update(self, name: str) -> None:
        """Make one file or folder, unless it is as it should be, or a user has made it."""
        path, target = self.folder / name, self.output / name
        is_link = path.is_symlink()
        if path.is_dir() and not is_link:
            if target.is_symlink():
                raise UserError(f"{target}: is a link: move it away")
            target.mkdir(exist_ok=True)
            return
        if not path.is_file() and not is_link:
            raise UserError(f"{path}: not a regular file")
        format_name = find_format(name)
        is_document = bool(format_name) or path.suffix[1:].lower() in _UNSUPPORTED
        made_by = self.made_by if is_document and not is_link else ""
        entry = Made(_printable(name), _state(path), made_by, _state(target))
        before = self.made.get(entry.name, [])
        if not made_by and entry.content == entry.document:
            self.copied += 1
        elif entry in before[-1:]:
            self.kept += 1
        elif made_by:
            self._translate(path, target, format_name, entry)
        else:
            self._copy(path, target, entry)

    def _translate(self, path: Path, target: Path, format_name: str, entry: Made) -> None:
        self._check_own(target, entry)
        try:
            if not format_name:
                raise UserError(f"{path}: documents of {path.suffix} can't be translated")
            document = read_document(path.open("rb"), str(path))
            content, warnings = self.translate(str(path), document, format_name)
        except UserError as error:
            if entry.content and self.made[entry.name][-1].made_by:
                raise UserError(f"{error}; its earlier translation stays") from None
            self._copy(path, target, entry)
            raise UserError(f"{error}; copied as it is") from None
        self._check_own(target, entry)  # or it was edited in the meantime
        self._write_line(replace(entry, content=hashlib.sha256(content).hexdigest()))
        write_file(target, content)
        shutil.copymode(path, target)
        self.translated += 1
        if not warnings.lines:
            self.report(str(UserError(f"{path}: nothing in it is to be translated")))
        places = {kind: f"{entry.name}, {place}" for kind, place in warnings.first.items()}
        self.warnings += replace(warnings, first=places)

    def _copy(self, path: Path, target: Path, entry: Made) -> None:
        self._check_own(target, entry)
        self._write_line(replace(entry, made_by="", content=entry.document))
        copy_file(path, target)
        self.copied += 1

    def _check_own(self, target: Path, entry: Made) -> None:
        """Refuse to replace what a user has made or edited."""
        state, lines = _state(target), self.made.get(entry.name, [])
        if state and all(state != made.content for made in lines):
            raise UserError(
                f"{target}: kept, as it was made or edited by hand; remove it to have it made"
            )

    def _write_line(self, made: Made) -> None:
        self.made.setdefault(made.name, []).append(made)
        with errors_as_user_errors(self.output / MADE):
            self._record.write(encode(made) + b"\n")
            self._record.flush()
            os.fsync(self._record.fileno())


def read_document(source: BinaryIO, name: str) -> bytes:
    """Read a document, and close it; refuse one that is too large."""
    with source:
        content = source.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        raise UserError(f"{name}: is larger than {_MAX_BYTES >> 20} MiB: divide it")
    return content


def _printable(name: str | Path) -> str:
    """Return a name as UTF-8, whatever bytes it has."""
    return os.fsencode(name).decode(errors="backslashreplace")


def _read(path: Path) -> dict[str, list[Made]]:
    """Read the lines of each name; skip a line that a crash has cut short."""
    lines: dict[str, list[Made]] = {}
    for line in path.read_bytes().splitlines():
        with suppress(DecodeError, UnicodeDecodeError, RecursionError):
            made = decode(line, type=Made)
            lines.setdefault(made.name, []).append(made)
    return lines


def _state(path: Path) -> str:
    """Return the sum of a file, where a link leads, or "" for what is missing."""
    if path.is_symlink():
        return f"link to {_printable(path.readlink())}"
    if not path.exists():
        return ""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
