"""A folder of translations: what a user puts into it stays, and nothing outdated passes as made."""

import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

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

    def run(self, made_by: str = "") -> FolderTranslation:
        self.made_by, self.said = made_by, list[str]()
        night = FolderTranslation(
            self.source, self.output, self.translate, f"model {made_by}", self.said.append
        )
        self.complete = night.run()
        assert all(line.isprintable() for line in self.said)
        return night

    def read(self, name: str) -> str:
        return (self.output / name).read_text()


@pytest.fixture
def night(tmp_path: Path) -> Night:
    return Night(tmp_path)


def test_what_is_refused_is_refused_every_night_until_somebody_translates_it(night: Night) -> None:
    for _ in range(2):
        assert night.run().refused == ["d.pdf"]
        assert not night.complete
    (night.output / "d.pdf").write_text("by hand")
    night.run()
    assert night.complete
    assert night.read("d.pdf") == "by hand"


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
    night.run()
    assert {path.name for path in mine.iterdir()} == {"b.txt"}
    assert (night.output / "a.txt").is_symlink()
    assert (night.output / "e").readlink() == Path("a.txt")
    assert (mine / "b.txt").read_text() == "mine"
    assert "a link, which was not made here" in " ".join(night.said)
    # What was a link is a folder, and a file that was edited a link.
    (night.source / "e").unlink()
    (night.source / "e").mkdir()
    (night.output / "c.bin").write_text("edited")
    (night.source / "c.bin").unlink()
    (night.source / "c.bin").symlink_to("a.txt")
    night.run()
    assert (night.output / "e").is_dir()
    assert not (night.output / "e").is_symlink()
    assert night.read("c.bin") == "edited"


def test_an_edit_made_while_its_document_is_translated_stays(night: Night) -> None:
    night.write("a.txt", "aa")
    night.during = lambda name: (night.output / name).write_text("edited")
    night.run()
    assert night.read("a.txt") == "edited"


def test_earlier_translations_and_originals_may_be_put_back(night: Night) -> None:
    night.run("new ")
    assert night.read("a.txt") == "new A"
    for own in ("A", "a"):
        (night.output / "a.txt").write_text(own)
        night.run("new ")
        assert night.read("a.txt") == own


def test_what_is_missing_is_made_even_if_it_was_a_users(night: Night) -> None:
    (night.output / "n.txt").write_text("own")
    night.write("n.txt", "n")
    assert night.run().outdated == ["n.txt"]
    assert night.run().outdated == []
    (night.output / "n.txt").unlink()
    night.run()
    assert night.read("n.txt") == "N"


def test_a_translation_is_made_again_once_the_edit_is_undone(night: Night) -> None:
    (night.output / "a.txt").write_text("edited")
    night.write("a.txt", "aa")
    assert night.run().outdated == ["a.txt"]
    (night.output / "a.txt").write_text("edited twice")
    assert night.run().outdated == []
    (night.output / "a.txt").write_text("A")  # the translation of the first document
    night.run()
    assert night.read("a.txt") == "AA"


def test_an_edit_for_one_document_is_not_one_for_the_next(night: Night) -> None:
    (night.output / "a.txt").write_text("edited")
    night.write("a.txt", "aa")
    night.run()
    (night.output / "a.txt").write_text("edited for aa")
    night.write("a.txt", "aaa")
    assert night.run().outdated == ["a.txt"]
    (night.output / "a.txt").write_text("edited for aaa")
    assert night.run().outdated == []


def test_a_record_that_is_lost_is_told(night: Night) -> None:
    night.write("a.txt", "aa")
    (night.output / MADE).write_bytes(b"[" * 200_000 + b"\n\xff\n")
    assert set(night.run().outdated) == {"a.txt", "sub/b.txt"}
    assert night.read("a.txt") == "A"


def test_two_runs_at_once_refuse_each_other(night: Night) -> None:
    night.write("a.txt", "aa")
    again = FolderTranslation(night.source, night.output, night.translate, "", print)
    during = []

    def run_again(name: str) -> None:
        with ThreadPoolExecutor() as threads, pytest.raises(UserError, match="another process"):
            threads.submit(again.run).result()
        during.append(name)

    night.during = run_again
    night.run()
    assert during == ["a.txt"]
    assert not (night.output / ".translated.lock").exists()


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
    assert len(night.run().refused) == 2  # it and d.pdf
    assert (night.read("sub/b.txt"), night.read("z.txt")) == ("BB", "Z")


def test_folders_that_cannot_be_read_are_named(
    night: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan = os.scandir

    def scandir(path: str) -> object:
        if Path(path).name == "sub":
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", scandir)  # the user root may read all
    assert sorted(night.run().refused) == ["d.pdf", "sub"]
    assert any(line.endswith("sub: Permission denied") for line in night.said)


def test_names_that_look_alike_on_one_line_are_told_apart(night: Night) -> None:
    night.write("c d.txt", "space")
    night.write("c\nd.txt", "newline")
    night.write("\x1b[31m.pdf", "escape")
    for _ in range(2):
        night.run()
        assert not night.said[-1].startswith("made by hand")
    assert (night.read("c d.txt"), night.read("c\nd.txt")) == ("SPACE", "NEWLINE")
