"""A folder of documents translated into another, and brought up to date the next night.

`.translated.jsonl` in the folder of translations has a line for each file that was made, before it
is written. A file that is not what its line says is a user's, and stays.
"""

import errno
import hashlib
import io
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import BinaryIO, TypeAlias

from msgspec import DecodeError, convert
from msgspec.json import decode

from seq2seq.decoding.translation import OutputWarnings
from seq2seq.documents.formats import find_format
from seq2seq.errors import UserError
from seq2seq.files import copy_file, remove_leftovers, write_file

MADE = ".translated.jsonl"
MAX_BYTES = 2**28
_UNSUPPORTED = frozenset("doc epub ods odp pdf pps ppt pptx rtf sgm xls xlsx".split())  # noqa: SIM905
_NAMED = 20  # files in a message
_EMPTY = hashlib.sha256().hexdigest()

Translate: TypeAlias = Callable[[str, BinaryIO, str], tuple[bytes, OutputWarnings]]
"""Called with a document's name, its content and its format."""


@dataclass(frozen=True)
class Made:
    """What a file was made of, and what it is: SHA-256 sums."""

    name: str
    document: str
    made_by: str
    """The model and the options; "" if it is a copy."""
    content: str
    replaced: str = ""
    """What it was before, and still is if a crash came between this line and the file."""
    reported: str = ""
    """What a user had made of it when its document was found to have changed."""


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
        self.translate, self.report = translate, report
        self.made_by = made_by
        self.made = _read(output / MADE)
        self.warnings = OutputWarnings()
        self.translated = self.again = self.copied = self.kept = self.edited = 0
        self.without_text: list[str] = []
        self.refused: list[str] = []
        self.outdated: list[str] = []
        """Those that a user has edited, whose documents have changed."""

    def run(self) -> bool:
        """Bring all files up to date, and return whether all are."""
        lines = [_line(made) for made in self.made.values()]
        write_file(self.output / MADE, b"".join(lines))  # whatever ends this now, --resume goes on
        try:
            for path in sorted(self.folder.rglob("*")):
                name = str(path.relative_to(self.folder))
                if name != MADE:  # of a folder that is itself a translation
                    self._update(path, self.output / name, name)
        except BaseException:
            self.report(
                f"{self.output}: {self.translated:,} documents translated until now; the same"
                " command with --resume goes on"
            )
            raise
        self._summarize()
        return not (self.refused or self.outdated)

    def _update(self, path: Path, target: Path, name: str) -> None:
        """Make one file, unless it is as it should be, or was edited."""
        if target.is_symlink():  # copied earlier: it may lead to the source
            target.unlink()
        if path.is_dir() and not path.is_symlink():
            target.mkdir(parents=True, exist_ok=True)
            remove_leftovers(target)
            return
        try:
            if path.is_symlink():
                target.unlink(missing_ok=True)
                shutil.copy2(path, target, follow_symlinks=False)
                self.copied += 1
            else:
                self._update_file(path, target, name)
        except OSError as error:
            if error.filename not in (str(path), str(target)):
                raise
            self.report(f"{error.filename}: {error.strerror}")
            self.refused.append(name)

    def _update_file(self, path: Path, target: Path, name: str) -> None:
        format_name = find_format(path.name)
        key = str(UserError(name))  # on one line, in UTF-8, whatever bytes it has
        before, now = self.made.get(key), _sum_of_file(target)
        wanted = Made(key, _sum_of_file(path), self.made_by if format_name else "", now)
        ours = {"", _EMPTY, wanted.document, *((before.content, before.replaced) if before else ())}
        if now not in ours:
            self._keep_edited(target, before, wanted)
            return
        if before and replace(before, replaced="", reported="") == wanted:
            self.kept += bool(format_name)
            self.copied += not format_name
            return
        try:
            if format_name:
                self._translate(path, target, name, format_name, wanted)
                self.translated += 1
                if before and before.document == wanted.document:
                    self.again += before.made_by not in ("", wanted.made_by)
                return
            if path.suffix[1:].lower() in _UNSUPPORTED:
                raise UserError(f"{path}: documents of {path.suffix} can't be translated")
        except UserError as error:
            self.refused.append(name)
            if now and before and before.made_by:
                self.report(f"{error}; its earlier translation stays")
                return
            self.report(f"{error}; copied as it is")
        self._record(replace(wanted, made_by="", content=wanted.document, replaced=now))
        copy_file(path, target)
        self.copied += 1

    def _keep_edited(self, target: Path, before: Made | None, wanted: Made) -> None:
        """Keep a user's file; if its document has changed, say so until it is edited, too."""
        self.kept += 1
        self.edited += 1
        is_outdated = before is not None and before.document != wanted.document
        if before and is_outdated and before.reported in ("", wanted.content):
            self.report(
                f"{target}: kept, as it was edited, but its document has changed: edit it again, or"
                " remove it to have it made again"
            )
            self.outdated.append(wanted.name)
            self._record(replace(before, reported=wanted.content))
        else:
            content = before.content if before else ""
            self._record(replace(wanted, content=content))

    def _translate(
        self, path: Path, target: Path, name: str, format_name: str, wanted: Made
    ) -> None:
        with path.open("rb") as source:
            document = source.read(MAX_BYTES + 1)
        content, warnings = self.translate(str(path), io.BytesIO(document), format_name)
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, "is a folder: move it away", str(target))
        made = replace(wanted, content=hashlib.sha256(content).hexdigest(), replaced=wanted.content)
        self._record(made)
        write_file(target, content)
        shutil.copymode(path, target)
        if not warnings.lines:
            self.without_text.append(name)
        places = {kind: f"{name}, {place}" for kind, place in warnings.first.items()}
        self.warnings += replace(warnings, first=places)

    def _record(self, made: Made) -> None:
        if made != self.made.get(made.name):
            self.made[made.name] = made
            with (self.output / MADE).open("ab") as file:
                file.write(_line(made))
                file.flush()
                os.fsync(file.fileno())

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
            ("edited, and their documents have changed", self.outdated),
        ):
            if names:
                more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
                self.report(f"{meaning}: {', '.join(names[:_NAMED])}{more}")


def _line(made: Made) -> bytes:
    return json.dumps(asdict(made)).encode() + b"\n"


def _read(path: Path) -> dict[str, Made]:
    """Read what was made, the last line of each name; skip a line that a crash has cut short."""
    made: dict[str, Made] = {}
    if path.exists():
        for line in path.read_bytes().splitlines():
            try:
                entry = convert(decode(line), Made)
            except DecodeError:
                continue
            made[entry.name] = entry
    return made


def _sum_of_file(path: Path) -> str:
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
