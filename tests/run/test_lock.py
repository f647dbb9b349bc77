"""One process at a time works in a folder; the lock of a dead process is free."""

import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from seq2seq.errors import UserError
from seq2seq.machine.processes import OneProcess
from seq2seq.run.lock import lock_run_folder, sole_writer

HOLDER = """
import sys, time
from pathlib import Path
from seq2seq.run.lock import sole_writer
with sole_writer(Path(sys.argv[1])):
    print("locked", flush=True)
    time.sleep(600)
"""


def test_a_lock_is_held_until_its_process_is_dead(tmp_path: Path) -> None:
    run = tmp_path / "run"
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, run], stdout=subprocess.PIPE)
    try:
        assert holder.stdout
        assert holder.stdout.readline() == b"locked\n"
        with pytest.raises(UserError, match="run: another process writes to it"), sole_writer(run):
            pass
    finally:
        holder.kill()
        holder.communicate()
    with sole_writer(run):
        pass
    assert list(run.iterdir()) == []


def test_a_folder_that_is_empty_in_the_end_is_removed_if_it_was_made(tmp_path: Path) -> None:
    with sole_writer(tmp_path / "new" / "run"):
        assert (tmp_path / "new" / "run" / ".lock").exists()
    assert list(tmp_path.iterdir()) == []
    with sole_writer(tmp_path / "new" / "run"):
        (tmp_path / "new" / "config.yaml").touch()
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["config.yaml"]


@pytest.mark.parametrize("kind", ["folder", pytest.param("link", marks=pytest.mark.posix)])
def test_a_lock_that_can_t_be_taken_is_named(tmp_path: Path, kind: str) -> None:
    lock = tmp_path / ".lock"
    lock.mkdir() if kind == "folder" else lock.symlink_to("elsewhere")
    with pytest.raises(UserError, match=r"\.lock: can't be written"), sole_writer(tmp_path):
        pass
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


@pytest.mark.parametrize(
    ("left", "in_the_way"),
    [
        ([], None),
        ([".config.yaml.0123456789abcdef.new"], None),
        (["metrics.jsonl", ".config.yaml.0123456789abcdef.new", "checkpoints/.step_1.new"], None),
        (["checkpoints/notes/today.txt"], "checkpoints"),
        (["finished.json"], "finished.json"),
        (["notes.txt"], "notes.txt"),
    ],
)
def test_a_new_run_overwrites_what_a_run_without_a_checkpoint_has_left(
    tmp_path: Path, left: list[str], in_the_way: str | None
) -> None:
    for name in ["config.yaml", *left]:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("seed: 1\n")
    lock = lock_run_folder(tmp_path, OneProcess(), resume="auto", wait=False)
    if in_the_way is None:
        with lock as is_resumed:
            assert not is_resumed
    else:
        with pytest.raises(UserError, match=f"{in_the_way}: in the way of a new run"), lock:
            pass
    (tmp_path / "config.yaml").unlink()  # of another program, but for what a killed run has begun
    is_refused = any(not path.name.endswith(".new") for path in tmp_path.iterdir())
    with (
        pytest.raises(UserError, match="in the way of a new run") if is_refused else nullcontext(),
        lock_run_folder(tmp_path, OneProcess(), resume="auto", wait=False),
    ):
        pass
