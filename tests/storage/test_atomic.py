"""Folders are written whole or not at all, and damage is seen."""

import json
import os
from pathlib import Path

import pytest

from seq2seq.errors import UserError
from seq2seq.storage.atomic import (
    MANIFEST,
    present_name,
    read_folder,
    remove_leftovers,
    write_file,
    write_folder,
)

FILES = {"a": b"\x00\x01\xff" * 50, "b.json": b"{}", "empty": b""}
NAMES = tuple(FILES)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "some" / "where"
    write_folder(folder, FILES)
    assert read_folder(folder, NAMES) == FILES
    assert read_folder(folder, ("a",)) == {"a": FILES["a"]}
    assert sorted(path.name for path in folder.iterdir()) == sorted([*FILES, MANIFEST])
    assert [path.name for path in folder.parent.iterdir()] == ["where"]


def test_a_folder_is_replaced_whole(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    write_folder(folder, FILES)
    write_folder(folder, {"c": b"new"})
    assert sorted(path.name for path in folder.iterdir()) == ["c", MANIFEST]
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
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


def test_every_flipped_bit_is_seen(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    write_folder(folder, FILES)
    for name in ("a", "b.json"):
        path = folder / name
        for position in range(0, len(FILES[name]), 7):
            for bit in range(8):
                damaged = bytearray(FILES[name])
                damaged[position] ^= 1 << bit
                path.write_bytes(damaged)
                with pytest.raises(UserError, match=f"{name}: damaged"):
                    read_folder(folder, NAMES)
        path.write_bytes(FILES[name])
    assert read_folder(folder, NAMES) == FILES


def test_a_flipped_bit_in_the_manifest_never_lets_wrong_content_through(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    write_folder(folder, FILES)
    content = (folder / MANIFEST).read_bytes()
    refused = 0
    for position in range(len(content)):
        damaged = bytearray(content)
        damaged[position] ^= 1 << position % 8
        (folder / MANIFEST).write_bytes(damaged)
        try:
            found = read_folder(folder, NAMES)
        except UserError:
            refused += 1
        else:
            assert found == FILES
    assert refused > 0.9 * len(content)


@pytest.mark.parametrize("length", [0, 1, 149])
def test_a_file_cut_short_is_seen(tmp_path: Path, length: int) -> None:
    write_folder(tmp_path / "model", FILES)
    (tmp_path / "model" / "a").write_bytes(FILES["a"][:length])
    with pytest.raises(UserError, match="a: damaged"):
        read_folder(tmp_path / "model", NAMES)


@pytest.mark.parametrize("name", [*FILES, MANIFEST])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    write_folder(tmp_path / "model", FILES)
    (tmp_path / "model" / name).unlink()
    with pytest.raises(UserError, match=name):
        read_folder(tmp_path / "model", NAMES)


@pytest.mark.parametrize(
    "manifest",
    ["", "[]", "7", "{}", '{"sha256": []}', '{"sha256": [1]}', '{"sha256": {"a": 1}}', "[" * 9999],
    ids=lambda manifest: manifest[:20],
)
def test_a_manifest_of_another_shape_is_refused(tmp_path: Path, manifest: str) -> None:
    write_folder(tmp_path / "model", FILES)
    (tmp_path / "model" / MANIFEST).write_text(manifest)
    with pytest.raises(UserError, match="damaged") as error:
        read_folder(tmp_path / "model", NAMES)
    assert "\n" not in str(error.value)


def test_a_file_that_the_manifest_does_not_know_is_refused(tmp_path: Path) -> None:
    write_folder(tmp_path / "model", FILES)
    (tmp_path / "model" / "more").write_bytes(b"x")
    with pytest.raises(UserError, match="more: damaged"):
        read_folder(tmp_path / "model", ("more",))


@pytest.mark.parametrize("failing", ["a", "empty", MANIFEST])
def test_a_write_that_fails_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    folder = tmp_path / "model"
    write_folder(folder, FILES)
    real = os.fsync

    def full(descriptor: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith(f"/{failing}"):
            raise OSError(28, "No space left on device")
        real(descriptor)

    if not Path("/proc/self/fd").is_dir():
        pytest.skip("needs /proc to tell the files apart")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match="No space left on device"):
        write_folder(folder, {"a": b"new", "empty": b"new"})
    assert read_folder(folder, NAMES) == FILES
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_rename_that_fails_brings_the_old_folder_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "model"
    write_folder(folder, FILES)
    rename = Path.rename

    def refuse(self: Path, target: Path) -> Path:
        if self.suffix == ".new":
            raise OSError(5, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(UserError, match="Input/output error"):
        write_folder(folder, {"a": b"new"})
    assert read_folder(folder, NAMES) == FILES
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_what_a_dead_process_of_the_same_number_left_is_no_hindrance(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    write_folder(folder, FILES)
    for suffix in ("new", "old"):
        leftover = tmp_path / f".model.{os.getpid()}.{suffix}"
        leftover.mkdir()
        (leftover / "part").write_bytes(b"half")
    write_folder(folder, {"c": b"new"})
    assert read_folder(folder, ("c",)) == {"c": b"new"}
    assert not (folder / "part").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for write in (lambda p: write_folder(p, FILES), lambda p: write_file(p, b"x")):
        with pytest.raises(UserError, match=r"file/model: can't be written") as error:
            write(tmp_path / "file" / "model")
        assert "\n" not in str(error.value)


def test_a_file_is_written_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "deep" / "metrics"
    write_file(path, b"old")
    write_file(path, b"new")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match="No space left on device"):
        write_file(path, b"newer")
    assert path.read_bytes() == b"new"
    assert [path.name for path in path.parent.iterdir()] == ["metrics"]


def test_leftovers_are_removed_and_nothing_else(tmp_path: Path) -> None:
    write_folder(tmp_path / "step_1", FILES)
    for name in (".step_2.77.new", ".step_1.5.old"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "part").write_bytes(b"half")
    (tmp_path / ".metrics.3.new").write_bytes(b"half")
    (tmp_path / "notes.new").write_bytes(b"mine")
    remove_leftovers(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes.new", "step_1"]
    remove_leftovers(tmp_path / "nowhere")


def test_a_replacement_cut_short_between_its_renames_is_undone(tmp_path: Path) -> None:
    write_folder(tmp_path / "best", FILES)
    (tmp_path / "best").rename(tmp_path / ".best.77.old")
    (tmp_path / ".best.77.new").mkdir()
    assert read_folder(present_name(tmp_path / "best"), NAMES) == FILES
    remove_leftovers(tmp_path)
    assert read_folder(tmp_path / "best", NAMES) == FILES
    assert [path.name for path in tmp_path.iterdir()] == ["best"]


def test_the_manifest_holds_the_sums_that_sha256sum_prints(tmp_path: Path) -> None:
    write_folder(tmp_path / "model", FILES)
    sums = json.loads((tmp_path / "model" / MANIFEST).read_bytes())["sha256"]
    assert sums["empty"] == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
