"""A folder of translations: what a user puts into it stays, and is listed until it is removed."""

import json
import os
import shutil
from collections.abc import Callable
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
        for name, text in {"a.txt": "a", "sub/b.txt": "b", "c.bin": "c", "d.pdf": "d"}.items():
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

    def run(self, made_by: str = "") -> list[str]:
        self.made_by = made_by
        night = FolderTranslation(self.source, self.output, self.translate, f"by {made_by}", print)
        assert night.run() == (not night.refused)
        assert all(reason.isprintable() for reason in night.refused)
        # The files that are listed
        return [Path(reason.partition(":")[0]).name for reason in night.refused]

    def read(self, name: str) -> str:
        return (self.output / name).read_text()


@pytest.fixture
def night(tmp_path: Path) -> Night:
    return Night(tmp_path)


def test_a_users_file_is_listed_until_it_is_removed(night: Night) -> None:
    night.write("n.txt", "n")
    for name in ("a.txt", "c.bin", "d.pdf", "n.txt"):
        (night.output / name).write_text("by hand")
    for _ in range(2):
        assert night.run() == ["a.txt", "c.bin", "d.pdf", "n.txt"]
        assert {night.read(name) for name in ("a.txt", "c.bin", "d.pdf", "n.txt")} == {"by hand"}
        night.write("a.txt", "aa")
        night.write("c.bin", "cc")
    for name in ("a.txt", "c.bin", "d.pdf", "n.txt"):
        (night.output / name).unlink()
    assert night.run() == ["d.pdf"]
    assert (night.read("a.txt"), night.read("c.bin"), night.read("n.txt")) == ("AA", "cc", "N")


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
    (night.output / "c.bin").write_text("edited")
    (night.source / "c.bin").unlink()
    (night.source / "c.bin").symlink_to("a.txt")
    night.run()
    assert night.read("c.bin") == "edited"


def test_an_edit_made_while_its_document_is_translated_stays(night: Night) -> None:
    night.write("a.txt", "aa")
    night.during = lambda name: (night.output / name).write_text("edited")
    night.run()
    assert night.read("a.txt") == "edited"


def test_a_crash_between_the_record_and_a_file_loses_nothing(
    night: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    for function, name in (("write_file", "a.txt"), ("copy_file", "c.bin")):
        night.write(name, "new")
        crash = Mock(side_effect=KeyboardInterrupt)
        with monkeypatch.context() as patch:
            patch.setattr(f"seq2seq.documents.folder.{function}", crash)
            with pytest.raises(KeyboardInterrupt):
                night.run()
    with (night.output / MADE).open("ab") as record:
        record.write(b'{"name": "a.tx')  # cut short
    assert night.run() == ["d.pdf"]
    assert (night.read("a.txt"), night.read("c.bin")) == ("NEW", "new")


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


@pytest.mark.parametrize("kind", ["folder for a file", "file for a folder", "pipe", "long name"])
def test_a_bad_path_does_not_keep_the_others_from_being_made(night: Night, kind: str) -> None:
    if kind == "folder for a file":
        (night.source / "a.txt").unlink()
        (night.source / "a.txt").mkdir()
    elif kind == "file for a folder":
        (night.output / "c.bin").unlink()
        (night.output / "c.bin").mkdir()
    elif kind == "pipe":
        os.mkfifo(night.source / "b.txt")
    else:
        night.write(f"{'b' * 246}.txt", "b")
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
