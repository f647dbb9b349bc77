"""What a system lacks is left out, and a lock is one on every system."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from seq2seq import system
from seq2seq.errors import UserError
from seq2seq.files import read_regular_file

HOLDER = """
import sys, time
from pathlib import Path
from seq2seq import system
system.POSIX_FILES = sys.argv[2] == "True"
with system.locked(Path(sys.argv[1])):
    print("locked", flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("posix_files", [True, False])
@pytest.mark.parametrize("name", ["file", "folder"])
def test_the_lock_of_a_file_or_folder_ends_with_its_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, posix_files: bool
) -> None:
    if posix_files and not system.POSIX_FILES:
        pytest.skip("this system has no such files")
    monkeypatch.setattr(system, "POSIX_FILES", posix_files)
    monkeypatch.setattr(tempfile, "tempdir", str(locks := tmp_path / "locks"))
    monkeypatch.setenv("TMPDIR", str(locks))
    locks.mkdir()
    path = tmp_path / name
    path.mkdir() if name == "folder" else path.touch()
    command = [sys.executable, "-c", HOLDER, path, str(posix_files)]
    holder = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        assert holder.stdout
        assert holder.stdout.readline().rstrip() == b"locked"
        with system.locked(path, wait=False) as is_held:
            assert is_held is False
    finally:
        holder.kill()
        holder.communicate()
    with system.locked(path, wait=False) as is_held:
        assert is_held
        with system.locked(path, wait=False) as is_held_again:
            assert is_held_again is False
    with system.locked(path) as is_held:
        assert is_held
    assert sorted(tmp_path.iterdir()) == [path, locks]


def test_without_its_flag_a_link_is_refused_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"text")
    try:
        (tmp_path / "link").symlink_to("file")
    except OSError:
        pytest.skip("this user may make no links")
    for name in ("O_NOFOLLOW", "O_NONBLOCK"):
        monkeypatch.delattr(os, name, raising=False)
    assert read_regular_file(tmp_path / "file", 9) == b"text"
    with pytest.raises(UserError, match="a link, not a regular file"):
        read_regular_file(tmp_path / "link", 9)


def test_signals_and_limits_that_a_system_lacks_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("sysconf", "nice", "register_at_fork", "sched_getaffinity"):
        monkeypatch.delattr(os, name, raising=False)
    monkeypatch.setitem(sys.modules, "resource", None)
    assert system.signals("SIGTERM", "SIGNONE") == [signal.SIGTERM]
    assert system.memory_bytes() is None
    assert system.cores() == os.cpu_count()
    system.lower_priority()
    system.limit("AS", 1, 1)
    system.allow_open_files()
    system.after_fork(lambda: None)


def test_a_limit_that_no_system_has_is_left_out() -> None:
    system.limit("NOTHING", 1, 1)


@pytest.mark.posix
@pytest.mark.parametrize(
    ("before", "hard", "after"),
    [(256, 4_096, 4_096), (256, -1, 10_240), (65_536, -1, 65_536), (-1, -1, -1)],
    ids=["a limit", "no limit", "no limit, and more files already", "no limits at all"],
)
def test_no_fewer_files_may_be_open_than_before(
    monkeypatch: pytest.MonkeyPatch, before: int, hard: int, after: int
) -> None:
    limits = SimpleNamespace(RLIM_INFINITY=-1, RLIMIT_NOFILE=7, now=(before, hard))
    limits.getrlimit = lambda _: limits.now
    limits.setrlimit = lambda _, now: setattr(limits, "now", now)
    monkeypatch.setitem(sys.modules, "resource", limits)
    system.allow_open_files()
    assert limits.now == (after, hard)
