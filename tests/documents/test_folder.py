"""A folder of translations: what a user puts into it stays, and is listed until it is removed."""

import errno
import json
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from unittest.mock import Mock

import pytest

from seq2seq.decoding.translation import OutputWarnings
from seq2seq.documents.folder import MADE, FolderTranslation
from seq2seq.errors import UserError


class Night:
    """A folder that is translated into capitals, a night after the other."""

    def __init__(self, folder: Path) -> None:
        self.source, self.output = folder / "s", folder / "o"
        self.source.mkdir()
        self.output.mkdir()
        self.during: Callable[[str], object] = lambda name: None
        for name, text in {"a.txt": "a", "sub/b.txt": "b", "c.csv": "c", "d.pdf": "d"}.items():
            self.write(name, text)
        self.run()

    def write(self, name: str, text: str) -> None:
        (self.source / name).parent.mkdir(exist_ok=True)
        (self.source / name).write_text(text)

    def translate(self, name: str, document: bytes, _: str) -> tuple[bytes, OutputWarnings]:
        self.during(Path(name).name)
        text = document.decode()
        if text == "broken":
            raise UserError(f"{name}: is broken")
        return f"{self.made_by}{text.upper()}".encode(), OutputWarnings(lines=1)

    def run(self, made_by: str = "", skip: Sequence[str] = ()) -> list[str]:
        self.made_by, self.reports = made_by, []
        night = FolderTranslation(
            self.source, self.output, self.translate, f"by {made_by}", self.reports.append, skip
        )
        assert night.run() == (not night.refused)
        assert all(reason.isprintable() for reason in night.refused)
        # The files that are listed
        return [Path(reason.partition(":")[0]).name for reason in night.refused]

    def said(self, beginning: str) -> str:
        """The rest of the report that begins so, or nothing."""
        rests = [r.removeprefix(beginning) for r in self.reports if r.startswith(beginning)]
        return "".join(rests)

    def read(self, name: str) -> str:
        return (self.output / name).read_text()


of_any_bytes = pytest.mark.skipif(sys.platform != "linux", reason="names of any bytes are Linux's")


@pytest.fixture
def night(tmp_path: Path) -> Night:
    return Night(tmp_path)


def test_a_users_file_is_listed_until_it_is_removed(night: Night) -> None:
    night.write("n.txt", "n")
    for name in ("a.txt", "c.csv", "d.pdf", "n.txt"):
        (night.output / name).write_text("by hand")
    for _ in range(2):
        assert night.run() == ["a.txt", "c.csv", "d.pdf", "n.txt"]
        assert {night.read(name) for name in ("a.txt", "c.csv", "d.pdf", "n.txt")} == {"by hand"}
        night.write("a.txt", "aa")
        night.write("c.csv", "cc")
    for name in ("a.txt", "c.csv", "d.pdf", "n.txt"):
        (night.output / name).unlink()
    assert night.run() == ["d.pdf"]
    assert (night.read("a.txt"), night.read("c.csv"), night.read("n.txt")) == ("AA", "cc", "N")


@pytest.mark.posix
def test_links_of_a_user_stay_and_links_that_were_copied_follow_their_source(
    night: Night, tmp_path: Path
) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "b.txt").write_text("mine")
    shutil.rmtree(night.output / "sub")
    (night.output / "sub").symlink_to(mine)
    (night.output / "a.txt").unlink()
    (night.output / "a.txt").symlink_to(mine / "b.txt")
    (night.source / "e").symlink_to("a.txt")
    night.write("sub/f.txt", "f")
    assert night.run() == ["a.txt", "d.pdf", "sub"]
    assert {path.name for path in mine.iterdir()} == {"b.txt"}
    assert (night.output / "a.txt").is_symlink()
    assert (night.output / "e").readlink() == Path("a.txt")
    assert (mine / "b.txt").read_text() == "mine"
    # A file that was edited is a link.
    (night.output / "c.csv").write_text("edited")
    (night.source / "c.csv").unlink()
    (night.source / "c.csv").symlink_to("a.txt")
    night.run()
    assert night.read("c.csv") == "edited"


def test_an_edit_made_while_its_document_is_translated_stays(night: Night) -> None:
    night.write("a.txt", "aa")
    night.during = lambda name: (night.output / name).write_text("edited")
    night.run()
    assert night.read("a.txt") == "edited"


def test_a_crash_between_the_record_and_a_file_loses_nothing(
    night: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    for function, name in (("write_file", "a.txt"), ("copy_file", "c.csv")):
        night.write(name, "new")
        crash = Mock(side_effect=KeyboardInterrupt)
        with monkeypatch.context() as patch:
            patch.setattr(f"seq2seq.documents.folder.{function}", crash)
            with pytest.raises(KeyboardInterrupt):
                night.run()
    with (night.output / MADE).open("ab") as record:
        record.write(b'{"name": "a.tx')  # cut short
    assert night.run() == ["d.pdf"]
    assert (night.read("a.txt"), night.read("c.csv")) == ("NEW", "new")


def test_what_changed_is_made_again_and_what_broke_keeps_its_translation(night: Night) -> None:
    (night.source / "sub/b.txt").rename(night.source / "sub/n.txt")
    night.write("a.txt", "broken")
    for _ in range(2):
        assert night.run() == ["a.txt", "d.pdf"]
        assert night.read("a.txt") == "A"
        assert night.read("sub/n.txt") == night.read("sub/b.txt") == "B"
    night.write("a.txt", "aa")
    assert night.run("new ") == ["d.pdf"]
    assert (night.read("a.txt"), night.read("sub/n.txt")) == ("new AA", "new B")


def test_records_of_earlier_versions_are_read(night: Night) -> None:
    lines = map(json.loads, (night.output / MADE).read_text().splitlines())
    more = {"replaced": "", "reported": ["", ""]}
    (night.output / MADE).write_text("\n".join(json.dumps({**line, **more}) for line in lines))
    night.write("a.txt", "aa")
    assert night.run() == ["d.pdf"]
    assert night.read("a.txt") == "AA"


def test_a_record_that_is_lost_is_told(night: Night) -> None:
    night.write("a.txt", "aa")
    (night.output / MADE).write_bytes(b"[" * 200_000 + b"\n\xff\n")
    assert night.run() == ["a.txt", "d.pdf", "b.txt"]
    assert night.read("a.txt") == "A"


@pytest.mark.posix
def test_a_record_that_is_a_link_is_not_written(night: Night, tmp_path: Path) -> None:
    record = (night.output / MADE).rename(tmp_path / "record")
    (night.output / MADE).symlink_to(record)
    before = record.read_bytes()
    with pytest.raises(UserError, match="is a link"):
        night.run()
    assert record.read_bytes() == before


def test_two_runs_at_once_refuse_each_other(night: Night) -> None:
    night.write("a.txt", "aa")
    again = FolderTranslation(night.source, night.output, night.translate, "", print)
    during = []

    def run_again(name: str) -> None:
        with pytest.raises(UserError, match="another process"):
            again.run()
        during.append(name)

    night.during = run_again
    night.run()
    assert during == ["a.txt"]


@pytest.mark.parametrize("number", [errno.EFBIG, errno.EIO, errno.EACCES])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_what_could_not_be_written_once_is_not_taken_for_a_users(
    night: Night, monkeypatch: pytest.MonkeyPatch, number: int, moment: str
) -> None:
    rename = Path.replace

    def fail(path: Path, target: Path) -> None:
        if moment == "after":
            rename(path, target)
        raise OSError(number, os.strerror(number), str(target))

    def replace(path: Path, target: Path) -> None:
        (rename if target.name == MADE else fail)(path, target)

    for name in ("a.txt", "c.csv"):
        night.write(name, "new")
    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", replace)
            assert {"a.txt", "c.csv"} >= {*night.run()} - {"d.pdf"}
    assert night.run() == ["d.pdf"]
    assert (night.read("a.txt"), night.read("c.csv")) == ("NEW", "new")
    (night.output / "a.txt").write_text("A")  # what it was before: the user's choice now
    assert night.run() == ["a.txt", "d.pdf"]


def test_text_is_translated_whatever_its_name_and_each_file_is_named(night: Night) -> None:
    names = ["captions.en", "notes", "x.in"]
    for name in names:
        night.write(name, "a dog\n")
    untranslated = {
        "t.csv": "a dog\n", "run.sh": "#!/bin/sh\n", "Makefile": "all: dog\n", ".env": "a=dog\n",
        "x.png": "\x89PNG\0", "empty": "",
    }  # fmt: skip
    for name, text in untranslated.items():
        night.write(name, text)
    night.write("refused", "broken")
    assert night.run() == ["d.pdf", "refused"]
    (night.source / "refused").unlink()
    (night.output / "refused").unlink()
    assert {night.read(name) for name in names} == {"A DOG\n"}
    assert {name: night.read(name) for name in untranslated} == untranslated
    assert night.said("translated line by line, as text: ") == ", ".join(names)
    assert "--format txt" in night.said("copied: no suffix 4, .csv 2, ")
    assert [r for r in night.reports if r.endswith(": translated")] == [
        f"{name}: translated" for name in names
    ]
    night.write("notes", "a man\n")
    night.run()
    assert [r for r in night.reports if r.endswith(": translated")] == ["notes: translated"]


def test_what_is_skipped_is_copied_and_not_listed(night: Night) -> None:
    night.write("LICENSE", "a dog")
    night.write("sub/e.pdf", "e")
    night.write("vendor/x.txt", "x")
    assert night.run(skip=["*.pdf", "LICENSE", "vendor"]) == []
    assert [night.read(name) for name in ("LICENSE", "sub/e.pdf", "vendor/x.txt")] == [
        "a dog", "e", "x"
    ]  # fmt: skip
    (night.output / "d.pdf").write_text("a user's translation")
    night.write("d.pdf", "dd")
    assert night.run(skip=["*.pdf"]) == []
    assert night.read("d.pdf") == "a user's translation"
    # Without it, they are translated, and the user's file is listed again.
    assert sorted(night.run()) == ["d.pdf", "e.pdf"]
    assert (night.read("LICENSE"), night.read("vendor/x.txt")) == ("A DOG", "X")


def test_translations_of_files_that_are_gone_stay_and_are_named(night: Night) -> None:
    (night.source / "a.txt").unlink()
    shutil.rmtree(night.source / "sub")
    assert night.run() == ["d.pdf"]
    gone = night.said("made of files that are gone: ")
    assert gone == "a.txt, sub/b.txt; remove what is not needed"
    assert (night.read("a.txt"), night.read("sub/b.txt")) == ("A", "B")
    (night.output / "a.txt").unlink()
    night.run()
    assert night.said("made of files that are gone: ").startswith("sub/b.txt;")
    assert "a.txt" not in (night.output / MADE).read_text()


def test_a_folder_in_which_nothing_is_translated_is_told(night: Night) -> None:
    shutil.rmtree(night.source)
    night.source.mkdir()
    night.write("c.csv", "c")
    assert night.run() == [night.source.name]


@of_any_bytes
def test_a_name_of_bytes_and_a_name_that_reads_like_it_are_two(night: Night) -> None:
    night.write("x\\xff.txt", "text")
    night.write(os.fsdecode(b"x\xff.txt"), "bytes")
    night.run()
    night.write("x\\xff.txt", "texts")
    for _ in range(2):
        assert night.run() == ["d.pdf"]
    assert night.read("x\\xff.txt") == "TEXTS"
    assert night.read(os.fsdecode(b"x\xff.txt")) == "BYTES"
    (night.source / os.fsdecode(b"x\xff.txt")).unlink()
    night.run()
    assert night.said("made of files that are gone: ").startswith("x\\xff.txt;")


@pytest.mark.parametrize("letter", [b"n", "é".encode(), pytest.param(b"\xff", marks=of_any_bytes)])
def test_files_of_long_names_are_made(night: Night, letter: bytes) -> None:
    name = os.fsdecode(letter * (250 // len(letter)))
    for suffix in (".txt", ".csv"):
        night.write(f"{name}{suffix}", "long")
    assert night.run() == ["d.pdf"]
    assert (night.read(f"{name}.txt"), night.read(f"{name}.csv")) == ("LONG", "long")
    assert len(list(night.output.iterdir())) == 7


@of_any_bytes
def test_a_name_of_bytes_alone_is_copied(night: Night) -> None:
    name = os.fsdecode(b"\xff\xfe")
    (night.source / name).symlink_to("a.txt")
    assert night.run() == ["d.pdf"]
    assert os.readlink(night.output / name) == "a.txt"


@pytest.mark.parametrize(
    "kind",
    ["folder for a file", "file for a folder", pytest.param("pipe", marks=pytest.mark.posix)],
)
def test_a_bad_path_does_not_keep_the_others_from_being_made(night: Night, kind: str) -> None:
    if kind == "folder for a file":
        (night.source / "a.txt").unlink()
        (night.source / "a.txt").mkdir()
    elif kind == "file for a folder":
        (night.output / "c.csv").unlink()
        (night.output / "c.csv").mkdir()
    else:
        os.mkfifo(night.source / "b.txt")
    night.write("sub/b.txt", "bb")
    night.write("z.txt", "z")
    assert len(night.run()) == 2  # it and d.pdf
    assert (night.read("sub/b.txt"), night.read("z.txt")) == ("BB", "Z")


def test_what_cannot_be_read_is_named(night: Night, monkeypatch: pytest.MonkeyPatch) -> None:
    night.write("a.txt", "aa")
    night.write("b.txt", "b")
    scan, read = os.scandir, Path.open

    def refuse(path: Path | str) -> None:  # the user root may read all
        if Path(path).name == "sub":
            raise PermissionError(13, "Permission denied", str(path))
        if Path(path).name == "b.txt":
            raise OSError(5, "Input/output error")  # without a path

    monkeypatch.setattr(os, "scandir", lambda path: refuse(path) or scan(path))
    monkeypatch.setattr(Path, "open", lambda path, *a, **b: refuse(path) or read(path, *a, **b))
    assert sorted(night.run()) == ["b.txt", "d.pdf", "sub"]
    assert night.read("a.txt") == "AA"


def test_names_that_look_alike_on_one_line_are_told_apart(night: Night) -> None:
    night.write("c d.txt", "space")
    night.write("c\nd.txt", "newline")
    night.write("\x1b[31m.pdf", "escape")
    for _ in range(2):
        assert len(night.run()) == 2  # those with .pdf
    assert (night.read("c d.txt"), night.read("c\nd.txt")) == ("SPACE", "NEWLINE")
