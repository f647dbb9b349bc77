"""Files and folders are written whole or not at all, and corruption is detected."""

import errno
import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

import pytest

from seq2seq import system
from seq2seq.errors import UserError
from seq2seq.files import (
    MANIFEST,
    check_replaceable,
    copy_file,
    output_file,
    read_listed_file,
    remove_leftovers,
    write_file,
    write_folder,
)

FILES = {"a": b"\x00\x01\xff" * 50, "b.json": b"{}", "empty": b""}
TOKEN = "0123456789abcdef"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def read_folder(folder: Path, names: Iterable[str] = FILES) -> dict[str, bytes]:
    return {name: read_listed_file(folder, name, 1 << 20) for name in names}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    write_folder(tmp_path / "model", FILES)
    return tmp_path / "model"


def test_written_files_are_read(tmp_path: Path) -> None:
    folder = tmp_path / "some" / "where"
    write_folder(folder, FILES)
    assert read_folder(folder) == FILES
    assert names(folder) == sorted([*FILES, MANIFEST])
    assert names(folder.parent) == ["where"]
    sums = json.loads((folder / MANIFEST).read_bytes())["sha256"]  # as sha256sum prints them
    assert sums["empty"] == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


@pytest.mark.posix
@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_modes_follow_the_umask(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        write_folder(tmp_path / "model", FILES)
        write_file(tmp_path / "file", b"x")
    finally:
        os.umask(before)
    for path in (*(tmp_path / "model").iterdir(), tmp_path / "file"):
        assert path.stat().st_mode & 0o777 == 0o666 & ~mask
    assert (tmp_path / "model").stat().st_mode & 0o777 == 0o777 & ~mask


@pytest.mark.parametrize(("name", "refused_share"), [("a", 1.0), (MANIFEST, 0.9)])
def test_a_flipped_bit_never_lets_wrong_content_through(
    model: Path, name: str, refused_share: float
) -> None:
    content = (model / name).read_bytes()
    refused = 0
    for position in range(len(content)):
        corrupt = bytearray(content)
        corrupt[position] ^= 1 << position % 8
        (model / name).write_bytes(corrupt)
        try:
            assert read_folder(model) == FILES
        except UserError:
            refused += 1
    assert refused >= refused_share * len(content)


@pytest.mark.parametrize("manifest", ["", "{}", '{"sha256": {"a": 1}}'])
def test_a_manifest_of_another_shape_is_refused(model: Path, manifest: str) -> None:
    (model / MANIFEST).write_text(manifest)
    with pytest.raises(UserError, match="corrupt"):
        read_folder(model)


def test_a_file_that_the_manifest_does_not_know_is_refused(model: Path) -> None:
    (model / "more").write_bytes(b"x")
    with pytest.raises(UserError, match="more: corrupt"):
        read_folder(model, ("more",))


@pytest.mark.posix
def test_a_folder_that_cannot_be_flushed_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flush(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "fsync", flush)
    write_folder(tmp_path / "model", FILES)
    assert read_folder(tmp_path / "model") == FILES


@pytest.mark.posix
def test_everything_is_flushed_before_it_gets_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[int] = []
    real = os.fsync

    def note(descriptor: int) -> None:
        flushed.append(os.fstat(descriptor).st_ino)
        real(descriptor)

    def check(self: Path, target: Path) -> Path:
        parts = [self, *self.iterdir()] if self.is_dir() else [self]
        assert {path.stat().st_ino for path in parts} <= set(flushed)
        moved.append(target.name)
        os.rename(self, target)
        return target

    moved: list[str] = []
    monkeypatch.setattr(os, "fsync", note)
    monkeypatch.setattr(Path, "rename", check)
    monkeypatch.setattr(Path, "replace", check)
    write_folder(tmp_path / "model", FILES)
    write_file(tmp_path / "file", b"x")
    with output_file(tmp_path / "output") as file:
        file.write(b"x")
    assert moved == ["model", "file", "output"]
    assert flushed.count(tmp_path.stat().st_ino) == 3


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for write in (lambda p: write_folder(p, FILES), lambda p: write_file(p, b"x")):
        with pytest.raises(UserError, match=r"file/model: can't be written"):
            write(tmp_path / "file" / "model")


def test_a_file_is_written_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_disk(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "deep" / "metrics"
    write_file(path, b"old")
    write_file(path, b"new")
    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(UserError, match="No space left on device"):
        write_file(path, b"newer")
    assert path.read_bytes() == b"new"
    assert names(path.parent) == ["metrics"]


def make_folder(path: Path, name: str = "part", text: str = "half") -> None:
    path.mkdir()
    (path / name).write_text(text)


def make_link(path: Path) -> None:
    write_folder(path.with_name("linked"), FILES)
    path.symlink_to("linked")


@pytest.mark.parametrize(
    "place",
    [
        lambda path: make_folder(path, "thesis", "mine"),
        lambda path: make_folder(path, MANIFEST, '{"name": "an extension of a browser"}'),
        pytest.param(make_link, marks=pytest.mark.posix),
        pytest.param(lambda path: os.mkfifo(path), marks=pytest.mark.posix),
    ],
    ids=["a folder", "another manifest", "a link", "a pipe"],
)
def test_only_an_empty_folder_or_one_of_this_program_is_replaced(
    tmp_path: Path, place: Callable[[Path], None]
) -> None:
    path = tmp_path / "place"
    place(path)
    before = {item: item.lstat().st_ino for item in tmp_path.rglob("*")}
    for write in (lambda: write_folder(path, FILES), lambda: check_replaceable(path)):
        with pytest.raises(UserError, match=r"place: already exists.*choose another name"):
            write()
    assert {item: item.lstat().st_ino for item in tmp_path.rglob("*")} == before


def test_an_empty_folder_is_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").mkdir()
    check_replaceable(tmp_path / "empty")
    monkeypatch.chdir(tmp_path / "empty")
    write_folder(Path("."), FILES)
    assert read_folder(tmp_path / "empty") == FILES


def test_leftovers_of_dead_processes_are_removed_and_nothing_else(tmp_path: Path) -> None:
    make_folder(tmp_path / f".step_1.{TOKEN}.new")
    write_folder(tmp_path / "step_1", FILES)
    assert names(tmp_path) == ["step_1"]
    make_folder(tmp_path / f".step_2.{TOKEN}.new")
    make_folder(tmp_path / f".step_1.{TOKEN}.old")
    (tmp_path / f".metrics.{TOKEN}.new").write_bytes(b"half")
    mine = [".bashrc.20240101.old", ".step_2.77.new", "notes.new", ".lock"]
    for name in mine:
        (tmp_path / name).write_bytes(b"mine")
    remove_leftovers(tmp_path)
    assert names(tmp_path) == sorted(["step_1", *mine])
    assert read_folder(tmp_path / "step_1") == FILES
    remove_leftovers(tmp_path / "nowhere")


def test_files_of_a_live_process_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: remove_leftovers(tmp_path))
    write_folder(tmp_path / "model", FILES)
    write_file(tmp_path / "file", b"text")
    assert names(tmp_path) == ["file", "model"]
    assert read_folder(tmp_path / "model") == FILES


def test_a_copy_that_a_live_process_makes_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "copystat", lambda *_, **__: remove_leftovers(tmp_path))
    (tmp_path / "file").write_bytes(b"text")
    (tmp_path / "link").symlink_to("file")
    for name in ("file", "link"):
        copy_file(tmp_path / name, tmp_path / f"copy of {name}")
    assert (tmp_path / "copy of file").read_bytes() == b"text"
    assert (tmp_path / "copy of link").readlink() == Path("file")
    assert len(names(tmp_path)) == 4


@pytest.mark.posix
def test_a_file_that_another_process_removes_before_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, left = system.locked, [1, 1]

    def remove_and_lock(path: Path, file: BinaryIO | None = None, **options: bool) -> object:
        if file is not None and left:
            left.pop()
            remove_leftovers(tmp_path)
        return lock(path, file, **options)

    monkeypatch.setattr(system, "locked", remove_and_lock)
    write_file(tmp_path / "file", b"text")
    assert left == []
    assert (tmp_path / "file").read_bytes() == b"text"
    assert names(tmp_path) == ["file"]


KILLS = """
import os, signal, sys
from pathlib import Path
from seq2seq.files import present_name, read_listed_file, remove_leftovers, write_folder

folder, changes = Path("there/model"), ("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir")

def kill_before(event, arguments):
    global left
    left -= event in changes
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

status, count = 1, 0
while status:
    count += 1
    write_folder(folder, {"a": b"old", "b": b"old"})
    if (pid := os.fork()) == 0:
        left = count
        sys.addaudithook(kill_before)
        write_folder(folder, {"a": b"new", "b": b"new"})
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    found = [read_listed_file(present_name(folder), name, 9).decode() for name in "ab"]
    remove_leftovers(folder.parent)
    assert found == [read_listed_file(folder, name, 9).decode() for name in "ab"]
    assert os.listdir("there") == ["model"]
    print(*found)
"""


@pytest.mark.posix
@pytest.mark.integration
def test_a_kill_at_any_moment_leaves_the_folder_of_before_or_the_new_one(tmp_path: Path) -> None:
    """A process is killed before its 1st, 2nd, ... call that opens, renames or removes a file."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", KILLS]
    output = subprocess.check_output(command, cwd=tmp_path, env=environment, text=True)
    found = output.splitlines()
    assert {found[0], found[-1]} == {"old old", "new new"}
    assert found == sorted(found, reverse=True)
    assert len(found) > 10


def test_concurrent_writers_leave_one_whole_folder_or_file(tmp_path: Path) -> None:
    def write(number: int) -> None:
        write_folder(tmp_path / "model", {"a": b"%d" % number * 1000, "b": b"%d" % number})
        write_file(tmp_path / "file", b"%d" % number * 1000)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # so that the writers meet at every step
    try:
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(write, range(10, 40)))
    finally:
        sys.setswitchinterval(interval)
    files = read_folder(tmp_path / "model", ("a", "b"))
    assert files["a"] == files["b"] * 1000
    content = (tmp_path / "file").read_bytes()
    assert content == content[:2] * 1000
    assert names(tmp_path) == ["file", "model"]


@pytest.mark.posix
def test_the_file_that_a_link_names_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "target").write_text("old")
    for name, target in (("link", "deep/target"), ("dangling", "deep/new")):
        (tmp_path / name).symlink_to(target)
        with output_file(tmp_path / name) as file:
            file.write(b"new")
        assert (tmp_path / name).is_symlink()
        assert (tmp_path / target).read_text() == "new"
    assert names(tmp_path / "deep") == ["new", "target"]


@pytest.mark.posix
@pytest.mark.parametrize("mode", [0o600, 0o640])
def test_a_replaced_file_keeps_its_mode_from_the_first_byte(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "private"
    path.touch()
    path.chmod(mode)
    with output_file(path) as file:
        assert stat.S_IMODE(os.fstat(file.fileno()).st_mode) == mode
    write_file(path, b"new")
    assert stat.S_IMODE(path.stat().st_mode) == mode


@pytest.mark.posix
@pytest.mark.parametrize("folder", ["/dev/fd", "/proc/self/fd"])
def test_a_file_that_is_open_as_a_device_is_added_to(tmp_path: Path, folder: str) -> None:
    path = tmp_path / "redirected"
    path.write_bytes(b"before\n")
    with path.open("ab") as redirected:
        with output_file(Path(f"{folder}/{redirected.fileno()}")) as file:
            file.write(b"text")
        assert os.path.samestat(path.stat(), os.fstat(redirected.fileno()))
    assert path.read_bytes() == b"before\ntext"
    assert list(tmp_path.iterdir()) == [path]
