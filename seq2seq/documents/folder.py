"""A folder of documents translated into another, and brought up to date the next night.

`.translated.jsonl` in the folder of translations has a line for each file that was made, before it
is written. A file that is not what its line says is a user's, and stays.
"""

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import BinaryIO, TypeAlias

from msgspec import DecodeError
from msgspec.json import decode

from seq2seq.decoding.translation import OutputWarnings
from seq2seq.documents.formats import find_format
from seq2seq.errors import UserError
from seq2seq.files import copy_file, errors_as_user_errors, remove_leftovers, write_file

MADE = ".translated.jsonl"
LOCK = ".translated.lock"
_MAX_BYTES = 2**28
_UNSUPPORTED = frozenset("doc epub ods odp pdf pps ppt pptx rtf sgm xls xlsx".split())  # noqa: SIM905
_NAMED = 20  # files in a message
_EMPTY = hashlib.sha256().hexdigest()
_EDITED = "-"  # the content of what a user has made; no sum equals it
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
    replaced: str = ""
    """What it was before, and still is if a crash came between this line and the file."""
    reported: tuple[str, str] = ("", "")
    """A user's content, and the document for which it was reported as outdated."""


class FolderTranslation:
    """Translates the documents in a folder and its folders, and copies all other files."""

    def __init__(
        self,
        folder: Path,
        output: Path,
        translate: Translate,
        made_by: str,
        report: Callable[[str], None],
    ) -> None:
        self.folder, self.output = folder, output
        self.translate, self.made_by = translate, made_by
        self._report = report
        self.made: dict[str, Made] = {}
        self.warnings = OutputWarnings()
        self.translated = self.again = self.copied = self.kept = self.edited = 0
        self.without_text: list[str] = []
        self.refused: list[str] = []
        self.outdated: list[str] = []
        """Those that a user has made or edited, to be looked at."""

    def report(self, text: str) -> None:
        """Report on one line, whatever the names in it."""
        self._report(str(UserError(text)))

    def run(self) -> bool:
        """Bring all files up to date, and return whether all are."""
        from filelock import FileLock, Timeout

        lock = FileLock(self.output / LOCK)
        try:
            lock.acquire(blocking=False)
        except Timeout:
            raise UserError(f"{self.output}: another process translates into it; wait") from None
        try:
            self._run()
        finally:
            Path(lock.lock_file).unlink(missing_ok=True)
            lock.release()
        return not (self.refused or self.outdated)

    def _run(self) -> None:
        self.made = _read(self.output / MADE)
        self._write_record()  # whatever ends this now, --resume goes on
        try:
            for parent, folders, files in os.walk(self.folder, onerror=self._refuse_folder):
                relative = Path(parent).relative_to(self.folder)
                output = self.output / relative
                remove_leftovers(output)
                for name in sorted(str(relative / name) for name in (*folders, *files)):
                    if name not in (MADE, LOCK):  # it is itself a translation
                        self._update(name)
                made = filter(Path.is_dir, map(output.joinpath, folders))
                folders[:] = sorted(path.name for path in made if not path.is_symlink())
        except BaseException:
            self.report(
                f"{self.output}: {self.translated:,} documents translated until now; the same"
                " command with --resume goes on"
            )
            raise
        for key, entry in self.made.items():
            if entry.content != _EDITED:
                self.made[key] = replace(entry, replaced="")
        self._write_record()
        self._summarize()

    def _update(self, name: str) -> None:
        """Make one file or folder, unless it is as it should be, or a user has made it."""
        path, target = self.folder / name, self.output / name
        try:
            if path.is_dir() and not path.is_symlink():
                if target.is_symlink():  # its source, which was a link, has become a folder
                    made = self.made.get(_printable(name))
                    if made is None or made.content != _state(target):
                        raise UserError(f"{target}: a link, which was not made here; move it away")
                    target.unlink()
                target.mkdir(exist_ok=True)
            elif path.is_file() or path.is_symlink():
                self._update_file(name)
            else:
                raise UserError(f"{path}: not a regular file")
        except (OSError, UserError) as error:
            cause = error.__cause__ or error
            if isinstance(cause, OSError) and cause.errno in _FATAL:
                raise
            if isinstance(error, OSError):
                where = error.filename if error.filename == str(path) else target
                error = UserError(f"{where}: {error.strerror}")
            self._refuse(name, str(error))

    def _update_file(self, name: str) -> None:
        path, target = self.folder / name, self.output / name
        format_name, is_link = find_format(path.name), path.is_symlink()
        is_document = bool(format_name) or path.suffix[1:].lower() in _UNSUPPORTED
        made_by = self.made_by if is_document and not is_link else ""
        before, now = self.made.get(_printable(name)), _state(target)
        entry = Made(_printable(name), _state(path), made_by, now)
        if now not in _own(before, entry):
            self._keep_edited(target, before, entry)
        elif before and replace(before, replaced="", reported=("", "")) == entry:
            self.kept += bool(made_by)
            self.copied += not made_by
        elif not made_by:
            self._copy(name, entry)
        else:
            self._translate(name, format_name, before, entry)

    def _keep_edited(self, target: Path, before: Made | None, entry: Made) -> None:
        """Keep a user's file; say so if it is new, or its document has changed since.

        It is said until the file is edited for the changed document.
        """
        self.kept += 1
        self.edited += 1
        if before is None:
            self.report(f"{target}: kept, as it was not made here; remove it to have it made")
            self.outdated.append(entry.name)
            self._record(replace(entry, content=_EDITED))
            return
        machine = before.replaced if before.content == _EDITED else before.content
        edited, document = before.reported
        was_edited_for_it = document == entry.document and edited != entry.content
        if before.document == entry.document or was_edited_for_it:
            self._record(replace(entry, content=_EDITED, replaced=machine))
            return
        self.report(
            f"{target}: kept, as it was edited, but its document has changed: edit it again, or"
            " remove it to have it made again"
        )
        self.outdated.append(entry.name)
        if document != entry.document:
            self._record(replace(before, reported=(entry.content, entry.document)))

    def _translate(self, name: str, format_name: str, before: Made | None, entry: Made) -> None:
        path, target = self.folder / name, self.output / name
        try:
            if not format_name:
                raise UserError(f"{path}: documents of {path.suffix} can't be translated")
            document = read_document(path.open("rb"), str(path))
            content, warnings = self.translate(str(path), document, format_name)
        except UserError as error:
            if before and before.made_by and entry.content not in ("", _EMPTY):
                self._refuse(name, f"{error}; its earlier translation stays")
            else:
                self._refuse(name, f"{error}; copied as it is")
                self._copy(name, entry)
            return
        if _state(target) != entry.content:  # edited in the meantime
            self._keep_edited(target, before, replace(entry, content=_state(target)))
            return
        made = replace(entry, content=hashlib.sha256(content).hexdigest(), replaced=entry.content)
        self._record(made)
        write_file(target, content)
        shutil.copymode(path, target)
        self.translated += 1
        if before and before.document == entry.document:
            self.again += before.made_by not in ("", entry.made_by)
        if not warnings.lines:
            self.without_text.append(name)
        places = {kind: f"{name}, {place}" for kind, place in warnings.first.items()}
        self.warnings += replace(warnings, first=places)

    def _copy(self, name: str, entry: Made) -> None:
        made = replace(entry, made_by="", content=entry.document, replaced=entry.content)
        if made != self.made.get(made.name) or entry.content != entry.document:
            self._record(made)
            copy_file(self.folder / name, self.output / name)
        self.copied += 1

    def _refuse(self, name: str, reason: str) -> None:
        self.report(reason)
        self.refused.append(name)

    def _refuse_folder(self, error: OSError) -> None:
        path = Path(str(error.filename))
        self._refuse(str(path.relative_to(self.folder)), f"{path}: {error.strerror}")

    def _record(self, made: Made) -> None:
        if made != self.made.get(made.name):
            self.made[made.name] = made
            path = self.output / MADE
            with errors_as_user_errors(path), path.open("ab") as file:
                file.write(_line(made))
                file.flush()
                os.fsync(file.fileno())

    def _write_record(self) -> None:
        write_file(self.output / MADE, b"".join(map(_line, self.made.values())))

    def _summarize(self) -> None:
        edited = f" ({self.edited:,} edited)" if self.edited else ""
        self.report(
            f"documents: {self.translated:,} translated, {self.kept:,} kept{edited};"
            f" files: {self.copied:,} copied as they are"
        )
        if self.again:
            self.report(
                f"{self.again:,} did not change, but the model, the glossary or an option did, and"
                " were translated again"
            )
        for meaning, names in (
            ("nothing in them to be translated", self.without_text),
            ("not translated", self.refused),
            ("made by hand, to be looked at", self.outdated),
        ):
            if names:
                more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
                self.report(f"{meaning}: {', '.join(names[:_NAMED])}{more}")


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


def _line(made: Made) -> bytes:
    return json.dumps(asdict(made)).encode() + b"\n"


def _read(path: Path) -> dict[str, Made]:
    """Read what was made, the last line of each name; skip a line that a crash has cut short."""
    made: dict[str, Made] = {}
    if path.exists():
        for line in path.read_bytes().splitlines():
            with suppress(DecodeError, UnicodeDecodeError, RecursionError):
                entry = decode(line, type=Made)
                made[entry.name] = entry
    return made


def _own(before: Made | None, entry: Made) -> set[str]:
    """Return what a file may be that no user has made: missing, empty, or as it was made."""
    contents = {"", _EMPTY}
    if before is not None:
        contents |= {before.content, before.replaced}
    if before is None or not before.made_by:
        contents.add(entry.document)
    return contents


def _state(path: Path) -> str:
    """Return the sum of a file, where a link leads, or "" for what is missing."""
    if path.is_symlink():
        return f"link to {_printable(path.readlink())}"
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "is a folder: move it away", str(path))
    if not path.exists():
        return ""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
