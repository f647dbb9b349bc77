"""The sessions of a run: when it was started or resumed, by which program, and on which machine."""

import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import torch
from torch import nn

import seq2seq
from seq2seq.changes import digest_of_classes
from seq2seq.device import Compute
from seq2seq.errors import UserError
from seq2seq.files import open_regular_file, parse_json, write_file
from seq2seq.machine.resources import machine_name
from seq2seq.run.folder import RunFolder
from seq2seq.text import without_secrets

_GIT_SECONDS = 10
_MAX_BYTES = 2**24  # 40,000 starts
_PACKAGE = Path(seq2seq.__file__).parent


@dataclass(frozen=True, kw_only=True)
class Session:
    """One start of a run, or its continuation."""

    started: str
    """Date and time, with the time zone."""
    step: int
    """The updates done before."""
    version: str
    """The version of seq2seq."""
    code: str
    """The first digits of a sha256 of its source files."""
    commit: str
    """The commit of git from which it ran, with `, changed` if files differed from it; else ""."""
    torch: str
    """The version of PyTorch."""
    python: str
    machine: str
    """The name of the GPU, or of the processor if there is none."""
    precision: str
    processes: int
    threads: int
    command: str
    """The command as it was typed, without the secrets of URLs."""
    folder: str
    """The folder in which the command was given."""
    class_code: str = ""
    """The first digits of a sha256 of the files with the model's own classes; "" if it has none."""
    trials: str = ""
    """The fast forms on trial that SEQ2SEQ_TRIALS has chosen, with commas; usually none."""

    @property
    def program(self) -> str:
        """Name what computes the updates: seq2seq and PyTorch, with their versions."""
        commit = f"commit {self.commit}, " if self.commit else ""
        trials = f", with {self.trials} on trial" if self.trials else ""
        return f"seq2seq {self.version} ({commit}code {self.code}), torch {self.torch}{trials}"

    def __str__(self) -> str:
        """Describe the session in one line."""
        processes = f"{self.processes} processes of " if self.processes > 1 else ""
        threads = f"{self.threads} thread{'s' if self.threads > 1 else ''}"
        return f"{self.program}, on {self.machine} with {processes}{threads}, in {self.precision}"


def this_session(
    command: str,
    compute: Compute,
    model: nn.Module,
    *,
    step: int,
    processes: int,
    trials: str = "",
) -> Session:
    """Describe this process, which continues a run from a step on."""
    return Session(
        started=datetime.now().astimezone().isoformat(timespec="seconds"),
        step=step,
        version=seq2seq.__version__,
        code=digest_of_code(_PACKAGE),
        commit=commit_of(_PACKAGE),
        torch=torch.__version__,
        python=platform.python_version(),
        machine=machine_name(compute.device),
        precision="bf16" if compute.dtype is torch.bfloat16 else "fp32",
        processes=processes,
        threads=torch.get_num_threads(),
        command=without_secrets(command),
        folder=os.getcwd(),
        class_code=digest_of_classes(model),
        trials=trials,
    )


def add_session(run: Path, session: Session, max_bytes: int = _MAX_BYTES) -> None:
    """Append a session to those of a run; the oldest are removed from a file that is too large."""
    path = RunFolder(run).sessions
    content = path.read_bytes() if path.exists() else b""
    # A file name that is not UTF-8 holds half surrogate pairs, which JSON spells as escapes.
    content += json.dumps(asdict(session)).encode() + b"\n"
    if (surplus := len(content) - max_bytes) > 0:
        content = content[content.index(b"\n", surplus - 1) + 1 :]
    write_file(path, content)


def read_sessions(run: Path) -> list[Session]:
    """Read the sessions of a run, the first one first; corrupt lines are skipped."""
    return list(_read_sessions(RunFolder(run).sessions))


def _read_sessions(path: Path) -> Iterator[Session]:
    # A run of an earlier version has none.
    with suppress(UserError), open_regular_file(path, _MAX_BYTES) as file:
        for line in file:
            with suppress(UserError):
                yield parse_json(path, line, Session, extra="ignore")


def changed_program(before: list[Session], now: Session) -> str:
    """Say that a run is continued by another program than its last session's; else ""."""
    if not before:
        return ""
    last = before[-1]
    if _computes(last) != _computes(now):  # another commit may have the same code
        return f"begun by {last.program}, and continued by {now.program}"
    if last.class_code and last.class_code != now.class_code:
        return "the files with the classes of the model have changed since its last start"
    return ""


def _computes(session: Session) -> tuple[str, ...]:
    return session.version, session.code, session.torch, session.trials


def digest_of_code(package: Path) -> str:
    """Digest the source files of a package, by names and contents."""
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(f"{path.relative_to(package)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def commit_of(package: Path) -> str:
    """Name the commit of git that holds a package, if it is in a checkout, else return ""."""
    git: list[Any] = ["git", "--no-optional-locks", "-C", package]
    try:
        # An installed package may lie in the ignored environment of another project.
        _output([*git, "ls-files", "--error-unmatch", "__init__.py"])
        commit = _output([*git, "rev-parse", "--short=12", "HEAD"])
        changed = _output([*git, "status", "--porcelain", "--untracked-files=no", "."])
    except (OSError, subprocess.SubprocessError):
        return ""
    return f"{commit}, changed" if changed else commit


def _output(command: list[Any]) -> str:
    done = subprocess.run(command, capture_output=True, check=True, timeout=_GIT_SECONDS)
    return done.stdout.decode(errors="replace").strip()
