"""`seq2seq translate` by several processes, and after it was killed."""

import gzip
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seq2seq import search, system
from seq2seq.decoding.many import ChunkOutput, make_chunks
from seq2seq.decoding.options import TranslationOptions
from seq2seq.decoding.resume import made_by, resumable_output
from seq2seq.decoding.translation import OutputWarnings
from seq2seq.decoding.translator import Translator
from seq2seq.errors import UserError
from seq2seq.files import remove_leftovers
from seq2seq.model_folder import TrainedModel, save_model
from seq2seq.tokenizer import Tokenizer
from tests.changes import Change, changed
from tests.cli.conftest import SECONDS
from tests.cli.test_torchrun import TORCHRUN
from tests.faults.test_ranks import processes_in
from tests.models import save_untrained
from tests.server.live import wait_until

LINES = 2100  # three chunks, the last one short
COMMAND = [sys.executable, "-m", "seq2seq"]


@pytest.fixture(scope="module")
def folder(
    make_trained: Callable[..., TrainedModel],
    quick: Path,
    sentences: list[str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """Two models, text with what is not text, and text for the quick model.

    That one outputs nothing, and numbers are copied.
    """
    folder = tmp_path_factory.mktemp("many")
    save_model(folder / "model", make_trained(num_layers=1))
    shutil.copytree(quick, folder / "quick")
    (folder / "numbers").write_text("".join(f"{n}\ta man\n" for n in range(9000)))
    chance = random.Random(1)
    texts = list(map(str, range(LINES)))
    for n in range(0, LINES, 4):  # only these are work for the model
        texts[n] = " ".join(chance.choices(sentences, k=chance.randint(1, 2)))
    texts[5], texts[1500], texts[2000] = "", "42\tapples\r", "\udcff a man"
    text = "".join(f"{line}\n" for line in texts).encode(errors="surrogateescape")
    (folder / "in").write_bytes(text)
    (folder / "in.gz").write_bytes(gzip.compress(text))
    return folder


def messages(stderr: bytes) -> list[str]:
    """The messages but those of progress, once a minute."""
    lines = stderr.decode().splitlines()
    return [line for line in lines if line.startswith("seq2seq: ") and not line.endswith(" left")]


@pytest.mark.posix
@pytest.mark.parametrize(
    "words",
    [
        "-i in.gz -o out.gz --nbest 2 --beam 2 --precision bf16",
        "-i - -o - --sample --sentences --scores --seed 3",
    ],
)
def test_two_processes_write_what_one_writes(folder: Path, tmp_path: Path, words: str) -> None:
    outputs = []
    for number, launcher in enumerate(([sys.executable], TORCHRUN)):
        output = tmp_path / f"{number}.gz"
        options = words.replace("out.gz", str(output)).split()
        command = [*launcher, "-m", "seq2seq", "translate", "--model", "model", *options]
        with (folder / "in").open("rb") as text:
            done = subprocess.run(command, cwd=folder, stdin=text, capture_output=True, timeout=300)
        assert done.returncode == 0, done.stderr
        outputs.append((output.read_bytes() if output.exists() else done.stdout, done.stderr))
    (one, stderr), (many, stderr_of_many) = outputs
    assert len(set(one.splitlines())) > 100
    assert many == one
    assert messages(stderr_of_many) == messages(stderr)


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds the ranks in /proc")
@pytest.mark.parametrize("lost", [0, 1])
def test_a_rank_that_dies_ends_all_with_a_line(folder: Path, tmp_path: Path, lost: int) -> None:
    command = [*TORCHRUN, "-m", "seq2seq", "translate", "--model", folder / "quick", "-o", "out"]
    command += ["--resume"] if lost == 0 else []
    with subprocess.Popen(
        command, cwd=tmp_path, stdin=subprocess.PIPE, stderr=subprocess.PIPE
    ) as run:
        run.stdin.write((folder / "numbers").read_bytes())
        run.stdin.flush()
        wait_until(
            lambda: any(part.stat().st_size for part in tmp_path.glob("out.*.part")), SECONDS
        )
        ranks = processes_in(tmp_path)
        os.kill(ranks[lost], signal.SIGKILL)
        stderr = run.communicate(timeout=SECONDS)[1]
    assert run.returncode not in (0, None)
    assert not processes_in(tmp_path)
    assert f"received by PID {ranks[lost]}" in stderr.decode()  # torchrun's report
    if lost == 1:
        assert "has what was written until then" in messages(stderr)[0]
    else:
        assert "out.resume.part: may have what was translated" in messages(stderr)[0]
        assert "--resume goes on" in messages(stderr)[0]


def written(folder: Path) -> int:
    """How many lines the resumable output in a folder has."""
    states = map(Path.read_bytes, folder.glob("*.resume.json"))
    return max((json.loads(state)["lines"] for state in states), default=0)


def kill_after(lines: int, words: list[str | Path], folder: Path, text: Path) -> None:
    """Kill a command when it has written so many lines; it waits for more text than it gets."""
    with subprocess.Popen([*COMMAND, *words], cwd=folder, stdin=subprocess.PIPE) as run:
        ahead = text.read_bytes().splitlines(keepends=True)[: lines + 5 * 1024]
        run.stdin.write(b"".join(ahead))
        run.stdin.flush()
        wait_until(lambda: written(folder) >= lines, SECONDS)
        run.kill()


@pytest.mark.parametrize(("suffix", "kills"), [("", (1024, 2048, 3072)), (".xz", (1024,))])
def test_a_run_that_was_killed_writes_what_one_writes(
    folder: Path, tmp_path: Path, seq2seq: Callable, suffix: str, kills: tuple[int, ...]
) -> None:
    words = ["translate", "--model", folder / "quick", "--beam", "1", "--scores"]
    whole, output = tmp_path / f"whole{suffix}", tmp_path / f"out{suffix}"
    expected = seq2seq(*words, "-i", folder / "numbers", "-o", whole)
    words += ["--resume", "-o", output]
    for lines in kills:
        kill_after(lines, words, tmp_path, folder / "numbers")
        with (tmp_path / f"{output.name}.resume.part").open("ab") as part:
            part.write(b"half a ch")
    result = seq2seq(*words, "-i", folder / "numbers")
    assert result.code == 0, result.err
    assert output.read_bytes() == whole.read_bytes()
    continued = re.search(r"continuing after line (\d,\d+)\n", result.err)
    assert continued
    assert int(continued[1].replace(",", "")) in range(kills[-1], 9000, 1024)
    assert messages(result.err.encode())[-1] == messages(expected.err.encode())[-1]
    assert {path.name for path in tmp_path.iterdir()} == {whole.name, output.name}


@pytest.fixture(scope="module")
def killed(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a killed run has left of the first 1,024 lines or more."""
    left = tmp_path_factory.mktemp("killed")
    words = ["translate", "--model", folder / "quick", "--beam", "1", "--resume", "-o", "out"]
    kill_after(1024, words, left, folder / "numbers")
    written = json.loads((left / "out.resume.json").read_bytes())["bytes"]
    os.truncate(left / "out.resume.part", written)  # without half a chunk
    remove_leftovers(left)  # the next state, if it was being written
    return left


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("--beam 2", "out.resume.part: beam_size was 1 and is 2: give the same command"),
        ("--nbest 1", "out.resume.part: nbest was None and is 1"),
        ("--model model", "out.resume.part: model was "),
        ("-i in", "out.resume.part: was made of another text"),
        ("-i short", "out.resume.part: was made of another text"),
        ("cut", "out.resume.part: is shorter than it was; remove it to begin again"),
        ("edit", "out.resume.part: is not what was written; remove it to begin again"),
    ],
)
def test_what_can_t_be_continued_is_told_in_a_line(
    folder: Path,
    killed: Path,
    tmp_path: Path,
    seq2seq: Callable,
    monkeypatch: pytest.MonkeyPatch,
    change: str,
    says: str,
) -> None:
    left = shutil.copytree(killed, tmp_path / "left")
    (folder / "short").write_text("a man\n")
    part = left / "out.resume.part"
    if change == "cut":
        part.write_bytes(part.read_bytes()[1:])
    elif change == "edit":
        part.write_bytes(b"X" + part.read_bytes()[1:])
    monkeypatch.chdir(folder)
    before = {path.name: path.read_bytes() for path in left.iterdir()}
    given = {"-i": "numbers", "--beam": "1", "--model": "quick"}
    given |= dict([change.split()]) if " " in change else {}
    words = [word for option in given.items() for word in option]
    result = seq2seq("translate", *words, "--resume", "-o", left / "out")
    assert (result.code, result.out) in ((1, ""), (2, ""))
    assert says in messages(result.err.encode())[-1]
    assert {path.name: path.read_bytes() for path in left.iterdir()} == before


def test_lines_that_came_after_the_last_are_another_text(tmp_path: Path) -> None:
    def write(lines: int) -> None:
        with resumable_output(tmp_path / "out", {}) as output:
            for _ in output.remaining(make_chunks(map(str, range(lines)), 2)):
                output.write(ChunkOutput(b"two\n", b"", OutputWarnings()))
            raise RuntimeError  # before the file has its name

    for lines, raised in ((3, RuntimeError), (4, UserError), (3, RuntimeError)):
        with pytest.raises(raised):
            write(lines)
    assert (tmp_path / "out.resume.part").read_bytes() == b"two\n" * 2
    # A part that is removed takes its state with it.
    (tmp_path / "out.resume.part").unlink()
    with pytest.raises(RuntimeError), resumable_output(tmp_path / "out", {}):
        raise RuntimeError
    assert not list(tmp_path.iterdir())


def test_a_translation_goes_on_with_the_functions_that_began_it(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    """As someone may edit the files of the package, or take an edit back."""
    model, output = save_untrained(tmp_path / "model", tokenizer), tmp_path / "out"
    translator = Translator.load(model, TranslationOptions(device="cpu"))

    def write(made: dict[str, Any]) -> None:
        with resumable_output(output, made) as part:
            for _ in part.remaining(make_chunks("ab", 1)):
                part.write(ChunkOutput(b"one\n", b"", OutputWarnings()))
                raise RuntimeError

    usual = made_by([str(model)], translator.options, translator)
    with changed(Change(search, "length_penalty", lambda length, alpha: length**alpha)):
        edited = made_by([str(model)], translator.options, translator)
    for begun, now in ((usual, edited), (edited, usual)):
        with pytest.raises(RuntimeError):
            write(begun)
        with pytest.raises(UserError, match=r"changed functions was .*search\.length_penalty\(\)"):
            write(now)
        output.with_name("out.resume.part").unlink()


@pytest.mark.posix
def test_a_run_that_opened_the_part_before_it_was_finished_leaves_the_output_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, lock = tmp_path / "out", system.locked

    def write() -> None:
        with resumable_output(output, {}) as resumable:
            for _ in resumable.remaining(make_chunks("abc", 2)):
                resumable.write(ChunkOutput(b"two\n", b"", OutputWarnings()))

    def finish_first(*arguments: Any, **options: Any) -> Any:  # between opening and locking
        monkeypatch.setattr(system, "locked", lock)
        write()
        return lock(*arguments, **options)

    monkeypatch.setattr(system, "locked", finish_first)
    with resumable_output(output, {}):
        assert output.read_bytes() == b"two\ntwo\n"
        output.rename(tmp_path / "first")
    output = tmp_path / "first"
    assert output.read_bytes() == b"two\ntwo\n"


def test_two_runs_don_t_write_the_same_part(
    folder: Path, tmp_path: Path, seq2seq: Callable
) -> None:
    words = ["translate", "--model", folder / "quick", "--resume", "-o", tmp_path / "out"]
    with subprocess.Popen([*COMMAND, *words], stdin=subprocess.PIPE) as first:
        first.stdin.write(b"42\n" * 100)  # so many are looked at first
        first.stdin.flush()
        wait_until((tmp_path / "out.resume.part").exists, SECONDS)
        result = seq2seq(*words, "-i", folder / "in")
        assert (result.code, result.err.count("\n")) == (1, 1)
        assert "another process is writing it" in result.err
        first.stdin.close()
    assert (tmp_path / "out").read_bytes() == b"42\n" * 100
