"""The command in processes that are forked from one that has imported everything.

None of them costs a start of Python and PyTorch, which takes longer than most commands.
"""

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path
from subprocess import PIPE
from tempfile import TemporaryFile
from typing import IO, Any, NamedTuple

import torch
from torch.distributed import TCPStore

from seq2seq.cli.main import main

CAN_FORK = hasattr(os, "fork")
context = multiprocessing.get_context("forkserver" if CAN_FORK else "spawn")
if CAN_FORK:
    modules = ("cli.train", "decoding.translator", "report.page", "server.app", "fast.search")
    libraries = ("torch._dynamo", "torch.utils.tensorboard", "matplotlib.figure", "pytest")
    context.set_forkserver_preload([*(f"seq2seq.{name}" for name in modules), *libraries])

Stream = IO[Any] | int | None


class Forked:
    """Such a process, with the methods of `subprocess.Popen`; `first` is called at its start."""

    def __init__(
        self,
        words: Sequence[str | Path],
        *,
        cwd: Path | None = None,
        env: dict[str, str] | None = None,
        stdin: Stream = None,
        stdout: Stream = None,
        stderr: Stream = None,
        first: Callable[[], object] = str,
    ) -> None:
        with ExitStack() as theirs:
            self.stdin, read = _stream(theirs, stdin, None)
            self.stdout, written = _stream(theirs, stdout, 1)
            self.stderr, told = _stream(theirs, stderr, 2)
            given = [str(word) for word in words], cwd or Path.cwd(), dict(env or os.environ)
            process = context.Process(target=_run, args=(*given, [read, written, told], first))
            process.start()
        self.process = process
        assert process.pid
        self.pid = process.pid

    def __enter__(self) -> "Forked":
        return self

    def __exit__(self, *_: object) -> None:
        for ours in (self.stdin, self.stdout, self.stderr):
            if ours:
                ours.close()
        self.wait()

    @property
    def returncode(self) -> int | None:
        return self.process.exitcode

    def poll(self) -> int | None:
        return self.process.exitcode

    def wait(self, seconds: float = 300) -> int:
        self.process.join(seconds)
        if self.process.exitcode is None:
            self.kill()
            self.process.join()
            raise AssertionError("it did not end")
        return self.process.exitcode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def start(words: Sequence[str | Path], **options: Any) -> Forked | subprocess.Popen[bytes]:
    """Start the command, forked where a system can, with arguments of `subprocess.Popen`."""
    if CAN_FORK:
        return Forked(words, **options)
    return subprocess.Popen([sys.executable, "-m", "seq2seq", *map(str, words)], **options)


class Ended(NamedTuple):
    code: int
    out: bytes
    err: bytes


def run_ranks(*words: Sequence[str | Path], cwd: Path, stdin: Path | None = None) -> list[Ended]:
    """Run the command by one process for each list of words, which torchrun could have started."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    size, restarts = str(len(words)), {"TORCHELASTIC_RESTART_COUNT": "0"}
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port)}
    job = os.environ | place | restarts | {"TORCHELASTIC_USE_AGENT_STORE": "True"}
    job |= {"WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}
    with ExitStack() as files:
        read = files.enter_context(stdin.open("rb")) if stdin else None
        streams = [[files.enter_context(TemporaryFile()) for _ in "12"] for _ in words]
        ranks = []
        for rank, (out, err) in enumerate(streams):
            env = job | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            asked = {"cwd": cwd, "env": env, "stdin": read, "stdout": out, "stderr": err}
            ranks.append(Forked(words[rank], **asked))
        codes = [each.wait() for each in ranks]
        return [
            Ended(code, *(stream.seek(0) or stream.read() for stream in pair))
            for code, pair in zip(codes, streams, strict=True)
        ]


def _stream(theirs: ExitStack, asked: Stream, default: int | None) -> tuple[Any, Connection]:
    """Return our end of a stream, if it is a pipe, and that of the process."""
    ours = None
    if asked == PIPE:
        ends = os.pipe()
        end, our_end = ends if default is None else ends[::-1]
        ours = os.fdopen(our_end, "wb" if default is None else "rb")
    elif asked is None:
        end = os.open(os.devnull, os.O_RDONLY) if default is None else os.dup(default)
    else:
        end = os.dup(asked if isinstance(asked, int) else asked.fileno())
    return ours, theirs.enter_context(Connection(end))


def _run(
    words: list[str],
    cwd: Path,
    env: dict[str, str],
    streams: list[Connection],
    first: Callable[[], object],
) -> None:
    for number, stream in enumerate(streams):
        os.dup2(stream.fileno(), number)
        stream.close()
    if os.isatty(0):
        os.login_tty(os.dup(0))
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    # A shell starts its background jobs with Ctrl-C ignored; here it counts as on a terminal.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    torch.set_num_threads(1)
    first()
    sys.exit(main(words))
