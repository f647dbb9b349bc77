"""A folder of documents translated into another, and brought up to date the next night.

`.translated.jsonl` in the folder of translations has a line for each file that was made, before it
is written. A file that is not what its line says is a user's, and stays until it is removed.
"""

import errno
import hashlib
import os
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path, PurePath
from typing import BinaryIO, TypeAlias
from urllib.parse import quote_from_bytes, unquote_to_bytes

from msgspec import DecodeError
from msgspec.json import decode, encode

from seq2seq.decoding.resume import open_locked
from seq2seq.decoding.translation import OutputWarnings
from seq2seq.documents import find_format, is_document
from seq2seq.documents.formats import BEGINNING_BYTES, choose_format
from seq2seq.errors import UserError
from seq2seq.files import copy_file, errors_as_user_errors, remove_leftovers, write_file
from seq2seq.system import let_go

MADE = ".translated.jsonl"
_MAX_BYTES = 2**28
_FATAL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
_SHOWN = 10  # names in a line

Translate: TypeAlias = Callable[[str, bytes, str], tuple[bytes, OutputWarnings]]
"""Called with a document's name, its content and its format."""


@dataclass(frozen=True)
class Made:
    """A file that was written and what it was made of: SHA-256 sums, or where a link leads."""

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
    skip: Sequence[str] = ()
    """Patterns of names that are not to be translated, such as `*.pdf` and `vendor`."""
    made: dict[str, list[Made]] = field(default_factory=dict)
    """The lines of each name: a file may be what any of them says."""
    warnings: OutputWarnings = field(default_factory=OutputWarnings)
    translated: int = 0
    kept: int = 0
    texts: list[str] = field(default_factory=list)
    """Names of files that are lines of text by their content."""
    copied: Counter[str] = field(default_factory=Counter)
    """How many files of each suffix are copies."""
    refused: list[str] = field(default_factory=list)
    """Why files are not as they should be."""

    def run(self) -> bool:
        """Bring all files up to date, and return whether all are."""
        path = self.output / MADE
        if path.is_symlink():  # lines would be added to a file elsewhere
            raise UserError(f"{path}: is a link: move it away")
        with errors_as_user_errors(path), open_locked(path) as self._record:
            self.made = _read(path)
            self._record.write(b"\n")  # ends a line that a crash has cut short
            try:
                self._update_folders()
                gone = self._forget_the_gone()
                let_go(self._record)
                write_file(path, b"\n".join(map(encode, chain(*self.made.values()))))
            except BaseException:
                self.report(
                    f"{self.output}: {self.translated:,} documents translated until now; the same"
                    " command with --resume goes on"
                )
                raise
        if not (self.translated or self.kept or self.refused):
            self.refused.append(f"{self.folder}: nothing in it can be translated; check the folder")
        self._report(gone)
        return not self.refused

    def _report(self, gone: Sequence[str]) -> None:
        """Say what was done with the files, and what is to be looked at."""
        self.report(
            f"documents: {self.translated:,} translated, {self.kept:,} kept;"
            f" files: {self.copied.total():,} copied as they are;"
            f" to be looked at: {len(self.refused):,}"
        )
        if self.texts:
            self.report(f"translated line by line, as text: {_some(self.texts)}")
        if self.copied:
            kinds = [f"{suffix} {count:,}" for suffix, count in self.copied.most_common()]
            self.report(
                f"copied: {_some(kinds)}; translate -i FILE --format txt translates the lines of"
                " one that is text"
            )
        if gone:
            self.report(f"made of files that are gone: {_some(gone)}; remove what is not needed")
        for reason in self.refused:
            self.report(reason)

    def _forget_the_gone(self) -> list[str]:
        """Drop the lines of files that are nowhere; name those that are in the output alone."""
        gone = []
        for name in list(self.made):
            path = _path_of(name)
            if _is_missing(self.folder / path):
                if _is_missing(self.output / path):
                    del self.made[name]
                else:
                    gone.append(_printable(path))
        return gone

    def _update_folders(self) -> None:
        for parent, folders, files in os.walk(self.folder, onerror=self._refuse):
            relative = Path(parent).relative_to(self.folder)
            output = self.output / relative
            remove_leftovers(output)
            for name in sorted((*folders, *files)):
                if name == MADE:  # it is itself a translation
                    continue
                try:
                    self._update((relative / name).as_posix())
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
        is_skipped = self._is_skipped(name)
        is_document = not is_skipped and not is_link and self._is_document(path)
        made_by = self.made_by if is_document else ""
        entry = Made(_recorded(name), _state(path), made_by, _state(target))
        if is_skipped and self._is_users(entry):
            return
        is_made = entry in self.made.get(entry.name, [])
        if is_made:  # the other lines were those of files that could not be written
            self.made[entry.name] = [entry]
        if made_by and is_made:
            self.kept += 1
        elif made_by:
            self._translate(path, target, entry)
        else:
            self._copy(path, target, entry)

    def _is_skipped(self, name: str) -> bool:
        path = PurePath(name)
        parts = (path, *path.parents)
        return any(part.match(pattern) for part in parts for pattern in self.skip)

    def _is_document(self, path: Path) -> bool:
        """Tell whether a file is to be translated: by its name, or as it is lines of text."""
        if is_document(path.name):
            return True
        with path.open("rb") as file:
            beginning = file.read(BEGINNING_BYTES)
        try:
            if not beginning.strip() or path.name.startswith("."):
                return False
            choose_format(path.name, beginning)
        except UserError:
            return False
        return True

    def _translate(self, path: Path, target: Path, entry: Made) -> None:
        self._check_own(target, entry)
        name = _printable(path.relative_to(self.folder))
        try:
            if is_document(path.name) and not find_format(path.name):
                raise UserError(
                    f"{path}: documents of {path.suffix} can't be translated; --skip"
                    f" '*{path.suffix}' lists them no more"
                )
            document = read_document(path.open("rb"), str(path))
            format_name = choose_format(str(path), document)
            content, warnings = self.translate(str(path), document, format_name)
        except UserError as error:
            earlier = self.made.get(entry.name, [])
            if any(made.made_by and made.content == entry.content for made in earlier):
                raise UserError(f"{error}; its earlier translation stays") from None
            self._copy(path, target, entry)
            raise UserError(f"{error}; copied as it is") from None
        self._check_own(target, entry)  # or it was edited in the meantime
        made = replace(entry, content=hashlib.sha256(content).hexdigest())
        self._make(made, lambda: write_file(target, content))
        shutil.copymode(path, target)
        self.translated += 1
        if not is_document(path.name):
            self.texts.append(name)
        self.report(
            f"{name}: translated"
            if warnings.lines
            else f"{name}: nothing in it is to be translated"
        )
        places = {kind: f"{name}, {place}" for kind, place in warnings.first.items()}
        self.warnings += replace(warnings, first=places)

    def _copy(self, path: Path, target: Path, entry: Made) -> None:
        if entry.content != entry.document:
            self._check_own(target, entry)
            made = replace(entry, made_by="", content=entry.document)
            self._make(made, lambda: copy_file(path, target))
        self.copied["link" if path.is_symlink() else path.suffix or "no suffix"] += 1

    def _is_users(self, entry: Made) -> bool:
        """Tell whether a file is what a user has made or edited."""
        made = {entry.document, "", *(made.content for made in self.made.get(entry.name, []))}
        return entry.content not in made

    def _check_own(self, target: Path, entry: Made) -> None:
        """Refuse to replace what a user has made or edited."""
        if self._is_users(replace(entry, content=_state(target))):
            raise UserError(
                f"{target}: kept, as it was made or edited by hand; remove it to have it made"
            )

    def _make(self, made: Made, write: Callable[[], None]) -> None:
        """Write a file after its line; the earlier lines stay until it is written."""
        lines = self.made.get(made.name, [])
        self.made[made.name] = [*(line for line in lines if line != made), made]
        with errors_as_user_errors(self.output / MADE):
            self._record.write(encode(made) + b"\n")
            self._record.flush()
            os.fsync(self._record.fileno())
        write()
        self.made[made.name] = [made]


def read_document(source: BinaryIO, name: str) -> bytes:
    """Read a document, and close it; refuse one that is too large."""
    with source:
        content = source.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        raise UserError(f"{name}: is larger than {_MAX_BYTES >> 20} MiB: divide it")
    return content


def _some(names: Sequence[str]) -> str:
    """List names, or the first of many."""
    more = f", and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _printable(name: str | Path) -> str:
    """Return a name as UTF-8, whatever bytes it has."""
    return os.fsencode(name).decode(errors="backslashreplace")


def _recorded(name: str | Path) -> str:
    """Return a name as it is recorded: text, or after a slash, the bytes of one that is none."""
    try:
        return os.fsencode(name).decode()
    except UnicodeDecodeError:
        return f"/{quote_from_bytes(os.fsencode(name))}"


def _path_of(recorded: str) -> str:
    """Return the name that is recorded so."""
    return os.fsdecode(unquote_to_bytes(recorded[1:])) if recorded[:1] == "/" else recorded


def _is_missing(path: Path) -> bool:
    """Tell whether there is nothing of this name; False if that can't be known."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        pass
    return False


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
        return f"link to {_recorded(path.readlink())}"
    if not path.exists():
        return ""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
